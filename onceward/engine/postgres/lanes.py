"""Batching across lanes: requests that arrive while all lanes are busy share the next batch."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Runs items in order, with up to `count` batches at a time.

    `cut` removes the next batch from the front of the queue. `run` executes it and must not raise.
    Items added in one turn of the event loop share a batch.
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
        """Start a lane if one is free; it runs in the next turn of the event loop."""
        if not self._starting and self._queue and self._busy < self._count:
            self._starting = True
            self._busy += 1
            task = asyncio.get_running_loop().create_task(
                self._work(), name="onceward-postgres-lane"
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        self._starting = False
        try:
            while self._queue:
                batch = self._cut(self._queue)
                self._start()  # another lane can take the rest of the queue
                await self._run(batch)
        finally:
            self._busy -= 1

    async def drain(self) -> None:
        """Wait until the queue is empty. The caller must add no items while it waits."""
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # so that the callbacks remove finished tasks
