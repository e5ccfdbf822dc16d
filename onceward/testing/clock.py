"""Virtual time: an event loop whose clock advances when all tasks wait.

`run_virtual(main())` is `asyncio.run` on such a loop: an hour's sleep takes no time, and the same
program takes the same steps in the same order every time. Applications that start on the loop use
its time: timers, delays and leases take no time either. `VirtualClock` is Onceward's `Clock` on
the loop's time, with a wall clock that a test can set.

Part of a program can run as a `Process`. It can be paused as by SIGSTOP, or killed as by SIGKILL,
while the rest of the program continues.
"""

import asyncio
import selectors
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from concurrent.futures import thread as thread_executor
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, Unpack

from onceward.clock import Clock
from onceward.testing.waiting import describe
from onceward.threads import PoolThread, pool_threads

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH_MS: Final = 1_700_000_000_000
"""The time of a `VirtualClock` without an offset when its loop's time is 0."""

_PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)
_TASKS_KEPT_MAX: Final = 1_000
_EXECUTOR_LOOP: Final = thread_executor._worker.__code__
_THREAD_S_MAX: Final = 60.0


class Stuck(RuntimeError):
    """All tasks wait for events that nothing on the loop will cause."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which time passes only when all callbacks have run.

    Then its clock jumps to the next timer. Files and threads still work, in real time. The clock
    waits for jobs in executors before it jumps. While a socket is open, or a thread works that was
    started after the loop was created, each jump first gives them `grace_s` to report. Idle threads
    of executors do not count. If no timer is left, `run_until_complete` raises `Stuck`: at once,
    or after `stuck_after_s` without an event if a job, a thread or a socket could cause one.

    With `waits_for_threads`, the loop stands still while a plain handler computes, so that runs are
    deterministic. Such a handler may wait for the loop only by the methods of its job.
    """

    def __init__(
        self,
        *,
        grace_s: float = 0.002,
        stuck_after_s: float = 20.0,
        waits_for_threads: bool = False,
    ) -> None:
        self.grace_s = grace_s
        self.stuck_after_s = stuck_after_s
        self.waits_for_threads = waits_for_threads
        self.processes: list[Process] = []
        self._now_ns = 0
        self._jobs = 0
        self._threads_before = _other_threads()
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now_ns / 1e9

    def time_ns(self) -> int:
        """The exact virtual time."""
        return self._now_ns

    def make_clock(self) -> "VirtualClock":
        """A clock on the time of this loop, which applications that start on it use."""
        return VirtualClock(self)

    def process(self, name: str) -> "Process":
        """A new process. The tasks and callbacks that it starts belong to it."""
        process = Process(self, name)
        self.processes.append(process)
        return process

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        guarded = _Guarded(process, callback, args)
        guarded.handle = super().call_soon(guarded, context=context)
        return guarded.handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        # `call_later` also uses this method.
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        guarded = _Guarded(process, callback, args)
        handle = guarded.handle = super().call_at(when, guarded, context=context)
        return handle

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = super().create_task(coro, name=name, context=context)
        process = _PROCESS.get() if context is None else context.get(_PROCESS)
        if process is not None:
            process.keep(task)
        return task

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        if self.waits_for_threads and isinstance(executor, PoolThread):
            future = self.create_future()
            future.set_result(executor.submit(func, *args).result(_THREAD_S_MAX))
            return future
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        # In a new context: the count must also decrease if the process dies before the job ends.
        future.add_done_callback(self._job_done, context=Context())
        return future

    def _job_done(self, _: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    def close(self) -> None:
        """Close the loop. Remaining tasks of processes end silently."""
        if not self.is_closed():
            self.set_exception_handler(lambda loop, context: None)
            self.bury_processes()
        super().close()

    def bury_processes(self) -> None:
        """Kill all processes and end their tasks silently."""
        for process in self.processes:
            process.bury()

    def wait_really(self, timeout_s: float | None, *, files: bool) -> float:
        """How long to wait for real events before virtual time may pass by `timeout_s`. `files`:
        whether a file could report an event."""
        threads = _other_threads() > self._threads_before and _threads_work()
        if self._jobs or (timeout_s is None and (threads or files)):
            return self.stuck_after_s
        return self.grace_s if threads or files else 0

    def jump(self, timeout_s: float | None) -> None:
        """Advance virtual time after a wait without real events; raises `Stuck` if it cannot."""
        if timeout_s is None or self._jobs:
            what = "an executor's job did not end" if self._jobs else "no timer is left"
            tasks = asyncio.all_tasks(self)
            raise Stuck(
                f"{what}, and nothing else can happen; {len(tasks)} tasks wait:{describe(tasks)}"
            )
        self._now_ns += max(1, round(timeout_s * 1e9))


def _other_threads() -> int:
    """The number of threads that may cause events although no executor's job runs."""
    return threading.active_count() - len(pool_threads())


def _threads_work() -> bool:
    """Whether any thread besides this one may be working. Idle threads of executors do not."""
    known = {threading.get_ident(), *(thread.ident for thread in pool_threads())}
    return any(
        not (frame.f_code is _EXECUTOR_LOOP and frame.f_locals["work_queue"].empty())
        for ident, frame in sys._current_frames().items()
        if ident not in known
    )


class _JumpingSelector(selectors.BaseSelector):
    """A selector that advances virtual time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self._loop
        # One file is always registered: the pipe by which threads wake the loop. Their callbacks
        # are already in the loop's queue, so the pipe need not be read.
        files = len(self._real.get_map()) > 1
        if timeout is not None and timeout <= 0:
            return self._real.select(0) if files else []
        wait_s = loop.wait_really(timeout, files=files)
        if wait_s and (events := self._real.select(wait_s)):
            return events
        loop.jump(timeout)
        return []

    def register(
        self, fileobj: "FileDescriptorLike", events: int, data: Any = None
    ) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(
        self, fileobj: "FileDescriptorLike", events: int, data: Any = None
    ) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping["FileDescriptorLike", selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class Process:
    """A part of the program that can be paused, resumed and killed. See `VirtualLoop.process`.

    While it is paused, its callbacks are queued; they run in the same order when it resumes. After
    it is killed, none of them runs, not even `finally` or `except` blocks, as after a power cut. A
    step of the process that is running continues to its next `await`.
    """

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.running = True
        self.dead = False
        self.context = copy_context()
        self.context.run(_PROCESS.set, self)
        self._loop = loop
        self._backlog: list[tuple[_Guarded, Context]] = []
        # The loop has weak references to its tasks: a dead task would be collected, and its
        # `finally` blocks would run at a time chosen by the garbage collector.
        self._tasks: list[asyncio.Task[Any]] = []

    def spawn(self, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task of this process."""
        return self._loop.create_task(coro, context=self.context.copy())

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Call a function in the process, such as when a message arrives; dead processes ignore
        it."""
        self._loop.call_soon(callback, *args, context=self.context.copy())

    def pause(self) -> None:
        """Queue callbacks until `resume`. Idempotent; a dead process stays dead."""
        self.running = False

    def resume(self) -> None:
        """Run the queued callbacks in order, and continue."""
        if self.dead or self.running:
            return
        self.running = True
        backlog, self._backlog = self._backlog, []
        for guarded, context in backlog:
            # Bypasses this class's `call_soon`, which would guard the callback twice.
            asyncio.SelectorEventLoop.call_soon(self._loop, guarded, context=context)

    def kill(self) -> None:
        """Never run a callback again. Idempotent."""
        self.running = False
        self.dead = True
        self._backlog.clear()

    def keep(self, task: asyncio.Task[Any]) -> None:
        if len(self._tasks) >= _TASKS_KEPT_MAX:
            self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(task)

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks of this process, as far as they are known."""
        return list(self._tasks)

    def unnoticed(self) -> list[BaseException]:
        """Exceptions of tasks of this process that were not retrieved; marks them as retrieved."""
        return [
            error
            for task in self._tasks
            if task.done() and getattr(task, "_log_traceback", False)
            if (error := task.exception()) is not None
        ]

    def put_off(self, guarded: "_Guarded") -> None:
        if not self.dead:
            self._backlog.append((guarded, copy_context()))

    def bury(self) -> None:
        """End the remaining tasks silently when the loop is closed."""
        self.kill()
        hook, sys.unraisablehook = sys.unraisablehook, _ignore
        try:
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    asyncio._unregister_task(task)
                    coro = task.get_coro()
                    with suppress(Exception):
                        if coro is not None:
                            coro.close()
        finally:
            sys.unraisablehook = hook
        self._tasks.clear()


def _ignore(failed: object) -> None:
    """Ignore a `finally` block that awaits or fails, in a dead process."""


class _Guarded:
    """A callback of a process, and whether it may run."""

    __slots__ = ("args", "callback", "handle", "process")

    def __init__(
        self, process: Process, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        handle = self.handle
        if handle is None or handle.cancelled():
            return
        if self.process.running:
            self.handle = None
            self.callback(*self.args)
        else:
            self.process.put_off(self)

    def __repr__(self) -> str:
        return f"<{self.process.name}: {self.callback!r}>"


class VirtualClock(Clock):
    """Onceward's clock on a virtual loop's time, with a wall clock that can be set.

    Create it inside a running `VirtualLoop`, or pass one.
    """

    def __init__(self, loop: VirtualLoop | None = None, *, wall_offset_ms: int = 0) -> None:
        running = loop or asyncio.get_running_loop()
        if not isinstance(running, VirtualLoop):
            raise TypeError("a VirtualClock needs a VirtualLoop: use run_virtual")
        self._loop = running
        self._wall_offset_ns = wall_offset_ms * 1_000_000
        super().__init__(wall_ns=self._read_wall_ns, boot_ns=running.time_ns)

    @property
    def wall_offset_ms(self) -> int:
        """The offset of the wall clock from the true time."""
        return self._wall_offset_ns // 1_000_000

    def jump_wall(self, step_ms: int) -> None:
        """Set the wall clock ahead or back, as an administrator or NTP would."""
        self._wall_offset_ns += step_ms * 1_000_000

    def _read_wall_ns(self) -> int:
        return EPOCH_MS * 1_000_000 + self._loop.time_ns() + self._wall_offset_ns


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new `VirtualLoop`, and return its result.

    Raises the errors of the coroutine, or `Stuck` if it waits for an event that cannot occur.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            return runner.run(main)
        finally:
            # The runner waits for all known tasks, and a dead one never ends.
            loop = runner.get_loop()
            assert isinstance(loop, VirtualLoop)
            loop.bury_processes()
