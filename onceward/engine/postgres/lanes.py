"""Batching across lanes: requests that arrive while all lanes are busy share the next batch."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Runs what is added, in order, by up to `count` batches at a time.

    `cut` takes the next batch off the front of the queue; `run` carries it out, and must not
    raise. What is added in one turn of the event loop goes together.
    """

    def __init__(
        self,
        run: Callable[[list[T]], Awaitable[None]],
        cut: Callable[[deque[T]], list[T]],
        count: int,
    ) -> None:
        self._run = run
        self._cut = cut
        self._count = count
        self._queue: deque[T] = deque()
        self._starting = False
        self._busy = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, item: T) -> None:
        self._queue.append(item)
        self._start()

    def _start(self) -> None:
        """Start a lane if one is free; it begins in the next turn of the event loop."""
        if not self._starting and self._queue and self._busy < self._count:
            self._starting = True
            self._busy += 1
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        self._starting = False
        try:
            while self._queue:
                batch = self._cut(self._queue)
                self._start()  # another lane may take what this batch has left
                await self._run(batch)
        finally:
            self._busy -= 1

    async def drain(self) -> None:
        """Wait until nothing is left; nothing may be added meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # so that those that are done are taken out
