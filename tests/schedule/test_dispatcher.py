"""What is due is acted on: at its time, in order, as much at once as a commit holds."""

import asyncio

import pytest

from onceward import limits
from onceward.keys import Key
from tests.schedule.cluster import Cluster, virtual
from tests.work.log import Log, put, remove

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
        assert (await member.job(id_)).stage == "due"
        await member.clock.sleep_until(start_ms + delay_ms)
        await asyncio.sleep(0)
        await cluster.clock.sleep(0.000_01)
        assert (await member.run(lambda tx, id_=id_: jobs.get(tx, id_))).stage == "ready"
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
    [slot] = member.node.dispatcher._slots.values()
    assert len(slot.due_entries) == 0
    await cluster.clock.sleep(99.9)
    assert len(slot.due_entries) == limits.AGENDA_ENTRIES
    assert log.acted == []
    await cluster.clock.sleep(0.2)
    assert len(log.acted) == 3_000
    assert all(at_ms <= ms <= at_ms + 10 for _, ms in log.acted)
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
    assert (await member.job(id_)).stage == "succeeded"


@virtual
async def test_what_is_behind_a_full_agenda_is_looked_for_when_all_of_that_was_removed() -> None:
    cluster = Cluster(1, shared=False)
    member = await cluster.start()
    log = Log(member)
    at_ms = member.clock.now_ms() + 12_000
    names = [f"{n:04d}" for n in range(limits.AGENDA_ENTRIES)]
    pieces = [names[start : start + 50] for start in range(0, len(names), 50)]
    for piece in pieces:
        await put(member, *piece, at_ms=at_ms)
    await put(member, "behind", at_ms=at_ms + 1)
    member.node.dispatcher.time_moved()  # so that it scans
    await cluster.clock.sleep(0.001)
    [slot] = member.node.dispatcher._slots.values()
    assert len(slot.due_entries) == limits.AGENDA_ENTRIES
    for piece in pieces:
        await remove(member, *piece, at_ms=at_ms)
    await cluster.clock.sleep(0.001)
    assert len(slot.due_entries) == 1
    await cluster.clock.sleep(12)
    assert log.acted == [("behind", at_ms + 1)]


@virtual
async def test_a_node_at_rest_looks_now_and_then_only() -> None:
    for shared, most in ((True, 134), (False, 1)):
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
async def test_thousands_of_slots_are_polled_less_often_and_nothing_comes_late() -> None:
    cluster = Cluster(2_048, deaf=True)
    member, other = await cluster.start(), await cluster.start()
    await other.stop()
    log = Log(member)
    await cluster.clock.sleep(10)
    member.engine.scans.clear()
    at_ms = member.clock.now_ms() + 20_000
    for slot in range(0, 2_048, 256):
        await put(other, f"{slot}", at_ms=at_ms, slot=slot)
    await cluster.clock.sleep(20.01)
    looks = [scan for scan in member.engine.scans if scan.startswith("due#")]
    assert len(looks) <= 20 * limits.POLL_SCANS_PER_S / 0.75
    assert [ms for _, ms in log.acted] == [at_ms] * 8


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
    stages = {(await member.job(id_)).stage for id_ in ids}
    assert "running" not in stages
    assert {"ready", "failed", "blocked"} <= stages


@virtual
async def test_entries_share_a_commit_as_far_as_it_has_room() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    at_ms = member.clock.now_ms() + 1_000
    for _ in range(240):
        await member.send(delay_ms=1_000)
    await cluster.clock.sleep(0.9)
    member.engine.commits.clear()
    await cluster.clock.sleep(0.2)
    assert member.clock.now_ms() > at_ms
    promotions = [writes for writes in member.engine.commits if len(writes) > 50]
    assert [len(writes) for writes in promotions] == [75] * 9


@virtual
async def test_a_batch_that_is_too_large_is_acted_on_one_by_one() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    ids = [await member.send("x" * 300_000, delay_ms=1_000) for _ in range(20)]
    await cluster.clock.sleep(1.1)
    assert {(await member.job(id_)).stage for id_ in ids} == {"ready"}
    assert member.node.dispatcher.troubles == {}


@virtual
async def test_reads_of_a_batch_are_one_call() -> None:
    cluster = Cluster(1)
    member = await cluster.start()
    for _ in range(24):
        await member.send(delay_ms=1_000)
    calls = 0
    get = member.engine.get

    async def counted(keys: list[Key], now_ms: int) -> list:
        nonlocal calls
        calls += any(key[0].startswith("job") for key in keys)
        return await get(keys, now_ms)

    member.engine.get = counted  # type: ignore[assignment,method-assign]
    await cluster.clock.sleep(1.1)
    assert member.node.dispatcher.acted == 24
    assert calls == 1


@virtual
async def test_what_comes_first_is_noted_once_for_each_slot() -> None:
    cluster = Cluster(4, shared=False)
    member = await cluster.start()
    for n in range(400):
        await member.send(n, due_ms=member.clock.now_ms() + 1_000 + 10 * n)
    await cluster.clock.sleep(4)
    assert member.node.dispatcher.acted >= 290
    assert len(member.node.dispatcher._firsts) <= 2 * 4
