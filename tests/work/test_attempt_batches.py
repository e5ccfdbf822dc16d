"""The members of a batch succeed or fail each for itself."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onceward.app import App
from onceward.errors import Fail, InDoubt, NotDone, Retry
from onceward.schedule import Job as JobRecord
from onceward.store.transaction import Transaction
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

Batch = Callable[[list[Job]], Awaitable[Any]]


async def run_batch(
    fn: Batch,
    bodies: list[Any],
    *,
    apps: Apps | None = None,
    app: App | None = None,
    **options: Any,
) -> tuple[Apps, list[JobRecord]]:
    """Run a handler on jobs that come as one batch, until all have ended."""
    apps = apps or Apps(shared=False)
    sender = apps.make(slots=1)
    async with sender:
        attempts_max = options.pop("attempts_max", None)
        receipts = [await sender.send("q", body, attempts_max=attempts_max) for body in bodies]
    app = app or apps.make()
    app.handler("q", **{"batch": len(bodies), "concurrency": len(bodies), **options})(fn)
    async with app:
        jobs = [await app.wait(receipt.id, 3_000) for receipt in receipts]
    assert apps.problems == []
    return apps, jobs


def effect(name: str) -> tuple[str, str]:
    return ("effect", name)


@virtual
async def test_each_member_has_its_own_result_and_effects() -> None:
    async def work(jobs: list[Job]) -> list[str]:
        assert len(jobs) == 3
        for job in jobs:
            job.tx.put(effect(job.body), job.body)
        return [job.body.upper() for job in jobs]

    apps, jobs = await run_batch(work, ["a", "b", "c"])
    assert [job.result for job in jobs] == ["A", "B", "C"]
    assert [len(apps.commits_of(effect(name))) for name in "abc"] == [1, 1, 1]


@virtual
async def test_a_member_can_be_failed_alone() -> None:
    runs: list[list[str]] = []

    async def work(jobs: list[Job]) -> None:
        runs.append([job.body for job in jobs])
        for job in jobs:
            job.tx.put(effect(job.body), job.attempt)
            if job.body == "b" and job.attempt == 1:
                job.fail("not this time")
            if job.body == "c":
                job.fail(Fail("never"))
            if job.body == "d" and job.attempt == 1:
                job.fail(Retry(after_s=100))

    apps, jobs = await run_batch(work, ["a", "b", "c", "d"])
    assert [job.state for job in jobs] == ["succeeded", "succeeded", "failed", "succeeded"]
    assert [job.attempt for job in jobs] == [1, 2, 1, 2]
    assert jobs[1].history[0].reason == "RuntimeError: not this time"
    assert jobs[2].reason == "never"
    assert [apps.value(effect(name)) for name in "abcd"] == [1, 2, None, 2]
    assert runs == [["a", "b", "c", "d"], ["b"], ["d"]]


@virtual
async def test_an_error_of_the_handler_is_everyones_but_each_retries_for_itself() -> None:
    async def work(jobs: list[Job]) -> None:
        if jobs[0].attempt == 1:
            jobs[0].fail(Fail("this one for good"))
            raise ValueError("all of them")

    _, jobs = await run_batch(work, ["a", "b"])
    assert [(job.state, job.attempt) for job in jobs] == [("failed", 1), ("succeeded", 2)]
    assert jobs[0].reason == "this one for good"
    assert jobs[1].history[0].reason == "ValueError: all of them"


@virtual
async def test_the_error_of_a_members_step_is_its_own_and_the_others_go_on() -> None:
    acted: list[str] = []

    async def act(name: str) -> str:
        acted.append(name)
        if name == "b":
            raise ValueError("b cannot")
        return name

    async def work(jobs: list[Job]) -> list[str]:
        return [await job.step("act", act, job.body) for job in jobs]

    _, jobs = await run_batch(work, ["a", "b", "c"], attempts_max=1)
    assert [job.state for job in jobs] == ["succeeded", "failed", "succeeded"]
    assert [job.attempt for job in jobs] == [1, 1, 1]
    assert jobs[1].reason == "ValueError: b cannot"
    assert acted == ["a", "b", "c"], "each once: a's was recorded, c's had not begun"


@virtual
async def test_members_whose_steps_run_side_by_side_fail_alone_too() -> None:
    async def act(name: str) -> str:
        if name in "bc":
            raise ValueError(f"{name} cannot")
        await asyncio.sleep(0)
        return name

    async def work(jobs: list[Job]) -> None:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job.step("act", act, job.body))

    _, jobs = await run_batch(work, ["a", "b", "c", "d"], attempts_max=1)
    assert [job.state for job in jobs] == ["succeeded", "failed", "failed", "succeeded"]
    assert jobs[1].reason == "ValueError: b cannot"


@virtual
async def test_the_doubt_of_one_member_holds_no_other() -> None:
    async def act(name: str) -> str:
        if name == "b":
            raise ConnectionError("cut off")
        return name

    async def work(jobs: list[Job]) -> None:
        for job in jobs:
            await job.step("pay", act, job.body, at_most_once=True)

    _, jobs = await run_batch(work, ["a", "b", "c"])
    assert [job.state for job in jobs] == ["succeeded", "in_doubt", "succeeded"]


@virtual
async def test_a_result_of_one_member_that_cannot_be_right_holds_no_other() -> None:
    async def work(jobs: list[Job]) -> list[str]:
        receipts = [await job.step("pay", lambda body=job.body: body) for job in jobs]
        for job, receipt in zip(jobs, receipts, strict=True):
            if receipt == "b":
                await job.reopen("pay", "b is no receipt")
        return receipts

    _, jobs = await run_batch(work, ["a", "b", "c"])
    assert [(job.state, job.result) for job in jobs] == [
        ("succeeded", "a"),
        ("in_doubt", None),
        ("succeeded", "c"),
    ]


@virtual
async def test_members_sleep_each_for_its_own_time() -> None:
    woken: dict[str, float] = {}

    async def work(jobs: list[Job]) -> None:
        loop = asyncio.get_running_loop()
        for job in jobs:
            await job.sleep(job.body)
            woken.setdefault(str(job.body), loop.time())

    _, jobs = await run_batch(work, [10, 500, 100])
    assert [(job.state, job.attempt) for job in jobs] == [("succeeded", 1)] * 3
    assert {body: round(at_s) for body, at_s in woken.items()} == {"10": 10, "100": 100, "500": 500}


@virtual
async def test_a_conflict_of_one_member_runs_the_handler_again_on_that_one() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    runs: list[list[str]] = []

    async def work(jobs: list[Job]) -> None:
        runs.append([job.body for job in jobs])
        for job in jobs:
            seen = await job.tx.get(effect(job.body)) or 0
            job.tx.put(effect(job.body), seen + 1)
        if len(runs) == 1:

            async def change(tx: Transaction) -> None:
                tx.put(effect("b"), 100)

            await app.run(change)

    _, jobs = await run_batch(work, ["a", "b", "c"], apps=apps, app=app)
    assert runs == [["a", "b", "c"], ["b"]]
    assert [job.attempt for job in jobs] == [1, 1, 1]
    assert [apps.value(effect(name)) for name in "abc"] == [1, 101, 1]


@virtual
async def test_members_that_write_one_record_are_all_done_in_the_end() -> None:
    async def work(jobs: list[Job]) -> None:
        for job in jobs:
            job.tx.put(effect("count"), (await job.tx.get(effect("count")) or 0) + 1)

    apps, jobs = await run_batch(work, list(range(50)), attempts_max=1)
    assert {job.state for job in jobs} == {"succeeded"}
    assert apps.value(effect("count")) == 50


@pytest.mark.parametrize("results", ["text", [1], [1, 2, 3], {"a": 1}, 7])
@virtual
async def test_results_that_are_not_one_for_each_member_are_refused(results: Any) -> None:
    async def work(jobs: list[Job]) -> Any:
        for job in jobs:
            job.tx.put(effect(job.body), 1)
        return results

    apps, jobs = await run_batch(work, ["a", "b"], attempts_max=1)
    assert [job.state for job in jobs] == ["failed", "failed"]
    assert "one result for each of its 2 jobs" in jobs[0].reason
    assert apps.value(effect("a")) is None


@virtual
async def test_a_member_that_is_cancelled_does_not_take_the_others_with_it() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    runs: list[list[str]] = []

    async def work(jobs: list[Job]) -> None:
        runs.append([job.body for job in jobs])
        if len(jobs) == 3:
            await app.cancel(jobs[1].id)
            await apps.sleep(1_000)
        for job in jobs:
            job.tx.put(effect(job.body), job.attempt)

    _, jobs = await run_batch(work, ["a", "b", "c"], apps=apps, app=app, attempts_max=1, lease_s=30)
    assert [job.state for job in jobs] == ["succeeded", "cancelled", "succeeded"]
    assert runs == [["a", "b", "c"], ["a", "c"]], "cut off, and run again within the attempt"
    assert [apps.value(effect(name)) for name in "abc"] == [1, None, 1]


@virtual
async def test_a_member_that_cannot_be_ended_spoils_nothing() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    async def work(jobs: list[Job]) -> list[Any]:
        return [object() if job.body == "a" else job.body for job in jobs]

    _, jobs = await run_batch(work, ["a", "b"], apps=apps, app=app, attempts_max=1)
    assert [job.state for job in jobs] == ["failed", "succeeded"]


@virtual
async def test_what_has_surely_not_been_done_is_tried_again_and_nothing_else() -> None:
    acted: list[str] = []

    async def act(job: Job) -> str:
        acted.append(job.body)
        if job.attempt == 1 and job.body == "a":
            raise NotDone("refused at the door")
        return "paid"

    async def work(jobs: list[Job]) -> list[str]:
        return [await job.step("pay", act, job, at_most_once=True) for job in jobs]

    _, jobs = await run_batch(work, ["a", "b"])
    assert [(job.state, job.attempt) for job in jobs] == [("succeeded", 2), ("succeeded", 1)]
    assert acted == ["a", "b", "a"]


@virtual
async def test_a_handler_may_say_itself_that_a_member_is_in_doubt() -> None:
    async def work(jobs: list[Job]) -> None:
        jobs[0].fail(InDoubt("who knows"))

    _, jobs = await run_batch(work, ["a", "b"])
    assert [(job.state, job.reason) for job in jobs] == [
        ("in_doubt", "who knows"),
        ("succeeded", ""),
    ]
