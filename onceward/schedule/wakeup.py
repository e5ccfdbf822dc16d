"""A wake-up event with a deadline, set by any task and awaited by one."""

import asyncio

from onceward import limits
from onceward.clock import Clock


class Wakeup:
    """An event that stays set until `rung` is set to False. One task at a time can wait for it."""

    __slots__ = ("_waiting", "rung")

    def __init__(self) -> None:
        self.rung = False
        self._waiting: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self.rung = True
        self._wake()

    async def rest(self, clock: Clock, until_ns: int) -> bool:
        """Wait for the event or until a time, possibly less; returns whether it waited.

        It waits in short intervals, since the event loop's clock stops during suspend.
        """
        left_s = (until_ns - clock.elapsed_ns()) / 1e9
        if self.rung or left_s <= 0:
            return False
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        # A plain timer costs a fraction of `asyncio.timeout`.
        timer = loop.call_later(min(left_s, limits.CLOCK_SLEEP_S_MAX), self._wake)
        try:
            await self._waiting
        finally:
            timer.cancel()
        return True

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
