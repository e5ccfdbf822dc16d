"""The steps of a job: recorded by who holds it, and gone with it."""

from typing import Any

import pytest

from onceward.errors import BadInput, NoSuchJob, NotFailed, StaleToken, TooLarge
from onceward.schedule import Claim, steps_key
from onceward.work import steps as steps_part
from onceward.work.steps import Step, Steps, done_step, result_of
from tests.schedule.jobs import Jobs, all_records, new_jobs, problems


async def record(jobs: Jobs, claim: Claim, name: str, step: Step | None) -> None:
    await jobs.store.run(
        lambda tx: steps_part.record(tx, jobs.schedule, claim.id, claim.token, name, step)
    )


async def load(jobs: Jobs, id_: str) -> Steps:
    return await jobs.store.run(lambda tx: steps_part.load(tx, id_))


async def settle(jobs: Jobs, id_: str, name: str, *, done: bool, result: Any = None) -> None:
    await jobs.store.run(
        lambda tx: steps_part.settle(tx, jobs.schedule, id_, name, result=result, done=done)
    )


async def held_in_doubt(jobs: Jobs) -> str:
    await jobs.send()
    claim = await jobs.claimed()
    await record(jobs, claim, "before", done_step(1))
    await record(jobs, claim, "pay", Step(intent=1))
    await jobs.store.run(lambda tx: jobs.schedule.hold(tx, claim.id, claim.token, "who knows"))
    return claim.id


async def test_what_was_recorded_is_there_for_the_next_attempt() -> None:
    jobs = await new_jobs()
    await jobs.send()
    claim = await jobs.claimed()
    assert not claim.stepped
    assert await load(jobs, claim.id) == {}
    await record(jobs, claim, "a", done_step({"n": (1, 2)}))
    await record(jobs, claim, "b", Step(intent=1))
    await record(jobs, claim, "c", Step(until_ms=5))
    await record(jobs, claim, "b", None)
    await record(jobs, claim, "not there", None)
    await jobs.fail(claim, 0)
    claim = await jobs.claimed()
    assert claim.stepped
    assert await load(jobs, claim.id) == {
        "a": Step(done=True, result={"n": [1, 2]}),
        "c": Step(until_ms=5),
    }
    assert problems(jobs.engine) == []


async def test_whoever_does_not_hold_the_job_records_nothing() -> None:
    jobs = await new_jobs()
    await jobs.send()
    late = await jobs.claimed(lease_ms=100)
    await jobs.pass_ms(100)
    await jobs.claimed()
    with pytest.raises(StaleToken):
        await record(jobs, late, "a", done_step(1))
    assert await load(jobs, late.id) == {}


@pytest.mark.parametrize("end", ["complete", "cancel", "cancel when failed"])
async def test_steps_go_when_their_job_has_ended_whoever_ends_it(end: str) -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    claim = await jobs.claimed()
    await record(jobs, claim, "a", done_step(1))
    if end == "complete":
        await jobs.complete(claim)
    else:
        if end == "cancel when failed":
            await jobs.fail(claim, None)
            assert steps_key(id_) in all_records(jobs.engine), "it may be redriven"
        await jobs.store.run(lambda tx: jobs.schedule.cancel(tx, id_))
    assert steps_key(id_) not in all_records(jobs.engine)


async def test_a_redriven_job_goes_on_after_its_steps() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    claim = await jobs.claimed()
    await record(jobs, claim, "a", done_step(1))
    await jobs.fail(claim, None)
    await jobs.store.run(lambda tx: jobs.schedule.retry(tx, id_))
    assert (await jobs.claimed()).stepped
    assert "a" in await load(jobs, id_)


async def test_a_step_in_doubt_is_settled_as_done() -> None:
    jobs = await new_jobs()
    id_ = await held_in_doubt(jobs)
    await settle(jobs, id_, "pay", done=True, result=("receipt", 7))
    assert await jobs.stage(id_) == "ready"
    steps = await load(jobs, id_)
    assert steps == {"before": done_step(1), "pay": done_step(["receipt", 7])}
    assert problems(jobs.engine) == []


async def test_a_step_in_doubt_is_settled_as_not_done() -> None:
    jobs = await new_jobs()
    id_ = await held_in_doubt(jobs)
    await settle(jobs, id_, "pay", done=False)
    assert await jobs.stage(id_) == "ready"
    assert await load(jobs, id_) == {"before": done_step(1)}


@pytest.mark.parametrize("end", ["lease", "failure"])
async def test_a_last_attempt_that_was_cut_off_in_a_step_leaves_it_in_doubt(end: str) -> None:
    jobs = await new_jobs()
    states = []
    for step in (Step(intent=1), done_step(1), Step(until_ms=5), None):
        id_ = await jobs.send(attempts_max=1)
        claim = await jobs.claimed(lease_ms=100)
        await record(jobs, claim, "pay", step)
        if end == "lease":
            await jobs.pass_ms(100)
        else:
            await jobs.fail(claim, 0)
        states.append(await jobs.stage(id_))
        if states[-1] == "in_doubt":
            await settle(jobs, id_, "pay", done=True, result=7)
            await jobs.complete(await jobs.claimed())
    assert states == ["in_doubt", "failed", "failed", "failed"]
    assert problems(jobs.engine) == []


async def test_only_a_step_in_doubt_can_be_settled() -> None:
    jobs = await new_jobs()
    id_ = await held_in_doubt(jobs)
    for name in ("before", "other"):
        with pytest.raises(BadInput, match="no step"):
            await settle(jobs, id_, name, done=True)
    with pytest.raises(BadInput, match="the result of the step cannot be stored"):
        await settle(jobs, id_, "pay", done=True, result=object())
    assert await jobs.stage(id_) == "in_doubt"
    ready = await jobs.send()
    with pytest.raises(NotFailed, match="queued"):
        await settle(jobs, ready, "pay", done=True)
    with pytest.raises(NoSuchJob):
        await settle(jobs, "nonsense", "pay", done=True)


async def test_steps_that_do_not_fit_into_a_record_are_refused() -> None:
    jobs = await new_jobs()
    await jobs.send()
    claim = await jobs.claimed()
    await record(jobs, claim, "a", done_step("x" * 200_000))
    with pytest.raises(TooLarge):
        await record(jobs, claim, "b", done_step("x" * 200_000))
    assert list(await load(jobs, claim.id)) == ["a"]


@pytest.mark.parametrize("result", [object(), float("nan"), {"a": float("inf")}, "\ud800"])
def test_what_json_cannot_say_is_no_result(result: Any) -> None:
    with pytest.raises(BadInput):
        done_step(result)


def test_a_result_belongs_to_who_asks() -> None:
    given = [1]
    step = done_step(given)
    given.append(2)
    result_of(step).append(3)
    assert result_of(step) == [1]
