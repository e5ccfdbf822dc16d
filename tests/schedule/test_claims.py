"""Ready jobs are handed out to the workers that ask for them."""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import limits
from onceward.engine.base import Delete, Put
from onceward.errors import BadInput, Unavailable
from onceward.schedule import job_key, ready_partition, slot_of
from onceward.schedule.claim_queue import CLAIMS_AT_ONCE, ClaimRequest
from tests.schedule.cluster import Cluster, asks, claim_commits, virtual

# Asking.


@virtual
async def test_who_does_not_wait_gets_what_is_there() -> None:
    cluster = Cluster()
    member = await cluster.start()
    assert await member.claim() == []
    id_ = await member.send("a")
    await member.send("other", queue="other")
    [claim] = await member.claim(worker="ann", lease_ms=5_000)
    assert (claim.id, claim.body, claim.attempt) == (id_, "a", 1)
    assert (await member.job(id_)).worker == "ann"
    assert await member.claim() == []
    assert cluster.clock.elapsed_ns() == 0


@virtual
async def test_who_waits_gets_a_job_as_soon_as_one_is_ready() -> None:
    cluster = Cluster()
    member = await cluster.start()
    start_ms = member.clock.now_ms()
    asked = asks(member, wait_s=60)
    await cluster.clock.sleep(5)
    await member.send("a", delay_ms=100)
    [claim] = await asked
    assert claim.body == "a"
    assert member.clock.now_ms() == start_ms + 5_100


@virtual
async def test_who_waits_in_vain_gets_nothing_when_the_time_is_up() -> None:
    cluster = Cluster()
    member = await cluster.start()
    assert await member.claim(wait_s=7.5) == []
    assert cluster.clock.elapsed_ns() == 7_500_000_000


@virtual
async def test_a_batch_is_at_most_as_large_as_asked_for() -> None:
    cluster = Cluster(4)
    member = await cluster.start()
    for n in range(100):
        await member.send(n)
    assert len(await member.claim(most=10)) == 10
    assert len(await member.claim(most=1_000_000)) == CLAIMS_AT_ONCE
    got = 0
    while claims := await member.claim(most=20):
        got += len(claims)
    assert got == 100 - 10 - CLAIMS_AT_ONCE


@virtual
async def test_jobs_in_all_slots_are_found() -> None:
    cluster = Cluster(64)
    member = await cluster.start()
    ids = {await member.send(n) for n in range(1_000)}
    assert len({slot_of(id_) for id_ in ids}) == 64
    claimed = set()
    while claims := await member.claim(most=5):
        claimed |= {claim.id for claim in claims}
    assert claimed == ids


@virtual
async def test_urgent_jobs_of_a_slot_come_first() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    for n, priority in enumerate((5, 9, 0, 5, 0)):
        await member.send(n, priority=priority)
    assert [claim.body for claim in await member.claim(most=9)] == [2, 4, 0, 3, 1]


@pytest.mark.parametrize("shared", [False, True])
@virtual
async def test_an_urgent_job_overtakes_a_backlog_in_all_slots(shared: bool) -> None:
    cluster = Cluster(64, shared=shared, deaf=shared)
    member = await cluster.start()
    for n in range(1_000):
        await member.send(n, priority=9)
    for _ in range(100):  # by now it has seen what is there
        await member.claim()
    for n in range(10):
        await member.send(f"urgent {n}", priority=0)
        [claim] = await member.claim()
        assert claim.body == f"urgent {n}"
    for n in range(10):
        await member.send(f"urgent {n}", priority=0)
        await member.send(f"less urgent {n}", priority=3)
    bodies = [claim.body for _ in range(20) for claim in await member.claim()]
    assert sorted(bodies[:10]) == [f"urgent {n}" for n in range(10)]
    assert sorted(bodies[10:]) == [f"less urgent {n}" for n in range(10)]


@pytest.mark.parametrize("shared", [False, True])
@virtual
async def test_many_jobs_at_once_are_the_most_urgent_of_all_slots(shared: bool) -> None:
    cluster = Cluster(16, shared=shared, deaf=shared)
    member = await cluster.start()
    for n in range(500):
        await member.send(n, priority=9)
    for n in range(16):
        await member.send(f"urgent {n}", priority=3)
    bodies = [claim.body for claim in await member.claim(most=16)]
    assert sorted(bodies) == sorted(f"urgent {n}" for n in range(16))


@virtual
async def test_of_equally_urgent_jobs_in_all_slots_the_oldest_come_first() -> None:
    cluster = Cluster(16, shared=False)
    member = await cluster.start()
    for n in range(200):
        await member.send(n)
        await cluster.clock.sleep(0.001)
    got = [claim.body for _ in range(200) for claim in await member.claim()]
    assert got[16:] == sorted(got[16:]), "once it has looked into each slot"


@pytest.mark.parametrize(
    "options",
    [
        *({"queue": "no good"}, {"worker": ""}, {"worker": "\ud800"}, {"most": 0}, {"most": 1.5}),
        *({"lease_ms": 0}, {"lease_ms": limits.LEASE_MS_MAX + 1}, {"lease_ms": 1.5}),
    ],
)
@virtual
async def test_what_cannot_be_is_refused_to_no_other(options: dict[str, Any]) -> None:
    cluster = Cluster()
    member = await cluster.start()
    await member.send("a")
    refusal = asyncio.create_task(member.claim(**options))
    [claim] = await member.claim()
    assert claim.body == "a"
    with pytest.raises(BadInput):
        await refusal


# Many workers.


@virtual
async def test_those_who_wait_are_served_in_the_order_they_came() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    asked = [asks(member, f"w{n}", wait_s=60) for n in range(5)]
    await cluster.clock.sleep(1)
    for n in range(3):
        await member.send(n)
    await cluster.clock.sleep(0.001)
    assert [task.done() for task in asked] == [True, True, True, False, False]
    assert [task.result()[0].body for task in asked[:3]] == [0, 1, 2]
    for n in range(3, 5):
        await member.send(n)
    assert [(await task)[0].body for task in asked[3:]] == [3, 4]


@virtual
async def test_workers_that_ask_at_the_same_time_share_a_transaction() -> None:
    cluster = Cluster(16)
    member = await cluster.start()
    for n in range(100):
        await member.send(n)
    member.engine.commits.clear()
    claims = await asyncio.gather(*[asks(member, f"w{n}") for n in range(100)])
    assert sorted(claim.body for [claim] in claims) == list(range(100))
    assert len(claim_commits(member)) <= 6
    assert max(map(len, claim_commits(member))) == 99
    assert cluster.problems == []


@virtual
async def test_one_job_does_not_make_all_who_wait_look_for_it() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    asked = [asks(member, f"w{n}", wait_s=60) for n in range(50)]
    await cluster.clock.sleep(0.5)
    member.engine.scans.clear()
    await member.send()
    await cluster.clock.sleep(0.001)
    assert sum(task.done() for task in asked) == 1
    assert member.engine.scans.count(ready_partition(0, "q")) <= 2
    await member.stop()


@virtual
async def test_the_line_is_searched_for_those_who_do_not_wait_only_if_there_are_any() -> None:
    class Line(deque[ClaimRequest]):
        def __iter__(self) -> Iterator[ClaimRequest]:
            searches.append(len(self))
            return super().__iter__()

    searches: list[int] = []
    cluster = Cluster(1, shared=False)
    member = await cluster.start()
    asked = [asks(member, f"w{n}", wait_s=60) for n in range(20)]
    await cluster.clock.sleep(1)
    [claim_queue] = member.node.claims._claim_queues.values()
    claim_queue._line = Line(claim_queue._line)
    for n in range(10):
        await member.send(n)
        await cluster.clock.sleep(0.001)
    assert sum(task.done() for task in asked) == 10
    assert searches == []
    assert await member.claim() == []
    assert searches == [11]
    await member.stop()


@virtual
async def test_each_job_is_handed_out_once_under_a_crowd() -> None:
    cluster = Cluster(8)
    member = await cluster.start()
    member.engine.latency_s = 0.001
    handed: list[int] = []

    async def work(name: str) -> None:
        while claims := await member.claim(worker=name, wait_s=1, most=2):
            handed.extend(claim.body for claim in claims)
            for claim in claims:
                await member.complete(claim)

    workers = [asyncio.create_task(work(f"w{n}")) for n in range(30)]
    for n in range(500):
        await member.send(n)
    await asyncio.gather(*workers)
    assert sorted(handed) == list(range(500))
    assert cluster.problems == []


@virtual
async def test_a_job_in_each_of_many_slots_is_found_in_two_journeys() -> None:
    cluster = Cluster(16)
    member = await cluster.start()
    ids = {await member.send(n) for n in range(200)}
    assert {slot_of(id_) for id_ in ids} == set(range(16))
    for slot in range(16):
        # All but one of each slot are taken away.
        page = await member.engine.scan(ready_partition(slot, "q"), member.clock.now_ms())
        gone = [Delete(record.key) for record in page[1:]]
        if gone:
            await member.engine.commit(gone, member.clock.now_ms())
    member.engine.latency_s = 0.01
    start_s = cluster.loop.time()
    assert len(await member.claim(most=16)) == 16
    # Two times scans, a get of all the jobs, and the commit.
    assert cluster.loop.time() - start_s == pytest.approx(4 * 0.02)


# From other nodes.


@pytest.mark.parametrize("deaf", [False, True])
@virtual
async def test_what_another_node_sends_is_found_by_a_hint_or_at_the_next_poll(deaf: bool) -> None:
    cluster = Cluster(4, deaf=deaf)
    sender, worker = await cluster.start_many(2)
    await worker.claim()  # it has looked before
    asked = [asks(worker, f"w{n}", wait_s=600) for n in range(30)]
    await cluster.clock.sleep(0.1)
    ids = [await sender.send(n) for n in range(30)]
    own = [id_ for id_ in ids if slot_of(id_) in worker.owned]
    assert 0 < len(own) < 30
    start_s = cluster.loop.time()
    await cluster.until(lambda: sum(task.done() for task in asked) >= len(own))
    assert cluster.loop.time() - start_s <= (limits.POLL_S if deaf else 0.1)
    # Nobody works at the other node, so this one comes over.
    await asyncio.gather(*asked)
    took_s = cluster.loop.time() - start_s
    assert took_s <= (limits.POLL_ELSEWHERE_S + limits.POLL_S if deaf else 0.5)


@pytest.mark.parametrize("deaf", [False, True])
@virtual
async def test_who_does_not_wait_gets_what_other_nodes_have_too(deaf: bool) -> None:
    cluster = Cluster(8, deaf=deaf)
    sender, worker = await cluster.start_many(2)
    # A queue that nobody has asked for, one that was forgotten, and one that is known.
    for pause_s in (0, 2 * limits.DESK_IDLE_S, limits.POLL_ELSEWHERE_S + limits.POLL_S):
        ids = {await sender.send(n) for n in range(50)}
        await cluster.clock.sleep(pause_s)
        claimed = set()
        while claims := await worker.claim(most=10):
            claimed |= {claim.id for claim in claims}
            for claim in claims:
                await worker.complete(claim)
        assert claimed == ids


@virtual
async def test_many_queues_are_polled_a_few_at_a_time_and_none_is_forgotten() -> None:
    cluster = Cluster(64, deaf=True)
    worker = await cluster.start()
    asked = [asks(worker, queue=f"q{n}", wait_s=600) for n in range(40)]
    await cluster.clock.sleep(10)
    worker.engine.scans.clear()
    await cluster.clock.sleep(10)
    looks = [scan for scan in worker.engine.scans if scan.startswith("ready#")]
    assert len(looks) <= 10 * (limits.POLL_SCANS_PER_S + 64)
    assert len(set(looks)) == 40 * 64
    sender = await cluster.start()
    for n in range(40):
        await sender.send(n, queue=f"q{n}")
    assert sorted([claim.body for task in asked for claim in await task]) == list(range(40))
    assert cluster.loop.time() <= 20 + 40


@virtual
async def test_queues_where_nobody_waits_do_not_make_others_wait_longer_for_a_poll() -> None:
    cluster = Cluster(64, deaf=True)
    worker, sender = await cluster.start(), await cluster.start()
    await sender.stop()
    await cluster.until(lambda: len(worker.owned) == 64)
    for n in range(40):
        await worker.claim(queue=f"q{n}")
    for _ in range(10):
        asked = asks(worker, queue="busy", wait_s=600)
        await cluster.clock.sleep(0.1)
        await sender.send(queue="busy")
        start_s = cluster.loop.time()
        await asked
        assert cluster.loop.time() - start_s <= limits.POLL_S


@virtual
async def test_the_owners_workers_come_first() -> None:
    cluster = Cluster(4)
    members = await cluster.start_many(2)
    asked = {n: asks(members[n % 2], wait_s=600) for n in range(20)}
    await cluster.clock.sleep(1.5)
    id_ = await members[0].send()
    await cluster.clock.sleep(2)
    [(n, served)] = [(n, task) for n, task in asked.items() if task.done()]
    assert served.result()[0].id == id_
    assert slot_of(id_) in members[n % 2].owned
    for member in members:
        await member.stop()


@virtual
async def test_workers_are_served_from_slots_taken_over() -> None:
    cluster = Cluster(8)
    first, second = await cluster.start_many(2)
    ids = {await first.send(n) for n in range(50)}
    first.process.kill()
    await cluster.until(lambda: cluster.all_owned)
    claimed = set()
    while claims := await second.claim(most=10, wait_s=0.01):
        claimed |= {claim.id for claim in claims}
    assert claimed == ids


# Trouble.


@virtual
async def test_trouble_with_the_engine_is_told_and_costs_no_job() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    id_ = await member.send("a")
    member.engine.cut_off = True
    with pytest.raises(Unavailable):
        await member.claim(wait_s=5)
    member.engine.cut_off = False
    [claim] = await member.claim()
    assert claim.id == id_


@virtual
async def test_damaged_jobs_hold_nobody_up() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    ids = [await member.send(n) for n in range(50)]
    damaged = [
        Put(job_key(ids[3]), b'{"queue":7}'),
        Put((ready_partition(0, "q"), "0"), b'"no id"'),
        Put((ready_partition(0, "q"), "1"), b"17"),
    ]
    await member.engine.commit(damaged, member.clock.now_ms())
    bodies: list[int] = []
    while claims := await member.claim(most=7):
        bodies += [claim.body for claim in claims]
    assert bodies == [n for n in range(50) if n != 3]


@virtual
async def test_the_largest_jobs_are_handed_out_as_many_as_a_commit_holds() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    for n in range(20):
        await member.send([n, "x" * 340_000])
    bodies: list[int] = []
    while claims := await member.claim(most=33):
        assert len(claims) >= 5 or len(bodies) + len(claims) == 20
        bodies += [claim.body[0] for claim in claims]
    assert bodies == list(range(20))


# Memory.


@virtual
async def test_a_queue_that_nobody_asks_for_is_forgotten() -> None:
    cluster = Cluster(4)
    member = await cluster.start()
    await cluster.clock.sleep(0.1)
    watched = len(cluster.memory.watchers.by_partition)
    for n in range(10):
        await member.claim(queue=f"q{n}")
    assert len(cluster.memory.watchers.by_partition) == watched + 50
    asked = asks(member, queue="q0", wait_s=1_000)
    await cluster.clock.sleep(limits.DESK_IDLE_S + 2)
    assert len(cluster.memory.watchers.by_partition) == watched + 5
    await member.send("a", queue="q0")
    assert len(await asked) == 1
    await member.send("a", queue="q1")
    assert len(await member.claim(queue="q1")) == 1
    await member.stop()
    assert [p for p in cluster.memory.watchers.by_partition if p.startswith("ready")] == []


@virtual
async def test_no_slot_is_looked_into_twice_for_nothing() -> None:
    cluster = Cluster(16, shared=False)
    member = await cluster.start()
    await member.claim()
    member.engine.scans.clear()
    for _ in range(100):
        assert await member.claim() == []
    asked = asks(member, wait_s=100)
    await cluster.clock.sleep(50)
    assert [scan for scan in member.engine.scans if scan.startswith("ready")] == []
    await member.send()
    await asked
    assert [scan for scan in member.engine.scans if scan.startswith("ready")] == [], "it was told"
