"""Order keys: only the head is due, ready or leased; its end promotes the next."""

import asyncio

import pytest

from onceward.job_options import JobOptions
from onceward.schedule import Claim
from onceward.store.transaction import Transaction
from tests.quick import START_MS
from tests.schedule.jobs import Jobs, new_jobs, problems


async def in_line(jobs: Jobs, count: int, key: str = "k", **options: object) -> list[str]:
    return [await jobs.send(n, order_key=key, **options) for n in range(count)]


async def stages(jobs: Jobs, ids: list[str]) -> list[str]:
    return [await jobs.stage(id_) for id_ in ids]


async def test_followers_wait_in_line_and_come_up_one_by_one_in_order() -> None:
    jobs = await new_jobs()
    ids = await in_line(jobs, 12)
    done = []
    for n in range(12):
        assert await stages(jobs, ids[n:]) == ["ready"] + ["blocked"] * (11 - n)
        assert problems(jobs.engine) == []
        claim = await jobs.claimed()
        assert await jobs.claim() is None
        await jobs.complete(claim)
        done.append(claim.body)
    assert done == list(range(12))
    assert await jobs.claim() is None


async def test_the_next_is_promoted_in_the_same_commit() -> None:
    jobs = await new_jobs()
    first, second = await in_line(jobs, 2)
    commits = []
    claim = await jobs.claimed()
    jobs.store.on_durable(commits.append)
    await jobs.complete(claim)
    assert len(commits) == 1
    assert await stages(jobs, [first, second]) == ["succeeded", "ready"]


async def test_keys_do_not_wait_for_each_other_nor_for_jobs_without() -> None:
    jobs = await new_jobs()
    await in_line(jobs, 2, "a")
    await in_line(jobs, 2, "b")
    await jobs.send("free")
    await jobs.send(0, queue="other", order_key="a")
    assert [(await jobs.claimed()).body for _ in range(3)] == [0, 0, "free"]
    assert await jobs.claim() is None
    assert await jobs.claim("other") is not None


async def test_followers_wait_while_the_head_retries() -> None:
    jobs = await new_jobs()
    ids = await in_line(jobs, 3)
    await jobs.fail(await jobs.claimed(), START_MS + 1_000)
    assert await stages(jobs, ids) == ["due", "blocked", "blocked"]
    assert await jobs.claim() is None
    await jobs.pass_ms(1_000)
    again = await jobs.claimed()
    assert (again.id, again.attempt) == (ids[0], 2)
    await jobs.complete(again)
    assert (await jobs.claimed()).id == ids[1]
    assert problems(jobs.engine) == []


async def test_followers_wait_while_the_head_is_delayed_or_its_worker_lost() -> None:
    jobs = await new_jobs()
    head = await jobs.send(order_key="k", due_ms=START_MS + 1_000)
    next_ = await jobs.send(order_key="k")
    assert await jobs.claim() is None
    await jobs.pass_ms(1_000)
    assert (await jobs.claimed(lease_ms=500)).id == head
    await jobs.pass_ms(500)
    again = await jobs.claimed()
    assert again.id == head
    await jobs.complete(again)
    assert (await jobs.claimed()).id == next_


async def test_a_delayed_follower_delays_the_line_once_it_is_the_head() -> None:
    jobs = await new_jobs()
    first = await jobs.send(order_key="k")
    second = await jobs.send(order_key="k", due_ms=START_MS + 1_000)
    third = await jobs.send(order_key="k")
    await jobs.complete(await jobs.claimed())
    assert await stages(jobs, [first, second, third]) == ["succeeded", "due", "blocked"]
    await jobs.pass_ms(1_000)
    assert (await jobs.claimed()).id == second


@pytest.mark.parametrize("how", ["failed", "lost"])
async def test_a_failed_head_releases_the_line(how: str) -> None:
    jobs = await new_jobs()
    first, second = await in_line(jobs, 2, attempts_max=1)
    claim = await jobs.claimed()
    if how == "failed":
        assert await jobs.fail(claim, START_MS) == "failed"
    else:
        await jobs.pass_ms(1_000)
    assert await stages(jobs, [first, second]) == ["failed", "ready"]
    assert problems(jobs.engine) == []


async def test_a_released_head_stays_the_head() -> None:
    jobs = await new_jobs()
    ids = await in_line(jobs, 2)
    await jobs.release(await jobs.claimed())
    assert await stages(jobs, ids) == ["ready", "blocked"]
    assert (await jobs.claimed()).id == ids[0]
    assert problems(jobs.engine) == []


async def test_nothing_is_left_of_a_key_when_its_line_is_empty() -> None:
    jobs = await new_jobs()
    for _ in range(2):
        await in_line(jobs, 3)
        for _ in range(3):
            await jobs.complete(await jobs.claimed())
        kinds = {name.partition("#")[0] for name in jobs.engine.memory.table.partitions}
        assert kinds == {"job"}


async def test_several_jobs_of_one_commit_stand_in_the_order_they_were_sent() -> None:
    jobs = await new_jobs()

    async def fn(tx: Transaction) -> list[str]:
        return [await jobs.schedule.send(tx, "q", n, JobOptions(order_key="k")) for n in range(5)]

    ids = await jobs.store.run(fn)
    assert await stages(jobs, ids) == ["ready"] + ["blocked"] * 4
    assert problems(jobs.engine) == []


async def test_the_end_of_a_job_can_send_another_of_the_same_key() -> None:
    jobs = await new_jobs()
    await in_line(jobs, 1)
    for n in range(1, 4):
        claim = await jobs.claimed()

        async def fn(tx: Transaction, claim: Claim = claim, n: int = n) -> None:
            await jobs.schedule.send(tx, "q", n, JobOptions(order_key="k"))
            await jobs.schedule.complete(tx, claim.id, claim.token)

        await jobs.store.run(fn)
        assert problems(jobs.engine) == []
    assert (await jobs.claimed()).body == 3


async def test_who_joins_while_the_last_one_leaves_is_not_left_behind() -> None:
    jobs = await new_jobs()
    await in_line(jobs, 1)
    claim = await jobs.claimed()
    joined = []

    async def leave(tx: Transaction) -> None:
        await jobs.schedule.complete(tx, claim.id, claim.token)
        if not joined:
            joined.append(await jobs.send("late", order_key="k"))

    await jobs.store.run(leave)
    assert await jobs.stage(joined[0]) == "ready"
    assert problems(jobs.engine) == []


async def test_many_who_join_at_once_all_have_a_place() -> None:
    jobs = await new_jobs()
    await asyncio.gather(*[jobs.send(n, order_key="k") for n in range(20)])
    bodies = set()
    while (claim := await jobs.claim()) is not None:
        bodies.add(claim.body)
        await jobs.complete(claim)
    assert bodies == set(range(20))


async def test_a_key_of_odd_characters_is_a_key_like_any_other() -> None:
    jobs = await new_jobs()
    for key in ("a#b", "$", " ", "ü☃", "#" * 256):
        ids = await in_line(jobs, 2, key)
        assert await stages(jobs, ids) == ["ready", "blocked"]
        assert problems(jobs.engine) == []
