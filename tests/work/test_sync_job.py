"""Plain functions as handlers: they run in threads, with a job whose calls wait for the loop."""

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import pytest

from onceward import limits
from onceward.app import App
from onceward.errors import BadInput, Fail, NotDone, OncewardError, Retry
from onceward.schedule import Job as JobRecord
from onceward.schedule.records import lease_key
from onceward.work.job import Job
from onceward.work.sync_job import SyncJob
from tests.schedule.cluster import virtual
from tests.work.apps import Apps, no_tasks_left

WAIT_S = 60.0


class Begun:
    """An event of the loop that a thread sets."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def set(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._event.wait()


async def run_one(fn: Callable[[SyncJob], Any], **options: Any) -> JobRecord:
    """Run a plain handler on one job, until that has ended."""
    apps = Apps(shared=False)
    app = apps.make()
    app.handler("q", **options)(fn)
    async with app:
        job = await app.wait((await app.send("q", {"n": 1}, key="k", tags=["t"])).id, 3_000)
    assert apps.problems == []
    return job


@virtual
async def test_a_plain_function_has_everything_that_an_async_one_has() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    ran: list[tuple[str, bool]] = []

    def note(name: str) -> str:
        ran.append((name, threading.current_thread() is threading.main_thread()))
        return name

    async def note_async(name: str) -> str:
        await apps.sleep(1)
        return note(name)

    @app.handler("q", retry_first_s=1)
    def work(job: SyncJob) -> Any:
        note("handler")
        steps = [job.step("plain", note, "plain"), job.step("async", note_async, "async")]
        steps.append(job.step("either", lambda: note_async("either")))
        job.sleep(600)
        if job.attempt == 1:
            raise Retry("once more", after_s=1)
        count = (job.tx.get(("count", "n"), int) or 0) + job.body["n"]
        job.tx.put(("count", "n"), count)
        assert [row.value for row in job.tx.scan("count", int)] == [count]
        assert job.tx.get_many([("count", "n")]) == [count]
        job.tx.fetch([("count", "m")])
        sent = job.send("r", "within", key="r1")
        called = job.call(app.send, "r", "called", tx=job.tx)
        return [*steps, count, (job.key, job.caller, job.tags), sent.id, called.id]

    async with app:
        id_ = (await app.send("q", {"n": 3}, key="k", tags=["t"], caller="ann")).id
        job = await app.wait(id_, 3_000)
        assert job.state == "succeeded", job.reason
        *steps, count, about, sent, called = job.result
        assert (await app.job(sent)).body == "within"
        assert (await app.job(called)).body == "called"
    assert steps == ["plain", "async", "either"]
    assert (count, about) == (3, ["k", "app:ann", ["t"]])
    assert apps.value(("count", "n")) == 3
    assert apps.loop.time() > 600
    once = [("plain", False), ("async", True), ("either", True)]
    assert [seen for seen in ran if seen[0] != "handler"] == once, "each step ran once"
    assert ("handler", True) not in ran
    assert apps.problems == []


@virtual
async def test_no_more_functions_run_than_there_are_threads() -> None:
    apps = Apps(shared=False)
    app = apps.make(threads=2)
    pair, lock = threading.Barrier(2, timeout=WAIT_S), threading.Lock()
    running = most = 0

    def work(job: SyncJob) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        pair.wait()
        with lock:
            running -= 1
        pair.wait()

    app.handler("q", concurrency=5)(work)
    app.handler("r", concurrency=5)(work)
    async with app:
        ids = [(await app.send(queue, n)).id for n in range(5) for queue in "qr"]
        assert {(await app.wait(id_)).state for id_ in ids} == {"succeeded"}
    assert most == 2


@virtual
async def test_the_context_of_the_thread_is_seen_on_the_loop_and_not_kept() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")

    async def look() -> str:
        return variable.get()

    def work(job: SyncJob) -> list[str]:
        before = variable.get()
        variable.set(f"attempt {job.attempt}")
        seen = [before, job.call(look), job.step("plain", variable.get)]
        if job.attempt == 1:
            raise Retry(str(seen), after_s=0)
        return seen

    job = await run_one(work)
    assert job.history[0].reason.endswith("['none', 'attempt 1', 'attempt 1']")
    assert job.result == ["none", "attempt 2", "attempt 1"], "the step was recorded"


async def nothing() -> None: ...


def stopping(job: SyncJob) -> None:
    sys.exit(3)


def ending(job: SyncJob) -> None:
    raise StopIteration("no more")


def failing(job: SyncJob) -> None:
    raise Fail("never")


def cancelled(job: SyncJob) -> None:
    raise asyncio.CancelledError


def calling_cancelled(job: SyncJob) -> None:
    job.call(nothing)

    async def cancel() -> None:
        raise asyncio.CancelledError

    job.call(cancel)


def grouped(job: SyncJob) -> None:
    raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])


def returning(job: SyncJob) -> Any:
    async def later() -> None: ...

    return later()


@virtual
@pytest.mark.parametrize(
    ("fn", "reason", "attempts"),
    [
        (stopping, "the handler called sys.exit(3)", 2),
        (ending, "StopIteration", 2),
        (failing, "never", 1),
        (cancelled, "cancelled", 2),
        (calling_cancelled, "a call to the event loop was cancelled", 2),
        (grouped, "ValueError: one; KeyError: 'two'", 2),
        (returning, "declare the handler with `async def`", 1),
    ],
)
async def test_errors_of_a_plain_function_fail_its_job(
    fn: Callable[[SyncJob], Any], reason: str, attempts: int
) -> None:
    job = await run_one(fn, attempts_max=2, retry_first_s=1)
    assert (job.state, job.attempt) == ("failed", attempts)
    assert reason in job.reason


@virtual
async def test_a_retry_skips_recorded_steps_and_keeps_the_errors_of_steps() -> None:
    calls: list[str] = []

    def charge(id_: str) -> str:
        calls.append(id_)
        if len(calls) == 1:
            raise ConnectionError("away")
        return "receipt"

    def work(job: SyncJob) -> list[Any]:
        try:
            receipt = job.step("charge", charge, job.id)
        except ConnectionError as error:
            raise Retry(f"caught {error}", after_s=1) from error
        if job.attempt == 2:
            raise RuntimeError("after the step")
        return [receipt, job.attempt]

    job = await run_one(work)
    assert job.result == ["receipt", 3]
    assert len(calls) == 2
    assert [attempt.reason for attempt in job.history] == [
        "caught away",
        "RuntimeError: after the step",
    ]


@virtual
async def test_a_batch_of_a_plain_function_fails_job_by_job() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", batch=10, attempts_max=1)
    def work(jobs: list[SyncJob]) -> list[int]:
        for job in jobs:
            if job.body == 2:
                job.fail("not this one")
            job.tx.put(("body", str(job.body)), job.body)
        return [10 * job.body for job in jobs]

    async with app:
        ids = [(await app.send("q", n)).id for n in range(4)]
        jobs = [await app.wait(id_) for id_ in ids]
    assert [job.result for job in jobs] == [0, 10, None, 30]
    assert jobs[2].reason.endswith("not this one")
    assert sorted(key[1] for key in apps.own) == ["0", "1", "3"]


@virtual
async def test_a_conflict_runs_the_function_again() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    runs: list[int] = []

    async def interfere() -> None:
        async def bump(tx: Any) -> None:
            tx.put(("n", "n"), 10)

        await app.run(bump)

    @app.handler("q")
    def work(job: SyncJob) -> int:
        count = job.tx.get(("n", "n")) or 0
        runs.append(count)
        if len(runs) == 1:
            job.call(interfere)
        job.tx.put(("n", "n"), count + 1)
        return count + 1

    async with app:
        assert (await app.wait((await app.send("q", None)).id)).result == 11
    assert runs == [0, 10]


@virtual
@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_plain_outbox_asks_about_an_interrupted_call(kind: str) -> None:
    apps = Apps(shared=False)
    app = apps.make()
    asked: list[tuple[str, int]] = []

    def find_out(job: SyncJob) -> str:
        asked.append((job.id, job.attempt))
        if job.attempt == 1:
            raise NotDone("it was not", after_s=1)
        return "found"

    async def find_out_async(job: Any) -> str:
        return find_out(job)

    @app.outbox("calls", policy="hold", ask=find_out if kind == "plain" else find_out_async)
    def call(job: SyncJob) -> str:
        raise ConnectionError("away")

    async with app:
        id_ = (await app.send("calls", None)).id
        assert (await app.wait(id_)).result == "found"
    assert asked == [(id_, 1), (id_, 2)]


@virtual
async def test_recurring_jobs_may_have_plain_handlers() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    seen: list[Any] = []
    app.every(60, "tick", 1)
    app.cron("*/10 * * * *", "tick", 2, name="rarely")

    @app.handler("tick")
    def tick(job: SyncJob) -> None:
        seen.append(job.body)

    async with app:
        await apps.sleep(1_800)
    assert (seen.count(1), seen.count(2)) == (30, 3)


@virtual
async def test_a_job_is_for_its_thread_and_its_time_only() -> None:
    left: list[SyncJob] = []
    errors: list[str] = []

    def attempt(call: Callable[[], Any]) -> None:
        try:
            call()
        except BadInput as error:
            errors.append(error.message)

    def work(job: SyncJob) -> None:
        left.append(job)
        tx = job.tx
        for call in (
            lambda: job.step("x", int),
            lambda: tx.get(("a", "b")),
            lambda: tx.put(("a", "b"), 1),
            lambda: job.call(nothing),
        ):
            thread = threading.Thread(target=attempt, args=[call])
            thread.start()
            thread.join()

        async def on_the_loop() -> None:
            attempt(lambda: job.sleep(1))

        job.call(on_the_loop)

    job = await run_one(work)
    assert job.state == "succeeded", job.reason
    outside = "was called outside the thread of its handler"
    names = ("step", "get", "tx", "nothing", "sleep")
    assert [error.split(":")[0] for error in errors] == [f"`{n}` of a job {outside}" for n in names]
    errors.clear()
    attempt(lambda: left[0].step("x", int))
    attempt(lambda: left[0].tx.put(("a", "b"), 1))
    assert [error.split(":")[0] for error in errors] == [
        "`step` of a job was called after its handler returned",
        "`tx` of a job was called after its handler returned",
    ]


@virtual
async def test_using_tx_in_a_plain_step_is_refused() -> None:
    def work(job: SyncJob) -> None:
        job.step("writes", lambda: job.tx.put(("a", "b"), 1))

    job = await run_one(work, attempts_max=1)
    assert "job.tx was used inside a step" in job.reason


class PlainCallable:
    def __call__(self, job: Any) -> str:
        return threading.current_thread().name


class AsyncCallable:
    async def __call__(self, job: Any) -> str:
        return threading.current_thread().name


async def in_loop(job: Any) -> str:
    return threading.current_thread().name


def in_thread(job: Any) -> str:
    return threading.current_thread().name


@wraps(in_loop)
def wrapped(job: Any) -> Any:
    return in_loop(job)


@virtual
@pytest.mark.parametrize(
    ("fn", "plain"),
    [
        (PlainCallable(), True),
        (AsyncCallable(), False),
        (partial(in_loop), False),
        (partial(in_thread), True),
        (partial(AsyncCallable()), False),
        (PlainCallable().__call__, True),
        (wrapped, False),
    ],
)
async def test_callables_of_all_kinds_run_in_the_right_place(
    fn: Callable[..., Any], plain: bool
) -> None:
    job = await run_one(fn)
    assert job.result.startswith("onceward-handler") is plain


def generates(job: Any) -> Any:
    yield 1


async def generates_async(job: Any) -> Any:
    yield 1


@pytest.mark.parametrize(
    "fn", [generates, generates_async, partial(generates), PlainCallable, "work", None]
)
def test_what_cannot_be_a_handler_is_refused_when_it_is_declared(fn: Any) -> None:
    app = App("memory://")
    for declare in (app.handler("q"), app.outbox("r")):
        with pytest.raises(BadInput, match=r"(a handler|an outbox) must"):
            declare(fn)


@pytest.mark.parametrize("threads", [0, -1, limits.THREADS_MAX + 1, 1.5, True, "4", None])
def test_the_number_of_threads_is_checked(threads: Any) -> None:
    with pytest.raises(BadInput, match=f"1 to {limits.THREADS_MAX}, not {threads}"):
        App("memory://", threads=threads)


def test_a_sync_job_has_the_methods_of_a_job_as_plain_ones() -> None:
    public = {name for name in (*dir(Job), *dir(SyncJob)) if not name.startswith("_")}
    methods = {name: inspect.unwrap(getattr(Job, name, None)) for name in public}
    coroutines = {name for name in public if inspect.iscoroutinefunction(methods[name])}
    assert {"step", "sleep", "send"} < coroutines
    for name in coroutines:
        assert (getattr(SyncJob, name).__doc__ or "").strip()
        assert not inspect.iscoroutinefunction(getattr(SyncJob, name))
    assert public <= set(dir(SyncJob))
    assert public - set(dir(Job)) == {"bound", "call", "interrupted"}


# In real time, since it does not pass on a virtual clock while a function computes.


async def test_a_lost_lease_refuses_the_result_and_keeps_the_place() -> None:
    app = App("memory://")
    begun, noticed, second = Begun(), Begun(), Begun()
    free = threading.Event()
    refused: list[BaseException] = []

    @app.handler("q", concurrency=1, lease_s=0.2)
    def work(job: SyncJob) -> str:
        if job.body == "second":
            second.set()
            return "done"
        tx = job.tx
        tx.put(("effect", "e"), 1)
        begun.set()
        while not job.interrupted:
            free.wait(0.01)
        noticed.set()
        assert free.wait(WAIT_S)
        try:
            job.step("late", int)
        except BaseException as error:
            refused.append(error)
        return "too late"

    async with app:
        first = (await app.send("q", "first")).id
        await begun.wait()
        await app.cancel(first)
        await noticed.wait()
        other = (await app.send("q", "second")).id
        assert (await app.job(other)).state == "queued", "the thread counts as busy"
        free.set()
        await second.wait()
        assert (await app.wait(other)).result == "done"
        job = await app.job(first)
        assert (job.state, job.result) == ("cancelled", None)
        assert await app.run(lambda tx: tx.get(("effect", "e"))) is None
    assert len(refused) == 1
    assert not isinstance(refused[0], Exception)


async def test_leases_are_renewed_while_a_function_blocks() -> None:
    app = App("memory://")
    begun, free = Begun(), threading.Event()

    @app.handler("q", lease_s=0.2)
    def work(job: SyncJob) -> str:
        begun.set()
        assert free.wait(WAIT_S)
        return "done"

    async with app:
        id_ = (await app.send("q", None)).id
        await begun.wait()
        renewed = asyncio.Event()
        unhook = app.store.on_change(
            "job", lambda write: renewed.set() if write.key == lease_key(id_) else None
        )
        for _ in range(3):
            async with asyncio.timeout(WAIT_S):
                await renewed.wait()
            renewed.clear()
        unhook()
        free.set()
        job = await app.wait(id_)
    assert (job.result, job.attempt) == ("done", 1)


async def test_stopping_waits_for_functions() -> None:
    app = App("memory://", drain_s=WAIT_S)
    begun, free = Begun(), threading.Event()
    before = asyncio.all_tasks()
    ended: list[str] = []

    @app.handler("q")
    def work(job: SyncJob) -> None:
        begun.set()
        assert free.wait(WAIT_S)
        ended.append(job.step("last", str))

    await app.start()
    await app.send("q", None)
    await begun.wait()
    stopping = asyncio.create_task(app.stop())
    await asyncio.sleep(0)
    free.set()
    await stopping
    assert ended == [""]
    assert no_tasks_left(before) == []


async def test_a_function_that_does_not_return_holds_the_stop_up_only_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "HANDLER_END_S", 0.05)
    apps: list[App] = [App("memory://", drain_s=0.05)]
    begun, free, ended = Begun(), threading.Event(), Begun()
    errors: list[BaseException] = []

    @apps[0].handler("q")
    def work(job: SyncJob) -> None:
        begun.set()
        assert free.wait(WAIT_S)
        try:
            job.step("late", int)
        except BaseException as error:
            errors.append(error)
        ended.set()

    app = apps[0]
    await app.start()
    await app.send("q", None)
    await begun.wait()
    await app.stop()
    assert "runs in a thread, and is released" in caplog.text
    free.set()
    await ended.wait()
    assert [type(error).__name__ for error in errors] == ["Interrupted"]


def test_a_loop_ends_although_a_function_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HANDLER_END_S", 0.05)
    free = threading.Event()

    async def main() -> None:
        app = App("memory://", drain_s=0.05)
        begun = Begun()

        @app.handler("q")
        def work(job: SyncJob) -> None:
            begun.set()
            free.wait(WAIT_S)
            with pytest.raises(OncewardError):
                job.step("late", int)

        async with app:
            await app.send("q", None)
            await begun.wait()

    asyncio.run(main())
    assert not free.is_set()
    free.set()


async def test_a_job_that_waits_too_long_for_a_thread_goes_to_another_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "THREAD_WAIT_S", 0.01)
    app = App("memory://", slots=4, threads=1)
    begun, free = Begun(), threading.Event()

    @app.handler("q")
    def handle(job: SyncJob) -> Any:
        if job.body == "long":
            begun.set()
            assert free.wait(WAIT_S)
        return job.body

    async with app:
        for number in range(5):  # short ones, after which the worker leases ahead
            await app.wait((await app.send("q", number)).id)
        first = await app.send("q", "long")
        await begun.wait()
        second = await app.send("q", "next")
        [claim] = await app.claim("q", "other", lease_s=60, wait_s=WAIT_S)
        assert (claim.id, claim.attempt) == (second.id, 1)
        await app.complete(claim.id, claim.token, "done elsewhere")
        free.set()
        assert (await app.wait(first.id)).result == "long"
