"""A concurrency limit with a fair queue.

As asyncio's semaphore, with a way to enter that costs nothing where there is room.
"""

import asyncio
from collections import deque


class Places:
    """Places, and a line of those who wait for one, served in their order."""

    __slots__ = ("_line", "free")

    def __init__(self, count: int) -> None:
        self.free = count
        """Whoever sees one may take it, without waiting."""
        self._line: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Return with a place taken, which is to be left; raises only if it is cancelled."""
        if self.free:
            self.free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # it was just handed over
            raise

    def leave(self) -> None:
        """Hand the place to the next in line."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1
