"""A few wait for a busy host, in order; others are told when to come back."""

import asyncio
from collections import Counter

import pytest

from onceward import limits
from onceward.testing.clock import VirtualClock
from onceward.webhooks.host_waiters import HostWaiters
from onceward.webhooks.hosts import Hosts, Slot
from tests.schedule.cluster import virtual

WAITING_MAX = 64


class Office:
    """Lines in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.hosts = Hosts(lambda: 0.5, self.clock.elapsed_ns)
        self.lines = HostWaiters(self.hosts, self.clock.elapsed_ns, WAITING_MAX)

    async def known(self, host: str = "h") -> int:
        """Let a host have answered once; returns how many requests it may have now."""
        slot = self.hosts.admit(host)
        assert isinstance(slot, Slot)
        slot.give_back(True)
        return limits.HOST_REQUESTS_FIRST + 1

    async def slots(self, count: int, host: str = "h") -> list[Slot]:
        found = [await self.lines.enter(host) for _ in range(count)]
        assert all(isinstance(slot, Slot) for slot in found)
        return [slot for slot in found if isinstance(slot, Slot)]


@virtual
async def test_who_comes_when_a_host_is_busy_waits_and_goes_on_in_order() -> None:
    office = Office()
    first, *others = await office.slots(await office.known())
    order: list[int] = []

    async def come(number: int) -> None:
        slot = await office.lines.enter("h")
        assert isinstance(slot, Slot)
        order.append(number)
        office.lines.leave("h", slot, True)

    coming = [asyncio.create_task(come(n)) for n in range(10)]
    await asyncio.sleep(0)
    assert order == []
    office.lines.leave("h", first, True)
    await asyncio.gather(*coming)
    assert order == list(range(10))
    for slot in others:
        office.lines.leave("h", slot, True)
    assert isinstance(await office.lines.enter("other"), Slot), "others are not concerned"


@virtual
async def test_more_than_a_few_are_told_to_come_back_one_behind_the_other() -> None:
    office = Office()
    slots = await office.slots(await office.known())
    waiting = [asyncio.create_task(office.lines.enter("h")) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    later = [await office.lines.enter("h") for _ in range(100)]
    assert all(isinstance(seconds, float) for seconds in later)
    assert later == sorted(later)  # type: ignore[type-var]
    assert len(set(later)) == 100
    for slot in slots:
        office.lines.leave("h", slot, True)
    for task in waiting:
        slot_or_later = await task
        assert isinstance(slot_or_later, Slot)
        office.lines.leave("h", slot_or_later, True)


@virtual
async def test_nobody_waits_here_for_a_host_in_trouble() -> None:
    office = Office()
    [slot] = await office.slots(1)
    office.lines.leave("h", slot, False)
    later = [await office.lines.enter("h") for _ in range(3)]
    assert all(isinstance(seconds, float) and seconds > 0 for seconds in later)
    assert later == sorted(later)  # type: ignore[type-var]
    await office.clock.sleep(limits.HOST_PAUSE_S_MAX)
    assert isinstance(await office.lines.enter("h"), Slot)


@virtual
async def test_who_goes_away_keeps_nobody_from_going_on() -> None:
    office = Office()
    slots = await office.slots(await office.known())
    waiting = [asyncio.create_task(office.lines.enter("h")) for _ in range(4)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    office.lines.leave("h", slots[0], True)
    waiting[1].cancel()  # its turn has just come
    for task in waiting[:2]:
        with pytest.raises(asyncio.CancelledError):
            await task
    assert isinstance(await waiting[2], Slot)


@virtual
async def test_lines_that_nobody_needs_are_forgotten() -> None:
    office = Office()
    for number in range(50):
        host = f"h{number}"
        slots = await office.slots(await office.known(host), host)
        waiting = asyncio.create_task(office.lines.enter(host))
        await asyncio.sleep(0)
        for slot in slots:
            office.lines.leave(host, slot, True)
        last = await waiting
        assert isinstance(last, Slot)
        office.lines.leave(host, last, True)
    assert len(office.lines._lines) == 0


@virtual
async def test_nobody_waits_here_for_long() -> None:
    """Each request takes ten seconds: with two of them under way that is five for each in line."""
    office = Office()
    [slot] = await office.slots(1)
    await office.clock.sleep(10)
    office.lines.leave("h", slot, True)
    await office.slots(limits.HOST_REQUESTS_FIRST + 1)
    waiting = [asyncio.create_task(office.lines.enter("h")) for _ in range(10)]
    await asyncio.sleep(0)
    later = [task.result() for task in waiting if task.done()]
    assert len(later) >= 5
    assert all(isinstance(seconds, float) for seconds in later)
    for task in waiting:
        task.cancel()


@virtual
async def test_who_comes_to_a_host_nothing_is_known_of_comes_back_less_and_less_often() -> None:
    office = Office()
    slots = await office.slots(limits.HOST_REQUESTS_FIRST)
    came: list[float] = []
    start_ns = office.clock.elapsed_ns()
    while office.clock.elapsed_ns() - start_ns < 15 * 10**9:
        later_s = await office.lines.enter("h")
        assert isinstance(later_s, float)
        came.append(later_s)
        await office.clock.sleep(later_s)
    assert came == sorted(came)
    assert len(came) < 10
    for slot in slots:
        office.lines.leave("h", slot, True)
    assert isinstance(await office.lines.enter("h"), Slot)


@virtual
async def test_callers_of_many_hosts_in_trouble_return_at_a_bounded_rate() -> None:
    office, hosts = Office(), [f"h{number}" for number in range(100)]
    for host in hosts:
        [slot] = await office.slots(1, host)
        office.lines.leave(host, slot, False)
    for host in hosts:
        await office.lines.enter(host)
    later = [await office.lines.enter(host) for _ in range(200) for host in hosts]
    returns = Counter(int(seconds) for seconds in later if isinstance(seconds, float))
    assert returns.total() == len(later)
    # Those of one host return quickly, while few others are in trouble.
    assert max(returns.values()) <= 1.2 * limits.HOST_RETURNS_PER_S
    alone = Office()
    [slot] = await alone.slots(1)
    alone.lines.leave("h", slot, False)
    soon = [await alone.lines.enter("h") for _ in range(200)]
    assert max(second for second in soon if isinstance(second, float)) < 10
