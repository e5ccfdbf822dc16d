"""An attempt ends each job in one commit with its effects, or with none of them."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

import onceward
from onceward import limits
from onceward.app import App
from onceward.engine.base import Put
from onceward.errors import Fail, Retry
from onceward.schedule import job_key
from onceward.store.transaction import Transaction
from onceward.work.job import Job
from onceward.work.sync_job import SyncJob
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

EFFECT = ("effect", "x")


async def set_to(app: App, value: int) -> None:
    """Change what a handler has read, as somebody else."""

    async def change(tx: Transaction) -> None:
        tx.put(EFFECT, value)

    await app.run(change)


async def run_one(
    fn: Callable[[Job], Awaitable[Any]], *, within_s: float = 3_000, **options: Any
) -> tuple[Apps, onceward.app.JobRecord]:
    """Run a handler on one job, until that has ended; the database, and the job's record."""
    apps = Apps(shared=False)
    app = apps.make()
    app.handler("q", **options)(fn)
    async with app:
        job = await app.wait((await app.send("q", {"n": 1})).id, within_s)
    assert apps.problems == []
    return apps, job


@virtual
async def test_effects_and_completion_are_one_commit() -> None:
    async def work(job: Job) -> str:
        job.tx.put(EFFECT, job.body["n"])
        await job.send("next", "more")
        return "done"

    apps, job = await run_one(work)
    assert (job.state, job.result) == ("succeeded", "done")
    [commit] = apps.commits_of(EFFECT)
    put = {write.key for write in commit if type(write) is Put}
    assert {key[0].split("#")[0] for key in put} == {"u", "job", "ready"}
    assert sum(key[1].endswith("#job") for key in put) == 2, "the job that ended and the one sent"


@virtual
async def test_an_attempt_that_fails_leaves_no_effects() -> None:
    async def work(job: Job) -> None:
        job.tx.put(EFFECT, 1)
        await job.send("next", "more")
        raise ValueError("no")

    apps, job = await run_one(work, attempts_max=2)
    assert (job.state, job.attempt, job.reason) == ("failed", 2, "ValueError: no")
    assert apps.value(EFFECT) is None
    assert not [key for key in apps.records if key[0].startswith("ready#")]


@virtual
async def test_on_conflict_the_handler_runs_again_within_the_attempt_and_steps_do_not() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    runs: list[tuple[int, Any]] = []
    steps = 0

    async def step() -> dict[str, int]:
        nonlocal steps
        steps += 1
        return {"steps": steps}

    @app.handler("q")
    async def work(job: Job) -> Any:
        found = await job.step("once", step)
        seen = await job.tx.get(EFFECT)
        runs.append((job.attempt, dict(found)))
        found["steps"] = "changed by the handler"
        job.body["n"] = "changed as well"
        if len(runs) < 4:
            await set_to(app, len(runs))
        job.tx.put(EFFECT, (seen or 0) + 100)
        return found

    async with app:
        job = await app.wait((await app.send("q", {"n": 1})).id)
    assert (job.state, job.attempt, job.body) == ("succeeded", 1, {"n": 1})
    assert runs == [(1, {"steps": 1})] * 4
    assert apps.value(EFFECT) == 103


@virtual
async def test_what_the_handler_gets_on_its_second_run_is_what_it_got_on_the_first() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    bodies: list[Any] = []

    @app.handler("q")
    async def work(job: Job) -> None:
        bodies.append({**job.body})
        job.body.clear()
        await job.tx.get(EFFECT)
        if len(bodies) == 1:
            await set_to(app, 1)

    async with app:
        await app.wait((await app.send("q", {"n": 1})).id)
    assert bodies == [{"n": 1}, {"n": 1}]


@virtual
async def test_an_error_that_comes_from_what_has_changed_meanwhile_is_no_error() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    runs = 0

    @app.handler("q", attempts_max=1)
    async def work(job: Job) -> str:
        nonlocal runs
        runs += 1
        if await job.tx.get(EFFECT) is None:
            await set_to(app, 1)
            raise ValueError("it is not there")
        return "there"

    async with app:
        job = await app.wait((await app.send("q", None)).id)
    assert (job.state, job.result, runs, job.history) == ("succeeded", "there", 2, [])


@pytest.mark.parametrize("raises", [False, True])
@virtual
async def test_conflicts_without_end_fail_the_attempt_and_the_log_says_what_they_are_about(
    raises: bool, caplog: pytest.LogCaptureFixture
) -> None:
    apps = Apps(shared=False)
    app = apps.make()
    runs = 0

    @app.handler("q", attempts_max=1)
    async def work(job: Job) -> None:
        nonlocal runs
        runs += 1
        await job.tx.get(EFFECT)
        await set_to(app, runs)
        job.tx.put(("other", "x"), 1)
        if raises:
            raise ValueError("because of what it read")

    async with app:
        job = await app.wait((await app.send("q", None)).id)
    assert job.state == "failed"
    assert "32 conflicts in a row" in job.reason
    [told] = [text for text in caplog.messages if "its handler has run 8 times" in text]
    assert str(EFFECT) in told
    assert runs == limits.TRANSACTION_ATTEMPTS_MAX
    assert apps.value(("other", "x")) is None


@virtual
async def test_a_failed_job_is_tried_again_after_the_pause_of_its_queue() -> None:
    times: list[float] = []

    async def work(job: Job) -> int:
        times.append(asyncio.get_running_loop().time())
        if job.attempt < 4:
            raise ValueError(f"attempt {job.attempt}")
        assert job.reason == "ValueError: attempt 3"
        return job.attempt

    _, job = await run_one(work, retry_first_s=1, retry_max_s=2)
    assert (job.state, job.result) == ("succeeded", 4)
    assert [a.reason for a in job.history] == [f"ValueError: attempt {n}" for n in (1, 2, 3)]
    pauses = [after - before for before, after in pairwise(times)]
    assert 0.5 <= pauses[0] <= 1.1
    assert 1 <= pauses[1] <= 2.1
    assert 1 <= pauses[2] <= 2.1


@pytest.mark.parametrize("way", ["after_s", "at_ms"])
@virtual
async def test_a_handler_may_say_when_it_wants_to_be_tried_again(way: str) -> None:
    times: list[float] = []

    async def work(job: Job) -> None:
        times.append(asyncio.get_running_loop().time())
        if job.attempt == 1:
            if way == "after_s":
                raise Retry("later", after_s=123)
            raise Retry(at_ms=job.created_ms + 123_000)

    _, job = await run_one(work)
    assert job.state == "succeeded"
    assert times[1] - times[0] == pytest.approx(123, abs=0.1)
    [attempt] = job.history
    assert attempt.reason == (
        "later" if way == "after_s" else "the handler requested another attempt"
    )


@virtual
async def test_a_server_that_asks_for_a_short_pause_uses_up_no_attempts_in_a_moment() -> None:
    times: list[float] = []

    async def work(job: Job) -> None:
        times.append(asyncio.get_running_loop().time())
        if job.attempt < 6:
            raise Retry("503", not_before_s=0 if job.attempt < 5 else 300)

    _, job = await run_one(work, attempts_max=8)
    assert job.state == "succeeded"
    pauses = [after - before for before, after in pairwise(times)]
    for pause, least in zip(pauses, (0.5, 1, 2, 4), strict=False):
        assert least <= pause <= 2 * least + 0.1, "as if it had asked for none"
    assert pauses[4] == pytest.approx(300, abs=0.1), "and it is left alone for as long as it asks"


@pytest.mark.parametrize(
    "retry",
    [
        Retry(after_s=-1),
        Retry(not_before_s=-1),
        Retry(not_before_s=float("nan")),
        Retry(after_s=float("nan")),
        Retry(after_s=float("inf")),
        Retry(at_ms=-1),
        Retry(at_ms=10**17),
        Retry(at_ms=1.5),  # type: ignore[arg-type]
    ],
)
@virtual
async def test_a_time_to_retry_at_that_cannot_be_meant_is_told_and_costs_one_attempt(
    retry: Retry,
) -> None:
    async def work(job: Job) -> None:
        if job.attempt == 1:
            raise retry

    _, job = await run_one(work, within_s=30)
    assert (job.state, job.attempt) == ("succeeded", 2)
    assert "not" in job.history[0].reason


@virtual
async def test_a_handler_may_give_a_job_up_whatever_attempts_are_left() -> None:
    async def work(job: Job) -> None:
        raise Fail("there is no such customer")

    _, job = await run_one(work, attempts_max=10)
    assert (job.state, job.attempt, job.reason) == ("failed", 1, "there is no such customer")


@virtual
async def test_the_class_of_a_failure_needs_no_message() -> None:
    async def work(job: Job) -> None:
        raise Fail

    _, job = await run_one(work, attempts_max=10)
    assert (job.state, job.attempt, job.reason) == ("failed", 1, "the handler failed the job")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (object(), "the result cannot be stored: Encoding objects of type object"),
        (float("nan"), "the result cannot be stored: NaN"),
        ("x" * limits.VALUE_BYTES_MAX, "bytes"),
    ],
)
@virtual
async def test_a_result_that_cannot_be_stored_fails_the_attempt(result: Any, reason: str) -> None:
    async def work(job: Job) -> Any:
        job.tx.put(EFFECT, 1)
        return result

    apps, job = await run_one(work, attempts_max=1)
    assert job.state == "failed"
    assert reason in job.reason
    assert apps.value(EFFECT) is None


@virtual
async def test_too_many_effects_for_one_commit_fail_the_attempt() -> None:
    async def work(job: Job) -> None:
        for n in range(limits.COMMIT_WRITES_MAX):
            job.tx.put(("effect", str(n)), n)

    apps, job = await run_one(work, attempts_max=1)
    assert job.state == "failed"
    assert "1 to 100 writes" in job.reason
    assert not [key for key in apps.own if key[0] == "effect"]


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Speechless(), "Speechless (its message cannot be read)"),
        (Retry("\ud800"), "\\ud800"),
        (ValueError("\0" * 5_000), "ValueError: \0"),
        (ValueError("\U0001f600" * 5_000), "ValueError: \U0001f600"),
        (asyncio.CancelledError(), "RuntimeError: the handler awaited a task or future"),
        (ExceptionGroup("g", [ValueError("one")]), "ValueError: one"),
        (
            ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [KeyError("b")])]),
            "ValueError: a; KeyError: 'b'",
        ),
        (ExceptionGroup("g", [Fail("for good")]), "for good"),
    ],
    ids=["speechless", "odd", "zeros", "wide", "cancelled", "group", "groups", "fail"],
)
@virtual
async def test_whatever_a_handler_raises_ends_the_attempt(
    error: BaseException, reason: str
) -> None:
    async def work(job: Job) -> None:
        raise error

    _, job = await run_one(work, attempts_max=2, within_s=10)
    assert job.state == "failed"
    assert job.reason.startswith(reason)
    assert job.attempt == (1 if reason == "for good" else 2)


@virtual
async def test_the_largest_job_can_still_fail_as_often_as_it_may() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", attempts_max=30, retry_first_s=0.001, retry_max_s=0.001)
    async def work(job: Job) -> None:
        raise ValueError("\0\U0001f600" * limits.REASON_CHARS_MAX)

    body = "x" * (limits.BODY_BYTES_MAX - 2)
    async with app:
        options = {"order_key": "\1" * 256, "limit_key": "\1" * 256, "key": "\1" * 2_048}
        receipt = await app.send("q", body, **options)
        job = await app.wait(receipt.id, 100)
    assert (job.state, job.attempt) == ("failed", 30)
    assert job.history[-1].attempt == 30 or not job.history


@virtual
async def test_a_plain_function_can_be_a_handler_too() -> None:
    def work(job: SyncJob) -> str:
        job.tx.put(EFFECT, 1)
        return "done"

    apps, job = await run_one(work)  # type: ignore[arg-type]
    assert (job.result, apps.value(EFFECT)) == ("done", 1)


@virtual
async def test_a_job_that_was_cancelled_meanwhile_keeps_none_of_its_effects() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    runs = 0

    @app.handler("q")
    async def work(job: Job) -> None:
        nonlocal runs
        runs += 1
        job.tx.put(EFFECT, 1)
        await app.cancel(job.id, "no longer wanted")

    async with app:
        job = await app.wait((await app.send("q", None)).id)
        await apps.sleep(100)
        assert (job.state, job.reason) == ("cancelled", "no longer wanted")
        assert (await app.job((await app.send("other", None)).id)).state == "queued"
    assert runs == 1
    assert apps.value(EFFECT) is None


@virtual
async def test_there_is_no_second_run_on_a_job_that_has_moved_on() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    runs = 0

    @app.handler("q")
    async def work(job: Job) -> None:
        nonlocal runs
        runs += 1
        await job.tx.get(job_key(job.id))
        await app.cancel(job.id)

    async with app:
        id_ = (await app.send("q", None)).id
        await apps.sleep(10)
        assert (await app.job(id_)).state == "cancelled"
    assert runs == 1


@virtual
async def test_an_engine_that_is_away_at_the_end_costs_an_attempt_but_no_effect() -> None:
    apps = Apps()
    app = apps.make()
    runs = 0

    @app.handler("q", lease_s=10)
    async def work(job: Job) -> None:
        nonlocal runs
        runs += 1
        job.tx.put(EFFECT, runs)
        if runs == 1:
            apps.engines[0].cut_off = True

    async with app:
        id_ = (await app.send("q", None)).id
        await apps.sleep(2)
        apps.engines[0].cut_off = False
        job = await app.wait(id_, 100)
    assert (job.state, job.attempt, apps.value(EFFECT)) == ("succeeded", 2, 2)
    assert "ran out" in job.history[0].reason
    assert len(apps.commits_of(EFFECT)) == 1
