"""The clock: the only module that reads the time.

`now_ms` is the wall clock at the start plus the elapsed time of a monotonic clock that includes
suspend (CLOCK_BOOTTIME), slewed gently towards the wall clock. If an administrator or NTP sets the
wall clock an hour ahead, nothing fires early: the difference is reported as `jump_ms`, and takes
effect only after a restart or `adopt()`.

Nodes that share a database use the database's clock: each follows it (`follow`) instead of its
machine's wall clock, by the same rules.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from onceward.limits import CLOCK_JUMP_MS, CLOCK_SLEEP_S_MAX, CLOCK_SLEW_PPM

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

boot_ns: Callable[[], int] = partial(time.clock_gettime_ns, _BOOT)
"""Nanoseconds of a monotonic clock that includes suspend."""


def new_clock() -> "Clock":
    """The clock of the running event loop if that has virtual time, else a new `Clock`."""
    try:
        make = getattr(asyncio.get_running_loop(), "make_clock", Clock)
    except RuntimeError:
        make = Clock
    clock: Clock = make()
    return clock


def is_virtual() -> bool:
    """Whether the running event loop has virtual time."""
    return hasattr(asyncio.get_running_loop(), "make_clock")


class Clock:
    """A clock that never goes back and never jumps.

    Tests and the simulator inject `wall_ns` and `boot_ns`.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        boot_ns: Callable[[], int] = boot_ns,
    ) -> None:
        self.elapsed_ns = boot_ns
        """Nanoseconds for durations, such as leases and latencies."""
        self._wall_ns = wall_ns
        self._boot_ns = boot_ns
        self._boot_seen_ns = boot_ns()
        self._now_ns = wall_ns()
        self._ahead_ns: int | None = None

    def now_ns(self) -> int:
        """Nanoseconds since the epoch by this clock; never decreases."""
        boot_ns = self._boot_ns()
        passed_ns = boot_ns - self._boot_seen_ns
        if passed_ns <= 0:
            return self._now_ns
        self._boot_seen_ns = boot_ns
        now_ns = self._now_ns + passed_ns
        error_ns = self._wall_ns() - now_ns
        if abs(error_ns) < CLOCK_JUMP_MS * 1_000_000:
            step_ns = passed_ns * CLOCK_SLEW_PPM // 1_000_000
            now_ns += max(-step_ns, min(step_ns, error_ns))
        self._now_ns = now_ns
        return now_ns

    def now_ms(self) -> int:
        """Milliseconds since the epoch by this clock; never decreases."""
        return self.now_ns() // 1_000_000

    @property
    def jump_ms(self) -> int:
        """The offset of the wall clock after a jump; 0 while slewing can correct it."""
        off_ns = self._wall_ns() - self.now_ns()
        return off_ns // 1_000_000 if abs(off_ns) >= CLOCK_JUMP_MS * 1_000_000 else 0

    def adopt(self) -> int:
        """Accept a lasting change of the wall clock; returns the step in ms.

        A step forward makes waiting entries due; a step back decreases `now_ms` once.
        """
        step_ms = self.jump_ms
        self._now_ns += step_ms * 1_000_000
        return step_ms

    @property
    def wall_ms(self) -> int:
        """The time of the wall clock."""
        return self._wall_ns() // 1_000_000

    def hold(self, at_ms: int) -> None:
        """Continue from another time than the wall clock's, until `adopt`."""
        self._boot_seen_ns = self._boot_ns()
        self._now_ns = at_ms * 1_000_000

    def follow(self, other_ms: int, asked_ns: int, *, at_once: bool) -> None:
        """Follow another clock instead of the wall clock. Call it repeatedly, since clocks drift.

        The other clock showed `other_ms` at some time between `asked_ns`, a reading of
        `elapsed_ns`, and now. With `at_once`, for a start, this clock is set to it; otherwise it is
        slewed.
        """
        # The bounds of the other clock's lead over the boot clock. The previous estimate stays
        # while it is within them; otherwise the lower bound is used. So this clock is behind the
        # other by the shortest response time, and never ahead of it.
        least_ns = other_ms * 1_000_000 - self._boot_ns()
        most_ns = (other_ms + 1) * 1_000_000 - asked_ns
        if self._ahead_ns is None or not least_ns <= self._ahead_ns <= most_ns:
            self._ahead_ns = least_ns
        self._wall_ns = self._followed_ns
        if at_once:
            self._boot_seen_ns = self._boot_ns()
            self._now_ns = self._followed_ns()

    def _followed_ns(self) -> int:
        return self._boot_ns() + (self._ahead_ns or 0)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def sleep_until(self, due_ms: int) -> None:
        """Return at or after `due_ms`, never earlier; returns at once if it has passed.

        Sleeps in short intervals, since the event loop's clock stops during suspend.
        """
        while (left_ms := due_ms - self.now_ms()) > 0:
            await asyncio.sleep(min(left_ms / 1000, CLOCK_SLEEP_S_MAX))
