"""Memory that fills up, large commits, and closing while others go on."""

import asyncio
import errno
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from onceward import limits
from onceward.engine.base import Check, Put
from onceward.engine.sqlite import SQLiteEngine
from onceward.engine.sqlite.journal import segment_paths
from onceward.errors import StorageFull, Unavailable
from onceward.testing.disk import Faults, Observer, Operation, Strike, Watched
from tests.engine.sqlite.history import (
    HEAD,
    MEMTABLE_BYTES,
    NOW_MS,
    History,
    contents,
    reopen_and_judge,
    shrink,
    some_writes,
    work,
)

SLOW = itertools.count(step=10 * limits.WRITE_INLINE_NS_MAX).__next__
FAST = itertools.count().__next__
KEY = ("p", "a")


@pytest.fixture
def path(memory_path: Path) -> str:
    return str(memory_path / "app.db")


async def test_the_largest_commit_is_taken_right_after_opening(path: str) -> None:
    value = b'"%s"' % (b"x" * (limits.VALUE_BYTES_MAX - 2))
    puts = [Put(("p", f"{number:02}"), value) for number in range(10)]
    async with SQLiteEngine(path) as engine:
        await engine.commit(puts, NOW_MS)
    async with SQLiteEngine(path) as engine:
        await asyncio.gather(*(engine.commit([*puts], NOW_MS) for _ in range(5)))
        assert [r.value for r in await engine.scan("p", NOW_MS)] == [value] * 10


async def test_memory_stays_bounded_under_pressure_and_nothing_gets_stuck(path: str) -> None:
    memtable_bytes, sizes = 200_000, []
    async with asyncio.timeout(40), SQLiteEngine(path, memtable_bytes=memtable_bytes) as engine:

        async def call(caller: int) -> None:
            for number in range(20):
                key = ("p", f"{caller:03} {number:03}")
                await engine.commit([Put(key, b'"%s"' % (b"x" * 2_000))], NOW_MS)
                sizes.append(engine._layers.size_bytes)

        await asyncio.gather(*(call(caller) for caller in range(100)))
        assert max(sizes) > memtable_bytes * 0.6, "there was pressure"
        assert max(sizes) < memtable_bytes * 4
        assert len(await engine.scan("p", NOW_MS, limit=10_000)) == 2_000


async def test_a_commit_larger_than_the_memtable_is_taken(path: str) -> None:
    async with asyncio.timeout(20), SQLiteEngine(path, memtable_bytes=10_000) as engine:
        for number in range(5):
            puts = [Put(("p", f"{n}"), b"%d" % (number * 10**300)) for n in range(100)]
            await engine.commit(puts, NOW_MS)
        assert len(await engine.scan("p", NOW_MS)) == 100


@pytest.mark.parametrize("elapsed_ns", [FAST, SLOW], ids=["inline", "thread"])
async def test_closing_under_load_keeps_what_it_answered_and_refuses_the_rest(
    elapsed_ns: Callable[[], int], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    history = History()
    engine = SQLiteEngine(path, memtable_bytes=MEMTABLE_BYTES, elapsed_ns=elapsed_ns)
    await engine.open()
    enough = asyncio.Event()

    async def call(seed: int) -> None:
        random = Random(seed)
        while not history.refused:
            await history.commit(engine, some_writes(random))
            if history.acknowledged >= 100:
                enough.set()

    async with asyncio.timeout(30):
        calls = [asyncio.create_task(call(seed)) for seed in range(20)]
        await enough.wait()
        await engine.close()
        await asyncio.gather(*calls)
    assert {error.code for error in history.refused} == {"engine_closed"}
    await reopen_and_judge(path, history)


class Held(Observer):
    """Holds the folding back at a write, until told."""

    def __init__(self) -> None:
        self.on = False
        self.reached = threading.Event()
        self.go = threading.Event()

    def before(self, operation: Operation) -> int | None:
        if self.on and operation.kind == "vfs.write":
            self.reached.set()
            assert self.go.wait(20)
        return None


@asynccontextmanager
async def full_of_what_waits(path: str) -> AsyncIterator[tuple[SQLiteEngine, Held]]:
    """An engine whose memory is full, since its folding is held back."""
    held = Held()
    with Watched(held) as watched:
        engine = SQLiteEngine(path, memtable_bytes=1_000, disk=watched.disk, vfs=watched.vfs)
        await engine.open()
        held.on = True
        await engine.commit([Put(KEY, b'"%s"' % (b"x" * 5_000))], NOW_MS)
        await asyncio.to_thread(held.reached.wait, 20)
        try:
            yield engine, held
        finally:
            held.go.set()
            await engine.close()


async def some_turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.engine.sqlite.engine._EASE_PAUSE_S_MAX", 0)


@pytest.mark.usefixtures("impatient")
async def test_a_commit_waits_while_memory_is_full_and_reads_do_not(path: str) -> None:
    async with asyncio.timeout(20), full_of_what_waits(path) as (engine, held):
        waiting = asyncio.create_task(engine.commit([Put(("p", "b"), b"1")], NOW_MS))
        await some_turns()
        assert not waiting.done()
        [record] = await engine.get([KEY], NOW_MS)
        assert record is not None
        await engine.commit([Check(KEY, record.version)], NOW_MS)
        assert not waiting.done()
        held.go.set()
        await waiting


@pytest.mark.usefixtures("impatient")
async def test_a_commit_that_waits_for_memory_is_refused_when_the_engine_closes(path: str) -> None:
    async with asyncio.timeout(20), full_of_what_waits(path) as (engine, held):
        waiting = asyncio.create_task(engine.commit([Put(("p", "b"), b"1")], NOW_MS))
        await some_turns()
        closing = asyncio.create_task(engine.close())
        await some_turns()
        assert not waiting.done()
        held.go.set()
        with pytest.raises(Unavailable, match="not open"):
            await waiting
        await closing
    async with SQLiteEngine(path) as engine:
        assert [record.key for record in await engine.scan("p", NOW_MS)] == [KEY]


@pytest.mark.usefixtures("impatient")
async def test_a_commit_is_refused_when_memory_is_full_and_so_is_the_disk(path: str) -> None:
    faults = Faults()
    with Watched(faults) as watched:
        engine = SQLiteEngine(path, memtable_bytes=1_000, disk=watched.disk, vfs=watched.vfs)
        await engine.open()
        faults.strike = Strike("vfs.write", faults.counts["vfs.write"] + 1, errno.ENOSPC)
        await engine.commit([Put(KEY, b'"%s"' % (b"x" * 5_000))], NOW_MS)
        with pytest.raises(StorageFull, match="memory for pending records is full"):
            await engine.commit([Put(("p", "b"), b"1")], NOW_MS)
        [record] = await engine.get([KEY], NOW_MS)
        assert record is not None
        await engine.close()
    async with SQLiteEngine(path) as engine:
        assert [record.key for record in await engine.scan("p", NOW_MS)] == [KEY]


async def test_errors_while_files_are_removed_at_the_end_are_no_errors(path: str) -> None:
    history, faults = History(), Faults()
    with Watched(faults) as watched:
        async with SQLiteEngine(path, disk=watched.disk, vfs=watched.vfs) as engine:
            await work(engine, history, Random(0), rounds=3)
            faults.strike = Strike("disk.remove", faults.counts["disk.remove"] + 1)
    assert len(segment_paths(f"{path}-log.")) == 1
    await reopen_and_judge(path, history)
    assert segment_paths(f"{path}-log.") == []
    async with SQLiteEngine(path) as engine:
        assert HEAD in await contents(engine)


async def test_whoever_closes_twice_or_gives_up_waiting_the_engine_is_closed_once(
    path: str,
) -> None:
    async with asyncio.timeout(20), full_of_what_waits(path) as (engine, held):
        closings = [asyncio.create_task(engine.close()) for _ in range(2)]
        await some_turns()
        closings[0].cancel()
        await asyncio.wait([closings[0]])
        assert not closings[1].done(), "it is closed when it is closed"
        held.go.set()
        await closings[1]
        async with SQLiteEngine(path) as another:
            assert len(await another.scan("p", NOW_MS)) == 1


async def test_opening_waits_for_a_close_that_is_under_way(path: str) -> None:
    engine = await SQLiteEngine(path).open()
    await engine.commit([Put(KEY, b"1")], NOW_MS)
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    await engine.open()
    assert closing.done()
    assert len(await engine.scan("p", NOW_MS)) == 1
    await engine.close()
