"""Timers that come due: how late each fires, whoever keeps them.

Like `measure`, it needs nothing but the standard library.
"""

import asyncio
import threading
from collections import Counter
from typing import Any, Protocol

from benchmarks.measure import Figures
from onceward.clock import Clock, boot_ns

WARM = 200
# How long after the last one is due all must have fired.
DRAIN_S = 120.0
# Before the first one is due, all are set: by the rate of the last time, and so many times that.
SETTING_TIMES = 2.5
AHEAD_S = 1.0

Timer = tuple[int, int]
"""Its number, and when it is due in milliseconds since the epoch."""


class Timekeeper(Protocol):
    """Takes timers, and calls `fires.add` with the number of each when it is due."""

    async def set(self, timers: list[Timer]) -> Any:
        """Return once all are durable."""


class Fires:
    """What has fired: the number of a timer, and when, in nanoseconds since the epoch."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self._clock = Clock()
        self._wanted = 0
        self._enough = threading.Event()

    def add(self, number: int, at_ns: int | None = None) -> None:
        """It fires now, or has fired then. From any thread."""
        self.seen.append((number, self._clock.now_ns() if at_ns is None else at_ns))
        if len(self.seen) >= self._wanted:
            self._enough.set()

    def want(self, count: int) -> None:
        self._wanted = count
        self._enough.clear()

    async def wait(self, timeout_s: float) -> None:
        """Wait for as many as are wanted, those from before included."""
        if not await asyncio.to_thread(self._enough.wait, timeout_s):
            raise TimeoutError(f"{len(self.seen)} of {self._wanted} have fired in time")


fires = Fires()


class Keeper:
    """Sets timers with one side, and waits until they have fired."""

    def __init__(self, side: Timekeeper, fires: Fires = fires) -> None:
        self.side = side
        self.fires = fires
        self.set_per_second = 0.0
        self.due: dict[int, int] = {}
        self._clock = Clock()

    async def set(self, dues: list[int]) -> None:
        """Set timers that are due so long after the first of them, which is due soon after
        all are set."""
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
        """Set timers, wait until all have fired, and tell how late."""
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
        """How many have fired twice, and how many not at all."""
        counts = Counter(number for number, _ in self.fires.seen)
        doubled = sum(counts.values()) - len(counts)
        return {"doubled": doubled, "lost": len(self.due) - len(counts)}


async def measure_punctuality(
    side: Timekeeper, count: int, seconds: float, warm: int = WARM, fires: Fires = fires
) -> Figures:
    """So many timers come due one after the other over that time: how late they are. Raises
    `RuntimeError` if one was lost, fired twice or was early."""
    keeper = Keeper(side, fires)
    await keeper.fired([0] * min(warm, count))
    figures = await keeper.fired([int(n * seconds * 1e3 / count) for n in range(count)])
    wrong = keeper.wrong()
    if any(wrong.values()):
        raise RuntimeError(f"{wrong['lost']} timers were lost, {wrong['doubled']} fired twice")
    return figures
