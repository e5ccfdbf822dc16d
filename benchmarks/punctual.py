"""Due timers: how late each of them fires.

Like `measure`, it needs only the standard library.
"""

import asyncio
import threading
from collections import Counter
from typing import Any, Protocol

from benchmarks.measure import Figures
from onceward.clock import Clock, boot_ns

WARM = 200
# The time limit for all timers to fire after the last one is due.
DRAIN_S = 120.0
# All timers are created before the first is due: the estimated time, times this factor.
SETTING_TIMES = 2.5
AHEAD_S = 1.0

Timer = tuple[int, int]
"""The number of a timer, and its time in milliseconds since the epoch."""


class Timekeeper(Protocol):
    """Accepts timers, and calls `fires.add` with the number of each when it is due."""

    async def set(self, timers: list[Timer]) -> Any:
        """Return once all are durable."""


class Fires:
    """Fired timers: the number, and the time in nanoseconds since the epoch."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self._clock = Clock()
        self._wanted = 0
        self._enough = threading.Event()

    def add(self, number: int, at_ns: int | None = None) -> None:
        """Record a timer that fires now, or has fired at a time. Thread-safe."""
        self.seen.append((number, self._clock.now_ns() if at_ns is None else at_ns))
        if len(self.seen) >= self._wanted:
            self._enough.set()

    def want(self, count: int) -> None:
        self._wanted = count
        self._enough.clear()

    async def wait(self, timeout_s: float) -> None:
        """Wait until the expected number has fired, including earlier ones."""
        if not await asyncio.to_thread(self._enough.wait, timeout_s):
            raise TimeoutError(f"only {len(self.seen)} of {self._wanted} timers have fired in time")


fires = Fires()


class Keeper:
    """Creates timers with one side, and waits until they have fired."""

    def __init__(self, side: Timekeeper, fires: Fires = fires) -> None:
        self.side = side
        self.fires = fires
        self.set_per_second = 0.0
        self.due: dict[int, int] = {}
        self._clock = Clock()

    async def set(self, dues: list[int]) -> None:
        """Create timers at these offsets from the first one, which is due soon after all are
        created."""
        setting_s = len(dues) / self.set_per_second * SETTING_TIMES if self.set_per_second else 0.0
        start_ns = boot_ns()
        first_ms = self._clock.now_ms() + int((AHEAD_S + setting_s) * 1e3)
        first = len(self.due)
        timers = [(first + index, first_ms + due_ms) for index, due_ms in enumerate(dues)]
        self.due.update(timers)
        self.fires.want(len(self.due))
        await self.side.set(timers)
        self.set_per_second = len(dues) / (boot_ns() - start_ns) * 1e9

    async def fired(self, dues: list[int]) -> Figures:
        """Create timers, wait until all have fired, and return their lateness."""
        before = len(self.due)
        await self.set(dues)
        late_start = self._clock.now_ms() > self.due[before]
        assert not late_start or before == 0, "setting them took so long that the first was due"
        last_ms = max(self.due.values())
        await self.fires.wait((last_ms - self._clock.now_ms()) / 1e3 + DRAIN_S)
        seen = self.fires.seen[before:]
        late = sorted((at_ns - self.due[number] * 1_000_000) / 1e6 for number, at_ns in seen)
        fired_ms = max(at_ns for _, at_ns in seen) / 1e6
        return {
            "set_per_second": self.set_per_second,
            "per_second": len(late) / max(fired_ms - self.due[before], 1e-3) * 1e3,
            "early_ms": max(-late[0], 0.0),
            "p50_ms": late[len(late) // 2],
            "p99_ms": late[int(len(late) * 0.99)],
            "max_ms": late[-1],
        }

    def wrong(self) -> dict[str, int]:
        """The numbers of timers that fired twice, and of those that did not fire."""
        counts = Counter(number for number, _ in self.fires.seen)
        doubled = sum(counts.values()) - len(counts)
        return {"doubled": doubled, "lost": len(self.due) - len(counts)}


async def measure_punctuality(
    side: Timekeeper, count: int, seconds: float, warm: int = WARM, fires: Fires = fires
) -> Figures:
    """The lateness of timers that are due one after the other over a time. Raises `RuntimeError` if
    one was lost, fired twice or was early."""
    keeper = Keeper(side, fires)
    await keeper.fired([0] * min(warm, count))
    figures = await keeper.fired([int(n * seconds * 1e3 / count) for n in range(count)])
    wrong = keeper.wrong()
    if any(wrong.values()):
        raise RuntimeError(f"{wrong['lost']} timers were lost, {wrong['doubled']} fired twice")
    return figures
