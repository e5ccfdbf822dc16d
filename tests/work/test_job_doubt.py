"""What is to be done at most once is never done twice: rather it is in doubt."""

import asyncio
from typing import Any

import pytest

from onceward.app import App
from onceward.errors import BadInput, InDoubt, NotDone, NotFailed
from onceward.schedule import steps_key
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps
from tests.work.one_job import run_one


class Payments:
    """Something outside that takes money."""

    def __init__(self) -> None:
        self.made: list[str] = []

    async def pay(self, job: Job) -> str:
        self.made.append(job.id)
        return f"receipt {len(self.made)}"


@virtual
async def test_what_is_done_at_most_once_is_in_doubt_after_a_crash_in_between() -> None:
    apps = Apps()
    payments, acting = Payments(), asyncio.Event()

    def declared(cut: bool) -> App:
        app = apps.make(node_lease_s=1)

        async def pay(job: Job) -> str:
            receipt = await payments.pay(job)
            if cut:
                acting.set()
                await apps.sleep(10_000)
            return receipt

        @app.handler("q", lease_s=2, attempts_max=3)
        async def work(job: Job) -> Any:
            return await job.step("pay", pay, job, at_most_once=True)

        return app

    first = declared(cut=True)
    process = await apps.start(first)
    id_ = (await first.send("q", None)).id
    await acting.wait()
    process.kill()
    async with declared(cut=False) as app:
        job = await app.wait(id_, 100)
        assert (job.state, job.attempt) == ("in_doubt", 2)
        assert "attempt 1 was interrupted in the step 'pay'" in job.reason
        assert len(payments.made) == 1
        [letter] = await app.queues.failed("q")
        assert (letter.id, letter.job.state) == (id_, "in_doubt")

        with pytest.raises(BadInput, match="no step 'other'"):
            await app.queues.settle(id_, "other", done=True)
        await app.queues.retry(id_)
        assert (await app.wait(id_, 100)).state == "in_doubt", "trying again does not settle it"

        await app.queues.settle(id_, "pay", result="found by hand", done=True)
        assert (await app.wait(id_, 100)).result == "found by hand"
        assert len(payments.made) == 1
        with pytest.raises(NotFailed):
            await app.queues.settle(id_, "pay", done=False)
    assert apps.problems == []


@virtual
async def test_a_late_attempt_settles_its_own_doubt_and_no_other() -> None:
    app, tokens = Apps(shared=False).make(), []

    async def pay(job: Job) -> str:
        tokens.append(job.token)
        raise ConnectionError("reset by peer")

    @app.handler("q")
    async def work(job: Job) -> Any:
        return await job.step("pay", pay, job, at_most_once=True)

    async with app:
        id_ = (await app.send("q", None)).id
        assert (await app.wait(id_)).state == "in_doubt"
        await app.queues.settle(id_, "pay", done=False, token=tokens[0])
        assert (await app.wait(id_)).state == "in_doubt"
        # The first one heard only now that nothing was paid: that says nothing of the second.
        with pytest.raises(NotFailed, match="another attempt"):
            await app.queues.settle(id_, "pay", done=False, token=tokens[0])
        assert (len(tokens), (await app.job(id_)).state) == (2, "in_doubt")
        await app.queues.settle(id_, "pay", done=True, result="paid", token=tokens[1])
        assert (await app.wait(id_)).result == "paid"


@virtual
async def test_a_result_that_cannot_be_right_puts_its_step_in_doubt_again() -> None:
    app, payments = Apps(shared=False).make(), Payments()

    @app.handler("q")
    async def work(job: Job) -> Any:
        receipt = await job.step("pay", payments.pay, job, at_most_once=True)
        if receipt != "by hand":
            await job.reopen("pay", f"{receipt} is no receipt")
        return receipt

    async with app:
        id_ = (await app.send("q", None)).id
        for receipt in ("receipt 1", "nonsense", None):
            if receipt != "receipt 1":
                await app.queues.settle(id_, "pay", done=True, result=receipt)
            job = await app.wait(id_)
            assert (job.state, job.attempt) == ("in_doubt", 1)
            assert f"'pay' must be settled again: {receipt} is no receipt" in job.reason
        await app.queues.settle(id_, "pay", done=True, result="by hand")
        assert (await app.wait(id_)).result == "by hand"
    assert len(payments.made) == 1


@virtual
async def test_only_a_step_that_has_a_result_can_be_put_in_doubt() -> None:
    async def work(job: Job) -> None:
        await job.step("pay", lambda: "paid")
        await job.reopen("pya", "a slip of the pen")

    job = await run_one(work, attempts_max=1)
    assert (job.state, job.reason) == (
        "failed",
        "the step 'pya' has no result to reopen; name a recorded step",
    )


@virtual
async def test_what_is_settled_as_not_done_is_done() -> None:
    apps = Apps(shared=False)
    app, payments = apps.make(), Payments()

    async def pay(job: Job) -> str:
        if not payments.made:
            payments.made.append("nothing came of it")
            raise ConnectionError("reset by peer")
        return await payments.pay(job)

    @app.handler("q")
    async def work(job: Job) -> Any:
        return await job.step("pay", pay, job, at_most_once=True)

    async with app:
        id_ = (await app.send("q", None)).id
        job = await app.wait(id_)
        assert (job.state, job.attempt) == ("in_doubt", 1)
        assert "ConnectionError: reset by peer" in job.reason
        await app.queues.settle(id_, "pay", done=False)
        assert (await app.wait(id_)).result == "receipt 2"
    assert apps.value(steps_key(id_), internal=True) is None


@pytest.mark.parametrize("found", ["done", "not done", "not found out"])
@virtual
async def test_what_became_of_a_step_can_be_asked(found: str) -> None:
    payments = Payments()
    asked = 0

    async def pay(job: Job) -> str:
        receipt = await payments.pay(job)
        if job.attempt == 1 and len(payments.made) == 1:
            raise asyncio.CancelledError  # as if it had been cut off
        return receipt

    async def ask() -> str:
        nonlocal asked
        asked += 1
        if found == "not done":
            raise NotDone("they know of nothing")
        if found == "not found out":
            raise TimeoutError("nobody answers")
        return "found"

    async def work(job: Job) -> Any:
        return await job.step("pay", pay, job, at_most_once=True, ask=ask)

    job = await run_one(work)
    assert asked == 1
    if found == "not found out":
        assert (job.state, len(payments.made)) == ("in_doubt", 1)
        assert "could not be determined: TimeoutError: nobody answers" in job.reason
    else:
        assert job.state == "succeeded"
        assert (job.result, len(payments.made)) == (
            ("found", 1) if found == "done" else ("receipt 2", 2)
        )


@virtual
async def test_a_step_that_has_surely_done_nothing_is_tried_again() -> None:
    ran: list[int] = []

    async def pay(job: Job) -> str:
        ran.append(job.attempt)
        if job.attempt < 3:
            raise NotDone("the line was busy")
        return "paid"

    async def work(job: Job) -> Any:
        return await job.step("pay", pay, job, at_most_once=True)

    job = await run_one(work)
    assert (job.state, job.result, ran) == ("succeeded", "paid", [1, 2, 3])
    assert job.history[0].reason == "the line was busy"


@pytest.mark.parametrize("found", ["done", "not done", "not found out"])
@virtual
async def test_a_step_that_has_failed_is_asked_about_at_once(found: str) -> None:
    payments = Payments()

    async def pay(job: Job) -> str:
        receipt = await payments.pay(job)
        if len(payments.made) == 1:
            raise TimeoutError("no answer came")
        return receipt

    async def ask() -> str:
        if found == "not done":
            raise NotDone("they know of nothing")
        if found == "not found out":
            raise TimeoutError("nobody answers")
        return "found"

    async def work(job: Job) -> Any:
        return await job.step("pay", pay, job, at_most_once=True, ask=ask)

    job = await run_one(work)
    wanted = {
        "done": ("succeeded", 1, 1),
        "not done": ("succeeded", 2, 2),
        "not found out": ("in_doubt", 1, 1),
    }
    assert (job.state, job.attempt, len(payments.made)) == wanted[found]
    if found == "not done":
        assert job.history[0].reason == "they know of nothing"


@virtual
async def test_a_step_that_has_done_nothing_may_name_the_time_of_the_next_attempt() -> None:
    tried: list[int] = []

    async def pay(job: Job) -> str:
        tried.append(job._store.clock.now_ms())
        if len(tried) == 1:
            raise NotDone("come back in half an hour", after_s=1_800)
        if len(tried) == 2:
            raise NotDone("come back yesterday", after_s=-1)
        return "paid"

    async def work(job: Job) -> Any:
        return await job.step("pay", pay, job, at_most_once=True)

    job = await run_one(work)
    assert (job.state, job.result) == ("succeeded", "paid")
    assert 1_800_000 <= tried[1] - tried[0] < 1_810_000
    assert tried[2] - tried[1] < 60_000, "what cannot be meant is a failure like others"


@virtual
async def test_doubt_in_a_group_of_tasks_is_doubt() -> None:
    async def pay() -> None:
        raise ConnectionError

    async def work(job: Job) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(job.step("pay", pay, at_most_once=True))

    assert (await run_one(work)).state == "in_doubt"


@virtual
async def test_a_handler_that_says_it_is_in_doubt_is_believed() -> None:
    async def work(job: Job) -> None:
        raise InDoubt("who knows")

    job = await run_one(work)
    assert (job.state, job.reason) == ("in_doubt", "who knows")
