"""A concurrency limit with a fair queue.

Like `asyncio.Semaphore`, with a fast path that costs nothing while places are free.
"""

import asyncio
from collections import deque


class Places:
    """A number of places and a first-in, first-out queue of waiters."""

    __slots__ = ("_line", "free")

    def __init__(self, count: int) -> None:
        self.free = count
        """The number of free places. Callers may decrement it instead of calling `enter`."""
        self._line: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for a place, to be returned with `leave`. Raises only if cancelled."""
        if self.free:
            self.free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # the place had just been handed over
            raise

    def leave(self) -> None:
        """Hand the place to the next waiter."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1
