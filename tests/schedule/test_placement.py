"""Which node looks after which slots: shares, takeover, handover, zombies."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.errors import EngineStopped
from onceward.schedule.placement import NODES, Heartbeat, Watchlist, divide, slot_key
from onceward.store.transaction import Transaction
from tests.schedule.cluster import LEASE_S, Cluster, virtual

pytestmark = pytest.mark.no_cover

NAMES = st.lists(st.text("abcdefgh0123456789~", min_size=1), min_size=1, max_size=8, unique=True)


# Dividing.


@given(st.integers(1, 200), NAMES)
def test_slots_are_divided_evenly_and_whoever_works_it_out_finds_the_same(
    slots: int, nodes: list[str]
) -> None:
    shares = divide(slots, nodes)
    assert sorted(slot for share in shares.values() for slot in share) == list(range(slots))
    assert max(map(len, shares.values())) == -(-slots // len(nodes))
    assert divide(slots, reversed(nodes)) == shares


def test_few_slots_move_when_a_node_comes_or_goes() -> None:
    moved: Counter[int] = Counter()
    for trial in range(50):
        nodes = [f"node~{trial}.{n}" for n in range(6)]
        for count in range(1, 6):
            few, more = divide(64, nodes[:count]), divide(64, nodes[: count + 1])
            moved[count] += sum(len(few[node] - more[node]) for node in nodes[:count])
    for count in range(1, 6):
        needed = 50 * 64 / (count + 1)
        assert needed <= moved[count] <= 1.5 * needed


# Watching.


MS = 1_000_000


def test_a_node_is_gone_when_it_was_seen_unchanged_for_the_full_lease() -> None:
    watchlist = Watchlist()
    for at_ms in range(100, 108, 2):
        watchlist.look({"a": Heartbeat(1, 8), "b": Heartbeat(at_ms, 8)}, at_ms * MS)
        assert watchlist.gone == {}
    watchlist.look({"a": Heartbeat(1, 8), "b": Heartbeat(106, 8)}, 108 * MS - 1)
    assert watchlist.gone == {}
    watchlist.look({"a": Heartbeat(1, 8), "b": Heartbeat(106, 8)}, 108 * MS)
    assert watchlist.gone == {"a": Heartbeat(1, 8)}
    watchlist.look({"b": Heartbeat(106, 8)}, 110 * MS)
    for at_ms in range(112, 116, 2):
        assert watchlist.gone == {}
        watchlist.look({"a": Heartbeat(1, 8), "b": Heartbeat(106, 8)}, at_ms * MS)
    assert watchlist.gone == {"b": Heartbeat(106, 8)}


def test_each_node_is_given_its_own_lease() -> None:
    watchlist = Watchlist()
    for at_ms in range(0, 18, 2):
        watchlist.look({"short": Heartbeat(1, 8), "long": Heartbeat(1, 16)}, at_ms * MS)
        assert ("short" in watchlist.gone) == (at_ms >= 8)
        assert ("long" in watchlist.gone) == (at_ms >= 16)


def test_time_without_a_look_counts_for_no_more_than_one_beat_that_was_missed() -> None:
    watchlist = Watchlist()
    for look in range(5):
        assert watchlist.gone == {}
        watchlist.look({"a": Heartbeat(1, 8)}, look * 1_000 * MS)
    assert watchlist.gone == {"a": Heartbeat(1, 8)}


# Alone.


@virtual
async def test_one_node_owns_all_slots_as_soon_as_it_has_started() -> None:
    cluster = Cluster(64)
    await cluster.start()
    assert cluster.all_owned
    assert cluster.clock.elapsed_ns() == 0


@virtual
async def test_one_node_owns_thousands_of_slots() -> None:
    cluster = Cluster(limits.SLOTS_MAX)
    member = await cluster.start()
    assert cluster.all_owned
    await member.stop()
    assert set(cluster.owners.values()) == {""}


@virtual
async def test_a_node_at_rest_changes_nothing_but_its_heartbeat() -> None:
    cluster = Cluster()
    member = await cluster.start()
    await cluster.clock.sleep(LEASE_S)
    before = dict(cluster.records)
    member.engine.commits.clear()
    await cluster.clock.sleep(10 * LEASE_S)
    changed = [key for key in before if cluster.records[key] != before[key]]
    assert [key[0] for key in changed] == [NODES]
    assert 40 <= len(member.engine.commits) <= 41
    assert cluster.all_owned


@virtual
async def test_a_database_that_nobody_shares_is_taken_over_at_once_after_a_crash() -> None:
    cluster = Cluster(shared=False)
    first = await cluster.start()
    first.process.kill()
    before_ns = cluster.clock.elapsed_ns()
    second = await cluster.start()
    assert cluster.all_owned
    assert cluster.clock.elapsed_ns() == before_ns
    assert cluster.names == {second.node.placement.node}


# Several.


@virtual
async def test_nodes_divide_the_slots() -> None:
    cluster = Cluster(64)
    for count in range(1, 6):
        await cluster.start()
        await cluster.clock.sleep(LEASE_S)
        assert cluster.all_owned
        assert max(len(member.owned) for member in cluster.members) == -(-64 // count)


@virtual
async def test_a_newcomer_has_its_share_after_the_others_next_heartbeat() -> None:
    cluster = Cluster()
    await cluster.start()
    await cluster.clock.sleep(1.2 * LEASE_S)
    await cluster.start()
    assert await cluster.until(lambda: cluster.all_owned) <= LEASE_S / limits.BEATS_PER_LEASE


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("nodes", [2, 3, 5])
@virtual
async def test_the_slots_of_a_dead_node_are_owned_again_within_two_leases(
    nodes: int, deaf: bool
) -> None:
    for moment_s in (0.0, 0.9, 1.7, 2.499):
        cluster = Cluster(64, deaf=deaf)
        first, *_ = await cluster.start_many(nodes)
        assert cluster.all_owned
        await cluster.clock.sleep(moment_s)
        first.process.kill()
        took_s = await cluster.until(lambda cluster=cluster: cluster.all_owned)
        assert LEASE_S / 2 < took_s < 2 * LEASE_S
        assert len(cluster.names) == nodes - 1
        cluster.loop.bury_processes()


@virtual
async def test_all_but_one_may_die() -> None:
    cluster = Cluster()
    *dead, _ = await cluster.start_many(5)
    for member in dead:
        member.process.kill()
    assert await cluster.until(lambda: cluster.all_owned) < 2 * LEASE_S


@virtual
async def test_after_a_crash_loop_the_many_dead_do_not_hold_up_the_living() -> None:
    cluster = Cluster()
    member = await cluster.start()

    async def leave_dead(tx: Transaction) -> None:
        for number in range(90):
            tx.put((NODES, f"dead{number}"), Heartbeat(1, int(LEASE_S * 1000)))

    await member.store.run(leave_dead)
    member.engine.latency_s = 0.05
    took_s = await cluster.until(lambda: cluster.all_owned and len(cluster.names) == 1)
    assert took_s < 2 * LEASE_S
    member.engine.latency_s = 0.0


@virtual
async def test_a_node_that_stops_hands_over_at_once() -> None:
    cluster = Cluster()
    first, *_ = await cluster.start_many(3)
    before_ns = cluster.clock.elapsed_ns()
    await first.stop()
    first.process.kill()
    for _ in range(100):
        await asyncio.sleep(0)
    assert cluster.all_owned
    assert cluster.clock.elapsed_ns() == before_ns
    assert len(cluster.names) == 2


@virtual
async def test_the_last_one_leaves_no_record_of_itself() -> None:
    cluster = Cluster()
    for member in await cluster.start_many(3):
        await member.stop()
    assert cluster.names == set()
    assert set(cluster.owners.values()) == {""}


@virtual
async def test_an_epoch_changes_when_a_slot_changes_hands_and_at_no_other_time() -> None:
    cluster = Cluster(1)
    first = await cluster.start()
    await cluster.clock.sleep(5 * LEASE_S)

    async def epoch(tx: Transaction) -> int:
        return int((await tx.get(slot_key(0)))["epoch"])

    assert await first.run(epoch) == 1
    first.process.kill()
    second = await cluster.start()
    await cluster.clock.sleep(2 * LEASE_S)
    assert await second.run(epoch) == 2
    await second.stop()
    third = await cluster.start()
    assert await third.run(epoch) == 3


@pytest.mark.parametrize("dies", range(3))
@virtual
async def test_nodes_with_leases_of_different_lengths_live_together(dies: int) -> None:
    cluster = Cluster()
    members = [await cluster.start(lease_s=lease_s) for lease_s in (2, 10, 60)]
    names = cluster.names
    await cluster.clock.sleep(300)
    assert cluster.names == names
    assert cluster.all_owned
    members[dies].process.kill()
    assert await cluster.until(lambda: cluster.all_owned) < 2 * 60


@virtual
async def test_clocks_that_differ_by_hours_do_not_matter() -> None:
    cluster = Cluster()
    for offset_ms in (-7_200_000, 0, 86_400_000):
        await cluster.start(wall_offset_ms=offset_ms)
    await cluster.clock.sleep(5 * LEASE_S)
    assert cluster.all_owned
    assert len(cluster.names) == 3
    cluster.members[2].process.kill()
    assert await cluster.until(lambda: cluster.all_owned) < 2 * LEASE_S


# Zombies, and nodes that are cut off.


@virtual
async def test_a_node_that_was_paused_owns_nothing_when_it_wakes_up_and_starts_anew() -> None:
    cluster = Cluster()
    zombie, *_ = await cluster.start_many(3)
    name = zombie.node.placement.node
    zombie.process.pause()
    await cluster.clock.sleep(2 * LEASE_S)
    assert cluster.all_owned
    owners = cluster.owners
    zombie.process.resume()
    assert zombie.owned == set()
    for _ in range(100):
        await asyncio.sleep(0)
    assert zombie.owned == set()
    assert zombie.node.placement.node != name
    assert cluster.owners == owners
    await cluster.clock.sleep(LEASE_S)
    assert cluster.all_owned
    assert len(zombie.owned) >= 4


@virtual
async def test_a_node_that_is_gone_by_the_record_can_take_nothing() -> None:
    cluster = Cluster()
    zombie = await cluster.start()
    zombie.process.pause()

    async def bury(tx: Transaction) -> None:
        tx.delete((NODES, zombie.node.placement.node))
        tx.delete(slot_key(3))

    await zombie.store.run(bury)
    before = cluster.records
    assert await zombie.node.placement._take([3]) == set()
    assert cluster.records == before


@virtual
async def test_a_pause_shorter_than_the_lease_changes_nothing() -> None:
    cluster = Cluster()
    member, *_ = await cluster.start_many(3)
    owners = cluster.owners
    for _ in range(5):
        member.process.pause()
        await cluster.clock.sleep(0.7 * LEASE_S)
        member.process.resume()
        await cluster.clock.sleep(0.1 * LEASE_S)
    assert cluster.owners == owners
    assert cluster.all_owned


@virtual
async def test_an_observer_that_was_paused_itself_gives_nobody_up_for_that() -> None:
    cluster = Cluster()
    first, second = await cluster.start_many(2)
    name = second.node.placement.node
    first.engine.latency_s = 0.01
    await cluster.until(lambda: first.engine.scans[-1] == NODES)
    first.process.pause()  # with an old look at the other one in its hands
    await cluster.clock.sleep(0.9 * LEASE_S)
    first.process.resume()
    await cluster.clock.sleep(LEASE_S)
    assert second.node.placement.node == name
    assert cluster.all_owned


@pytest.mark.parametrize("how", ["cut off", "hanging"])
@virtual
async def test_a_node_that_cannot_reach_the_engine_for_its_lease_holds_nothing(how: str) -> None:
    cluster = Cluster()
    member, other = await cluster.start_many(2)
    slot = min(member.owned)
    if how == "cut off":
        member.engine.cut_off = True
    else:
        member.engine.hang()
    await cluster.clock.sleep(0.7 * LEASE_S)
    assert member.node.placement.holds(slot)
    await cluster.clock.sleep(0.3 * LEASE_S)
    assert not member.node.placement.holds(slot)
    assert member.owned == set()
    assert await cluster.until(lambda: len(other.owned) == 16) < LEASE_S
    member.engine.cut_off = False
    member.engine.free.set()
    await cluster.clock.sleep(LEASE_S)
    assert cluster.all_owned
    assert len(member.owned) == 8


@virtual
async def test_a_heartbeat_that_failed_is_tried_again_soon() -> None:
    cluster = Cluster()
    member = await cluster.start()
    await cluster.clock.sleep(LEASE_S / limits.BEATS_PER_LEASE - 0.01)
    member.engine.cut_off = True
    await cluster.clock.sleep(0.02)
    member.engine.cut_off = False
    member.engine.commits.clear()
    await cluster.clock.sleep(LEASE_S / limits.BEAT_TRIES_PER_LEASE)
    [[beat, *_]] = member.engine.commits
    assert beat.key[0] == NODES


@virtual
async def test_after_an_outage_the_first_node_back_gives_the_others_time_to_come_back() -> None:
    for moment_s in (0.0, 0.9, 1.7, 2.499):
        cluster = Cluster()
        members = await cluster.start_many(3)
        names, owners = cluster.names, cluster.owners
        await cluster.clock.sleep(moment_s)
        for member in members:
            member.engine.cut_off = True
        await cluster.clock.sleep(5 * LEASE_S)
        for member in members:
            member.engine.cut_off = False
            await cluster.clock.sleep(0.2 * LEASE_S)
        assert cluster.names == names
        assert cluster.owners == owners
        assert cluster.all_owned
        cluster.loop.bury_processes()


@virtual
async def test_a_node_whose_lease_ran_out_unnoticed_goes_on_with_what_it_had() -> None:
    cluster = Cluster()
    member = await cluster.start()
    member.engine.cut_off = True
    await cluster.clock.sleep(2 * LEASE_S)
    assert member.owned == set()
    member.engine.cut_off = False
    await cluster.clock.sleep(LEASE_S)
    assert cluster.all_owned


@virtual
async def test_a_node_that_stops_while_it_is_cut_off_stops_and_is_missed_later() -> None:
    cluster = Cluster()
    member, _ = await cluster.start_many(2)
    member.engine.cut_off = True
    await member.stop()
    member.process.kill()
    assert len(cluster.names) == 2
    assert await cluster.until(lambda: cluster.all_owned) < 2 * LEASE_S


@virtual
async def test_a_heartbeat_on_its_way_does_not_bring_back_a_node_that_stops() -> None:
    for moment_s in (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05):
        cluster = Cluster()
        member = await cluster.start()
        member.engine.latency_s = 0.01
        await cluster.clock.sleep(LEASE_S / limits.BEATS_PER_LEASE)
        await cluster.clock.sleep(moment_s)
        await member.stop()
        await cluster.clock.sleep(LEASE_S)
        assert cluster.names == set()


@virtual
async def test_storage_that_failed_ends_placement() -> None:
    cluster = Cluster()
    member = await cluster.start()
    member.engine.stopped = True
    with pytest.raises(EngineStopped):
        await member.do(member.node.wait())
