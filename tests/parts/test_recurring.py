"""A job recurs: each time in one commit with the time of the next."""

from typing import Any

import pytest

from onceward import limits
from onceward.errors import BadInput
from onceward.keys import Key
from onceward.parts import recurring as recurring_part
from onceward.parts.recurring import RECUR_WRITES, Recurring, read_to_recur, recurring_key
from onceward.parts.schedule import due_ms_of
from tests.parts.jobs import Jobs, new_jobs, problems


async def recur(jobs: Jobs, every_ms: int = 1_000, **changes: Any) -> None:
    wanted: dict[str, Any] = {"name": "daily", "queue": "q", "body": {"n": 1}, **changes}
    name, queue, body = wanted.pop("name"), wanted.pop("queue"), wanted.pop("body")
    await jobs.store.run(
        lambda tx: recurring_part.recur(tx, jobs.schedule, name, queue, body, every_ms, **wanted)
    )


async def come_due(jobs: Jobs, entry: Key) -> None:
    await jobs.store.run(lambda tx: recurring_part.come_due(jobs.schedule, tx, entry))


async def pass_ms(jobs: Jobs, passed_ms: int) -> int:
    """Let time pass, and act on what is due then; returns how many jobs are ready."""
    jobs.clock.at_ms += passed_ms
    for entry in await jobs.due():
        if due_ms_of(entry[1]) <= jobs.clock.at_ms:
            await come_due(jobs, entry)
    assert problems(jobs.engine) == []
    return len(await jobs.ready())


async def test_a_job_comes_each_time_and_never_early() -> None:
    jobs = await new_jobs()
    await recur(jobs)
    assert await pass_ms(jobs, 999) == 0
    assert await pass_ms(jobs, 1) == 1
    assert await pass_ms(jobs, 999) == 1
    assert await pass_ms(jobs, 1) == 2
    claim = await jobs.claimed()
    assert claim.body == {"n": 1}


async def test_what_was_missed_is_made_up_for_by_one_job_and_the_beat_is_kept() -> None:
    jobs = await new_jobs()
    await recur(jobs)
    assert await pass_ms(jobs, 10_500) == 1
    assert await pass_ms(jobs, 499) == 1
    assert await pass_ms(jobs, 1) == 2


@pytest.mark.parametrize("body", [{"n": 1}, {"pair": (1, 2)}, {1: None}, None])
async def test_the_same_again_changes_nothing(body: Any) -> None:
    jobs = await new_jobs()
    await recur(jobs, body=body)
    for _ in range(9):
        assert await pass_ms(jobs, 100) == 0
        await recur(jobs, body=body)
    assert await pass_ms(jobs, 100) == 1, "who starts again and again must not put it off"
    assert len(await jobs.due()) == 1


@pytest.mark.parametrize("change", [{"every_ms": 5_000}, {"queue": "r"}, {"body": 2}])
async def test_other_values_replace_those_before(change: dict[str, Any]) -> None:
    jobs = await new_jobs()
    await recur(jobs)
    [old] = await jobs.due()
    await pass_ms(jobs, 500)
    await recur(jobs, **change)
    [new] = await jobs.due()
    assert new != old
    await come_due(jobs, old)
    assert await jobs.ready() == []
    assert await pass_ms(jobs, change.get("every_ms", 1_000)) == (0 if "queue" in change else 1)
    assert len(await jobs.ready(change.get("queue", "q"))) == 1


async def test_what_is_stopped_comes_no_more() -> None:
    jobs = await new_jobs()
    await recur(jobs)
    [entry] = await jobs.due()
    assert await jobs.store.run(lambda tx: recurring_part.stop(tx, jobs.schedule, "daily"))
    assert not await jobs.store.run(lambda tx: recurring_part.stop(tx, jobs.schedule, "daily"))
    assert await jobs.due() == []
    await come_due(jobs, entry)
    assert await pass_ms(jobs, 10_000) == 0


async def test_two_nodes_that_act_at_once_send_one_job() -> None:
    jobs = await new_jobs()
    await recur(jobs)
    [entry] = await jobs.due()
    jobs.clock.at_ms += 1_000
    await come_due(jobs, entry)
    await come_due(jobs, entry)
    assert len(await jobs.ready()) == 1


async def test_each_time_takes_no_more_writes_than_it_says() -> None:
    jobs = await new_jobs()
    await recur(jobs, order_key="k")
    for _ in range(3):
        jobs.clock.at_ms += 1_000
        [entry] = await jobs.due()
        tx = jobs.store.begin()
        await tx.fetch(read_to_recur(entry))
        await recurring_part.come_due(jobs.schedule, tx, entry)
        assert tx.size <= RECUR_WRITES
        await jobs.store.end(tx)
    assert await jobs.store.run(lambda tx: tx.get(recurring_key("daily"), Recurring)) is not None


@pytest.mark.parametrize(
    "bad",
    [
        {"name": ""},
        {"name": "x" * (limits.QUEUE_CHARS_MAX + 1)},
        {"name": "\ud800"},
        {"queue": "no such name"},
        {"every_ms": limits.RECUR_MS_MIN - 1},
        {"every_ms": limits.RETENTION_MS_MAX + 1},
        {"body": float("nan")},
        {"body": "x" * limits.BODY_BYTES_MAX},
        {"order_key": ""},
        {"order_key": "\ud800"},
    ],
)
async def test_what_cannot_be_meant_is_refused(bad: dict[str, Any]) -> None:
    jobs = await new_jobs()
    with pytest.raises(BadInput):
        await recur(jobs, **bad)
    assert not jobs.engine.memory.table.count
