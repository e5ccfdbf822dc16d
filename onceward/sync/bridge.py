"""The bridge from threads to the event loop that runs in a background thread of the process.

`Portal.run` runs a coroutine of the asynchronous API there, and waits for its result. The classes
of `onceward.sync` are facades: they hold an object of the asynchronous API, and call it by a
portal. `make generate` writes them from the asynchronous signatures.
"""

import asyncio
import concurrent.futures.thread
import inspect
import logging
import signal
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from onceward import forks
from onceward.errors import BadInput, Unavailable

T = TypeVar("T")
X = TypeVar("X")
P = ParamSpec("P")

_log = logging.getLogger("onceward.sync")
# For handlers of workers, and functions that return tokens.
_THREADS_MAX = 64
_NOT_IN_LOOP = (
    "this is the thread of the event loop, which a synchronous call would block. In `async def` "
    "functions, use the asynchronous API, and plain functions in synchronous code"
)


class Background:
    """The event loop of this process, its thread, and the threads for functions of callers.

    Or the event loop of a program, which runs it in a thread of its own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self.inherited = False
        """Whether this process is a fork: the thread of the loop does not exist in it."""
        self.closers: dict[int, Callable[[], Awaitable[None]]] = {}
        """Closes what is open, by the id of its portal."""
        self.functions = ThreadPoolExecutor(_THREADS_MAX, "onceward-sync")
        self._hooks: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="onceward-loop", daemon=True)
        if loop is None:
            self._thread.start()
        threading.Thread(target=self._run_hooks, name="onceward-hooks", daemon=True).start()
        forks.watch(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def _run_hooks(self) -> None:
        """Call subscribers one after the other, in a thread from which they can use the API."""
        while (hook := self._hooks.get()) is not None:
            try:
                hook()
            except Exception:
                _log.exception("a subscriber failed")

    def post(self, hook: Callable[[], object]) -> None:
        """Call a subscriber soon."""
        self._hooks.put(hook)

    def forked(self) -> None:
        global _background, _lock
        _background, _lock = None, threading.RLock()
        self.inherited = True
        forks.keep(self)

    def end(self) -> None:
        """Close all that is open, at the end of the process."""
        if self.inherited:
            return
        _wait_for_threads()
        for closer in reversed(list(self.closers.values())):
            try:
                Call[None](self).start(closer()).result()
            except Exception:
                _log.exception("closing failed at the end of the process")
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self._hooks.put(None)


def _wait_for_threads() -> None:
    """Wait for the threads that Python waits for anyway, since they may use the API. Those of pools
    end later, and are given no new work."""
    pools = getattr(concurrent.futures.thread, "_threads_queues", None)
    if pools is None:
        return
    for thread in threading.enumerate():
        if not thread.daemon and thread not in pools and thread is not threading.current_thread():
            thread.join()


_background: Background | None = None
_lock = threading.RLock()


def background() -> Background:
    """The event loop of this process, started on first use."""
    global _background
    with _lock:
        if _background is None:
            _background = Background()
            # Before threads of executors end, which engines use; `atexit` would be too late.
            with suppress(RuntimeError):  # the process is ending
                threading._register_atexit(_background.end)  # type: ignore[attr-defined]
        return _background


class Call(Generic[T]):
    """A coroutine in the event loop, and a thread that waits for it and runs functions for it."""

    def __init__(self, background: Background) -> None:
        self._loop = background.loop
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False

    def start(self, work: Awaitable[T]) -> Self:
        try:
            self._loop.call_soon_threadsafe(self._start, work)
        except RuntimeError:
            _drop(work)
            raise Unavailable(
                "the process is ending; make calls before its end", code="node_stopped"
            ) from None
        return self

    def _start(self, work: Awaitable[T]) -> None:
        self._task = self._loop.create_task(_awaited(work))
        self._task.add_done_callback(lambda _: self._inbox.put(None))
        if self._cancelled:
            self._task.cancel()

    def _cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    @property
    def ended(self) -> bool:
        return self._task is not None and self._task.done()

    async def back(self, fn: Callable[[], T]) -> T:
        """Run a function in the thread of the caller. For use in the coroutine."""
        returned: asyncio.Future[T] = self._loop.create_future()

        def call() -> None:
            try:
                value = fn()
            except StopIteration as error:  # a future cannot have it
                self._post(returned, returned.set_exception, RuntimeError(repr(error)))
            except Exception as error:
                self._post(returned, returned.set_exception, error)
            else:
                self._post(returned, returned.set_result, value)

        self._inbox.put(call)
        return await returned

    def _post(self, returned: "asyncio.Future[T]", post: Callable[[Any], None], value: Any) -> None:
        self._loop.call_soon_threadsafe(lambda: None if returned.done() else post(value))

    def notify(self) -> None:
        """Wake the thread, so that it checks its condition."""
        self._inbox.put(None)

    def wait(self, done: Callable[[], bool]) -> None:
        """Run functions until `done()`, or the end. An interrupt cancels the coroutine, and is
        raised when it has ended."""
        try:
            while not self.ended and not done():
                work = self._inbox.get()
                if work is not None:
                    work()
        except BaseException:
            self._loop.call_soon_threadsafe(self._cancel)
            while not self.ended:
                self._inbox.get()
            raise

    def result(self) -> T:
        self.wait(lambda: False)
        assert self._task is not None
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise Unavailable(
                "the call was cancelled, because the process is ending; make calls before its end"
            ) from None


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def _drop(work: Awaitable[Any]) -> None:
    """Discard a coroutine that is not run."""
    if isinstance(work, Coroutine):
        work.close()


def _admit_plain(fn: Any) -> None:
    if not callable(fn) or inspect.iscoroutinefunction(fn):
        kind = "an async function" if callable(fn) else type(fn).__name__
        raise BadInput(f"a transaction must be a plain function here, not {kind}")


class Portal:
    """Calls of one application or client into the event loop.

    It belongs to the process that made it. One that `renews` can be used in forked processes.
    `loop` returns the event loop of a program, in place of the one in the background.
    """

    def __init__(
        self,
        *,
        renews: bool = False,
        loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._renews = renews
        self._loop_of = loop
        self._forked = False
        if loop is not None:
            forks.watch(self)
        self._closer: Callable[[], Awaitable[None]] | None = None
        self._background: Background | None = None

    @property
    def inherited(self) -> bool:
        """Whether it belongs to the parent of this process."""
        return self._forked or (self._background is not None and self._background.inherited)

    def forked(self) -> None:
        self._forked = True

    def _open(self) -> Background:
        if self._background is None or (self.inherited and self._renews):
            own = self._loop_of
            self._background = background() if own is None else Background(own())
            if self._closer is not None:
                self._background.closers[id(self)] = self._closer
        elif self.inherited:
            raise forks.forked_error("this object")
        if asyncio._get_running_loop() is self._background.loop:
            raise BadInput(_NOT_IN_LOOP)
        return self._background

    def closes_with(self, close: Callable[[], Awaitable[None]] | None) -> None:
        """What closes it at the end of the process; None: nothing is open."""
        self._closer = close
        if self._background is not None:
            self._background.closers.pop(id(self), None)
            if close is not None:
                self._background.closers[id(self)] = close

    def discard(self) -> None:
        """Close in the background what an unused object had open."""
        known = self._background
        if known is None or known.inherited:
            return
        closer = known.closers.pop(id(self), None)
        if closer is not None:
            with suppress(RuntimeError):  # the loop is closed
                known.loop.call_soon_threadsafe(lambda: known.loop.create_task(_awaited(closer())))

    def call(self) -> Call[Any]:
        """A call to start."""
        return Call(self._open())

    def run(self, work: Awaitable[T]) -> T:
        """Run a coroutine and return its result."""
        try:
            call = Call[T](self._open())
        except BaseException:
            _drop(work)
            raise
        return call.start(work).result()

    def run_with(
        self, fn: Callable[[X], T], work: Callable[[Callable[[X], Awaitable[T]]], Awaitable[T]]
    ) -> T:
        """Run `work(back)`. In it, `await back(value)` calls `fn(value)` in the thread of the
        caller."""
        _admit_plain(fn)
        call = Call[T](self._open())

        def plain(value: X) -> T:
            found = fn(value)
            if inspect.iscoroutine(found):
                found.close()
                raise BadInput("a transaction must be a plain function here; this one is async")
            return found

        async def back(value: X) -> T:
            return await call.back(partial(plain, value))

        return call.start(work(back)).result()

    def enter(self, fn: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Call a function in the event loop, where its object is used."""

        async def call() -> T:
            return fn(*args, **options)

        return self.run(call())

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items, each fetched when it is asked for."""
        try:
            while True:
                try:
                    item = self.run(anext(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            close = getattr(items, "aclose", None)
            if close is not None and self._background is not None and not self.inherited:
                with suppress(RuntimeError):
                    loop = self._background.loop
                    loop.call_soon_threadsafe(lambda: loop.create_task(_awaited(close())))

    def hook(self, fn: T) -> T:
        """A subscriber for the asynchronous API: calls `fn` soon, in another thread."""
        if not callable(fn):
            return fn  # rejected there
        post = self._open().post

        def call(*args: Any) -> None:
            post(lambda: fn(*args))

        return call  # type: ignore[return-value]

    def function(self, fn: Callable[P, T]) -> Callable[P, T]:
        """A function of the event loop, for use by other threads."""
        return lambda *args, **options: self.enter(fn, *args, **options)

    def asynchronous(self, fn: Any) -> Any:
        """A function of the caller as an asynchronous one, which runs in a thread."""
        if not callable(fn):
            return fn
        known = self._open()

        async def call(*args: Any) -> Any:
            return await known.loop.run_in_executor(known.functions, lambda: fn(*args))

        return call

    @contextmanager
    def inside(
        self, manager: AbstractContextManager[Any], make: Callable[["Portal", Any], T]
    ) -> Iterator[T]:
        """A context that is entered and left in the event loop."""
        value = self.enter(manager.__enter__)
        try:
            yield make(self, value)
        finally:
            self.enter(manager.__exit__, None, None, None)


A = TypeVar("A")
F = TypeVar("F", covariant=True)


class Facade(Generic[A]):
    """The synchronous form of an object of the asynchronous API. Equal for the same object."""

    def __init__(self, portal: Portal, target: A) -> None:
        self._bridge = portal
        self._target = target

    @property
    def _portal(self) -> Portal:
        return self._bridge

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._target is self._target

    def __hash__(self) -> int:
        return id(self._target)


def target(facade: Any) -> Any:
    """The asynchronous object of an argument. Other values are checked by the asynchronous API."""
    return facade._target if isinstance(facade, Facade) else facade


class Context(Generic[F]):
    """A context manager for one use, such as a held lock. The asynchronous one is entered and left
    by one task, as it requires."""

    def __init__(
        self,
        portal: Portal,
        manager: AbstractAsyncContextManager[Any],
        make: Callable[[Portal, Any], F],
    ) -> None:
        self._portal = portal
        self._manager = manager
        self._make = make
        self._left = asyncio.Event()
        self._call: Call[None] | None = None
        self._values: list[Any] = []

    async def _hold(self) -> None:
        async with self._manager as value:
            self._values.append(value)
            assert self._call is not None
            self._call.notify()
            await self._left.wait()

    def __enter__(self) -> F:
        if self._call is not None:
            raise BadInput("this context was entered before: make another one")
        self._call = self._portal.call()
        self._call.start(self._hold())
        self._call.wait(lambda: bool(self._values))
        if not self._values:
            self._call.result()  # raises
        return self._make(self._portal, self._values[0])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._call is not None
        self._portal.enter(self._left.set)
        try:
            self._call.result()
        except Exception:
            if error is None:
                raise


class Signal(Facade[asyncio.Event]):
    """Whether something has happened, such as the loss of a lock."""

    def is_set(self) -> bool:
        return self._target.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has happened, up to `timeout_s`. Returns whether it has."""

        async def wait() -> bool:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._target.wait()
            return self._target.is_set()

        return self._portal.run(wait())


class Root(Facade[A]):
    """An object that callers open and close: an application, a client, or a connection to rooms."""

    def __init__(self, portal: Portal, target: A) -> None:
        super().__init__(portal, target)
        self._again: Callable[[], Awaitable[Any]] | None = None
        self._closer: Callable[[], Awaitable[None]] | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._watch()

    def _watch(self) -> None:
        """Close it once it is garbage."""
        self._finalizer = weakref.finalize(self, self._bridge.discard)
        self._finalizer.atexit = False

    @property
    def _portal(self) -> Portal:
        if self._again is not None and self._bridge.inherited:
            with _lock:
                if self._bridge.inherited:
                    bridge = Portal()
                    bridge.run(self._again())
                    self._bridge = bridge
                    self._watch()
                    bridge.closes_with(self._closer)
        return self._bridge

    @property
    def portal(self) -> Portal:
        """Its calls into the event loop of this process."""
        return self._portal

    def run_by(
        self,
        loop: Callable[[], asyncio.AbstractEventLoop],
        again: Callable[[], Awaitable[Any]],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        """Use the event loop of a program that opens and closes it. A forked process opens it with
        `again`, on first use."""
        self._bridge, self._again, self._closer = Portal(loop=loop), again, close

    def _open(
        self,
        opening: Callable[[], Awaitable[Any]],
        close: Callable[[], Awaitable[None]],
        again: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        """Open it. `again` opens it in a forked process, on first use."""
        self._portal.run(opening())
        self._portal.closes_with(close)
        self._again, self._closer = again, close

    def _close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Close it. Idempotent; without an effect in a forked process."""
        self._again = None
        if not self._bridge.inherited:
            self._bridge.run(close())
        self._bridge.closes_with(None)


def run_until_signal(
    start: Callable[[Callable[[], None]], None],
    stop: Callable[[], None],
    announce: Callable[[], object],
) -> None:
    """Call `start(ended)`, wait for SIGTERM, SIGINT or a call of `ended`, and then call `stop`,
    which a second signal interrupts."""
    stopped = threading.Event()

    def signalled(number: int, frame: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, signalled) for number in numbers]
    try:
        start(stopped.set)
        announce()
        stopped.wait()
        with suppress(KeyboardInterrupt):
            stop()
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
