"""A switch, and tasks that run while it is on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from onceward import Clock, OncewardError

logger = logging.getLogger("onceward.demo")

_PAUSE_S = 1.0


class Switch:
    """On or off."""

    def __init__(self, on: bool) -> None:
        self._on, self._off = asyncio.Event(), asyncio.Event()
        self.turn(on)

    @property
    def is_on(self) -> bool:
        return self._on.is_set()

    def turn(self, on: bool) -> None:
        """Turn it on or off. Idempotent."""
        now, before = (self._on, self._off) if on else (self._off, self._on)
        now.set()
        before.clear()

    async def while_on(
        self,
        work: Callable[[], Awaitable[None]],
        clock: Clock,
        leave: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Run a task whenever the switch is on, until cancelled; `leave` is called after it was
        turned off. Errors of the server restart the task."""
        while True:
            await self._on.wait()
            working = asyncio.ensure_future(work())
            turned = asyncio.create_task(self._off.wait())
            try:
                await asyncio.wait([working, turned], return_when=asyncio.FIRST_COMPLETED)
            finally:
                turned.cancel()
                working.cancel()
                await asyncio.wait([working])
            try:
                if not working.cancelled():
                    working.result()
                if leave is not None and not self.is_on:
                    await leave()
            except* OncewardError as failed:
                logger.warning("%s", failed.exceptions)
                await clock.sleep(_PAUSE_S)
