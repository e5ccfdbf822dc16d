"""A wake-up event with a deadline, set by any task and awaited by one."""

import asyncio

from onceward import limits
from onceward.clock import Clock


class Wakeup:
    """Stays rung until `rung` is set to False. For one who waits at a time."""

    __slots__ = ("_waiting", "rung")

    def __init__(self) -> None:
        self.rung = False
        self._waiting: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self.rung = True
        self._wake()

    async def rest(self, clock: Clock, until_ns: int) -> bool:
        """Wait for it, or until a time, or less; says whether there was anything to wait for.

        In pieces, since the event loop's clock stands still during suspend.
        """
        left_s = (until_ns - clock.elapsed_ns()) / 1e9
        if self.rung or left_s <= 0:
            return False
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        # A timer of its own costs a fraction of `asyncio.timeout`.
        timer = loop.call_later(min(left_s, limits.CLOCK_SLEEP_S_MAX), self._wake)
        try:
            await self._waiting
        finally:
            timer.cancel()
        return True

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
