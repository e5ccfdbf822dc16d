"""`onceward work` runs the handlers of an application, as a process of its own."""

import signal
import subprocess
from pathlib import Path

import pytest

from onceward.app import App
from onceward.sync import App as SyncApp
from tests.server_process import ONCEWARD, environment

SHOP = """
import onceward

app = onceward.App("sqlite:///shop.db")


@app.handler("orders")
async def order(job):
    print("sold a", job.body["item"], flush=True)
"""


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*ONCEWARD, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_handlers_run_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    async with App(f"sqlite:///{tmp_path / 'shop.db'}") as app:
        receipt = await app.send("orders", {"item": "lamp"}, key="order-1")
    with start(tmp_path, "work", "shop:app") as process:
        assert process.stderr is not None
        assert process.stdout is not None
        said = process.stderr.readline()
        assert said == "working on the jobs of shop:app; Ctrl-C stops it\n"
        assert process.stdout.readline() == "sold a lamp\n"
        process.send_signal(number)
        assert process.wait(timeout=50) == 0
        left = process.stderr.read()
        assert left == "" or "waiting" in left  # the machine may be slow
    async with App(f"sqlite:///{tmp_path / 'shop.db'}") as app:
        assert (await app.job(receipt.id)).state == "succeeded"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nowhere:app", "cannot load 'nowhere:app': No module named 'nowhere'"),
        ("shop:till", "cannot load 'shop:till': "),
        ("shop:onceward", "'shop:onceward' is not an onceward.App"),
        ("shop:client", "'shop:client' is not an onceward.App or onceward.sync.App; write MODULE"),
        (":app", "cannot load ':app': "),
    ],
)
def test_an_application_that_is_not_there_is_one_line(tmp_path: Path, path: str, says: str) -> None:
    client = 'from onceward.sync import Client\n\nclient = Client("http://127.0.0.1:9")\n'
    (tmp_path / "shop.py").write_text(SHOP + client)
    with start(tmp_path, "work", path) as process:
        out, err = process.communicate(timeout=50)
    assert (out, process.returncode) == ("", 78)
    assert err.startswith(f"onceward: {says}")
    assert err.endswith("[bad_settings]\n")
    assert err.count("\n") == 1


# Plain handlers use the application from their threads; one on the event loop cannot.
PLAIN = """
from onceward.sync import App

app = App("sqlite:///shop.db")


@app.handler("orders")
def order(job):
    with app.locks.hold("stock", wait_s=20) as lock:
        number = app.run(lambda tx: count(tx, lock))
    receipt = app.send("mails", {"number": number}, key=job.id)
    print(app.result(receipt.id), flush=True)
    return number


def count(tx, lock):
    lock.guard(tx)
    number = (tx.get(("count", "orders"), int) or 0) + 1
    tx.put(("count", "orders"), number)
    return number


@app.handler("mails")
async def mail(job):
    try:
        app.job(job.id)
    except Exception as error:
        return f"mail {job.body['number']}: {error}"
"""


@pytest.mark.parametrize("command", ["work", "serve --port 0", "dev --port 0"])
def test_every_command_runs_an_application_of_synchronous_code(
    tmp_path: Path, command: str
) -> None:
    (tmp_path / "shop.py").write_text(PLAIN)
    app = SyncApp(f"sqlite:///{tmp_path / 'shop.db'}")
    with app:
        receipts = [app.send("orders", {}) for _ in range(3)]
    name, *options = command.split()
    options += ["--app", "shop:app"] if name == "serve" else ["shop:app"]
    with start(tmp_path, name, *options) as process:
        try:
            assert process.stdout is not None
            mails: list[str] = []
            while len(mails) < 3:
                line = process.stdout.readline()
                assert line, "the process has ended"
                mails += [line] if line.startswith("mail ") else []
            process.terminate()
            assert process.wait(timeout=50) == 0
        finally:
            process.kill()
    assert sorted(one[:6] for one in mails) == ["mail 1", "mail 2", "mail 3"]
    assert all("this is the thread of the event loop" in one for one in mails)
    with app:
        assert sorted(app.result(one.id, int) for one in receipts) == [1, 2, 3]


LONG = """
import asyncio

import onceward

app = onceward.App("sqlite:///shop.db")


@app.handler("orders")
async def order(job):
    print("begun", flush=True)
    await asyncio.Event().wait()
"""


async def test_a_stop_reports_the_jobs_it_waits_for_and_a_second_signal_ends_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(LONG)
    async with App(f"sqlite:///{tmp_path / 'shop.db'}") as app:
        receipt = await app.send("orders", {})
    with start(tmp_path, "work", "shop:app") as process:
        try:
            assert process.stderr is not None
            assert process.stdout is not None
            process.stderr.readline()
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            said = process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=50) == 0
        finally:
            process.kill()
    told = "waiting up to 30 s for running jobs: 1 of orders; another Ctrl-C interrupts them\n"
    assert said.endswith(told)
    async with App(f"sqlite:///{tmp_path / 'shop.db'}") as app:
        assert (await app.job(receipt.id)).state == "queued"


async def test_a_database_that_another_process_owns_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    async with App(f"sqlite:///{tmp_path / 'shop.db'}") as app:
        await app.send("orders", {"item": "lamp"}, key="order-1")
    with start(tmp_path, "work", "shop") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "sold a lamp\n"
        with start(tmp_path, "work", "shop") as second:
            _, err = second.communicate(timeout=50)
        first.terminate()
        first.communicate(timeout=50)
    assert (first.returncode, second.returncode) == (0, 65)
    assert err.splitlines()[-1].endswith("[database_in_use]")
