"""What happens to jobs beyond their attempts: limits, cancel, move, dead letters, settings."""

from typing import Any

import pytest

from onceward import limits
from onceward.errors import AlreadyEnded, BadInput, NoSuchJob, NotFailed, StaleToken
from onceward.schedule import Claim, QueueSettings, quota, spend
from onceward.schedule.settings import retry_pause_ms
from onceward.store.transaction import Transaction
from onceward.work import bulk as queue_part
from tests.schedule.jobs import Jobs, problems


async def jobs_with(**settings: Any) -> Jobs:
    jobs = Jobs()
    jobs.schedule.settings = lambda queue: (
        QueueSettings(**settings) if queue == "q" else QueueSettings()
    )
    return await jobs.open()


async def stages(jobs: Jobs, ids: list[str]) -> list[str]:
    assert problems(jobs.engine) == []
    return [await jobs.stage(id_) for id_ in ids]


async def test_no_more_jobs_of_a_limit_key_are_ready_or_at_work_than_the_limit_says() -> None:
    jobs = await jobs_with(limit_per_key=2)
    ids = [await jobs.send(limit_key="k") for _ in range(4)]
    other = await jobs.send(limit_key="other")
    assert await stages(jobs, [*ids, other]) == ["ready", "ready", "parked", "parked", "ready"]
    claim = await jobs.claimed()
    assert await stages(jobs, ids) == ["running", "ready", "parked", "parked"]
    await jobs.complete(claim)
    assert await stages(jobs, ids) == ["succeeded", "ready", "ready", "parked"]


async def test_parked_jobs_come_by_priority_and_then_in_their_order() -> None:
    jobs = await jobs_with(limit_per_key=1)
    await jobs.send("first", limit_key="k")
    for body, priority in (("late", 9), ("a", 5), ("b", 5), ("urgent", 0)):
        await jobs.send(body, limit_key="k", priority=priority)
    seen = []
    while claim := await jobs.claim():
        seen.append(claim.body)
        await jobs.complete(claim)
    assert seen == ["first", "urgent", "a", "b", "late"]
    assert problems(jobs.engine) == []


async def test_a_job_that_waits_for_its_next_attempt_holds_no_place_of_its_limit_key() -> None:
    jobs = await jobs_with(limit_per_key=1)
    first, second = [await jobs.send(limit_key="k") for _ in range(2)]
    await jobs.fail(await jobs.claimed(), jobs.clock.at_ms + 1_000)
    assert await stages(jobs, [first, second]) == ["due", "ready"]
    await jobs.pass_ms(1_000)
    assert await stages(jobs, [first, second]) == ["parked", "ready"]
    await jobs.complete(await jobs.claimed())
    assert await stages(jobs, [first, second]) == ["ready", "succeeded"]


async def test_a_released_job_keeps_its_place_and_a_lost_lease_gives_it_up() -> None:
    jobs = await jobs_with(limit_per_key=1)
    first, second = [await jobs.send(limit_key="k") for _ in range(2)]
    await jobs.release(await jobs.claimed())
    assert await stages(jobs, [first, second]) == ["ready", "parked"]
    await jobs.claimed(lease_ms=100)
    await jobs.pass_ms(100)
    assert await stages(jobs, [first, second]) == ["parked", "ready"]


async def test_a_raised_limit_lets_two_in_where_one_has_left() -> None:
    limit = 1
    jobs = await jobs_with()
    jobs.schedule.settings = lambda queue: QueueSettings(limit_per_key=limit)
    ids = [await jobs.send(limit_key="k") for _ in range(5)]
    limit = 3
    await jobs.complete(await jobs.claimed())
    assert (await stages(jobs, ids)).count("ready") == 2
    await jobs.complete(await jobs.claimed())
    assert (await stages(jobs, ids)).count("ready") == 3


async def test_order_and_limit_keys_work_together() -> None:
    jobs = await jobs_with(limit_per_key=1)
    a1 = await jobs.send("a1", order_key="a", limit_key="k")
    a2 = await jobs.send("a2", order_key="a", limit_key="k")
    b1 = await jobs.send("b1", order_key="b", limit_key="k")
    assert await stages(jobs, [a1, a2, b1]) == ["ready", "blocked", "parked"]
    await jobs.complete(await jobs.claimed())
    assert await stages(jobs, [a1, a2, b1]) == ["succeeded", "parked", "ready"]
    await jobs.complete(await jobs.claimed())
    assert await stages(jobs, [a1, a2, b1]) == ["succeeded", "ready", "succeeded"]


class Desk:
    """Claims as a desk does, by the queue's quota."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs

    async def claim(self, most: int) -> list[Claim]:
        async def claim(tx: Transaction) -> list[Claim]:
            settings = self.jobs.schedule.settings("q")
            allowed = await quota(tx, "q", settings, most)
            permits: list[int | None] = [*allowed.permits] or [None] * allowed.jobs
            claims = []
            for entry, permit in zip(await self.jobs.ready(), permits, strict=False):
                claims.append(await self.jobs.schedule.claim(tx, entry, "w", 1_000, permit))
            await spend(tx, "q", settings, len(claims))
            return [claim for claim in claims if claim is not None]

        return await self.jobs.store.run(claim)


async def test_a_queue_hands_out_as_many_jobs_as_its_limit_says() -> None:
    jobs = await jobs_with(limit=2)
    desk = Desk(jobs)
    for _ in range(5):
        await jobs.send()
    claims = await desk.claim(10)
    assert len(claims) == 2
    assert await desk.claim(10) == []
    await jobs.complete(claims[0])
    assert len(await desk.claim(10)) == 1
    await jobs.pass_ms(1_000)  # all leases run out, and their permits come back
    assert problems(jobs.engine) == []
    assert len(await desk.claim(10)) == 2


@pytest.mark.parametrize("late_ms", [1, 7, 99])
async def test_who_asks_a_little_late_each_time_gets_as_many_as_the_rate_allows(
    late_ms: int,
) -> None:
    jobs = await jobs_with(rate=100)
    for _ in range(320):
        await jobs.send()
    desk, taken, start_ms = Desk(jobs), 0, jobs.clock.at_ms
    for _ in range(3_000 // late_ms):
        taken += len(await desk.claim(15))
        jobs.clock.at_ms += late_ms
    assert taken == pytest.approx((jobs.clock.at_ms - start_ms) / 10, rel=0.04)


async def test_what_was_not_used_for_long_is_lost() -> None:
    jobs = await jobs_with(rate=100)
    for _ in range(100):
        await jobs.send()
    desk = Desk(jobs)
    for _ in range(3):
        assert len(await desk.claim(50)) == 1
        jobs.clock.at_ms += limits.RATE_SLACK_MS + 10


async def test_in_no_second_are_there_more_jobs_than_the_rate_allows() -> None:
    jobs = await jobs_with(rate=10)
    desk = Desk(jobs)
    for _ in range(60):
        await jobs.send()
    taken: list[int] = []
    for _ in range(3_000):
        taken += [jobs.clock.at_ms] * len(await desk.claim(5))
        jobs.clock.at_ms += 1
    busiest = max(sum(t <= other < t + 1_000 for other in taken) for t in taken)
    assert busiest == 10
    assert 29 <= len(taken) <= 31


async def test_a_limit_that_was_lowered_counts_all_that_is_at_work() -> None:
    jobs = await jobs_with()
    limit = 4
    jobs.schedule.settings = lambda queue: QueueSettings(limit=limit)
    for _ in range(8):
        await jobs.send()
    claims = await Desk(jobs).claim(10)
    limit = 2
    for claim in claims[:2]:  # the lowest permits are free again
        await jobs.complete(claim)
    assert await Desk(jobs).claim(10) == []
    await jobs.complete(claims[2])
    assert len(await Desk(jobs).claim(10)) == 1


async def test_a_limit_of_a_key_that_was_lowered_lets_nobody_in_before_there_is_room() -> None:
    jobs = await jobs_with()
    limit = 3
    jobs.schedule.settings = lambda queue: QueueSettings(limit_per_key=limit)
    ids = [await jobs.send(limit_key="k") for _ in range(6)]
    limit = 1
    for ready in (2, 1, 1, 1):
        await jobs.complete(await jobs.claimed())
        assert (await stages(jobs, ids)).count("ready") == ready


async def test_what_has_failed_comes_behind_what_has_not_but_before_lower_priorities() -> None:
    jobs = await jobs_with()
    await jobs.send("failed")
    await jobs.fail(await jobs.claimed(), 0)
    await jobs.send("released")
    await jobs.release(await jobs.claimed())
    await jobs.send("fresh")
    await jobs.send("less urgent", priority=6)
    await jobs.send("urgent", priority=4)
    seen = []
    while claim := await jobs.claim():
        seen.append(claim.body)
        await jobs.complete(claim)
    assert seen == ["urgent", "released", "fresh", "failed", "less urgent"]


async def test_a_last_attempt_after_one_that_was_cut_off_is_a_suspect() -> None:
    jobs = await jobs_with(attempts_max=3)
    id_ = await jobs.send()
    for suspect in (False, False, True):
        claim = await jobs.claimed(lease_ms=100)
        assert claim.suspect == suspect
        await jobs.pass_ms(100)
    assert await jobs.stage(id_) == "failed"
    await jobs.store.run(lambda tx: jobs.schedule.retry(tx, id_))
    await jobs.claimed(lease_ms=100)
    await jobs.pass_ms(100)
    await jobs.fail(await jobs.claimed(), 0)
    assert not (await jobs.claimed()).suspect, "the one before has failed by itself"


async def test_a_paused_queue_hands_out_nothing() -> None:
    jobs = await jobs_with(paused=True)
    await jobs.send()
    assert await Desk(jobs).claim(10) == []


@pytest.mark.parametrize("stage", ["due", "ready", "running", "blocked", "parked", "failed"])
async def test_a_job_can_be_cancelled_wherever_it_stands(stage: str) -> None:
    jobs = await jobs_with(limit_per_key=1)
    if stage in ("blocked", "parked"):
        key = "order_key" if stage == "blocked" else "limit_key"
        await jobs.send("before", **{key: "k"})
        id_ = await jobs.send("it", **{key: "k"})
        after = await jobs.send("after", **{key: "k"})
    else:
        due_ms = jobs.clock.at_ms + 1_000 if stage == "due" else 0
        id_ = await jobs.send("it", order_key="k", limit_key="l", due_ms=due_ms)
        after = await jobs.send("after", order_key="k", limit_key="l")
    if stage in ("running", "failed"):
        claim = await jobs.claimed()
        if stage == "failed":
            await jobs.fail(claim, None)
    assert await jobs.stage(id_) == stage
    await jobs.store.run(lambda tx: jobs.schedule.cancel(tx, id_, "no longer wanted"))
    job = await jobs.get(id_)
    assert (job.stage, job.reason) == ("cancelled", "no longer wanted")
    assert problems(jobs.engine) == []
    if stage == "running":
        with pytest.raises(StaleToken):
            await jobs.complete(claim)
    await jobs.pass_ms(10_000)
    while claim_ := await jobs.claim():
        assert claim_.body != "it"
        await jobs.complete(claim_)
    assert await jobs.stage(after) == "succeeded"


async def test_what_has_ended_cannot_be_cancelled_and_what_is_not_there_neither() -> None:
    jobs = await jobs_with()
    id_ = await jobs.send()
    await jobs.complete(await jobs.claimed())
    with pytest.raises(AlreadyEnded, match="succeeded"):
        await jobs.store.run(lambda tx: jobs.schedule.cancel(tx, id_))
    with pytest.raises(NoSuchJob):
        await jobs.store.run(lambda tx: jobs.schedule.cancel(tx, "nonsense"))


async def test_to_cancel_a_cancelled_job_changes_nothing() -> None:
    jobs = await jobs_with()
    id_ = await jobs.send()
    for reason in ("first", "second"):
        await jobs.store.run(lambda tx, reason=reason: jobs.schedule.cancel(tx, id_, reason))  # type: ignore[misc]
    job = await jobs.store.run(lambda tx: jobs.schedule.get(tx, id_))
    assert (job.stage, job.reason) == ("cancelled", "first")


async def test_a_job_that_waits_can_be_moved_and_one_at_work_cannot() -> None:
    jobs = await jobs_with(limit_per_key=1)
    id_ = await jobs.send(limit_key="k")
    parked = await jobs.send(limit_key="k")
    later_ms = jobs.clock.at_ms + 500
    await jobs.store.run(lambda tx: jobs.schedule.move(tx, id_, later_ms))
    assert await stages(jobs, [id_, parked]) == ["due", "ready"]
    await jobs.store.run(lambda tx: jobs.schedule.move(tx, id_, later_ms + 500))
    await jobs.pass_ms(500)
    assert await jobs.stage(id_) == "due"
    await jobs.pass_ms(500)
    assert await jobs.stage(id_) == "parked"
    await jobs.claimed()
    with pytest.raises(AlreadyEnded, match="running"):
        await jobs.store.run(lambda tx: jobs.schedule.move(tx, parked, 0))


async def test_a_failed_job_tells_why_and_what_was_tried() -> None:
    jobs = await jobs_with(attempts_max=2)
    id_ = await jobs.send("it")
    await jobs.fail(await jobs.claimed(worker="ann"), 0, "first")
    await jobs.fail(await jobs.claimed(worker="bob"), 0, "second")
    [letter] = await jobs.store.run(lambda tx: queue_part.failed_jobs(tx, "q"))
    assert (letter.id, letter.job.stage, letter.job.reason) == (id_, "failed", "second")
    assert [(a.attempt, a.worker, a.reason) for a in letter.job.history] == [
        (1, "ann", "first"),
        (2, "bob", "second"),
    ]


async def test_a_redriven_job_has_all_its_attempts_again_and_joins_at_the_back() -> None:
    jobs = await jobs_with(attempts_max=1)
    first = await jobs.send("first", order_key="k")
    await jobs.send("second", order_key="k")
    await jobs.fail(await jobs.claimed(), 0)
    await jobs.store.run(lambda tx: jobs.schedule.retry(tx, first))
    seen = []
    while claim := await jobs.claim():
        seen.append((claim.body, claim.attempt))
        await jobs.complete(claim)
    assert seen == [("second", 1), ("first", 1)]
    assert await jobs.store.run(lambda tx: queue_part.failed_jobs(tx, "q")) == []
    with pytest.raises(NotFailed, match="succeeded"):
        await jobs.store.run(lambda tx: jobs.schedule.retry(tx, first))


async def test_a_failed_job_blocks_its_order_key_where_the_queue_says_so() -> None:
    jobs = await jobs_with(attempts_max=1, failed_blocks=True)
    first, second, third = [await jobs.send(n, order_key="k") for n in (1, 2, 3)]
    await jobs.fail(await jobs.claimed(), 0)
    assert await stages(jobs, [first, second, third]) == ["failed", "blocked", "blocked"]
    await jobs.store.run(lambda tx: jobs.schedule.retry(tx, first))
    assert await stages(jobs, [first, second]) == ["ready", "blocked"]
    await jobs.fail(await jobs.claimed(), 0)
    await jobs.store.run(lambda tx: jobs.schedule.cancel(tx, first))
    assert await stages(jobs, [first, second, third]) == ["cancelled", "ready", "blocked"]


async def test_another_queue_is_told_of_failed_jobs_in_the_same_commit() -> None:
    jobs = await jobs_with(attempts_max=1, failure_queue="alarm")
    id_ = await jobs.send("it")
    await jobs.claimed(lease_ms=100)
    await jobs.pass_ms(100)
    notice = await jobs.claimed(queue="alarm")
    assert notice.body == {
        "id": id_,
        "queue": "q",
        "state": "failed",
        "reason": "the lease of w ran out",
        "attempts": 1,
    }


async def test_many_failed_jobs_are_redriven_page_by_page_and_only_those_chosen() -> None:
    jobs = await jobs_with(attempts_max=1)
    for number in range(250):
        await jobs.send(number)
        await jobs.fail(await jobs.claimed(), 0, "odd" if number % 2 else "even")
    start: str | None = ""
    redriven = pages = 0
    while start is not None:
        page = await jobs.store.run(
            lambda tx, start=start: queue_part.redrive(  # type: ignore[misc]
                tx, jobs.schedule, "q", start=start, chosen=lambda job: job.reason == "odd"
            )
        )
        redriven, pages, start = redriven + page.done, pages + 1, page.next
    assert (redriven, len(await jobs.ready())) == (125, 125)
    assert pages > 2
    assert problems(jobs.engine) == []


async def test_a_purge_cancels_what_waits_and_leaves_what_is_at_work() -> None:
    jobs = await jobs_with(limit_per_key=1)
    at_work = await jobs.send("at work")
    await jobs.claimed(lease_ms=1_000_000)
    due_ms = jobs.clock.at_ms + 1_000
    for number in range(60):
        await jobs.send(number, order_key=f"o{number % 3}", limit_key=f"l{number % 5}")
        await jobs.send(number, due_ms=due_ms)
    elsewhere = await jobs.send(queue="other")
    start: str | None = ""
    purged = 0
    while start is not None:
        page = await jobs.store.run(
            lambda tx, start=start: queue_part.purge(tx, jobs.schedule, "q", start=start)  # type: ignore[misc]
        )
        purged, start = purged + page.done, page.next
    assert purged == 120
    assert problems(jobs.engine) == []
    assert await stages(jobs, [at_work, elsewhere]) == ["running", "ready"]
    await jobs.pass_ms(10_000)
    assert await jobs.ready() == []


async def test_settings_are_changed_one_by_one() -> None:
    jobs = await jobs_with()
    configure = queue_part.configure
    await jobs.store.run(lambda tx: configure(tx, "q", limit=3, failure_queue="alarm"))
    settings = await jobs.store.run(lambda tx: configure(tx, "q", paused=True))
    assert (settings.limit, settings.failure_queue, settings.paused) == (3, "alarm", True)


@pytest.mark.parametrize(
    "changes",
    [
        {"limit": -1},
        {"limit": "many"},
        {"limit": 10**9},
        {"rate": -0.5},
        {"rate": 1e-306},
        {"nonsense": 1},
        {"retry_first_ms": 0},
        {"retry_first_ms": 10, "retry_max_ms": 5},
        {"key_retention_ms": -1},
        {"failure_queue": "no such name"},
        {"mismatch": "ignore"},
        {"paused": None},
    ],
)
async def test_settings_that_cannot_be_meant_are_refused(changes: dict[str, Any]) -> None:
    jobs = await jobs_with()
    with pytest.raises(BadInput):
        await jobs.store.run(lambda tx: queue_part.configure(tx, "q", **changes))
    assert not jobs.engine.memory.table.count


def test_pauses_double_up_to_the_longest_and_are_never_all_the_same() -> None:
    settings = QueueSettings(retry_first_ms=100, retry_max_ms=1_000)
    assert [retry_pause_ms(settings, n, 0.0) for n in (1, 2, 3, 4, 5, 99)] == [
        *(50, 100, 200, 400, 500, 500)
    ]
    assert [retry_pause_ms(settings, n, 0.999) for n in (1, 2, 99)] == [99, 199, 999]
