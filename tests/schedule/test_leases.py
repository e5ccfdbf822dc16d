"""Leases: how long a worker may take, and what happens when it takes longer."""

from tests.quick import START_MS
from tests.schedule.jobs import new_jobs, problems


async def test_a_lease_that_runs_out_makes_the_job_ready_for_another_attempt() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    claim = await jobs.claimed(worker="ann", lease_ms=1_000)
    await jobs.pass_ms(999)
    assert await jobs.stage(id_) == "running"
    await jobs.pass_ms(1)
    job = await jobs.get(id_)
    assert (job.stage, job.reason) == ("ready", "the lease of ann ran out")
    again = await jobs.claimed()
    assert again.attempt == 2
    assert again.token != claim.token
    assert problems(jobs.engine) == []


async def test_an_extended_lease_runs_from_now_and_moves_its_entry_only_when_that_is_due() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    claim = await jobs.claimed(lease_ms=1_000)
    [entry] = await jobs.due()
    await jobs.pass_ms(600)
    assert await jobs.extend(claim, 1_000) == START_MS + 1_600
    assert await jobs.due() == [entry]
    await jobs.pass_ms(400)
    [later] = await jobs.due()
    assert later[1].startswith(f"{START_MS + 1_600:016d}#")
    assert problems(jobs.engine) == []
    await jobs.pass_ms(599)
    assert await jobs.stage(id_) == "running"
    await jobs.pass_ms(1)
    assert await jobs.stage(id_) == "ready"
    assert await jobs.due() == []


async def test_an_entry_that_another_owner_has_moved_already_is_left_alone() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    claim = await jobs.claimed(lease_ms=1_000)
    [entry] = await jobs.due()
    await jobs.extend(claim, 5_000)
    await jobs.pass_ms(1_000)
    moved = await jobs.due()
    await jobs.act(entry)
    assert await jobs.due() == moved != [entry]
    assert await jobs.stage(id_) == "running"


async def test_extending_never_makes_a_lease_shorter() -> None:
    jobs = await new_jobs()
    await jobs.send()
    claim = await jobs.claimed(lease_ms=1_000)
    assert await jobs.extend(claim, 10) == START_MS + 1_000
    assert await jobs.extend(claim, 5_000) == START_MS + 5_000
    assert await jobs.extend(claim, 10) == START_MS + 5_000


async def test_a_late_worker_may_go_on_while_nobody_has_noticed() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    claim = await jobs.claimed(lease_ms=1_000)
    jobs.clock.at_ms += 5_000
    assert await jobs.extend(claim, 1_000) == START_MS + 6_000
    await jobs.pass_ms(0)
    assert await jobs.stage(id_) == "running"
    jobs.clock.at_ms += 5_000
    await jobs.complete(claim)
    await jobs.pass_ms(0)
    assert await jobs.stage(id_) == "succeeded"
    assert await jobs.due() == []


async def test_completing_an_extended_job_leaves_at_most_an_entry_that_goes_at_its_time() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    claim = await jobs.claimed(lease_ms=1_000)
    await jobs.extend(claim, 3_000)
    await jobs.pass_ms(1_000)
    await jobs.complete(claim)
    assert len(await jobs.due()) == 1
    await jobs.pass_ms(2_000)
    assert await jobs.due() == []
    assert await jobs.stage(id_) == "succeeded"


async def test_what_an_extended_lease_left_behind_does_not_end_the_next_one() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    first = await jobs.claimed(lease_ms=1_000)
    await jobs.extend(first, 3_000)
    await jobs.pass_ms(1_000)
    await jobs.fail(first, START_MS)
    second = await jobs.claimed(lease_ms=10_000)
    await jobs.pass_ms(5_000)
    assert await jobs.stage(id_) == "running"
    assert len(await jobs.due()) == 1
    await jobs.complete(second)
    assert await jobs.due() == []


async def test_the_renewal_of_an_earlier_attempt_does_not_prolong_the_next_one() -> None:
    jobs = await new_jobs()
    id_ = await jobs.send()
    first = await jobs.claimed(lease_ms=1_000)
    await jobs.extend(first, 60_000)
    await jobs.fail(first, START_MS)
    await jobs.claimed(lease_ms=1_000)
    await jobs.pass_ms(1_000)
    assert await jobs.stage(id_) == "ready"


async def test_a_released_job_is_ready_again_and_the_attempt_does_not_count() -> None:
    jobs = await new_jobs()
    await jobs.send(attempts_max=1)
    first = await jobs.claimed()
    await jobs.release(first)
    assert await jobs.due() == []
    again = await jobs.claimed()
    assert again.attempt == 1
    assert again.token != first.token
    assert problems(jobs.engine) == []
