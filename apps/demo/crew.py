"""A process that is restarted whenever it ends, with its downtime."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from apps.credit.processes import Child
from onceward import Clock, OncewardError

# Give up after this many failures in a row before it was ready.
_FAILURES_MAX = 5
_PAUSE_S = 0.5


class Kept:
    """A process of the demonstration. `up`, `starts`, `kills` and `away_ms` have its state."""

    def __init__(
        self,
        name: str,
        folder: Path,
        arguments: tuple[str, ...],
        settings: dict[str, str],
        clock: Clock,
        came: Callable[["Kept"], None] = lambda kept: None,
    ) -> None:
        """`arguments` are those of Python. The process prints a line when it is ready, which is
        stored in `said` and passed to `came`."""
        self.name = name
        self.up = asyncio.Event()
        self.starts = 0
        """The number of times it was ready."""
        self.kills = 0
        self.away_ms = 0.0
        """The duration of the last downtime."""
        self.said = ""
        self._folder = folder
        self._arguments = arguments
        self._settings = settings
        self._clock = clock
        self._came = came
        self._child: Child | None = None
        self._ended_ns = 0

    async def run(self) -> None:
        """Run the process until cancelled, then stop it. Raises `OncewardError` if it cannot be
        started, or fails repeatedly."""
        failures = 0
        while True:
            child = self._child = Child(self.name, self._folder, *self._arguments, **self._settings)
            try:
                await child.start()
                self.said = await child.line()
                self._ready()
                failures = 0
                await child.wait()
            except OncewardError:
                failures += 1
                if not self.starts or failures == _FAILURES_MAX:
                    raise
                await self._clock.sleep(_PAUSE_S)
            finally:
                self._left()
                await child.end()

    def kill(self) -> bool:
        """Kill it with SIGKILL; returns whether it was running."""
        if self._child is None or not self._child.alive or not self.up.is_set():
            return False
        self.kills += 1
        self._child.kill()
        self._left()
        return True

    def gone_ms(self) -> float:
        """The current downtime; 0 if it is running."""
        if self.up.is_set() or not self._ended_ns:
            return 0.0
        return (self._clock.elapsed_ns() - self._ended_ns) / 1e6

    def _left(self) -> None:
        if self.up.is_set():
            self.up.clear()
            self._ended_ns = self._clock.elapsed_ns()

    def _ready(self) -> None:
        self.away_ms = self.gone_ms()
        self.starts += 1
        self.up.set()
        self._came(self)
