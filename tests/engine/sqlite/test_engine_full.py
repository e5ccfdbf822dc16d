"""The disk is full: commits are refused and not applied, reads go on, and it passes."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from onceward.engine.base import ABSENT, Check, Put
from onceward.engine.sqlite import SQLiteEngine, fold
from onceward.errors import CannotOpen, StorageFull
from onceward.testing.disk import Observer, Operation, Watched
from tests.conftest import enlarge
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

# Less than a small segment has.
ROOM_BYTES = 2_000


class Space(Observer):
    """A disk that can be full: nothing new fits, what has its place can be written."""

    def __init__(self) -> None:
        self.full = False

    def before(self, operation: Operation) -> int | None:
        grows = operation.kind == "vfs.write" or operation.created
        if self.full and grows:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return None


@asynccontextmanager
async def opened(path: str, space: Space) -> AsyncIterator[SQLiteEngine]:
    with Watched(space) as watched:
        async with SQLiteEngine(
            path, memtable_bytes=MEMTABLE_BYTES, disk=watched.disk, vfs=watched.vfs
        ) as engine:
            yield engine


async def commit_until_full(engine: SQLiteEngine, history: History) -> StorageFull:
    random = Random(0)
    while not history.refused:
        await history.commit(engine, some_writes(random))
    [refused] = history.refused
    assert isinstance(refused, StorageFull)
    history.refused.clear()
    return refused


async def commit_until_accepted(engine: SQLiteEngine, history: History) -> None:
    accepted = history.acknowledged
    while history.acknowledged == accepted:
        await history.commit(engine, some_writes(Random(0)))
        await asyncio.sleep(0)
    history.refused.clear()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    monkeypatch.setattr(fold, "_RETRY_S", 0.01)


@pytest.mark.usefixtures("small")
async def test_on_a_full_disk_commits_are_refused_and_reads_go_on(tmp_path: Path) -> None:
    path, space, history = str(tmp_path / "app.db"), Space(), History()
    async with asyncio.timeout(30), opened(path, space) as engine:
        await work(engine, history, Random(1), rounds=5)
        space.full = True
        refused = await commit_until_full(engine, history)
        assert "not enough disk space" in refused.message
        assert "not applied" in refused.message
        await judge(engine, history)
        [head] = await engine.get([HEAD], NOW_MS)
        assert head is not None
        await engine.commit([Check(HEAD, head.version), Check(("none", "such"), ABSENT)], NOW_MS)
        space.full = False
        await commit_until_accepted(engine, history)
        await work(engine, history, Random(2), rounds=20)
        assert not history.refused
        await judge(engine, history)
    await reopen_and_judge(path, history)


@pytest.mark.usefixtures("small")
async def test_room_is_not_made_on_a_full_disk_for_what_would_be_refused(tmp_path: Path) -> None:
    path, space, history = str(tmp_path / "app.db"), Space(), History()
    async with asyncio.timeout(30), opened(path, space) as engine:
        await engine.make_room(ROOM_BYTES)
        space.full = True
        await commit_until_full(engine, history)
        with pytest.raises(StorageFull, match="not enough disk space"):
            await engine.make_room(ROOM_BYTES)
        await judge(engine, history)
        space.full = False
        await commit_until_accepted(engine, history)
        await engine.make_room(ROOM_BYTES)


@pytest.mark.usefixtures("small")
async def test_an_engine_closed_on_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    path, space, history = str(tmp_path / "app.db"), Space(), History()
    async with asyncio.timeout(30), opened(path, space) as engine:
        await work(engine, history, Random(1), rounds=5)
        space.full = True
        await commit_until_full(engine, history)
    await reopen_and_judge(path, history)


async def test_a_real_disk_runs_full_and_is_given_more_space(tmpfs: Path) -> None:
    path, history = str(tmpfs / "app.db"), History()
    async with asyncio.timeout(30), SQLiteEngine(path) as engine:
        refused = await commit_until_full(engine, history)
        assert "No space left on device" in refused.message
        await judge(engine, history)
        enlarge(tmpfs)
        await commit_until_accepted(engine, history)
        await judge(engine, history)
    await reopen_and_judge(path, history)


@pytest.mark.parametrize("left_bytes", [0, 4_096, 12_288, 65_536, 1 << 20])
@pytest.mark.parametrize("existing", [False, True])
async def test_a_database_is_not_opened_on_a_full_disk(
    existing: bool, left_bytes: int, tmpfs: Path
) -> None:
    path = str(tmpfs / "app.db")
    if existing:
        async with SQLiteEngine(path) as engine:
            await engine.commit([Put(HEAD, b"1")], NOW_MS)
    stat = os.statvfs(tmpfs)
    filler = tmpfs / "filler"
    filler.write_bytes(bytes(stat.f_bavail * stat.f_bsize - left_bytes))
    with pytest.raises(CannotOpen) as refused:
        await SQLiteEngine(path).open()
    assert refused.value.code == "storage_full", refused.value
    assert "not enough disk space" in refused.value.message
    filler.unlink()
    async with SQLiteEngine(path) as engine:
        assert bool(await contents(engine)) == existing
