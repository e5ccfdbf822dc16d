"""Group commit: what waits together is written and synced together, or fails together."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random

import pytest

from onceward import limits
from onceward.engine.base import Record
from onceward.engine.sqlite.journal import Journal
from onceward.engine.sqlite.writer import Writer
from onceward.errors import EngineStopped, StorageFull, Unavailable
from onceward.testing.disk import Faults, Observer, Operation, Strike, WatchedDisk

SLOW = count(step=10 * limits.WRITE_INLINE_NS_MAX).__next__
FAST = count().__next__


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEGMENT_BYTES_FIRST", 4_096)
    monkeypatch.setattr(limits, "SEGMENT_BYTES_MIN", 8_192)


@asynccontextmanager
async def writing(
    folder: Path, observer: Observer, elapsed_ns: Callable[[], int] = FAST
) -> AsyncIterator[tuple[Writer, Journal]]:
    journal = Journal(str(folder / "app.db"), bytes(16), WatchedDisk(observer), Random(0).randbytes)
    journal.start()
    with ThreadPoolExecutor(3) as background:
        writer = Writer(journal, 0, background, elapsed_ns)
        try:
            yield writer, journal
        finally:
            await writer.close()
            journal.close(remove=False)


def append(writer: Writer, size_bytes: int = 10) -> "asyncio.Future[None]":
    row = Record(("p", "s"), b"1" * size_bytes, writer.seq + 1)
    return writer.append([row], size_bytes)


def frames(folder: Path) -> list[int]:
    """How many commits each frame on disk has."""
    journal = Journal(str(folder / "app.db"), bytes(16), WatchedDisk(Observer()), bytes)
    return [len(frame.commits) for frame in journal.recover(0)]


class Held(Observer):
    """Holds frames back at their write or sync, until told."""

    def __init__(self, kind: str = "disk.sync") -> None:
        self.kind = kind
        self.count = 0
        self.reached = threading.Event()
        self.go = threading.Event()

    def before(self, operation: Operation) -> int | None:
        if operation.kind == self.kind and not operation.path.endswith("draft"):
            self.count += 1
            if not self.go.is_set():
                self.reached.set()
                assert self.go.wait(10)
        return None


async def spare_made(writer: Writer) -> None:
    if writer._making_spare:
        await asyncio.wait([writer._making_spare])


async def slow_down(writer: Writer) -> None:
    """One sync that seems slow makes the writer use its thread."""
    await append(writer)


async def test_what_comes_in_one_turn_shares_one_frame_and_one_sync(memory_path: Path) -> None:
    faults = Faults()
    async with writing(memory_path, faults) as (writer, _):
        await spare_made(writer)
        before = faults.counts["disk.sync"]
        futures = [append(writer) for _ in range(20)]
        assert writer.durable_seq == 0
        await asyncio.gather(*futures)
        assert writer.durable_seq == writer.seq == 20
        assert faults.counts["disk.sync"] == before + 1
    assert frames(memory_path) == [20]


async def test_one_who_commits_alone_is_answered_at_once_and_those_together_share(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SEGMENT_BYTES_FIRST", 1 << 20)
    async with writing(memory_path, Observer()) as (writer, _):
        at_once = []
        for _ in range(10):
            future = append(writer)
            at_once.append(future.done())
            await future
            await asyncio.sleep(0)
        assert (at_once[0], at_once[-1]) == (False, True)

        async def call() -> None:
            for _ in range(5):
                await append(writer)
                await asyncio.sleep(0)

        await asyncio.gather(*(call() for _ in range(20)))
    found = frames(memory_path)
    assert sum(found) == 110
    assert len(found) < 10 + 30, "not a sync for each"


@pytest.mark.parametrize("kind", ["disk.write", "disk.sync"])
async def test_on_a_slow_disk_the_loop_goes_on_and_all_that_waits_is_the_next_frame(
    kind: str, memory_path: Path
) -> None:
    held = Held(kind)
    held.go.set()
    async with asyncio.timeout(20), writing(memory_path, held, SLOW) as (writer, _):
        await slow_down(writer)
        held.go.clear()
        held.count = 0
        first = append(writer)
        await asyncio.to_thread(held.reached.wait, 10)
        waiting = [append(writer) for _ in range(5)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert not first.done()
        assert writer.durable_seq == 1
        held.go.set()
        await asyncio.gather(first, *waiting)
        assert writer.durable_seq == 7
        assert held.count == 2
    assert frames(memory_path) == [1, 1, 5]


@pytest.mark.parametrize("kind", ["disk.write", "disk.sync"])
async def test_a_disk_is_slow_when_its_writes_are_or_its_syncs(
    kind: str, memory_path: Path
) -> None:
    class Slow(Observer):
        elapsed_ns = 0

        def before(self, operation: Operation) -> int | None:
            if operation.kind == kind:
                self.elapsed_ns += 10 * limits.WRITE_INLINE_NS_MAX
            return None

    slow = Slow()
    async with writing(memory_path, slow, lambda: slow.elapsed_ns) as (writer, _):
        await spare_made(writer)
        await append(writer)
        assert writer._write_ns >= limits.WRITE_INLINE_NS_MAX


async def test_when_the_disk_is_fast_again_the_thread_is_done_without(memory_path: Path) -> None:
    took_ns, reading = 10 * limits.WRITE_INLINE_NS_MAX, 0

    def elapsed_ns() -> int:
        nonlocal reading
        reading += took_ns
        return reading

    async with writing(memory_path, Observer(), elapsed_ns) as (writer, _):
        await spare_made(writer)
        await append(writer)
        assert writer._write_ns >= limits.WRITE_INLINE_NS_MAX
        took_ns = 1
        for _ in range(20):
            await spare_made(writer)
            await append(writer)
        assert writer._write_ns < limits.WRITE_INLINE_NS_MAX
        assert writer._writing is None


@pytest.mark.parametrize("elapsed_ns", [FAST, SLOW], ids=["inline", "thread"])
@pytest.mark.parametrize("kind", ["disk.write", "disk.sync"])
async def test_a_failed_write_or_sync_stops_the_writer_for_good(
    kind: str, elapsed_ns: Callable[[], int], memory_path: Path
) -> None:
    faults = Faults()
    async with writing(memory_path, faults, elapsed_ns) as (writer, _):
        await spare_made(writer)
        await slow_down(writer)
        faults.strike = Strike(kind, faults.counts[kind] + 1, errno.EIO)
        results = await asyncio.gather(append(writer), append(writer), return_exceptions=True)
        for result in results:
            assert isinstance(result, EngineStopped)
            assert "Input/output error" in result.message
            assert "may or may not have been applied" in result.message
        assert writer.durable_seq == 1
        with pytest.raises(EngineStopped):
            await append(writer)
        with pytest.raises(EngineStopped):
            await writer.synced()
        with pytest.raises(EngineStopped):
            await writer.make_room(1 << 20)


async def test_what_waits_behind_a_failed_sync_fails_too(memory_path: Path) -> None:
    class Failing(Held):
        def before(self, operation: Operation) -> int | None:
            held = not self.go.is_set()
            super().before(operation)
            if held and operation.kind == "disk.sync":
                raise OSError(errno.EIO, "Input/output error")
            return None

    held = Failing()
    held.go.set()
    async with asyncio.timeout(20), writing(memory_path, held, SLOW) as (writer, _):
        await slow_down(writer)
        held.go.clear()
        first = append(writer)
        await asyncio.to_thread(held.reached.wait, 10)
        behind = append(writer)
        held.go.set()
        for result in await asyncio.gather(first, behind, return_exceptions=True):
            assert isinstance(result, EngineStopped)


async def test_a_caller_that_gives_up_disturbs_no_one(memory_path: Path) -> None:
    async with writing(memory_path, Observer()) as (writer, _):
        futures = [append(writer) for _ in range(3)]
        futures[1].cancel()
        await asyncio.gather(futures[0], futures[2])
        assert writer.durable_seq == 3
    assert frames(memory_path) == [3]


async def test_nothing_to_sync_is_synced_at_once(memory_path: Path) -> None:
    async with writing(memory_path, Observer()) as (writer, _):
        await writer.synced()
        await append(writer)
        await writer.synced()
    assert frames(memory_path) == [1]


async def test_a_commit_waits_for_the_next_segment_when_this_one_is_full(memory_path: Path) -> None:
    filled = []
    async with asyncio.timeout(20), writing(memory_path, Observer()) as (writer, journal):
        writer.segment_filled = lambda: filled.append(journal.current)
        for _ in range(6):
            await writer.make_room(2_000)
            assert writer.room_bytes >= 2_000
            await append(writer, 2_000)
        assert len(filled) >= 2
    assert sum(frames(memory_path)) == 6


@pytest.mark.parametrize(
    ("error", "kind", "code", "words"),
    [
        (errno.ENOSPC, StorageFull, "storage_full", "not enough disk space"),
        (errno.EDQUOT, StorageFull, "storage_full", "not enough disk space"),
        (errno.EIO, Unavailable, "storage_failed", "Input/output error"),
        (errno.EMFILE, Unavailable, "overloaded", "Too many open files"),
        (errno.ENFILE, Unavailable, "overloaded", "Too many open files in system"),
    ],
)
async def test_without_a_next_segment_a_commit_is_refused_until_one_can_be_made(
    error: int, kind: type[Unavailable], code: str, words: str, memory_path: Path
) -> None:
    faults = Faults(Strike("disk.write", 3, error, lasting=True))
    async with asyncio.timeout(20), writing(memory_path, faults) as (writer, _):
        with pytest.raises(kind, match="not applied") as refused:
            await writer.make_room(5_000)
        assert refused.value.code == code
        assert words in refused.value.message
        assert writer.failure is None
        faults.heal()
        await writer.make_room(5_000)
        assert writer.room_bytes >= 5_000, "what failed before this call does not count"
        await append(writer, 5_000)


async def test_the_next_segment_is_made_later_though_no_commit_asks(memory_path: Path) -> None:
    made: asyncio.Queue[OSError | None] = asyncio.Queue()
    faults = Faults(Strike("disk.write", 3, errno.EMFILE, lasting=True))
    async with asyncio.timeout(20), writing(memory_path, faults) as (writer, journal):
        writer.segment_made = made.put_nowait
        assert isinstance(await made.get(), OSError)
        assert journal.spare is None
        faults.heal()
        assert await made.get() is None
        assert journal.spare is not None


async def test_closing_waits_for_what_is_being_synced(memory_path: Path) -> None:
    held = Held()
    held.go.set()
    async with asyncio.timeout(20), writing(memory_path, held, SLOW) as (writer, _):
        await slow_down(writer)
        held.go.clear()
        future = append(writer)
        closing = asyncio.create_task(writer.close())
        await asyncio.to_thread(held.reached.wait, 10)
        assert not closing.done()
        held.go.set()
        await closing
        assert future.done()


async def test_closing_a_failed_writer_waits_for_the_thread_that_uses_its_files(
    memory_path: Path,
) -> None:
    held = Held()
    held.go.set()
    async with asyncio.timeout(20), writing(memory_path, held, SLOW) as (writer, _):
        await slow_down(writer)
        held.go.clear()
        future = append(writer)
        await asyncio.to_thread(held.reached.wait, 10)
        writer.fail(EngineStopped("the table failed"))
        closing = asyncio.create_task(writer.close())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not closing.done()
        held.go.set()
        await closing
        await future
