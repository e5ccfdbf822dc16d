"""The clock: the only module that reads the time.

`now_ms` is the wall clock at the start plus the time that has passed since by a
clock that never jumps and counts suspend (CLOCK_BOOTTIME), slewed gently towards the
wall clock. So an administrator or NTP that sets the wall clock an hour ahead fires
nothing early: the difference shows as `jump_ms`, and is adopted only by a restart
or by `adopt()`.

Where nodes share a database, its clock counts for all of them: each keeps to that one
(`follow`) instead of its own machine's wall clock, by the same rules.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from onceward.limits import CLOCK_JUMP_MS, CLOCK_SLEEP_S_MAX, CLOCK_SLEW_PPM

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

boot_ns: Callable[[], int] = partial(time.clock_gettime_ns, _BOOT)
"""Nanoseconds by a clock that never jumps and counts suspend."""


class Clock:
    """A clock that never goes back and never jumps.

    `wall_ns` and `boot_ns` can be injected: a test or the simulator gives its own.
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
        """Nanoseconds since the epoch by this clock; never less than before."""
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
        """Milliseconds since the epoch by this clock; never less than before."""
        return self.now_ns() // 1_000_000

    @property
    def jump_ms(self) -> int:
        """How far the wall clock has jumped away; 0 while it is within the slew's reach."""
        off_ns = self._wall_ns() - self.now_ns()
        return off_ns // 1_000_000 if abs(off_ns) >= CLOCK_JUMP_MS * 1_000_000 else 0

    def adopt(self) -> int:
        """Take over a lasting correction of the wall clock; returns the step in ms.

        Going forward makes waiting entries due; going back makes `now_ms` smaller once.
        """
        step_ms = self.jump_ms
        self._now_ns += step_ms * 1_000_000
        return step_ms

    @property
    def wall_ms(self) -> int:
        """What the wall clock shows."""
        return self._wall_ns() // 1_000_000

    def hold(self, at_ms: int) -> None:
        """Go on from another time than the wall clock's, until `adopt`."""
        self._boot_seen_ns = self._boot_ns()
        self._now_ns = at_ms * 1_000_000

    def follow(self, other_ms: int, asked_ns: int, *, at_once: bool) -> None:
        """Keep to another clock from now on, which showed `other_ms` at some time between
        `asked_ns`, a reading of `elapsed_ns`, and now. What was called the wall clock is then
        that one. Call it again and again, since clocks drift.

        With `at_once` this clock is set to it, for a start; else it is slewed.
        """
        # So much the other clock is ahead of the boot clock, at least and at most. What was
        # believed stays while it is possible, else it is the least: so this clock is behind the
        # other by what the quickest answer took, and does not run ahead of it.
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
        """Return at or after `due_ms`, never before; returns at once when it has passed.

        Sleeps in pieces, since the event loop's clock stands still during suspend.
        """
        while (left_ms := due_ms - self.now_ms()) > 0:
            await asyncio.sleep(min(left_ms / 1000, CLOCK_SLEEP_S_MAX))
