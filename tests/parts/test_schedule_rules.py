"""The rules find what does not fit together."""

from typing import Any

import msgspec
import pytest

from onceward.keys import Key
from onceward.parts.schedule import job_key
from onceward.transaction import Transaction
from tests.parts.jobs import Jobs, all_records, new_jobs, problems
from tests.quick import START_MS


async def change(jobs: Jobs, key: Key, value: Any) -> None:
    async def fn(tx: Transaction) -> None:
        if value is None:
            tx.delete(key)
        else:
            tx.put(key, value)

    await jobs.store.run(fn)


async def every_state() -> Jobs:
    """Jobs in every state, with leases renewed, moved and left over."""
    jobs = await new_jobs()
    for n in range(3):
        await jobs.send(n, queue="ordered", order_key="k")
    await jobs.complete(await jobs.claimed(queue="ordered"))
    await jobs.send(due_ms=START_MS + 90_000)
    for _ in range(5):
        await jobs.send()
    await jobs.complete(await jobs.claimed())
    await jobs.fail(await jobs.claimed(), None)
    await jobs.fail(await jobs.claimed(), START_MS + 60_000)
    claim = await jobs.claimed(lease_ms=1_000)
    await jobs.extend(claim, 5_000)
    await jobs.pass_ms(1_000)
    await jobs.claimed()
    return jobs


async def test_sound_records_break_no_rule() -> None:
    assert problems((await every_state()).engine) == []


async def test_whatever_record_is_missing_some_rule_is_broken() -> None:
    records = all_records((await every_state()).engine)
    kinds = [key[0].partition("#")[0] for key in records]
    assert set(kinds) == {"job", "due", "ready", "line", "order", "dead"}
    unnoticed = []
    for number, record in enumerate(records.values()):
        jobs = await every_state()
        await change(jobs, list(all_records(jobs.engine))[number], None)
        if not problems(jobs.engine):
            unnoticed.append((kinds[number], msgspec.json.decode(record.value)))
    # A job that has ended stands nowhere, and the entry of a renewed lease may have moved.
    jobs_unnoticed = [value["state"] for kind, value in unnoticed if kind == "job"]
    assert sorted(jobs_unnoticed) == ["done", "done"]
    assert [value for kind, value in unnoticed if kind != "job"] == ["lease"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (("ready#0000#q", "x"), "no id", "there is no job 'no id'"),
        (("ready#0000#q", "x"), 7, "there is no job 7"),
        (("line#0000#q#k", "x"), "0" * 29, "there is no job"),
        (("due#0000", f"{1:016d}#{'0' * 29}#job"), "job", "there is no job"),
        (("order#0000", "q#x"), {"head": "0" * 29}, "no job at the head"),
        (("order#0000", "q#x"), 1, "no job at the head"),
        (("job#0000", f"{'0' * 29}#job"), 1, "not a job"),
        (
            ("job#0000", f"{'0' * 29}#job"),
            {"queue": "q", "body": 1, "state": "odd", "made_ms": 1},
            "not a job",
        ),
    ],
)
async def test_a_record_that_makes_no_sense_is_found(key: Key, value: Any, says: str) -> None:
    jobs = await every_state()
    await change(jobs, key, value)
    [problem] = problems(jobs.engine)
    assert says in problem


async def test_an_entry_of_a_kind_that_the_schedule_does_not_know_is_none_of_its_business() -> None:
    jobs = await every_state()
    await change(jobs, ("due#0000", f"{1:016d}#x#timer"), 1)
    assert problems(jobs.engine) == []


async def test_a_head_that_another_claims_to_be_is_found() -> None:
    jobs = await new_jobs()
    first, second = [await jobs.send(order_key="k") for _ in range(2)]
    job = await jobs.get(second)
    await change(jobs, ("order#0000", "q#k"), {"head": second, "next": 1, "waiting": 0})
    found = problems(jobs.engine)
    assert any(job_key(first)[1] in problem for problem in found)
    assert any("is not its head" in problem for problem in found)
    assert job.state == "waiting"
