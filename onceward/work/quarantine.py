"""Quarantine: runs jobs that may crash the process one at a time.

A crash of a worker counts as a failed attempt for each of its jobs, although only one may be the
cause. If their last attempts also ran together, a poison job that crashes its process would make
all of them fail. So the last attempt after an interrupted one starts alone.
"""

import asyncio
from collections.abc import Callable

from onceward import limits


class Quarantine:
    """The attempts of one process: many at once, or one suspect alone.

    While a suspect runs alone, no other job is claimed. The suspect waits for running jobs for at
    most `ALONE_S`, and blocks other jobs for at most `ALONE_S`, since handlers may take long and
    may depend on each other's jobs.
    """

    def __init__(self) -> None:
        self.closed = False
        """Whether a suspect runs alone, or is about to."""
        self._running = 0
        self._suspect: object | None = None
        self._changed = asyncio.Event()
        self._hooks: list[Callable[[], None]] = []

    def on_open(self, hook: Callable[[], None]) -> None:
        """Call `hook` when other jobs may start again."""
        self._hooks.append(hook)

    def close(self, suspect: object) -> None:
        """Reserve the process for a suspect until `open`."""
        self._suspect, self.closed = suspect, True

    def open(self, suspect: object) -> None:
        """Admit other jobs again, beside this suspect or after it. Idempotent."""
        if self._suspect is suspect:
            self._suspect, self.closed = None, False
            self.look()
            for hook in self._hooks:
                hook()

    async def alone(self, hurry: Callable[[], bool]) -> None:
        """Wait until the suspect is the only running job, or until `ALONE_S` has passed or `hurry`
        returns true."""
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
        """Wake up waiting suspects."""
        self._changed.set()
        self._changed = asyncio.Event()
