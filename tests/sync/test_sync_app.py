"""The application for synchronous code: from many threads, in scripts and in notebooks."""

import gc
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onceward import SyncJob
from onceward.errors import BadInput, CannotOpen, LockHeld, LockLost, NoSuchJob, Unavailable
from onceward.sync import App, Transaction
from tests.server_process import environment


def sender(app: App) -> App:
    """The application, with a handler that counts and doubles."""

    @app.handler("numbers")
    async def double(job: Any) -> int:
        job.tx.put(("done", str(job.body)), True)
        return int(job.body) * 2

    return app


def count(tx: Transaction) -> int:
    found = (tx.get(("count", "all"), int) or 0) + 1
    tx.put(("count", "all"), found)
    return found


def test_a_job_is_sent_done_and_read(app: App) -> None:
    with sender(app):
        first, again = (app.send("numbers", 4, key="a") for _ in range(2))
        assert (again.id, again.duplicate) == (first.id, True)
        assert app.wait(first.id).result == 8
        assert app.job(first.id).state == "succeeded"
        assert app.run(lambda tx: tx.get(("done", "4"))) is True
        with pytest.raises(NoSuchJob):
            app.job("0" * 26)


def test_many_threads_share_one_application(app: App) -> None:
    """A transaction runs again when another thread has changed what it read."""
    app.start()
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: app.run(count), range(80)))
        receipts = list(pool.map(lambda n: app.send("q", n % 20, key=str(n % 20)), range(80)))
    assert sorted(numbers) == list(range(1, 81))
    assert len({one.id for one in receipts}) == 20


def test_a_transaction_runs_in_the_thread_of_the_caller(app: App) -> None:
    app.start()
    assert app.run(lambda tx: threading.get_ident()) == threading.get_ident()


def test_an_error_in_a_transaction_undoes_it_and_reaches_the_caller(app: App) -> None:
    app.start()

    def fail(tx: Transaction) -> None:
        tx.put(("a", "b"), 1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        app.run(fail)

    def stop(tx: Transaction) -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        app.run(stop)
    assert app.run(lambda tx: tx.get(("a", "b"))) is None


def test_messages_and_timers_are_part_of_a_transaction(app: App) -> None:
    app.start()

    def order(tx: Transaction) -> str:
        receipt = app.send("orders", 7, key="7", tx=tx)
        app.timers.set("remind", queue="orders", delay_s=60, tx=tx)
        assert app.job(receipt.id, tx=tx).state == "queued"
        return receipt.id

    id_ = app.run(order)
    assert app.job(id_).body == 7
    assert [one.id for one in app.timers.find()] == ["remind"]
    assert app.timers.cancel("gone", missing_ok=True) is None


def test_what_is_no_transaction_is_named(app: App) -> None:
    app.start()

    async def asynchronous(tx: Transaction) -> None: ...

    wrong: list[Any] = [3, asynchronous, lambda tx: asynchronous(tx)]
    for fn in wrong:
        with pytest.raises(BadInput, match="plain function"):
            app.run(fn)
    with pytest.raises(BadInput, match="`tx` must be the transaction"):
        app.send("q", 1, tx=7)  # type: ignore[arg-type]


def test_locks_are_contexts(app: App) -> None:
    app.start()
    with app.locks.hold("printer", lease_s=5) as lock:
        assert (lock.token, lock.held, lock.lost.is_set()) == (1, True, False)
        app.run(lambda tx: lock.guard(tx))
        with (
            pytest.raises(LockHeld),
            app.locks.hold("printer", wait_s=0),
        ):
            pytest.fail("held twice")
        status = app.locks.status("printer")
        assert status is not None
        assert status.held == 1
    status = app.locks.status("printer")
    assert status is not None
    assert status.held == 0


def test_a_lost_lock_is_reported(app: App) -> None:
    app.start()
    with pytest.raises(LockLost), app.locks.hold("printer") as lock:  # noqa: PT012
        app.stop()  # releases it
        assert lock.lost.wait(30)
    app.start()
    # An error of the body is not replaced.
    with pytest.raises(ValueError, match="mine"), app.locks.hold("printer") as lock:  # noqa: PT012
        app.stop()
        assert lock.lost.wait(30)
        raise ValueError("mine")


def test_threads_wait_for_a_lock_one_after_the_other(app: App) -> None:
    app.start()
    inside, seen = [0], []

    def use(number: int) -> None:
        with app.locks.hold("printer"):
            inside[0] += 1
            seen.append(inside[0])
            app.send("printed", number)
            inside[0] -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(12)))
    assert seen == [1] * 12


def test_queues_rooms_tables_games_and_limits_have_plain_methods(app: App) -> None:
    app.start()
    app.queues.pause("q")
    assert app.queues.failed("q") == []
    app.run(lambda tx: app.rooms.create(tx, "board"))
    app.run(lambda tx: app.rooms.map_set(tx, "board", "stock", "lamp", 2))
    assert app.run(lambda tx: app.rooms.map(tx, "board", "stock")) == {"lamp": 2}
    assert app.tables.create("corner").id == "corner"
    assert app.run(lambda tx: app.seats.get(tx, "corner")).id == "corner"
    assert app.games.all_rules() == []
    assert app.run(lambda tx: app.limits.take(tx, "sms", rate=1, burst=1))
    assert app.queues == app.queues
    assert app.queues != app.locks


async def test_a_running_event_loop_of_the_caller_does_not_matter(app: App) -> None:
    """As in a notebook."""
    with sender(app):
        assert app.wait(app.send("numbers", 2).id).result == 4


def test_a_synchronous_call_in_the_event_loop_is_refused(app: App) -> None:
    """It would wait for itself."""

    @app.handler("wrong", attempts_max=1)
    async def wrong(job: Any) -> None:
        app.send("numbers", 1)

    with app:
        ended = app.wait(app.send("wrong", 1).id)
    assert ended.state == "failed"
    assert "use the asynchronous API" in ended.reason


def test_it_starts_and_stops_again(app: App) -> None:
    for _ in range(2):
        with app:
            assert app.run(count) >= 1
        with pytest.raises(Unavailable, match="not running"):
            app.send("q", 1)
        app.stop()
    with pytest.raises(BadInput, match="database URL"):
        App("mysql://x")


def test_an_application_that_nobody_uses_is_closed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    App(url).start().send("q", 1, key="a")
    gc.collect()
    again = App(url)
    for _ in range(1_000):  # it closes in the background
        with suppress(CannotOpen):
            again.start()
            break
    assert again.send("q", 1, key="a").duplicate
    again.stop()


def run(program: str, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


SCRIPT = """
import threading
from onceward.sync import App
app = App("sqlite:///app.db").start()
waiting = threading.Thread(target=lambda: print(app.wait(app.send("q", 1).id, 0.01).state))
waiting.start()
print(app.send("q", 2, key="a").duplicate, flush=True)
"""


def test_a_script_that_does_not_close_it_ends_cleanly(tmp_path: Path) -> None:
    """Also with a thread that still uses it: the process waits for it."""
    for known in ("False", "True"):
        done = run(SCRIPT, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(done.stdout.split()) == sorted([known, "queued"])


INTERRUPTED = """
import signal, sys
from onceward.sync import App
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
with App("sqlite:///app.db") as app:
    def enter(tx):
        print("inside", flush=True)
        sys.stdin.readline()
    try:
        WAIT
    except KeyboardInterrupt:
        status = app.locks.status("a")
        print("interrupted", status.held if status else 0, flush=True)
"""
HOLDING = """
        with app.locks.hold("b"):
            print("inside", flush=True)
            with app.locks.hold("a"), app.locks.hold("b"):
                pass
"""


@pytest.mark.parametrize(
    "wait",
    [
        'print("inside", flush=True); app.wait(app.send("q", 1).id)',
        "app.run(enter)",
        HOLDING.strip(),
    ],
    ids=["a wait", "a transaction", "a lock"],
)
def test_an_interrupt_ends_a_call_and_leaves_nothing_behind(tmp_path: Path, wait: str) -> None:
    program = INTERRUPTED.replace("WAIT", wait)
    with subprocess.Popen(
        # An interrupt between the creation of a coroutine and its start is followed by a warning.
        [sys.executable, "-W", "ignore::RuntimeWarning", "-c", program],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGINT)
        try:
            said, complaints = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (said, complaints, process.returncode) == ("interrupted 0\n", "", 0)


def test_importing_it_loads_neither_store_nor_http_library(tmp_path: Path) -> None:
    program = "import sys, onceward.sync\nprint({'apsw', 'aiohttp'} & set(sys.modules))"
    assert run(program, tmp_path).stdout == "set()\n"
    program = "import sys\nsys.modules['aiohttp'] = None\nfrom onceward.sync import Client"
    last = run(program, tmp_path).stderr.splitlines()[-1]
    assert last.endswith("aiohttp: pip install 'onceward[client]'")


@dataclass
class Mail:
    to: str


def test_a_typed_handler_sends_its_jobs(app: App) -> None:
    @app.handler("mails")
    def send(job: SyncJob[Mail]) -> str:
        return job.body.to

    with app:
        receipts = [send.enqueue(Mail("ann"), key="1") for _ in range(2)]
        assert [one.duplicate for one in receipts] == [False, True]
        assert app.wait(receipts[0].id).result == "ann"
        with pytest.raises(BadInput, match="body"):
            send.enqueue({"to": 3})  # type: ignore[arg-type]
        kept = app.run(lambda tx: send.enqueue(Mail("ben"), tx=tx, delay_s=60))
        assert app.job(kept.id).body == {"to": "ben"}
    assert send(SimpleNamespace(body=Mail("eve"))) == "eve"  # type: ignore[arg-type]
    other = App("memory://")
    both = other.handler("more")(other.handler("mails")(send))
    assert (both.queue, both.__wrapped__) == ("more", send.__wrapped__)


def test_a_handler_has_children(app: App) -> None:
    @app.handler("names")
    def name(job: SyncJob[Mail]) -> str:
        return job.body.to.title()

    @app.handler("lists")
    def names(job: SyncJob[list[str]]) -> str:
        return ", ".join(job.gather(*[name.child(Mail(to), tags=["x"]) for to in job.body]))

    with app:
        assert names.result(names.enqueue(["ann", "ben"]).id, timeout_s=50) == "Ann, Ben"
    with pytest.raises(BadInput, match="body"):
        name.child({"to": 3})  # type: ignore[arg-type]


def test_a_plain_handler_uses_the_application(app: App) -> None:
    """It runs in a thread, also with what belongs to the end of its job."""

    @app.handler("orders")
    def sell(job: SyncJob[Mail]) -> str:
        def load(tx: Transaction) -> str:
            return str(tx.get(("names", "ann"), str))

        app.send("bills", job.body.to, tx=job.tx)
        return app.run(load)

    app.start()
    app.run(lambda tx: tx.put(("names", "ann"), "Ann"))
    receipt = sell.enqueue(Mail("ann"), key="1")
    assert sell.result(receipt.id) == "Ann"
    [bill] = app.claim("bills", "worker", lease_s=5)
    assert bill.body == "ann"
