"""The engine as a whole, in the ways that the certificate does not ask about."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onceward import limits
from onceward.engine.base import ABSENT, Check, Delete, Put
from onceward.engine.sqlite import SQLiteEngine, layers
from onceward.engine.sqlite import engine as engine_module
from onceward.engine.sqlite.journal import segment_paths
from onceward.errors import BadInput, Conflict, EngineStopped, Unavailable
from onceward.testing.disk import Faults, Observer, Strike, Watched
from tests.engine.sqlite.history import (
    MEMTABLE_BYTES,
    NOW_MS,
    History,
    judge,
    reopen_and_judge,
    shrink,
    work,
)

SLOW = itertools.count(step=10 * limits.WRITE_INLINE_NS_MAX).__next__
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


async def turns_during(work: Coroutine[Any, Any, int]) -> tuple[int, int]:
    """What it returns, and how many turns of the loop others had meanwhile."""
    task, turns = asyncio.create_task(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return task.result(), turns


async def test_a_sweep_that_finds_nothing_among_many_records_lets_others_go_on(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "ROWS_AT_ONCE", 20)
    monkeypatch.setattr(engine_module, "ROWS_AT_ONCE", 20)
    puts = [Put(("p", f"{number:04}"), b"1", NOW_MS) for number in range(2_000)]
    pieces = [puts[start : start + 100] for start in range(0, len(puts), 100)]
    async with SQLiteEngine(path) as engine:
        for piece in pieces:
            await engine.commit(piece, 0)
        swept, turns = await turns_during(engine.sweep(NOW_MS - 1))
        assert swept == 0
        assert turns >= 100, "of 20 records in memory each"
    async with SQLiteEngine(path) as engine:
        for piece in pieces:
            await engine.commit([Delete(put.key) for put in piece], 0)
        swept, turns = await turns_during(engine.sweep(NOW_MS))
        assert swept == 0
        assert turns >= 100 + 100, "of 20 records in the table each, and 20 deletions in memory"


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
