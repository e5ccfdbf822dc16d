"""Quarantine: runs jobs that may crash the process one at a time.

A job whose worker crashed has failed an attempt, whether or not it was to blame. If its last
attempt were made beside others, poison that kills its process would take all into death that
are claimed together with it. So a last attempt after one that was cut off is made alone, at
least at first: who dies then dies by his own fault.
"""

import asyncio
from collections.abc import Callable

from onceward import limits


class Quarantine:
    """The attempts of one process: many at once, or one suspect alone.

    While a suspect has it to itself, no other job is claimed. The suspect waits for those at
    work, and keeps others away, no longer than `ALONE_S` each: handlers may take long, and may
    wait for each other's jobs.
    """

    def __init__(self) -> None:
        self.closed = False
        """Whether a suspect has the process to itself, or is about to."""
        self._running = 0
        self._suspect: object | None = None
        self._changed = asyncio.Event()
        self._hooks: list[Callable[[], None]] = []

    def on_open(self, hook: Callable[[], None]) -> None:
        """Call `hook` when others may come again."""
        self._hooks.append(hook)

    def close(self, suspect: object) -> None:
        """Let a suspect have it, until `open`."""
        self._suspect, self.closed = suspect, True

    def open(self, suspect: object) -> None:
        """Let others come again, beside this suspect or after it; twice is once."""
        if self._suspect is suspect:
            self._suspect, self.closed = None, False
            self.look()
            for hook in self._hooks:
                hook()

    async def alone(self, hurry: Callable[[], bool]) -> None:
        """Wait until the suspect, one of those that run, is the only one; or until it must not
        wait any longer."""
        try:
            async with asyncio.timeout(limits.ALONE_S):
                while self._running > 1 and not hurry():
                    await self._changed.wait()
        except TimeoutError:
            pass
        loop = asyncio.get_running_loop()
        loop.call_later(limits.ALONE_S, self.open, self._suspect)

    def begun(self) -> None:
        self._running += 1

    def ended(self) -> None:
        self._running -= 1
        if self._suspect is not None:
            self.look()

    def look(self) -> None:
        """Let those who wait look again."""
        self._changed.set()
        self._changed = asyncio.Event()
