"""What can happen to a job, stage by stage."""

import pytest

from onceward import limits
from onceward.api.queues import DAY_MS
from onceward.errors import NoSuchJob, StaleToken
from onceward.schedule import Schedule, slot_of
from onceward.store.transaction import Transaction
from tests.quick import START_MS
from tests.schedule.jobs import new_jobs, problems


async def test_a_job_is_ready_at_once() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send({"n": 1})
    job = await jobs.get(id_)
    assert (job.stage, job.body, job.created_ms, job.attempt) == ("ready", {"n": 1}, START_MS, 0)
    assert [entry[1] for entry in await jobs.ready()] == [job.place]
    assert await jobs.due() == []
    assert problems(jobs.engine) == []


async def test_a_delayed_job_is_ready_at_its_time_and_not_before() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send(due_ms=START_MS + 1_000)
    assert await jobs.stage(id_) == "due"
    [entry] = await jobs.due()
    await jobs.pass_ms(999)
    await jobs.act(entry)
    assert await jobs.stage(id_) == "due"
    assert await jobs.due() == [entry]
    await jobs.pass_ms(1)
    assert await jobs.stage(id_) == "ready"
    assert await jobs.due() == []
    assert problems(jobs.engine) == []


async def test_a_time_in_the_past_is_now() -> None:
    jobs = await new_jobs()
    assert await jobs.stage(await jobs.send(due_ms=START_MS)) == "ready"
    assert await jobs.stage(await jobs.send(due_ms=1)) == "ready"


async def test_promoting_what_is_not_due_there_any_more_only_removes_the_entry() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send(due_ms=START_MS + 1)
    [entry] = await jobs.due()
    await jobs.pass_ms(1)
    before = await jobs.get(id_)
    await jobs.act(entry)
    await jobs.act(("due#0000", f"{START_MS:016d}#{'0' * 26}000#job"))
    assert await jobs.get(id_) == before
    assert len(await jobs.ready()) == 1


async def test_a_claim_leases_the_job_with_an_attempt_number_and_a_token() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send("body")
    claim = await jobs.claimed(worker="ann", lease_ms=500)
    assert (claim.id, claim.queue, claim.body, claim.attempt) == (id_, "q", "body", 1)
    assert claim.lease_until_ms == START_MS + 500
    job = await jobs.get(id_)
    assert (job.stage, job.token, job.worker, job.attempt) == ("running", claim.token, "ann", 1)
    assert await jobs.ready() == []
    [entry] = await jobs.due()
    assert entry[1] == job.place
    assert problems(jobs.engine) == []


async def test_a_job_is_claimed_once() -> None:
    jobs = await new_jobs()
    await jobs.send()
    [entry] = await jobs.ready()
    assert await jobs.claim_at(entry) is not None
    assert await jobs.claim_at(entry) is None


async def test_claiming_an_entry_left_over_removes_it_and_gives_nothing() -> None:
    jobs = await new_jobs()
    await jobs.send()
    [entry] = await jobs.ready()
    claim = await jobs.claimed()

    async def leave_over(tx: Transaction) -> None:
        tx.put(entry, claim.id)

    await jobs.store.run(leave_over)
    assert len(problems(jobs.engine)) == 1
    assert await jobs.claim_at(entry) is None
    assert problems(jobs.engine) == []
    await jobs.complete(claim)


async def test_jobs_are_handed_out_by_priority_then_in_the_order_they_became_ready() -> None:
    jobs = await new_jobs()
    for body, priority in (("a", 5), ("b", 9), ("c", 0), ("d", 5), ("e", 0)):
        await jobs.send(body, priority=priority)
    bodies = [(await jobs.claimed()).body for _ in range(5)]
    assert bodies == ["c", "e", "a", "d", "b"]


async def test_jobs_that_are_overdue_are_handed_out_in_the_order_of_their_times() -> None:
    jobs = await new_jobs()
    for delay_ms in (300, 200, 100):
        await jobs.send(delay_ms, due_ms=START_MS + delay_ms)
    jobs.clock.at_ms += 250
    await jobs.send("now")
    await jobs.pass_ms(0)
    assert len(await jobs.ready()) == 3
    await jobs.pass_ms(50)
    bodies = [(await jobs.claimed()).body for _ in range(4)]
    assert bodies == [100, 200, "now", 300]


async def test_a_completed_job_is_done_and_leaves_nothing_behind_but_its_record() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    await jobs.complete(await jobs.claimed())
    assert await jobs.stage(id_) == "succeeded"
    assert await jobs.due() == []
    assert await jobs.ready() == []
    assert problems(jobs.engine) == []


async def test_a_done_job_is_forgotten_after_a_while_and_a_failed_one_is_not() -> None:
    jobs = await new_jobs()
    done, failed = await jobs.send(), await jobs.send()
    await jobs.complete(await jobs.claimed())
    await jobs.fail(await jobs.claimed(), None)
    await jobs.pass_ms(7 * DAY_MS - 1)
    assert await jobs.stage(done) == "succeeded"
    await jobs.pass_ms(1)
    with pytest.raises(NoSuchJob):
        await jobs.get(done)
    assert await jobs.stage(failed) == "failed"


async def test_a_failed_attempt_is_repeated_after_its_pause() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    assert await jobs.fail(await jobs.claimed(), START_MS + 100, "no luck") == "retrying"
    job = await jobs.get(id_)
    assert (job.stage, job.reason, job.attempt) == ("due", "no luck", 1)
    await jobs.pass_ms(100)
    claim = await jobs.claimed()
    assert claim.attempt == 2
    await jobs.complete(claim)
    assert problems(jobs.engine) == []


async def test_a_failed_attempt_without_a_pause_is_repeated_at_once() -> None:
    jobs = await new_jobs()
    await jobs.send()
    assert await jobs.fail(await jobs.claimed(), START_MS) == "queued"
    assert (await jobs.claimed()).attempt == 2


async def test_a_failure_without_a_retry_is_final() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    assert await jobs.fail(await jobs.claimed(), None, "hopeless") == "failed"
    job = await jobs.get(id_)
    assert (job.stage, job.reason, job.token) == ("failed", "hopeless", "")
    assert await jobs.ready() == []
    assert await jobs.due() == []


async def test_the_last_attempt_is_final_whether_it_failed_or_was_lost() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send(attempts_max=3)
    assert await jobs.fail(await jobs.claimed(), START_MS) == "queued"
    await jobs.claimed()
    await jobs.pass_ms(1_000)
    assert await jobs.stage(id_) == "ready"
    await jobs.claimed(worker="bob")
    await jobs.pass_ms(1_000)
    job = await jobs.get(id_)
    assert (job.stage, job.attempt, job.reason) == ("failed", 3, "the lease of bob ran out")
    assert problems(jobs.engine) == []


async def test_a_very_long_reason_is_cut() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    await jobs.fail(await jobs.claimed(), None, "x" * 1_000_000)
    assert (await jobs.get(id_)).reason == "x" * limits.REASON_CHARS_MAX


async def test_the_largest_body_survives_everything_that_can_happen() -> None:
    jobs = await new_jobs()
    body = "x" * (limits.BODY_BYTES_MAX - 2)
    id_ = await jobs.send(body, order_key="k" * limits.ORDER_KEY_BYTES_MAX)
    claim = await jobs.claimed(worker="w" * limits.WORKER_CHARS_MAX)
    await jobs.fail(claim, START_MS, "\x00" * limits.REASON_CHARS_MAX)
    await jobs.claimed()
    await jobs.pass_ms(1_000)
    await jobs.complete(await jobs.claimed())
    assert (await jobs.get(id_)).body == body


@pytest.mark.parametrize("what", ["complete", "extend", "fail", "release"])
@pytest.mark.parametrize("how", ["done", "failed", "lost", "claimed anew", "released"])
async def test_a_late_worker_cannot_touch_a_job_that_moved_on(what: str, how: str) -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    late = await jobs.claimed()
    if how == "done":
        await jobs.complete(late)
    elif how == "failed":
        await jobs.fail(late, START_MS + 60_000)
    elif how == "released":
        await jobs.release(late)
    else:
        await jobs.pass_ms(1_000)
        if how == "claimed anew":
            await jobs.claimed()
    before = await jobs.get(id_)
    calls = {
        "complete": lambda: jobs.complete(late),
        "extend": lambda: jobs.extend(late, 1_000),
        "fail": lambda: jobs.fail(late, None),
        "release": lambda: jobs.release(late),
    }
    with pytest.raises(StaleToken) as raised:
        await calls[what]()
    assert raised.value.details == {"id": id_, "state": before.state}
    assert await jobs.get(id_) == before
    assert problems(jobs.engine) == []


async def test_the_effects_of_a_late_worker_are_not_written() -> None:
    jobs = await new_jobs()
    await jobs.send()
    late = await jobs.claimed()
    await jobs.pass_ms(1_000)

    async def fn(tx: Transaction) -> None:
        tx.put(("p", "effect"), 1)
        await jobs.schedule.complete(tx, late.id, late.token)

    with pytest.raises(StaleToken):
        await jobs.store.run(fn)
    assert await jobs.store.run(lambda tx: tx.get(("p", "effect"))) is None


async def test_of_a_completion_and_an_expiry_at_the_same_time_one_happens() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    claim = await jobs.claimed()
    [entry] = await jobs.due()
    jobs.clock.at_ms += 1_000

    async def complete_during(tx: Transaction) -> None:
        await jobs.schedule.expire(tx, entry)
        if await jobs.stage(id_) == "running":
            await jobs.complete(claim)

    await jobs.store.run(complete_during)
    assert await jobs.stage(id_) == "succeeded"
    assert await jobs.ready() == []
    assert problems(jobs.engine) == []


async def test_of_an_extension_and_an_expiry_at_the_same_time_one_happens() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    claim = await jobs.claimed()
    [entry] = await jobs.due()
    jobs.clock.at_ms += 1_000
    extended = False

    async def extend_during(tx: Transaction) -> None:
        nonlocal extended
        await jobs.schedule.expire(tx, entry)
        if not extended:
            extended = True
            await jobs.extend(claim, 1_000)

    await jobs.store.run(extend_during)
    assert await jobs.stage(id_) == "running"
    await jobs.complete(claim)


async def test_renewing_never_conflicts_with_the_workers_own_commit() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    claim = await jobs.claimed()
    runs = 0

    async def work(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await jobs.schedule.complete(tx, claim.id, claim.token)
        await jobs.extend(claim, 60_000)

    await jobs.store.run(work)
    assert runs == 1
    assert await jobs.stage(id_) == "succeeded"


async def test_an_id_contains_its_slot_and_all_slots_are_used() -> None:
    jobs = await new_jobs()
    jobs.schedule = Schedule(jobs.store.ids, slots=4_096)
    ids = [await jobs.send() for _ in range(500)]
    assert len({slot_of(id_) for id_ in ids}) > 400
    assert max(slot_of(id_) for id_ in ids) > 2_048
    for id_ in ids[:20]:
        partition = f"ready#{slot_of(id_):04d}#q"
        found = await jobs.engine.scan(partition, START_MS)
        assert f'"{id_}"'.encode() in [record.value for record in found]
