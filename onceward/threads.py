"""Threads for plain functions: a bounded pool, and calls from its threads to the event loop.

A plain function runs in a thread, so it may block. With `Run.call` it runs coroutine functions on
the event loop and waits for their results. While it waits, its thread can run other functions for
them, such as the function of a step. So the thread and the loop take turns on a run.
"""

import asyncio
import inspect
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from onceward import limits
from onceward.clock import boot_ns
from onceward.errors import BadInput

# The mean duration of runs is that of about this number of runs.
_MEAN_OF = 10


class Interrupted(BaseException):
    """The result of a run is no longer needed. Not an `Exception`, so that functions that catch
    errors do not catch it."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The end of a function: its result or its error."""

    value: Any = None
    error: BaseException | None = None

    def __call__(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


@dataclass(frozen=True, slots=True)
class _Call:
    """A function that a thread runs on the event loop, and waits for."""

    fn: Callable[[], Any]
    context: Context


class PoolThread(Executor):
    """A daemon thread. The future of a submitted function ends when the thread needs the event
    loop: with the outcome of the function, or with a call. The thread then waits for the outcome of
    the call, which is submitted likewise, and runs functions that are submitted before it."""

    def __init__(self, name: str) -> None:
        self._inbox: SimpleQueue[tuple[Future[Any], Any] | None] = SimpleQueue()
        self._turn: Future[Any] | None = None
        self.on_end: Callable[[], object] | None = None
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        _alive.add(thread)
        thread.start()
        self.ident = thread.ident

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        turn: Future[Any] = Future()
        self._inbox.put((turn, fn))
        return turn

    def end(self) -> None:
        """End the thread after its function. Its calls, also a waiting one, raise
        `Interrupted`."""
        self._inbox.put(None)

    def wait(self, call: _Call) -> Any:
        """In the thread: wait for the outcome of a call."""
        self._report(call)
        while (received := self._inbox.get()) is not None:
            turn, fn = received
            if not turn.set_running_or_notify_cancel():
                continue
            if type(fn) is _Outcome:
                self._turn = turn
                return fn()
            self._work(turn, fn)
        self._inbox.put(None)
        raise Interrupted

    def _serve(self) -> None:
        while (received := self._inbox.get()) is not None:
            turn, fn = received
            if turn.set_running_or_notify_cancel():
                self._work(turn, fn)
            del turn, fn, received  # an idle thread keeps no job in memory
        _alive.discard(threading.current_thread())
        if self.on_end is not None:
            with suppress(RuntimeError):  # the loop is closed
                self.on_end()

    def _work(self, turn: Future[Any], fn: Callable[[], Any]) -> None:
        self._turn = turn
        try:
            outcome = _Outcome(fn())
        except BaseException as error:
            outcome = _Outcome(error=error)
        self._report(outcome)

    def _report(self, news: _Outcome | _Call) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.set_result(news)


# Threads of all pools: while one is idle, it causes no event on a loop.
_alive: set[threading.Thread] = set()


def pool_threads() -> frozenset[threading.Thread]:
    """The threads of all pools of this process."""
    return frozenset(_alive)


class Threads:
    """A pool of at most `most` threads, which start when they are needed first."""

    def __init__(self, most: int, name: str, elapsed_ns: Callable[[], int] = boot_ns) -> None:
        self.most = most
        self.elapsed_ns = elapsed_ns
        self._name = name
        self._mean_s: float | None = None
        self._busy = 0
        self._started = 0
        self._idle: list[PoolThread] = []
        self._waiting: deque[asyncio.Future[PoolThread]] = deque()
        self._hooks: list[Callable[[], None]] = []
        self._closed = False
        # Ends the threads of a pool that is not closed, as after a simulated crash.
        weakref.finalize(self, _end, self._idle).atexit = False

    @property
    def free(self) -> int:
        """The number of threads that no run uses or waits for."""
        return max(self.most - self._busy - len(self._waiting), 0)

    @property
    def room(self) -> int:
        """The number of runs that can start now, or soon: while runs are short, some may wait for a
        thread, so that none is idle."""
        ahead = 0
        if self._mean_s is not None:
            ahead = int(limits.THREAD_AHEAD_S * self.most / max(self._mean_s, 1e-6))
        return max(self.most + ahead - self._busy - len(self._waiting), 0)

    def on_free(self, hook: Callable[[], None]) -> None:
        """Call `hook` when there is room again."""
        self._hooks.append(hook)

    async def acquire(self, run: "Run") -> PoolThread:
        """A thread, as soon as one is free."""
        if self._busy < self.most:
            self._busy += 1
            return self._idle.pop() if self._idle else self._start()
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[PoolThread] = loop.create_future()
        run.waiter = waiter
        self._waiting.append(waiter)
        late = loop.call_later(limits.THREAD_WAIT_S, self._late, run)
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.release(waiter.result())
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
            raise
        finally:
            late.cancel()
            run.waiter = None

    def _late(self, run: "Run") -> None:
        self._mean_s = max(self._mean_s or 0.0, limits.THREAD_WAIT_S)
        run.on_late()

    def _start(self) -> PoolThread:
        self._started += 1
        return PoolThread(f"{self._name}-{self._started}")

    def release(self, thread: PoolThread | None, took_s: float | None = None) -> None:
        """Give a thread to the next run, or a new one if it is None. `took_s` is how long the last
        run had it."""
        full = not self.room
        if took_s is not None:
            mean_s = took_s if self._mean_s is None else self._mean_s
            self._mean_s = mean_s + (took_s - mean_s) / _MEAN_OF
        self._hand_over(thread)
        if full and self.room:
            for hook in self._hooks:
                hook()

    def _hand_over(self, thread: PoolThread | None) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(thread or self._start())
                return
        self._busy -= 1
        if thread is not None and self._closed:
            thread.end()
        elif thread is not None:
            self._idle.append(thread)

    def close(self) -> None:
        """End idle threads now, and busy ones after their function. Idempotent."""
        self._closed = True
        _end(self._idle)


def _end(threads: list[PoolThread]) -> None:
    while threads:
        threads.pop().end()


class Run:
    """A run of plain functions in one thread of a pool."""

    def __init__(self, threads: Threads, on_late: Callable[[], None] = lambda: None) -> None:
        """`on_late` is called when the run has waited too long for a thread."""
        self.interrupted = False
        self.on_late = on_late
        self.waiter: asyncio.Future[PoolThread] | None = None
        self._threads = threads
        self._thread: PoolThread | None = None
        self._over = False
        self._thread_works = False
        self._calls: list[asyncio.Task[Any]] = []
        self._begun_ns = 0

    # On the event loop.

    async def main(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Wait for a thread and run a function in it; returns its result or raises its error.

        If it is cancelled, the function continues, and its thread is busy until it returns.
        """
        async with self:
            return await self.run(fn, *args)

    async def __aenter__(self) -> Self:
        """Wait for a thread. Raises `Interrupted`."""
        try:
            self._thread = await self._threads.acquire(self)
        except asyncio.CancelledError:
            if not self.interrupted:
                raise
            raise Interrupted from None
        self._begun_ns = self._threads.elapsed_ns()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if not self._over:
            self._over = True
            took_s = (self._threads.elapsed_ns() - self._begun_ns) / 1e9
            self._threads.release(self._thread, took_s)

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a function in the thread, which is idle or waits for a call."""
        thread, loop = self._thread, asyncio.get_running_loop()
        assert thread is not None
        turn: Any = partial(copy_context().run, fn, *args)
        try:
            while True:
                self._thread_works = True
                news = await loop.run_in_executor(thread, turn)
                self._thread_works = False
                if type(news) is _Outcome:
                    break
                turn = await self._answer(news)
        except (asyncio.CancelledError, GeneratorExit):
            if not self._over:
                self._over = True
                released = partial(self._threads.release, None)
                thread.on_end = partial(loop.call_soon_threadsafe, released)
                thread.end()
            raise
        return news()

    def interrupt(self) -> None:
        """Cancel the current call to the event loop and reject later ones. A function that makes
        none runs to its end. Idempotent."""
        self.interrupted = True
        if self.waiter is not None:
            self.waiter.cancel()
        elif self._calls and not self._thread_works:
            self._calls[-1].cancel()

    async def _answer(self, call: _Call) -> _Outcome:
        loop = asyncio.get_running_loop()
        task = loop.create_task(_awaited(call.fn), name="onceward-call", context=call.context)
        self._calls.append(task)
        if self.interrupted:
            task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._calls.pop()
        if self.interrupted:
            if not task.cancelled():
                task.exception()  # mark it as retrieved
            return _Outcome(error=Interrupted())
        if task.cancelled():
            return _Outcome(error=RuntimeError("a call to the event loop was cancelled"))
        if (error := task.exception()) is not None:
            return _Outcome(error=error)
        return _Outcome(task.result())

    # In the thread.

    def call(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine function on the event loop, and return its result. Raises its errors,
        `Interrupted`, and `BadInput` in other threads and after the run."""
        self.must_be_here(fn)
        if self.interrupted:
            raise Interrupted
        thread = self._thread
        assert thread is not None
        return thread.wait(_Call(partial(fn, *args, **kwargs), copy_context()))

    def must_be_here(self, what: Any) -> None:
        """Raise `BadInput` if the caller is not the running function in its thread."""
        thread = self._thread
        if thread is not None and threading.get_ident() == thread.ident and not self._over:
            return
        why = "after its handler returned" if self._over else "outside the thread of its handler"
        name = getattr(what, "__name__", what)
        raise BadInput(
            f"`{name}` of a job was called {why}: call it only in the plain function that received "
            "the job, and pass values to other threads"
        )


async def _awaited(fn: Callable[[], Any]) -> Any:
    result = fn()
    return await result if inspect.isawaitable(result) else result
