"""What has expired is removed, by one node, a while later."""

from onceward import limits
from onceward.store.transaction import Transaction
from tests.schedule.cluster import Cluster, Member, virtual


async def put_expiring(member: Member, count: int, in_ms: int) -> None:
    for start in range(0, count, 90):

        async def fn(tx: Transaction, start: int = start) -> None:
            for n in range(start, min(start + 90, count)):
                tx.put(("p", f"{n:05d}"), n, expires_at_ms=tx.now_ms + in_ms)

        await member.run(fn)


def left(cluster: Cluster) -> int:
    return sum(key[0] == "p" for key in cluster.records)


@virtual
async def test_expired_records_are_removed_after_a_while_and_others_stay() -> None:
    cluster = Cluster()
    member = await cluster.start()
    await put_expiring(member, 50, in_ms=1_000)

    async def stays(tx: Transaction) -> None:
        tx.put(("p", "stays"), 1)
        tx.put(("p", "later"), 1, expires_at_ms=tx.now_ms + 3_600_000)

    await member.run(stays)
    await cluster.clock.sleep(limits.SWEEP_SLACK_MS / 1_000)
    assert left(cluster) == 52
    await cluster.clock.sleep(1 + limits.SWEEP_S)
    assert left(cluster) == 2
    assert member.node.sweeper.swept == 50


@virtual
async def test_much_is_removed_in_one_go() -> None:
    cluster = Cluster()
    member = await cluster.start()
    await put_expiring(member, 3 * limits.SWEEP_RECORDS_MAX + 1, in_ms=1)
    await cluster.clock.sleep(limits.SWEEP_SLACK_MS / 1_000 + limits.SWEEP_S + 0.1)
    assert left(cluster) == 0


@virtual
async def test_one_node_sweeps_and_another_goes_on_when_it_is_gone() -> None:
    cluster = Cluster()
    members = await cluster.start_many(3)
    await put_expiring(members[0], 10, in_ms=1)
    await cluster.clock.sleep(limits.SWEEP_SLACK_MS / 1_000 + limits.SWEEP_S + 1)
    [sweeps] = [member for member in members if member.node.sweeper.swept]
    assert 0 in sweeps.owned
    sweeps.process.kill()
    [other, _] = cluster.alive
    await put_expiring(other, 10, in_ms=1)
    await cluster.clock.sleep(limits.SWEEP_SLACK_MS / 1_000 + 2 * limits.SWEEP_S)
    assert left(cluster) == 0


@virtual
async def test_trouble_with_the_engine_is_waited_out() -> None:
    cluster = Cluster()
    member = await cluster.start()
    await put_expiring(member, 10, in_ms=1)
    member.engine.cut_off = True
    await cluster.clock.sleep(limits.SWEEP_SLACK_MS / 1_000 + 10)
    member.engine.cut_off = False
    await cluster.clock.sleep(2 * limits.SWEEP_S)
    assert left(cluster) == 0


@virtual
async def test_done_jobs_and_ended_leases_are_swept() -> None:
    cluster = Cluster()
    member = await cluster.start()
    await member.send("a")
    [claim] = await member.claim(lease_ms=1_000)
    await member.run(lambda tx: member.node.schedule.extend(tx, claim.id, claim.token, 5_000))
    await member.complete(claim)
    kinds = [key[1].rpartition("#")[2] for key in cluster.records if key[0].startswith("job")]
    assert sorted(kinds) == ["job", "lease"]
    await cluster.clock.sleep(limits.SWEEP_SLACK_MS / 1_000 + 2 * limits.SWEEP_S)
    kinds = [key[1].rpartition("#")[2] for key in cluster.records if key[0].startswith("job")]
    assert kinds == ["job"]
