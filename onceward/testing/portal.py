"""Calls of synchronous code into an event loop on virtual time, which runs in the same thread."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn, TypeVar

from onceward.errors import BadInput
from onceward.sync.bridge import Call, Portal
from onceward.testing.clock import VirtualLoop

T = TypeVar("T")
X = TypeVar("X")


class VirtualPortal(Portal):
    """The portal of an `onceward.sync.App` in a test: each call runs the loop until its result.

    Threads, such as those of plain handlers, wait for the loop of the test.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._thread = threading.current_thread()

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        if threading.current_thread() is self._thread:
            return self._loop.run_until_complete(awaited())
        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result()

    def run_with(
        self, fn: Callable[[X], T], work: Callable[[Callable[[X], Awaitable[T]]], Awaitable[T]]
    ) -> T:
        async def back(value: X) -> T:
            # In a thread, so that the function can use the transaction.
            return await self._loop.run_in_executor(None, partial(fn, value))

        return self.run(work(back))

    def hook(self, fn: T) -> T:
        return fn

    def asynchronous(self, fn: Any) -> Any:
        async def call(*args: Any) -> Any:
            return await self._loop.run_in_executor(None, partial(fn, *args))

        return call

    def call(self) -> Call[Any]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise BadInput(
            "`with` blocks such as held locks do not work in onceward_sync_app: use an async test"
        )
