"""What goes wrong holds nobody up, and nothing is done twice."""

from itertools import pairwise

import pytest

from onceward import limits
from onceward.errors import EngineStopped
from onceward.keys import join
from onceward.schedule import due_partition
from onceward.store.transaction import Transaction
from tests.schedule.cluster import Cluster, Member, virtual
from tests.work.log import Log, put, remove

# Trouble.


@virtual
async def test_entries_whose_transaction_failed_come_back() -> None:
    cluster = Cluster(2)
    member = await cluster.start()
    log = Log(member)
    at_ms = member.clock.now_ms() + 1_000
    await put(member, *[f"{n}" for n in range(50)], at_ms=at_ms)
    await put(member, "other", at_ms=at_ms, slot=1)
    await cluster.clock.sleep(0.999)
    member.engine.cut_off = True
    await cluster.clock.sleep(3)
    assert log.acted == []
    member.engine.cut_off = False
    await cluster.clock.sleep(limits.POLL_S)
    assert sorted(log.names) == sorted([f"{n}" for n in range(50)] + ["other"])


@virtual
async def test_a_poisoned_entry_holds_nobody_up_and_is_tried_again_after_pauses() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    log.poisoned = {"07", "23"}
    start_ms = member.clock.now_ms()
    await put(member, *[f"{n:02d}" for n in range(50)], at_ms=start_ms)
    await cluster.clock.sleep(0.01)
    assert log.names == [f"{n:02d}" for n in range(50) if n not in (7, 23)]
    troubles = member.node.dispatcher.troubles
    assert [key[1].split("#")[1] for key in troubles] == ["07", "23"]
    assert str(troubles["due#0000", join(start_ms, "07", "log")]) == "07 is poisoned"
    log.tried.clear()
    await cluster.clock.sleep(60)
    times_ms = [ms - start_ms for name, ms in log.tried if name == "07"]
    pauses_ms = [b - a for a, b in pairwise([0, *times_ms])]
    assert 5 <= len(pauses_ms) <= 6
    assert all(b > a for a, b in pairwise(pauses_ms))
    log.poisoned.clear()
    await cluster.clock.sleep(2 * limits.TROUBLE_PAUSE_MS_MAX / 1_000)
    assert log.names[-2:] == ["07", "23"]
    assert member.node.dispatcher.troubles == {}


@virtual
async def test_a_poisoned_entry_that_is_removed_is_no_trouble_any_more() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    log.poisoned = {"bad"}
    at_ms = member.clock.now_ms()
    await put(member, "bad", at_ms=at_ms)
    await cluster.clock.sleep(0.1)
    assert len(member.node.dispatcher.troubles) == 1

    async def remove(tx: Transaction) -> None:
        tx.delete((due_partition(0), join(at_ms, "bad", "log")))

    await member.run(remove)
    await cluster.clock.sleep(2)
    assert member.node.dispatcher.troubles == {}
    assert log.acted == []


@virtual
async def test_an_unknown_kind_is_kept_and_reported_until_somebody_knows_it() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    at_ms = member.clock.now_ms()
    await put(member, "a", "b", at_ms=at_ms, kind="mystery")
    await put(member, "c", at_ms=at_ms)
    await cluster.clock.sleep(30)
    assert log.names == ["c"]
    [(entry, error)] = member.node.dispatcher.troubles.items()
    assert "this node has no code for due entries of the kind 'mystery'" in str(error)
    assert entry == (due_partition(0), join(at_ms, "a", "mystery"))
    known = Log(member, "mystery")
    await cluster.clock.sleep(0.01)
    assert known.names == ["a", "b"]
    assert member.node.dispatcher.troubles == {}


@pytest.mark.parametrize("sort", ["x", "12#x#log", "0000000000000001", "0000000000000001#x"])
@virtual
async def test_an_entry_that_makes_no_sense_holds_nobody_up(sort: str) -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)

    async def fn(tx: Transaction) -> None:
        tx.put((due_partition(0), sort), 1)

    await member.run(fn)
    await put(member, "a", at_ms=member.clock.now_ms() + 100)
    await cluster.clock.sleep(5)
    assert "a" in log.names
    await member.stop()


@virtual
async def test_thousands_of_unknown_entries_do_not_hide_what_is_behind_them() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    start_ms = member.clock.now_ms()
    for n in range(30):
        names = [f"{n:02d}.{m:02d}" for m in range(90)]
        await put(member, *names, at_ms=start_ms - 5_000, kind="mystery")
    await put(member, "a", at_ms=start_ms)
    await put(member, "b", at_ms=start_ms + 20_000)
    await cluster.clock.sleep(0.1)
    assert log.names == ["a"]
    member.engine.scans.clear()
    await cluster.clock.sleep(20)
    assert log.acted[1] == ("b", start_ms + 20_000)
    assert len(member.node.dispatcher.troubles) == 1
    # What is known to rest is not gone through each time, but it is now and then.
    assert member.engine.scans.count(due_partition(0)) <= 20 / 0.75 + 1
    known = Log(member, "mystery")
    await cluster.clock.sleep(0.1)
    assert len(known.acted) == 2_700


@virtual
async def test_an_unknown_kind_is_no_trouble_any_more_when_its_entries_are_gone() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    at_ms = member.clock.now_ms()
    await put(member, "a", "b", at_ms=at_ms, kind="mystery")
    await cluster.clock.sleep(5)
    for name in ("a", "b"):
        [(entry, _)] = member.node.dispatcher.troubles.items()
        assert entry[1] == join(at_ms, name, "mystery")
        await remove(member, name, at_ms=at_ms, kind="mystery")
        await cluster.clock.sleep(5)
    assert member.node.dispatcher.troubles == {}


@virtual
async def test_more_poisoned_entries_than_can_be_noted_hold_nobody_up_either() -> None:
    cluster = Cluster(1)
    member, other = await cluster.start(), await cluster.start()
    await other.stop()
    log = Log(member)
    start_ms = member.clock.now_ms()
    bad = [f"{n:04d}" for n in range(1_500)]
    log.poisoned = set(bad)
    for start in range(0, len(bad), 90):
        await put(member, *bad[start : start + 90], at_ms=start_ms - 5_000)
    await put(member, "a", at_ms=start_ms)
    await cluster.clock.sleep(0.1)
    assert log.names == ["a"]
    assert len(member.node.dispatcher.troubles) == limits.TROUBLES_MAX
    log.tried.clear()
    for n in range(10):
        await put(other, f"b{n}", at_ms=member.clock.now_ms() + 1_500)
        await put(member, f"c{n}", at_ms=start_ms - 5_000)
        await cluster.clock.sleep(2)
    assert len(log.names) == 21
    lateness = [ms - start_ms - 2_000 * int(name[1:]) for name, ms in log.acted[1:]]
    assert max(lateness) <= 1_600
    assert len(log.tried) < 2 * limits.TROUBLES_MAX
    log.poisoned.clear()
    await cluster.clock.sleep(2 * limits.TROUBLE_PAUSE_MS_MAX / 1_000)
    assert sorted(log.names[21:]) == bad
    assert member.node.dispatcher.troubles == {}


@virtual
async def test_storage_that_failed_ends_the_dispatcher_and_the_node() -> None:
    cluster = Cluster()
    member = await cluster.start()
    await member.send(delay_ms=100)
    member.engine.stopped = True
    await cluster.clock.sleep(0.2)
    with pytest.raises(EngineStopped):
        await member.do(member.node.wait())
    with pytest.raises(EngineStopped):
        await member.stop()


@virtual
async def test_a_bug_in_the_dispatcher_ends_the_node_and_hands_over_at_once() -> None:
    cluster = Cluster()
    member, _ = await cluster.start_many(2)
    at_ms = member.clock.now_ms()
    dispatcher = member.node.dispatcher

    def bug() -> None:
        raise ZeroDivisionError

    dispatcher._batch = bug  # type: ignore[assignment,method-assign]
    await put(member, "a", at_ms=at_ms, slot=next(iter(dispatcher._slots)))
    with pytest.raises(ZeroDivisionError):
        await member.do(member.node.wait())
    member.process.kill()
    assert await cluster.until(lambda: cluster.all_owned) < 0.1


# Ownership.


def blind(member: Member) -> None:
    """Let a node not notice any more what it owns."""

    placement = member.node.placement

    async def nothing() -> None:
        placement._stepped_ns = member.clock.elapsed_ns()

    placement.step = nothing  # type: ignore[method-assign]
    placement._held_until_ns = 1 << 62


@virtual
async def test_two_owners_by_mistake_cause_conflicts_and_nothing_else() -> None:
    cluster = Cluster(4)
    members = await cluster.start_many(2)
    for member in members:
        member.engine.latency_s = 0.001
        blind(member)
        member.node.placement._own(set(range(4)))
    ids = [await members[n % 2].send(n, delay_ms=500) for n in range(100)]
    await cluster.clock.sleep(3)
    assert cluster.problems == []
    ready = [key for key in cluster.records if key[0].startswith("ready#")]
    assert len(ready) == len(ids)


@virtual
async def test_a_node_whose_lease_ran_out_does_not_act() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    blind(member)
    await put(member, "a", at_ms=member.clock.now_ms() + 1_000)
    await cluster.clock.sleep(0.5)
    member.node.placement._held_until_ns = 0
    await cluster.clock.sleep(10)
    assert log.tried == []
    assert member.node.placement.owned == set()
    blind(member)
    member.node.placement._own({0})
    await cluster.clock.sleep(0.001)
    assert log.names == ["a"]


@virtual
async def test_a_lease_that_is_renewed_late_lets_the_runner_go_on() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    blind(member)
    await put(member, "a", at_ms=member.clock.now_ms() + 100)
    member.node.placement._held_until_ns = 0
    await cluster.clock.sleep(0.2)
    assert log.tried == []
    blind(member)
    await cluster.clock.sleep(limits.POLL_S)
    assert log.names == ["a"]


@virtual
async def test_a_slot_that_is_lost_is_acted_on_by_its_new_owner_alone() -> None:
    cluster = Cluster(1)
    first = await cluster.start()
    first_log = Log(first)
    for n in range(100):
        await put(first, f"{n:02d}", at_ms=first.clock.now_ms() + 100 * n)
    await cluster.clock.sleep(3.01)
    assert len(first_log.acted) >= 30
    await first.stop()
    done = len(first_log.acted)
    second = await cluster.start()
    second_log = Log(second)
    await cluster.clock.sleep(10)
    assert first_log.names + second_log.names == [f"{n:02d}" for n in range(100)]
    assert len(first_log.acted) == done


@virtual
async def test_stopping_finishes_what_is_under_way() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    await put(member, "a", at_ms=member.clock.now_ms() + 100)
    await cluster.clock.sleep(0.09)
    member.engine.latency_s = 0.05
    await cluster.clock.sleep(0.02)
    assert log.acted == []
    await member.stop()
    assert log.names == ["a"]
    assert member.node.dispatcher._slots == {}


@virtual
async def test_a_paused_owner_that_wakes_up_in_the_middle_of_a_commit_changes_nothing() -> None:
    cluster = Cluster(1)
    zombie = await cluster.start()
    ids = [await zombie.send(n, delay_ms=1_000) for n in range(20)]
    await cluster.clock.sleep(0.99)
    zombie.engine.latency_s = 0.01
    await cluster.clock.sleep(0.015)
    zombie.process.pause()
    other = await cluster.start()
    await cluster.until(lambda: cluster.all_owned)
    await cluster.clock.sleep(1)
    claims = await other.claim(most=20)
    for claim in claims:
        await other.complete(claim)
    records = {key: r for key, r in cluster.records.items() if not key[0].startswith("node")}
    assert len(claims) == 20
    zombie.process.resume()
    await cluster.clock.sleep(0.1)
    after = {key: r for key, r in cluster.records.items() if not key[0].startswith("node")}
    assert after == records
    assert {(await other.job(id_)).stage for id_ in ids} == {"succeeded"}
