"""The power goes: whatever was acknowledged is there, and nothing is there in part.

Two ways: recorded system calls are played onto a disk that keeps what was synced and any
part of the rest; and, as root, a real file system is shut down under a real process.
"""

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import cast

import pytest

from onceward.engine.sqlite import SQLiteEngine
from onceward.errors import EngineStopped, OncewardError
from onceward.testing.disk import Operation, Watched
from onceward.testing.power import Mark, PowerLog, Volume, restore
from tests.engine.sqlite.history import (
    MEMTABLE_BYTES,
    History,
    State,
    judge,
    reopen_and_judge,
    shrink,
    work,
)

Entries = list[Operation | Mark]
pytestmark = [pytest.mark.power, pytest.mark.no_cover]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)


Death = tuple[int, str] | None
"""After how many operations of a kind a process is killed; None if it ends in order."""


async def record(folder: Path, random: Random, deaths: Iterable[Death]) -> Entries:
    """Processes open the database one after the other and commit; all that they did."""
    log, history = PowerLog(), History()
    history.on_begin = lambda seq: log.mark("begun", seq, history.states[seq])
    history.on_done = lambda seq: log.mark("done", seq)
    folder.mkdir()
    for death in deaths:
        log.mark("started")
        with Watched(log) as watched:
            engine = SQLiteEngine(
                str(folder / "app.db"),
                memtable_bytes=MEMTABLE_BYTES,
                disk=watched.disk,
                vfs=watched.vfs,
            )
            await engine.open()
            await judge(engine, history)
            log.mark("opened", history.last)
            if death:
                watched.kill(*death)
            try:
                await work(engine, history, random, rounds=9)
            except EngineStopped:
                assert death
            finally:
                await engine.close()
    return log.entries


async def losses(
    entries: Entries, folder: Path, random: Random, *, cuts: int, since: int = 0
) -> list[str]:
    """Cut the power at so many moments, a sync not yet made at most of them; what the next
    process then finds wrong."""
    entries = begun_first(entries)
    syncs = [n for n, entry in enumerate(entries) if n >= since and kind(entry)[:4] == "sync"]
    moments = Counter(random.choices(syncs, k=cuts * 3 // 4))
    moments += Counter(random.choices(range(since, len(entries)), k=cuts // 4))
    volume, history = Volume(), History()
    wrong = []
    for number, entry in enumerate(entries):
        for _ in range(moments[number]):
            try:
                await open_after_cut(volume.after_cut(random), folder, copy(history))
            except (AssertionError, OncewardError) as error:
                wrong.append(f"before {number} ({kind(entry)}): {error}")
        volume.apply(entry)
        follow(history, entry)
    return wrong


def begun_first(entries: Entries) -> Entries:
    """The record with all that a process began right after its opening: a commit may be on
    the disk before the test hears of it."""
    ordered: Entries = []
    place = 0
    for entry in entries:
        if kind(entry) == "begun":
            ordered.insert(place, entry)
            place += 1
        else:
            ordered.append(entry)
            if kind(entry) == "opened":
                place = len(ordered)
    return ordered


def kind(entry: Operation | Mark) -> str:
    return entry.what if isinstance(entry, Mark) else entry.kind.partition(".")[2]


def follow(history: History, entry: Operation | Mark) -> None:
    """Bring a history up to what had been begun and said at this point of the record."""
    if not isinstance(entry, Mark):
        return
    if entry.what == "begun":
        history.states[entry.number] = cast(State, entry.detail)
        history.last = entry.number
    elif entry.what == "done":
        history.acknowledged = max(history.acknowledged, entry.number)
    elif entry.what == "opened":
        history.restart(entry.number)


def copy(history: History) -> History:
    same = History()
    same.states = dict(history.states)
    same.last, same.acknowledged = history.last, history.acknowledged
    return same


async def open_after_cut(files: dict[str, bytes], folder: Path, history: History) -> None:
    folder.mkdir()
    try:
        restore(files, str(folder))
        await reopen_and_judge(str(folder / "app.db"), history)
    finally:
        shutil.rmtree(folder)


def a_few_deaths(random: Random) -> list[Death]:
    deaths = [(random.randrange(12), random.choice(("disk.sync", "vfs.sync", ""))) for _ in "1234"]
    return [*deaths[:2], None, *deaths[2:], None]


async def test_no_acknowledged_commit_is_lost_in_a_recorded_power_cut(
    memory_path: Path, soak: bool
) -> None:
    seeds, cuts = (200, 250) if soak else (8, 60)
    for seed in range(seeds):
        random = Random(seed)
        entries = await record(memory_path / f"run-{seed}", random, a_few_deaths(random))
        assert await losses(entries, memory_path / "cut", random, cuts=cuts) == []
    print(f"{seeds * cuts} recorded power cuts, nothing lost")


@pytest.mark.parametrize("kind", ["disk.sync", "vfs.sync"])
async def test_what_a_killed_process_left_unsynced_is_durable_before_others_build_on_it(
    kind: str, memory_path: Path, soak: bool
) -> None:
    for number in range(20):
        random = Random(number)
        entries = await record(memory_path / f"{number}", random, [(number, kind), (0, "vfs.")])
        entries = begun_first(entries)
        second = [n for n, entry in enumerate(entries) if entry == Mark("started")][1]
        cuts = 200 if soak else 25
        assert await losses(entries, memory_path / "cut", random, cuts=cuts, since=second) == []


@pytest.mark.parametrize("kind", ["disk.sync", "disk.sync_directory", "vfs.sync"])
async def test_a_disk_that_does_not_sync_is_found_out(kind: str, memory_path: Path) -> None:
    random = Random(1)
    entries = await record(memory_path / "run", random, a_few_deaths(random))
    lying = [entry for entry in entries if isinstance(entry, Mark) or entry.kind != kind]
    assert await losses(lying, memory_path / "cut", random, cuts=150), f"{kind} does nothing?"
