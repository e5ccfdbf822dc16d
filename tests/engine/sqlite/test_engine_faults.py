"""Every system call fails once: nothing acknowledged is lost, nothing refused is there."""

import asyncio
import errno
import re
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest

from onceward.engine.sqlite import SQLiteEngine
from onceward.errors import CannotOpen, EngineStopped, Unavailable
from onceward.testing.disk import DISK_KINDS, VFS_KINDS, Faults, Strike, Watched
from tests.engine.sqlite.history import (
    MEMTABLE_BYTES,
    History,
    judge,
    reopen_and_judge,
    shrink,
    work,
)

pytestmark = pytest.mark.no_cover

CLEAR = re.compile("not enough disk space|No space left|Input/output error|disk I/O error")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


async def live(path: str, faults: Faults, history: History, *, slow: bool) -> str:
    """The lives of three processes: the first is killed, the second recovers and ends in
    order, the third finds all in order. Returns what a failure was said to be.

    If the disk seems slow, syncs run in a thread of their own.
    """
    for life, rounds in enumerate((10, 10, 1)):
        with Watched(faults) as watched:
            engine = SQLiteEngine(
                path,
                memtable_bytes=MEMTABLE_BYTES,
                disk=watched.disk,
                vfs=watched.vfs,
                elapsed_ns=count(step=10**9 if slow else 1).__next__,
            )
            try:
                await engine.open()
                await judge(engine, history)
                await work(engine, history, Random(life), rounds=rounds)
            except (CannotOpen, EngineStopped, Unavailable) as error:
                return str(error)
            finally:
                if life == 0:
                    watched.kill()
                await engine.close()
    return ""


async def strike(folder: Path, blow: Strike | None) -> Faults:
    """Live with one blow, and see that nothing came of it but a clear message."""
    folder.mkdir()
    path = str(folder / "app.db")
    history, faults = History(), Faults(blow)
    async with asyncio.timeout(30):
        said = await live(path, faults, history, slow=bool(blow and blow.number % 2))
        await reopen_and_judge(path, history)
    assert not said or CLEAR.search(said), f"not clear: {said}"
    shutil.rmtree(folder)
    return faults


async def test_nothing_is_said_when_nothing_fails(memory_path: Path) -> None:
    faults = await strike(memory_path / "calm", None)
    assert set(faults.counts) == {*DISK_KINDS, *VFS_KINDS}


def blows(kind: str, number: int, soak: bool) -> Iterator[Strike]:
    """How the one operation may fail."""
    yield Strike(kind, number, errno.EIO)
    yield Strike(kind, number, errno.ENOSPC, lasting=number % 2 == 0, short=number % 3 == 0)
    if soak or number % 4 == 0:
        yield Strike(kind, number, errno.EIO, lasting=True)
        yield Strike(kind, number, errno.ENOSPC, lasting=True)
    if kind.endswith("write") and (soak or number % 4 == 1):
        yield Strike(kind, number, errno.EIO, short=True)
        yield Strike(kind, number, errno.ENOSPC, short=True)


@pytest.mark.parametrize("kind", [*DISK_KINDS, *VFS_KINDS])
async def test_whatever_fails_nothing_is_lost_and_nothing_is_wrongly_denied(
    kind: str, memory_path: Path, soak: bool
) -> None:
    number, reached = 0, True
    while reached:
        number += 1
        lives = [
            await strike(memory_path / f"{number}-{index}", blow)
            for index, blow in enumerate(blows(kind, number, soak))
        ]
        reached = any(faults.struck for faults in lives)
    assert number > 2, f"{kind} never failed"
