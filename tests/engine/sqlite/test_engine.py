"""The engine as a whole, in the ways that the certificate does not ask about."""

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
from onceward.engine.base import ABSENT, Check, Delete, Put
from onceward.engine.sqlite import SQLiteEngine
from onceward.engine.sqlite.journal import segment_paths
from onceward.errors import BadInput, Conflict, EngineStopped, StorageFull, Unavailable
from onceward.testing.disk import Faults, Observer, Operation, Strike, Watched
from tests.engine.sqlite.history import (
    HEAD,
    MEMTABLE_BYTES,
    NOW_MS,
    History,
    contents,
    judge,
    reopen_and_judge,
    shrink,
    some_writes,
    work,
)

SLOW = itertools.count(step=10 * limits.SYNC_INLINE_NS_MAX).__next__
FAST = itertools.count().__next__
KEY = ("p", "a")


@pytest.fixture
def path(memory_path: Path) -> str:
    return str(memory_path / "app.db")


@pytest.mark.parametrize("elapsed_ns", [FAST, SLOW], ids=["inline", "thread"])
@pytest.mark.parametrize("seed", range(3))
async def test_a_long_life_with_many_folds_and_openings_agrees_with_a_model(
    seed: int, elapsed_ns: Callable[[], int], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    random, history = Random(seed), History()
    for life in range(6):
        with Watched(Observer()) as watched:
            engine = SQLiteEngine(
                path,
                memtable_bytes=random.choice((20_000, MEMTABLE_BYTES, 1 << 20)),
                cache_bytes=random.choice((0, 5_000, 1 << 20)),
                disk=watched.disk,
                vfs=watched.vfs,
                elapsed_ns=elapsed_ns,
            )
            await engine.open()
            for _ in range(5):
                await judge(engine, history)
                await work(engine, history, random, rounds=10, callers=8)
            if life % 2:
                watched.kill()
            await engine.close()
    await reopen_and_judge(path, history)


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
    """Holds the folding back at a sync, until told."""

    def __init__(self) -> None:
        self.on = False
        self.reached = threading.Event()
        self.go = threading.Event()

    def before(self, operation: Operation) -> int | None:
        if self.on and operation.kind == "vfs.sync":
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
        with pytest.raises(StorageFull, match="memory is full of what waits"):
            await engine.commit([Put(("p", "b"), b"1")], NOW_MS)
        [record] = await engine.get([KEY], NOW_MS)
        assert record is not None
        await engine.close()
    async with SQLiteEngine(path) as engine:
        assert [record.key for record in await engine.scan("p", NOW_MS)] == [KEY]


async def test_a_commit_that_is_cancelled_may_be_there_and_disturbs_no_one(path: str) -> None:
    async with SQLiteEngine(path) as engine:
        for number in range(50):
            keys = [("p", f"{number:03} {caller}") for caller in range(3)]
            calls = [asyncio.create_task(engine.commit([Put(k, b"1")], NOW_MS)) for k in keys]
            await asyncio.sleep(0)
            calls[1].cancel()
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert done[0] != done[2]
        found = {record.key for record in await engine.scan("p", NOW_MS)}
    async with SQLiteEngine(path) as engine:
        assert {record.key for record in await engine.scan("p", NOW_MS)} == found
        assert {
            ("p", f"{number:03} {caller}") for number in range(50) for caller in (0, 2)
        } <= found


async def test_a_check_fails_with_the_commit_that_it_saw(path: str) -> None:
    faults = Faults()
    with Watched(faults) as watched:
        engine = SQLiteEngine(path, disk=watched.disk, vfs=watched.vfs)
        await engine.open()
        faults.strike = Strike("disk.write", faults.counts["disk.write"] + 1, lasting=True)

        async def look() -> None:
            [seen] = await engine.get([KEY], NOW_MS)
            assert seen is not None
            await engine.commit([Check(KEY, seen.version)], NOW_MS)

        put = engine.commit([Put(KEY, b"1")], NOW_MS)
        for outcome in await asyncio.gather(put, look(), return_exceptions=True):
            assert isinstance(outcome, EngineStopped)
        await engine.close()


async def test_a_stopped_engine_refuses_everything_and_can_be_closed(path: str) -> None:
    faults = Faults()
    with Watched(faults) as watched:
        engine = SQLiteEngine(path, disk=watched.disk, vfs=watched.vfs)
        await engine.open()
        await engine.commit([Put(KEY, b"1")], NOW_MS)
        faults.strike = Strike("disk.sync", faults.counts["disk.sync"] + 1, lasting=True)
        faults.struck.append("from here on")
        with pytest.raises(EngineStopped):
            await engine.commit([Put(KEY, b"2")], NOW_MS)
        for _ in range(3):
            with pytest.raises(EngineStopped):
                await engine.get([KEY], NOW_MS)
            with pytest.raises(EngineStopped):
                await engine.scan("p", NOW_MS)
            with pytest.raises(EngineStopped):
                await engine.sweep(NOW_MS)
            with pytest.raises(EngineStopped):
                await engine.commit([Check(KEY, ABSENT)], NOW_MS)
        await engine.close()
        await engine.close()
    async with SQLiteEngine(path) as engine:
        assert len(await engine.scan("p", NOW_MS)) == 1


async def test_a_sweep_spares_what_is_put_again_while_it_runs(path: str) -> None:
    keys = [("p", f"{number:03}") for number in range(250)]
    async with SQLiteEngine(path) as engine:
        for start in range(0, 250, 50):
            await engine.commit([Put(k, b"1", NOW_MS) for k in keys[start : start + 50]], 0)
    async with SQLiteEngine(path) as engine:
        sweeping = asyncio.create_task(engine.sweep(NOW_MS, 1_000))
        await asyncio.sleep(0)
        await engine.commit([Put(keys[200], b"2")], NOW_MS)
        await engine.commit([Put(keys[249], b"2")], NOW_MS)
        assert await sweeping == 248
        assert [r.key for r in await engine.scan("p", 0)] == [keys[200], keys[249]]


async def test_a_sweep_finds_what_expired_in_memory_and_in_the_table(path: str) -> None:
    async with SQLiteEngine(path) as engine:
        await engine.commit([Put(("p", "table"), b"1", NOW_MS), Put(("p", "both"), b"1", 5)], 0)
    async with SQLiteEngine(path) as engine:
        await engine.commit([Put(("p", "memory"), b"1", NOW_MS)], 0)
        await engine.commit([Put(("p", "both"), b"1", NOW_MS), Put(("p", "stays"), b"1")], 0)
        assert await engine.sweep(NOW_MS - 1) == 0
        assert await engine.sweep(NOW_MS) == 3
        assert await engine.sweep(NOW_MS) == 0
        assert [r.key[1] for r in await engine.scan("p", 0)] == ["stays"]


async def test_a_sweep_of_many_records_lets_others_go_on(path: str) -> None:
    async with SQLiteEngine(path) as engine:
        for partition in range(60):
            puts = [Put((f"{partition}", f"{n}"), b"1", NOW_MS) for n in range(100)]
            await engine.commit(puts, 0)
        sweeping = asyncio.create_task(engine.sweep(NOW_MS, 5_500))
        await asyncio.sleep(0)
        await engine.commit([Put(KEY, b"1")], NOW_MS)
        assert not sweeping.done()
        assert await sweeping == 5_500
        assert await engine.sweep(NOW_MS, 5_500) == 500


@pytest.mark.parametrize(
    ("put", "code"),
    [
        (Put(KEY, b"\xff"), "bad_value"),
        (Put(KEY, "text"), "bad_value"),  # type: ignore[arg-type]
        (Put(KEY, b"1", 1.5), "bad_request"),  # type: ignore[arg-type]
        (Put(KEY, b"1", True), "bad_request"),
        (Put(KEY, b"1", -1), "bad_request"),
        (Put(KEY, b"1", 2**63), "bad_request"),
    ],
)
async def test_what_could_not_be_read_back_is_refused_before_it_is_written(
    put: Put, code: str, path: str
) -> None:
    async with SQLiteEngine(path) as engine:
        with pytest.raises(BadInput) as refused:
            await engine.commit([put], 0)
        assert refused.value.code == code
        await engine.commit([Put(KEY, b"1", 2**63 - 1)], 0)
    async with SQLiteEngine(path) as engine:
        assert len(await engine.scan("p", 0)) == 1


async def test_an_engine_can_be_opened_again(path: str) -> None:
    engine = SQLiteEngine(path)
    with pytest.raises(Unavailable, match="not open"):
        await engine.get([KEY], NOW_MS)
    for number in range(1, 4):
        assert await engine.open() is engine
        assert await engine.open() is engine
        assert await engine.commit([Put(KEY, b"%d" % number)], NOW_MS) == number
        await engine.close()
        await engine.close()
    assert segment_paths(f"{path}-log.") == []


async def test_a_refused_commit_leaves_no_trace(path: str) -> None:
    async with SQLiteEngine(path) as engine:
        version = await engine.commit([Put(KEY, b"1")], NOW_MS)
        for _ in range(3):
            with pytest.raises(Conflict) as conflict:
                await engine.commit([Delete(("p", "b")), Put(KEY, b"2", None, ABSENT)], NOW_MS)
            assert conflict.value.details["keys"] == [KEY]
        assert await engine.commit([Delete(("p", "b"))], NOW_MS) == version + 1, "none was used up"


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
