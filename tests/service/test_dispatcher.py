"""What is due is acted on: at its time, in order, whatever goes wrong."""

import asyncio
from itertools import pairwise

import pytest

from onceward import limits
from onceward.errors import EngineStopped
from onceward.keys import Key, join
from onceward.parts.schedule import due_partition
from onceward.transaction import Transaction
from tests.service.cluster import Cluster, Member, virtual


class Log:
    """A kind of due entries that notes when each was acted on, and removes it."""

    def __init__(self, member: Member, kind: str = "log") -> None:
        self.member = member
        self.kind = kind
        self.acted: list[tuple[str, int]] = []
        self.poisoned: set[str] = set()
        self.tried: list[tuple[str, int]] = []
        member.node.dispatcher.on_due(kind, self.act, writes=1)

    async def act(self, tx: Transaction, entry: Key) -> None:
        name = entry[1].split("#")[1]
        self.tried.append((name, self.member.clock.now_ms()))
        if name in self.poisoned:
            raise ValueError(f"{name} is poisoned")
        tx.delete(entry)
        tx.on_durable(lambda: self.acted.append((name, self.member.clock.now_ms())))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.acted]


async def put(member: Member, *names: str, at_ms: int, slot: int = 0, kind: str = "log") -> None:
    async def fn(tx: Transaction) -> None:
        for name in names:
            tx.put((due_partition(slot), join(at_ms, name, kind)), 1)

    await member.run(fn)


# On time.


@virtual
async def test_a_delayed_job_is_ready_at_its_millisecond() -> None:
    cluster = Cluster()
    member = await cluster.start()
    start_ms = member.clock.now_ms()
    ids = [await member.send(delay_ms=ms) for ms in (1, 999, 1_000, 1_500, 12_345, 61_234)]
    jobs = member.node.schedule
    for id_, delay_ms in zip(ids, (1, 999, 1_000, 1_500, 12_345, 61_234), strict=True):
        await member.clock.sleep_until(start_ms + delay_ms - 1)
        assert (await member.job(id_)).state == "due"
        await member.clock.sleep_until(start_ms + delay_ms)
        await asyncio.sleep(0)
        await cluster.clock.sleep(0.000_01)
        assert (await member.run(lambda tx, id_=id_: jobs.get(tx, id_))).state == "ready"
    assert member.node.dispatcher.acted == 6
    assert cluster.problems == []


@virtual
async def test_an_entry_that_is_due_sooner_wakes_the_dispatcher() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    start_ms = member.clock.now_ms()
    await put(member, "later", at_ms=start_ms + 900)
    await cluster.clock.sleep(0.1)
    await put(member, "sooner", at_ms=start_ms + 300)
    await put(member, "overdue", at_ms=start_ms - 300)
    await cluster.clock.sleep(2)
    assert log.acted == [
        ("overdue", start_ms + 100),
        ("sooner", start_ms + 300),
        ("later", start_ms + 900),
    ]


@virtual
async def test_what_is_due_far_in_the_future_is_not_kept_in_memory_and_comes_on_time() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    at_ms = member.clock.now_ms() + 100_000
    for start in range(0, 3_000, 60):
        await put(member, *[f"{start + n:04d}" for n in range(60)], at_ms=at_ms)
    [runner] = member.node.dispatcher._runners.values()
    assert len(runner._agenda) == 0
    await cluster.clock.sleep(99.9)
    assert len(runner._agenda) == limits.AGENDA_ENTRIES
    assert log.acted == []
    await cluster.clock.sleep(0.2)
    assert [ms for _, ms in log.acted] == [at_ms] * 3_000
    assert log.names == sorted(log.names)


@virtual
async def test_a_stall_is_caught_up_in_the_order_of_the_times() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    start_ms = member.clock.now_ms()
    for n in range(500):
        await put(member, f"{n * 7919 % 500:04d}", at_ms=start_ms + 10 * (n * 7919 % 500))
    await cluster.clock.sleep(0.995)
    assert log.names == [f"{n:04d}" for n in range(100)]
    member.process.pause()
    await cluster.clock.sleep(3)
    member.process.resume()
    await cluster.until(lambda: len(log.acted) >= 400)
    assert log.names == [f"{n:04d}" for n in range(len(log.names))]
    await cluster.clock.sleep(1.1)
    assert log.names == [f"{n:04d}" for n in range(500)]
    assert all(ms >= start_ms + 10 * int(name) for name, ms in log.acted)


@virtual
async def test_a_wall_clock_that_jumps_fires_nothing_early() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    log = Log(member)
    start_ms = member.clock.now_ms()
    await put(member, "a", at_ms=start_ms + 5_000)
    member.clock.jump_wall(3_600_000)  # type: ignore[attr-defined]
    await cluster.clock.sleep(4.9)
    assert log.acted == []
    await cluster.clock.sleep(0.2)
    assert log.names == ["a"]


@virtual
async def test_an_entry_that_was_removed_in_time_is_not_acted_on() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    [id_] = [await member.send(n) for n in range(1)]
    [claim] = await member.claim(lease_ms=5_000)
    await member.complete(claim)
    await cluster.clock.sleep(10)
    assert member.node.dispatcher.acted == 0
    assert (await member.job(id_)).state == "done"


@virtual
async def test_a_node_at_rest_looks_now_and_then_only() -> None:
    for shared, most in ((True, 101), (False, 21)):
        cluster = Cluster(1, shared=shared)
        member = await cluster.start()
        await cluster.clock.sleep(0.5)
        member.engine.scans.clear()
        await cluster.clock.sleep(100)
        assert member.engine.scans.count("due#0000") <= most


# From other nodes.


@pytest.mark.parametrize(("deaf", "late_s"), [(False, limits.POLL_HINTED_S), (True, limits.POLL_S)])
@virtual
async def test_what_another_node_commits_is_found_by_a_hint_or_at_the_next_poll(
    deaf: bool, late_s: float
) -> None:
    cluster = Cluster(2, deaf=deaf)
    members = await cluster.start_many(2)
    logs = [Log(member) for member in members]
    start_ms = members[0].clock.now_ms()
    for n in range(40):
        slot = min(members[n % 2].owned)
        await put(members[1 - n % 2], f"{n}", at_ms=start_ms + 3_000 + n, slot=slot)
    await cluster.clock.sleep(5)
    for n, log in enumerate(logs):
        assert log.acted == [(f"{m}", start_ms + 3_000 + m) for m in range(n, 40, 2)]
    at_ms = members[0].clock.now_ms()
    await put(members[1], "now", at_ms=at_ms, slot=min(members[0].owned))
    await cluster.until(lambda: logs[0].names[-1] == "now")
    assert logs[0].acted[-1][1] <= at_ms + late_s * 1_000


@virtual
async def test_many_hints_do_not_make_many_scans() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    member.engine.scans.clear()
    for _ in range(100):
        await member.send(delay_ms=60_000)
        await cluster.clock.sleep(0.01)
    assert member.engine.scans.count("due#0000") <= 1 / limits.POLL_HINTED_S + 1


@virtual
async def test_what_is_committed_while_a_scan_runs_is_not_missed() -> None:
    cluster = Cluster(1, deaf=True)
    member = await cluster.start()
    log = Log(member)
    member.engine.latency_s = 0.1
    start_ms = member.clock.now_ms()
    for n in range(60):
        # Scans of 0.2 s run every second or so: some of these fall into the middle of one.
        await put(member, f"{n:02d}", at_ms=start_ms + 240 * n + 400)
    await cluster.clock.sleep(5)
    lateness = [ms - (start_ms + 240 * int(name) + 400) for name, ms in log.acted]
    assert log.names == [f"{n:02d}" for n in range(60)]
    assert max(lateness) < 900


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
    [error, _] = member.node.dispatcher.troubles.values()
    assert "nothing on this node knows how to act on the kind 'mystery'" in str(error)
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
    await cluster.clock.sleep(20)
    assert log.acted[1] == ("b", start_ms + 20_000)
    assert len(member.node.dispatcher.troubles) == 2_700


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
    runner = next(iter(member.node.dispatcher._runners.values()))

    def bug() -> None:
        raise ZeroDivisionError

    runner._batch = bug  # type: ignore[assignment,method-assign]
    await put(member, "a", at_ms=at_ms, slot=runner.slot)
    with pytest.raises(ZeroDivisionError):
        await member.do(member.node.wait())
    member.process.kill()
    assert await cluster.until(lambda: cluster.all_owned) < 0.1


# Limits of a commit.


@virtual
async def test_many_leases_that_run_out_at_once_fit_into_commits_whatever_comes_of_them() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    ids = [
        await member.send(n, order_key=f"{n % 100}", attempts_max=n % 2)
        for n in range(200)
        for _ in range(2)
    ]
    while claims := await member.claim(lease_ms=5_000, most=33):
        for claim in claims[::3]:
            await member.run(
                lambda tx, c=claim: member.node.schedule.extend(tx, c.id, c.token, 6_000)
            )
    await cluster.clock.sleep(20)
    assert member.node.dispatcher.troubles == {}
    assert cluster.problems == []
    states = {(await member.job(id_)).state for id_ in ids}
    assert "leased" not in states
    assert {"ready", "dead", "waiting"} <= states


@virtual
async def test_entries_share_a_commit_as_far_as_it_has_room() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    at_ms = member.clock.now_ms() + 1_000
    for _ in range(330):
        await member.send(delay_ms=1_000)
    await cluster.clock.sleep(0.9)
    member.engine.commits.clear()
    await cluster.clock.sleep(0.2)
    assert member.clock.now_ms() > at_ms
    promotions = [writes for writes in member.engine.commits if len(writes) > 50]
    assert [len(writes) for writes in promotions] == [99] * 10


@virtual
async def test_a_batch_that_is_too_large_is_acted_on_one_by_one() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    ids = [await member.send("x" * 300_000, delay_ms=1_000) for _ in range(20)]
    await cluster.clock.sleep(1.1)
    assert {(await member.job(id_)).state for id_ in ids} == {"ready"}
    assert member.node.dispatcher.troubles == {}


@virtual
async def test_reads_of_a_batch_are_one_call() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    for _ in range(33):
        await member.send(delay_ms=1_000)
    calls = 0
    get = member.engine.get

    async def counted(keys: list[Key], now_ms: int) -> list:
        nonlocal calls
        calls += any(key[0].startswith("job") for key in keys)
        return await get(keys, now_ms)

    member.engine.get = counted  # type: ignore[assignment,method-assign]
    await cluster.clock.sleep(1.1)
    assert member.node.dispatcher.acted == 33
    assert calls == 1


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
    assert member.node.dispatcher._runners == {}


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
    assert {(await other.job(id_)).state for id_ in ids} == {"done"}
