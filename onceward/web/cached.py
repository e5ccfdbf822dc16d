"""Cached values that are computed at most once per interval."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from onceward.clock import Clock

T = TypeVar("T")


class Shared(Generic[T]):
    """One cached value. Concurrent requests, and those within the interval after its start, share
    the value or the error."""

    def __init__(
        self, compute: Callable[[], Awaitable[T]], every_s: float, clock: Clock, name: str
    ) -> None:
        self._compute = compute
        self._every_ns = int(every_s * 1e9)
        self._clock = clock
        self._name = name
        self._begun_ns = 0
        self._task: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return the value. Raises the error of its computation."""
        now_ns = self._clock.elapsed_ns()
        task = self._task
        if task is None or (task.done() and now_ns - self._begun_ns >= self._every_ns):
            self._begun_ns = now_ns
            task = self._task = asyncio.create_task(self._run(), name=self._name)
        await asyncio.wait([task])
        error = task.exception()
        if error is not None:
            raise error.with_traceback(None)
        return task.result()

    async def _run(self) -> T:
        return await self._compute()
