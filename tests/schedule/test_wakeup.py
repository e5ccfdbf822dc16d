"""A bell wakes the one who waits for it; when the time is over, nobody has rung."""

import asyncio

from onceward import limits
from onceward.schedule.wakeup import Wakeup
from onceward.testing import VirtualClock
from tests.schedule.cluster import virtual


def later_ns(clock: VirtualClock, seconds: float) -> int:
    return clock.elapsed_ns() + int(seconds * 1e9)


@virtual
async def test_one_who_rests_is_woken_by_the_bell() -> None:
    clock, wakeup = VirtualClock(), Wakeup()
    resting = asyncio.create_task(wakeup.rest(clock, later_ns(clock, 5)))
    await clock.sleep(1)
    begun_ns = clock.elapsed_ns()
    wakeup.ring()
    wakeup.ring()
    assert await resting
    assert clock.elapsed_ns() == begun_ns
    assert wakeup.rung


@virtual
async def test_one_who_rests_goes_on_when_the_time_is_over() -> None:
    clock, wakeup = VirtualClock(), Wakeup()
    until_ns = later_ns(clock, 5)
    assert await wakeup.rest(clock, until_ns)
    assert clock.elapsed_ns() >= until_ns
    assert not wakeup.rung
    assert not await wakeup.rest(clock, until_ns)


@virtual
async def test_what_has_rung_before_is_heard_until_it_is_said_to_be() -> None:
    clock, wakeup = VirtualClock(), Wakeup()
    wakeup.ring()
    begun_ns = clock.elapsed_ns()
    assert not await wakeup.rest(clock, later_ns(clock, 5))
    assert clock.elapsed_ns() == begun_ns
    wakeup.rung = False
    assert await wakeup.rest(clock, later_ns(clock, 5))


@virtual
async def test_a_long_rest_is_made_in_pieces_for_the_sake_of_a_suspended_machine() -> None:
    clock, wakeup = VirtualClock(), Wakeup()
    begun_ns = clock.elapsed_ns()
    assert await wakeup.rest(clock, later_ns(clock, 3_600))
    assert clock.elapsed_ns() - begun_ns <= (limits.CLOCK_SLEEP_S_MAX + 1) * 1e9


@virtual
async def test_one_who_is_cancelled_leaves_a_bell_that_can_be_rung() -> None:
    clock, wakeup = VirtualClock(), Wakeup()
    resting = asyncio.create_task(wakeup.rest(clock, later_ns(clock, 5)))
    await clock.sleep(1)
    resting.cancel()
    await asyncio.wait([resting])
    wakeup.ring()
    assert not await wakeup.rest(clock, later_ns(clock, 5))
