"""Nodes on a database with a clock: it counts for all of them, whatever their machines say."""

import asyncio

import pytest

from onceward.testing.clock import EPOCH_MS
from tests.schedule.cluster import LEASE_S, Cluster, Member, TestEngine, asks, virtual

HOURS_MS = 3_600_000


class TimedEngine(TestEngine):
    """A database whose clock shows the true time, or is set away from it."""

    __test__ = False
    off_ms = 0

    async def now_ms(self) -> int:
        await self._travel()
        now_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1_000) + self.off_ms
        await self._travel()
        return now_ms


async def fires(cluster: Cluster, sender: Member, delay_ms: int) -> int:
    """How late a job is handed out, by the true time, wherever it goes to."""
    due_ms = cluster.clock.now_ms() + delay_ms
    await sender.send("on time", delay_ms=delay_ms)
    waiting = [asks(member, wait_s=60) for member in cluster.members]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    late_ms = cluster.clock.now_ms() - due_ms
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    return late_ms


@pytest.mark.parametrize("latency_s", [0.0, 0.02])
@virtual
async def test_nothing_is_early_or_late_though_wall_clocks_are_hours_off(latency_s: float) -> None:
    cluster = Cluster(engine=TimedEngine)
    for hours in (-7, 0, 26):
        member = await cluster.start(wall_offset_ms=hours * HOURS_MS)
        member.engine.latency_s = latency_s
    await cluster.clock.sleep(LEASE_S)
    for sender in cluster.members:
        for delay_ms in (1_000, 7_500):
            # To make a job ready and to claim it takes several calls, more if several want it.
            assert 0 <= await fires(cluster, sender, delay_ms) <= 50_000 * latency_s + 1


@virtual
async def test_a_wall_clock_that_jumps_later_matters_no_more() -> None:
    cluster = Cluster(engine=TimedEngine)
    sender, other = await cluster.start_many(2)
    sender.clock.jump_wall(5 * HOURS_MS)  # type: ignore[attr-defined]
    other.clock.jump_wall(-5 * HOURS_MS)  # type: ignore[attr-defined]
    await cluster.clock.sleep(LEASE_S)
    assert sender.clock.jump_ms == other.clock.jump_ms == 0
    assert 0 <= await fires(cluster, sender, 3_000) <= 1


@virtual
async def test_nodes_follow_the_database_when_its_clock_is_corrected() -> None:
    cluster = Cluster(engine=TimedEngine)
    one, other = await cluster.start_many(2)
    for member in (one, other):
        member.engine.off_ms = 200  # type: ignore[attr-defined]
    await cluster.clock.sleep(40)
    for member in (one, other):
        assert 0 < member.clock.now_ms() - cluster.clock.now_ms() < 50, "gently"
    await cluster.clock.sleep(500)
    for member in (one, other):
        assert member.clock.now_ms() - cluster.clock.now_ms() in (199, 200)
        member.engine.off_ms = 60_000  # type: ignore[attr-defined]
    await cluster.clock.sleep(100)
    for member in (one, other):
        assert member.clock.now_ms() - cluster.clock.now_ms() in (199, 200)
        assert member.clock.jump_ms in range(59_800, 59_802)
    assert cluster.all_owned


@virtual
async def test_a_node_goes_on_while_the_time_cannot_be_read() -> None:
    cluster = Cluster(engine=TimedEngine)
    member = await cluster.start()
    member.engine.cut_off = True
    await cluster.clock.sleep(LEASE_S)
    member.engine.cut_off = False
    await cluster.clock.sleep(LEASE_S)
    assert cluster.all_owned
    assert abs(member.clock.now_ms() - cluster.clock.now_ms()) <= 1
