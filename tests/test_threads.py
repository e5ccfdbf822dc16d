"""The pool of threads: its bound, its queue, and runs that are interrupted while they wait."""

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from onceward import limits
from onceward.errors import BadInput
from onceward.functions import is_async, name_of
from onceward.threads import Interrupted, Run, Threads, pool_threads

WAIT_S = 60.0


class Blocked:
    """A function that waits for a test."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.free = threading.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, value: Any = None) -> Any:
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.free.wait(WAIT_S)
        return value


async def test_a_run_waits_for_a_thread_and_takes_over_a_free_one() -> None:
    threads, freed = Threads(1, "test"), []
    threads.on_free(lambda: freed.append(threads.room))
    blocked = Blocked()
    first = asyncio.create_task(Run(threads).main(blocked, 1))
    await blocked.begun.wait()
    assert threads.free == 0
    names: list[str] = []

    def note() -> None:
        names.append(threading.current_thread().name)

    others = [asyncio.create_task(Run(threads).main(note)) for _ in range(3)]
    await asyncio.sleep(0)
    blocked.free.set()
    assert await first == 1
    await asyncio.gather(*others)
    assert names == ["test-1"] * 3
    assert (threads.free, len(freed)) == (1, 1)
    threads.close()


async def test_a_waiting_run_can_be_interrupted_and_cancelled() -> None:
    threads, blocked = Threads(1, "test"), Blocked()
    first = asyncio.create_task(Run(threads).main(blocked, 1))
    await blocked.begun.wait()
    runs = [Run(threads) for _ in range(3)]
    tasks = [asyncio.create_task(run.main(str, n)) for n, run in enumerate(runs)]
    await asyncio.sleep(0)
    runs[0].interrupt()
    tasks[1].cancel()
    with pytest.raises(Interrupted):
        await tasks[0]
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    blocked.free.set()
    assert await first == 1
    assert await tasks[2] == "2"
    assert threads.free == 1
    threads.close()


async def test_a_run_that_is_cancelled_as_it_gets_its_thread_passes_it_on() -> None:
    threads = Threads(1, "test")
    thread = await threads.acquire(Run(threads))
    waiting = [asyncio.create_task(Run(threads).main(str, n)) for n in range(2)]
    await asyncio.sleep(0)
    threads.release(thread)
    waiting[0].cancel()
    assert await waiting[1] == "1"
    assert waiting[0].cancelled()
    assert threads.free == 1
    threads.close()


async def test_a_cancelled_run_occupies_its_thread_until_its_function_returns() -> None:
    threads, blocked, freed = Threads(1, "test"), Blocked(), asyncio.Event()
    threads.on_free(freed.set)
    run = Run(threads)
    late: list[str] = []

    def work() -> None:
        blocked()
        try:
            run.call(blocked.begun.wait)
        except BaseException as error:
            late.append(type(error).__name__)

    task = asyncio.create_task(run.main(work))
    await blocked.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert threads.free == 0
    waiting = asyncio.create_task(Run(threads).main(str, 1))
    await asyncio.sleep(0)
    blocked.free.set()
    assert await waiting == "1"
    await freed.wait()
    assert (late, threads.free) == (["BadInput"], 1)
    threads.close()


async def test_an_interrupt_cancels_the_call_on_the_loop_and_rejects_later_ones() -> None:
    threads = Threads(1, "test")
    run, called = Run(threads), asyncio.Event()
    seen: list[str] = []

    async def call() -> None:
        called.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    def work() -> str:
        for _ in range(2):
            try:
                run.call(call)
            except Interrupted:
                seen.append("interrupted")
        return "result"

    task = asyncio.create_task(run.main(work))
    await called.wait()
    run.interrupt()
    assert await task == "result"
    assert seen == ["cancelled", "interrupted", "interrupted"]
    threads.close()


async def test_functions_and_calls_can_be_nested() -> None:
    threads = Threads(1, "test")
    run = Run(threads)

    async def on_loop(depth: int) -> list[str]:
        here = threading.current_thread().name
        return [here, *(await run.run(in_thread, depth - 1) if depth else [])]

    def in_thread(depth: int) -> list[str]:
        here = threading.current_thread().name
        return [here, *(run.call(on_loop, depth - 1) if depth else [])]

    assert await run.main(in_thread, 4) == [*["test-1", "MainThread"] * 2, "test-1"]
    with pytest.raises(BadInput, match="after its handler returned"):
        run.call(on_loop, 0)
    threads.close()


async def test_threads_end_with_their_pool() -> None:
    before, threads, blocked = pool_threads(), Threads(3, "test"), Blocked()
    await asyncio.gather(*[Run(threads).main(str) for _ in range(3)])
    busy = asyncio.create_task(Run(threads).main(blocked))
    await blocked.begun.wait()
    known = [thread for thread in threading.enumerate() if thread.name.startswith("test-")]
    threads.close()
    blocked.free.set()
    await busy
    for thread in known:
        await asyncio.to_thread(thread.join)
    assert not pool_threads() - before


def test_names_and_kinds_of_functions() -> None:
    async def coroutine() -> None: ...

    assert is_async(partial(partial(coroutine)))
    assert not is_async(partial(str))
    assert not is_async(str)
    assert name_of(partial(coroutine)).endswith("functions.<locals>.coroutine")
    assert name_of(Threads(1, "test")) == "onceward.threads.Threads"


async def test_short_runs_may_wait_for_a_thread_and_long_ones_not() -> None:
    now_ns = 0
    threads = Threads(2, "test", lambda: now_ns)

    async def last(seconds: float) -> None:
        async with Run(threads):
            nonlocal now_ns
            now_ns += int(seconds * 1e9)

    assert threads.room == 2  # how long runs last is not known
    await last(0.02)
    assert threads.room == 2 + 5  # five more get a thread within 50 ms
    async with Run(threads), Run(threads):
        assert (threads.free, threads.room) == (0, 5)
    await last(60)
    assert threads.room == 2
    for _ in range(100):
        await last(0.02)
    assert threads.room == 2 + 4  # the mean is not quite there
    threads.close()


async def test_a_run_that_waits_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "THREAD_WAIT_S", 0.04)
    threads, blocked, late = Threads(1, "test"), Blocked(), asyncio.Event()
    await Run(threads).main(str)
    assert threads.room > 1
    first = asyncio.create_task(Run(threads).main(blocked, 1))
    await blocked.begun.wait()
    waiting = asyncio.create_task(Run(threads, late.set).main(str, 2))
    await late.wait()
    assert threads.room == 0  # no more are to wait
    blocked.free.set()
    assert (await first, await waiting) == (1, "2")
    threads.close()
