"""Workers that go away while they wait, or with a job on its way to them."""

import asyncio

import pytest

from onceward.engine.base import Delete
from onceward.engine.memory import MemoryEngine
from onceward.errors import Unavailable
from onceward.schedule import job_key, ready_partition
from tests.schedule.cluster import Cluster, asks, claim_commits, virtual


@virtual
async def test_who_leaves_the_line_is_passed_over() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    claims = member.node.claims
    leaves = asyncio.create_task(claims.claim("q", "leaves", lease_ms=1_000, wait_s=60))
    stays = asyncio.create_task(claims.claim("q", "stays", lease_ms=1_000, wait_s=60))
    await cluster.clock.sleep(1)
    leaves.cancel()
    await member.send("a")
    [claim] = await stays
    assert claim.attempt == 1


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.015, 0.025, 0.035, 0.045, 0.055])
@virtual
async def test_a_job_whose_worker_has_gone_meanwhile_is_given_back(after_s: float) -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    id_ = await member.send("a", attempts_max=1)
    member.engine.latency_s = 0.01
    claims = member.node.claims
    asked = asyncio.create_task(claims.claim("q", "w", lease_ms=600_000, wait_s=60))
    await cluster.clock.sleep(after_s)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await cluster.clock.sleep(1)
    member.engine.latency_s = 0.0
    assert (await member.job(id_)).stage == "ready"
    [claim] = await member.claim()
    assert claim.attempt == 1
    assert cluster.problems == []


@virtual
async def test_a_job_whose_worker_goes_away_with_it_in_its_hands_is_given_back() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    id_ = await member.send("a")
    asked = asyncio.create_task(member.node.claims.claim("q", "w", lease_ms=600_000))
    member.store.on_durable(lambda commit: asyncio.get_running_loop().call_soon(asked.cancel))
    with pytest.raises(asyncio.CancelledError):
        await asked
    await cluster.clock.sleep(0.1)
    assert (await member.job(id_)).stage == "ready"


@virtual
async def test_a_claim_under_way_when_the_time_is_up_still_arrives() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    member.engine.latency_s = 0.01
    asked = asks(member, wait_s=1)
    await cluster.clock.sleep(0.5)
    sent = asyncio.create_task(member.send("a"))
    await cluster.until(lambda: ready_partition(0, "q") in {k[0] for k in cluster.records})
    await sent
    member.engine.latency_s = 0.4
    [claim] = await asked
    assert claim.body == "a"


@virtual
async def test_a_claim_under_way_in_vain_when_the_time_is_up_is_answered() -> None:
    cluster = Cluster(1)
    member, rival = await cluster.start(), await cluster.start()
    member.engine.latency_s = 0.01
    asked = asks(member, wait_s=1)
    await cluster.clock.sleep(0.5)
    await member.send("a")
    [claim] = await rival.claim()
    member.engine.latency_s = 0.4
    assert await asked == []
    assert 1 < cluster.loop.time() < 4
    await rival.complete(claim)


@virtual
async def test_a_claim_that_cannot_be_given_back_is_tried_again() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    id_ = await member.send("a")
    member.engine.latency_s = 0.01
    claims = member.node.claims
    asked = asyncio.create_task(claims.claim("q", "w", lease_ms=5_000, wait_s=60))
    await cluster.until(lambda: bool(claim_commits(member)), 0.001)
    asked.cancel()
    member.engine.cut_off = True
    await cluster.clock.sleep(1)
    member.engine.cut_off = False
    assert (await member.job(id_)).stage == "running"
    await cluster.clock.sleep(1)
    assert (await member.job(id_)).stage == "ready"


@virtual
async def test_a_claim_that_cannot_be_given_back_at_all_is_free_when_its_lease_is_over() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    id_ = await member.send("a")
    member.engine.latency_s = 0.01
    claims = member.node.claims
    asked = asyncio.create_task(claims.claim("q", "w", lease_ms=30_000, wait_s=60))
    await cluster.until(lambda: bool(claim_commits(member)), 0.001)
    asked.cancel()
    member.engine.cut_off = True
    await cluster.clock.sleep(20)
    member.engine.cut_off = False
    await cluster.clock.sleep(9)
    assert (await member.job(id_)).stage == "running"
    await cluster.clock.sleep(2)
    assert (await member.job(id_)).stage == "ready"


@virtual
async def test_of_several_claims_those_are_given_back_that_can_be() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    ids = [await member.send(n) for n in range(3)]
    member.engine.latency_s = 0.01
    claims = member.node.claims
    asked = asyncio.create_task(claims.claim("q", "w", lease_ms=600_000, most=3, wait_s=60))
    await cluster.until(lambda: bool(claim_commits(member)), 0.001)
    other = MemoryEngine(cluster.memory)
    await other.open()
    await other.commit([Delete(job_key(ids[1]))], member.clock.now_ms())
    asked.cancel()
    await cluster.clock.sleep(1)
    assert [(await member.job(id_)).stage for id_ in (ids[0], ids[2])] == ["ready", "ready"]


@virtual
async def test_who_leaves_when_the_time_is_up_harms_nobody() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    claims = member.node.claims
    leaves = asyncio.create_task(claims.claim("q", "leaves", lease_ms=1_000, wait_s=60))
    stays = asyncio.create_task(claims.claim("q", "stays", lease_ms=1_000, wait_s=60))
    # Cancelled first: what is to happen to it then comes in the same turn of the loop.
    cluster.loop.call_at(cluster.loop.time() + 60, leaves.cancel)
    troubles: list[object] = []
    cluster.loop.set_exception_handler(lambda loop, context: troubles.append(context))
    assert await stays == []
    assert leaves.cancelled()
    assert troubles == []


@virtual
async def test_who_leaves_just_before_a_node_stops_does_not_keep_it_from_stopping() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    claims = member.node.claims
    leaves = asyncio.create_task(claims.claim("q", "leaves", lease_ms=1_000, wait_s=60))
    stays = asyncio.create_task(claims.claim("q", "stays", lease_ms=1_000, wait_s=60))
    await cluster.clock.sleep(1)
    leaves.cancel()
    await claims.close()
    assert await stays == []


@virtual
async def test_a_node_that_stops_answers_those_who_wait() -> None:
    cluster = Cluster()
    member = await cluster.start()
    waiting = [asks(member, wait_s=600) for _ in range(3)]
    await cluster.clock.sleep(1)
    member.engine.latency_s = 0.01
    await member.send("a", queue="other")
    served = asks(member, queue="other", wait_s=600)
    late = asks(member, queue="other", wait_s=600)
    await cluster.clock.sleep(0.005)
    await member.stop()
    assert [await task for task in waiting] == [[], [], []]
    assert len(await served) + len(await late) == 1
    with pytest.raises(Unavailable, match="node_stopped"):
        await member.claim(wait_s=600)


@pytest.mark.parametrize("delay_ms", [0, 100])
@virtual
async def test_a_job_whose_sender_went_away_while_it_became_durable_is_handed_out_at_once(
    delay_ms: int,
) -> None:
    cluster = Cluster(1, shared=False)
    member = await cluster.start()
    asked = asks(member, wait_s=60)
    await cluster.clock.sleep(1)
    member.engine.latency_s = 0.01
    due_ms = member.clock.now_ms() + delay_ms
    send = member.store.run(lambda tx: member.node.schedule.send(tx, "q", "a", due_ms=due_ms))
    sending = member.process.spawn(send)
    await cluster.until(lambda: any(key[0].startswith("job#") for key in cluster.records), 0.001)
    sending.cancel()
    [claim] = await asked
    assert claim.body == "a"
    assert cluster.loop.time() < 1.3
