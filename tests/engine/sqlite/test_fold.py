"""The memtable moves into the table, and the journal behind it goes."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import apsw
import pytest

from onceward import limits
from onceward.engine import memtable
from onceward.engine.base import Put, Record
from onceward.engine.memtable import Memtable
from onceward.engine.sqlite import SQLiteEngine, fold
from onceward.engine.sqlite.fold import in_order, steps
from onceward.engine.sqlite.journal import segment_paths
from onceward.engine.sqlite.table import Table
from onceward.errors import EngineStopped
from onceward.testing.disk import Faults, Observer, Strike, Watched
from tests.engine.sqlite.history import NOW_MS, History, judge, reopen_and_judge, shrink, work


def row(
    sort: str, size_bytes: int = 1, *, partition: str = "p", expires: int | None = None
) -> Record:
    return Record((partition, sort), b"1" * size_bytes, 1, expires)


def test_rows_come_in_the_order_of_their_keys() -> None:
    memtable = Memtable()
    for partition, sort in ("qb", "pz", "qa", "pé", "pa"):
        memtable.put(row(sort, partition=partition))
    rows = [r for r in in_order(memtable) if r is not None]
    assert ["".join(r.key) for r in rows] == ["pa", "pz", "pé", "qa", "qb"]


def test_sorting_many_rows_stops_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "ROWS_AT_ONCE", 10)
    memtable = Memtable()
    names = [f"{n:03}" for n in range(100)]
    Random(1).shuffle(names)
    for name in names:
        memtable.put(row(name))
        memtable.put(row("only", partition=f"q{name}"))
    seen, pauses = [], 0
    for found in in_order(memtable):
        if found is None:
            pauses += 1
        else:
            seen.append(found.key)
            memtable.drop(found.key)  # as the fold does behind it
    wanted = [("p", name) for name in sorted(names)] + [(f"q{n}", "only") for n in sorted(names)]
    assert seen == wanted
    assert pauses == 9 + 10


def test_a_step_has_neither_too_many_nor_too_large_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FOLD_ROWS", 3)
    monkeypatch.setattr(limits, "FOLD_STEP_BYTES", 100)
    rows = [row(f"{n}", size) for n, size in enumerate((1, 1, 1, 1, 60, 60, 60, 500, 1))]
    assert [[len(r.value) for r in step] for step in steps(rows, 0)] == [
        [1, 1, 1],
        [1, 60, 60],
        [60, 500],
        [1],
    ]
    assert list(steps([], 0)) == []
    assert list(steps([None, rows[0]], 0)) == [[], [rows[0]]]


def test_rows_long_expired_become_removals() -> None:
    rows = [row("a", expires=5), row("b", expires=6), row("c")]
    (step,) = steps(rows, 5)
    assert [r.value for r in step] == [b"", b"1", b"1"]


def in_table(path: str) -> dict[str, bytes]:
    """What the table shows to others."""
    table = Table(path, bytes(16), 1 << 20, None)
    rows = {r.key[1]: r.value for r in table.range("p", "", None, False)}
    table.close()
    return rows


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_while_after_the_last_commit_everything_is_in_the_table(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLD_DELAY_S", 0.01)
    path = str(memory_path / "app.db")
    async with SQLiteEngine(path) as engine:
        await engine.commit([Put(("p", "a"), b"1")], NOW_MS)
        await until(lambda: engine._table.folded_seq == 1)
        assert engine._layers.size_bytes == 0
        assert in_table(path) == {"a": b"1"}


@pytest.mark.parametrize("calm", [True, False])
async def test_a_fold_rests_between_steps_unless_much_is_new(
    calm: bool, memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLD_ROWS", 1)
    rests = 0

    async def counted(for_ns: int) -> None:
        nonlocal rests
        rests += for_ns > 0

    path = str(memory_path / "app.db")
    async with SQLiteEngine(path) as engine:
        for number in range(5):
            await engine.commit([Put(("p", str(number)), b"1")], NOW_MS)
        if not calm:
            engine._folder._calm_bytes = 1  # and the fifth is newer than what is folded
        monkeypatch.setattr(engine._folder, "_rest", counted)
        await engine._folder.fold(4)
        assert rests == (4 if calm else 0)


async def test_closing_does_not_wait_for_filters_that_are_being_made(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLD_DELAY_S", 0.01)
    begun = asyncio.Event()

    def endless() -> Iterator[None]:
        while True:
            begun.set()
            yield

    async with asyncio.timeout(20), SQLiteEngine(str(memory_path / "app.db")) as engine:
        monkeypatch.setattr(engine._layers.filters, "make", endless)
        await begun.wait()


def size_of(segment: str) -> int:
    try:
        return os.path.getsize(segment)
    except FileNotFoundError:  # folded and removed since it was listed
        return 0


async def test_a_long_journal_is_folded_and_its_segments_are_used_again(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink(monkeypatch)
    path, history = str(memory_path / "app.db"), History()
    async with asyncio.timeout(30), SQLiteEngine(path) as engine:
        sizes = []
        for seed in range(30):
            await work(engine, history, Random(seed), rounds=10)
            sizes.append(sum(size_of(p) for p in segment_paths(f"{path}-log.")))
        await judge(engine, history)
        assert engine._table.folded_seq > 100
    assert max(sizes) < 20 * limits.SEGMENT_BYTES_MAX, "the journal does not grow for ever"
    assert segment_paths(f"{path}-log.") == [], "closed, all is in the table"
    await reopen_and_judge(path, history)


async def test_what_is_in_the_table_after_closing_is_what_was_in_memory(memory_path: Path) -> None:
    path, history = str(memory_path / "app.db"), History()
    async with SQLiteEngine(path) as engine:
        await work(engine, history, Random(1), rounds=50)
    for partition in "abc":
        table = Table(path, bytes(16), 1 << 20, None)
        rows = {r.key: (r.value, r.version) for r in table.range(partition, "", None, False)}
        table.close()
        assert rows == {k: v for k, v in history.states[history.last].items() if k[0] == partition}


async def test_expired_records_never_reach_the_table(memory_path: Path) -> None:
    path = str(memory_path / "app.db")
    late_ms = NOW_MS + limits.SWEEP_SLACK_MS
    async with SQLiteEngine(path) as engine:
        await engine.commit([Put(("p", "expired"), b"1", NOW_MS)], NOW_MS)
        await engine.commit([Put(("p", "expires"), b"1", NOW_MS + 1)], late_ms)
        await engine.commit([Put(("p", "stays"), b"1")], late_ms)
        assert len(await engine.scan("p", 0)) == 3
    assert set(in_table(path)) == {"expires", "stays"}
    async with SQLiteEngine(path) as engine:
        assert [r.key[1] for r in await engine.scan("p", late_ms)] == ["stays"]


async def test_a_crash_loop_does_not_let_sqlites_log_grow_for_ever(memory_path: Path) -> None:
    path, sizes = str(memory_path / "app.db"), []
    for life in range(1, 13):
        with Watched(Observer()) as watched:
            engine = SQLiteEngine(path, disk=watched.disk, vfs=watched.vfs)
            await engine.open()
            for number in range(20):
                await engine.commit([Put(("p", f"{number}"), b"%d" % life)], NOW_MS)
            engine._folder.ask(everything=True)
            seq = engine._writer.seq
            await until(lambda: engine._table.folded_seq == seq)  # noqa: B023
            watched.kill()
            await engine.close()
        sizes.append(os.path.getsize(f"{path}-wal"))
    assert sizes[-1] <= 2 * sizes[1], sizes


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError(5, "Input/output error")])
async def test_whatever_goes_wrong_while_folding_stops_the_node_with_a_clear_message(
    error: Exception, memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(memory_path / "app.db")

    def fail(*args: object) -> None:
        raise error

    async with SQLiteEngine(path) as engine:
        await engine.commit([Put(("p", "a"), b"1")], NOW_MS)
        monkeypatch.setattr(engine._table, "fold", fail)
        engine._folder.ask(everything=True)
        await until(lambda: engine._writer.failure is not None)
        with pytest.raises(EngineStopped, match="the table could not be written") as stopped:
            await engine.commit([Put(("p", "b"), b"1")], NOW_MS)
        assert str(error) in stopped.value.message
        with pytest.raises(EngineStopped):
            await engine.get([("p", "a")], NOW_MS)
    async with SQLiteEngine(path) as engine:
        assert [r.key[1] for r in await engine.scan("p", NOW_MS)] == ["a"]


async def test_a_fold_waits_for_what_has_replaced_its_rows_in_memory(memory_path: Path) -> None:
    """Else the old value has left the journal and the new one never got there."""
    path, faults = str(memory_path / "app.db"), Faults()
    with Watched(faults) as watched:
        engine = SQLiteEngine(path, disk=watched.disk, vfs=watched.vfs)
        await engine.open()
        await engine.commit([Put(("p", "a"), b"1")], NOW_MS)
        # What is written next is a frame, then, and not the header of the spare segment.
        await until(lambda: engine._journal.spare is not None)
        # The next frame fails; by then the first value is no longer in memory.
        faults.strike = Strike("disk.write", faults.counts["disk.write"] + 1)
        commit = asyncio.create_task(engine.commit([Put(("p", "a"), b"2")], NOW_MS))
        folding = asyncio.create_task(engine._folder.fold(1))
        for outcome in await asyncio.gather(commit, folding, return_exceptions=True):
            assert isinstance(outcome, EngineStopped)
        await engine.close()
    async with SQLiteEngine(path) as engine:
        assert [r.value for r in await engine.scan("p", NOW_MS)] == [b"1"]


async def test_a_fold_waits_while_someone_else_locks_the_table(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "_RETRY_S", 0.01)
    path = str(memory_path / "app.db")
    async with SQLiteEngine(path) as engine:
        engine._table._fold.set_busy_timeout(1)
        other = apsw.Connection(path)
        other.execute("BEGIN IMMEDIATE")
        await engine.commit([Put(("p", "a"), b"1")], NOW_MS)
        engine._folder.ask(everything=True)
        await until(lambda: engine._layers.frozen.count == 1)
        for _ in range(3):
            await engine.commit([Put(("p", "b"), b"1")], NOW_MS)
            await asyncio.to_thread(lambda: None)
        assert engine._table.folded_seq == 0
        other.execute("ROLLBACK")
        other.close()
        await until(lambda: engine._table.folded_seq > 0)
        assert len(await engine.scan("p", NOW_MS)) == 2


@asynccontextmanager
async def fold_cut_off(path: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SQLiteEngine]:
    """An engine with a hundred commits whose fold of all but the last was cut off while it
    was setting rows aside."""
    monkeypatch.setattr(memtable, "ROWS_AT_ONCE", 2)
    async with SQLiteEngine(path) as engine:
        for number in range(100):
            await engine.commit([Put(("p", f"{number:02}"), b"1")], NOW_MS)
        monkeypatch.setattr(engine._journal, "excess_seq", lambda keep_bytes: 99)
        engine._folder.ask()
        await until(lambda: engine._layers.frozen.count > 0)
        engine._folder._task.cancel()
        await asyncio.wait([engine._folder._task])
        assert 0 < engine._layers.frozen.count < 99
        yield engine


def fail_after_first_mark(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    fold_rows = table.fold

    def fold(rows: Sequence[Record], folded_seq: int | None = None) -> None:
        if table.folded_seq:
            raise apsw.IOError("disk I/O error")
        fold_rows(rows, folded_seq)

    monkeypatch.setattr(table, "fold", fold)


@pytest.mark.parametrize("failing", [False, True])
async def test_a_fold_that_is_cut_off_while_it_sets_rows_aside_loses_none(
    failing: bool, memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(memory_path / "app.db")
    async with fold_cut_off(path, monkeypatch) as engine:
        if failing:
            fail_after_first_mark(engine._table, monkeypatch)
    async with SQLiteEngine(path) as engine:
        assert len(await engine.scan("p", NOW_MS)) == 100


async def test_folding_what_a_fold_had_set_aside_when_it_was_cut_off_marks_nothing_more(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(memory_path / "app.db")
    async with fold_cut_off(path, monkeypatch) as engine:
        before = engine._layers.active.count
        await engine._folder.fold(99)
        assert engine._layers.frozen.count == 0
        assert engine._layers.active.count == before
        assert engine._table.folded_seq == 0
