"""A process that is started again whenever it ends, and how long it was away."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from apps.credit.processes import Child
from onceward import Clock, OncewardError

# One that ends by itself so often in a row, before it was ready, will not do better.
_FAILURES_MAX = 5
_PAUSE_S = 0.5


class Kept:
    """A process of the demonstration. `up`, `starts`, `kills` and `away_ms` tell how it goes."""

    def __init__(
        self,
        name: str,
        folder: Path,
        arguments: tuple[str, ...],
        settings: dict[str, str],
        clock: Clock,
        came: Callable[["Kept"], None] = lambda kept: None,
    ) -> None:
        """`arguments` are those of Python. It says a line when it is ready, which is then in
        `said`, and of which `came` hears."""
        self.name = name
        self.up = asyncio.Event()
        self.starts = 0
        """How often it was ready."""
        self.kills = 0
        self.away_ms = 0.0
        """How long it was away the last time."""
        self.said = ""
        self._folder = folder
        self._arguments = arguments
        self._settings = settings
        self._clock = clock
        self._came = came
        self._child: Child | None = None
        self._ended_ns = 0

    async def run(self) -> None:
        """Keep it until cancelled, and then end it. Raises `OncewardError` if it cannot be
        started at all, or fails again and again."""
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
        """Without a warning; says whether there was one to kill."""
        if self._child is None or not self._child.alive or not self.up.is_set():
            return False
        self.kills += 1
        self._child.kill()
        self._left()
        return True

    def gone_ms(self) -> float:
        """For how long it has been away by now; 0 if it is there."""
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
