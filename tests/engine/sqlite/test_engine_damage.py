"""A damaged journal: opened to the last whole commit, or refused with nothing changed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from onceward.engine.sqlite import SQLiteEngine
from onceward.engine.sqlite.frames import BLOCK_BYTES, encode_header
from onceward.engine.sqlite.journal import read_segment, segment_paths
from onceward.engine.sqlite.table import Table
from onceward.errors import CannotOpen
from onceward.testing.disk import Observer, Watched
from tests.engine.sqlite.history import (
    History,
    reopen_and_judge,
    shrink,
    work,
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    monkeypatch.setattr("onceward.limits.JOURNAL_BYTES", 1 << 20)


class Left:
    """What a killed process left behind."""

    def __init__(self, folder: Path, history: History) -> None:
        self.folder = folder
        self.history = history
        self.path = str(folder / "app.db")
        self.segments = [Path(path) for path in segment_paths(f"{self.path}-log.")]

    def copy(self, folder: Path) -> "Left":
        shutil.copytree(self.folder, folder)
        history = History()
        history.states = dict(self.history.states)
        history.last, history.acknowledged = self.history.last, self.history.acknowledged
        return Left(folder, history)

    def frames(self, number: int) -> list[tuple[int, int, int]]:
        """(offset, last sequence number before it, and of it) of a segment's frames."""
        table = Table(self.path, bytes(16), 1 << 20, None)
        table.close()
        frames = read_segment(str(self.segments[number]), table.database_id)[1]
        return [(frame.offset, frame.first_seq - 1, frame.last_seq) for frame in frames]


@pytest.fixture
async def left(memory_path: Path) -> Left:
    folder, history = memory_path / "left", History()
    folder.mkdir()
    with Watched(Observer()) as watched:
        engine = SQLiteEngine(str(folder / "app.db"), disk=watched.disk, vfs=watched.vfs)
        await engine.open()
        await work(engine, history, Random(5), rounds=30)
        watched.kill()
        await engine.close()
    made = Left(folder, history)
    assert len([number for number in range(len(made.segments)) if made.frames(number)]) >= 3
    return made


def files(folder: Path) -> dict[str, bytes]:
    """The journal, and what SQLite's file says; its own log may be moved into the file."""
    table = Table(str(folder / "app.db"), bytes(16), 1 << 20, None)
    rows = {f"row {r.key}": r.value for p in "abc" for r in table.range(p, "", None, False)}
    table.close()
    log = {file.name: file.read_bytes() for file in folder.glob("app.db-log.*")}
    return {**rows, **log}


async def test_what_a_killed_process_left_is_opened(left: Left) -> None:
    await reopen_and_judge(left.path, left.history)


async def test_a_journal_torn_anywhere_in_its_last_frame_opens_to_the_last_whole_commit(
    left: Left, memory_path: Path
) -> None:
    last = max(number for number in range(len(left.segments)) if left.frames(number))
    offset, seq_before, seq = left.frames(last)[-1]
    ends = []
    for number, size in enumerate(range(offset, offset + 2 * BLOCK_BYTES, 17)):
        cut = left.copy(memory_path / f"{number}")
        content = cut.segments[last].read_bytes()
        cut.segments[last].write_bytes(content[:size].ljust(len(content), b"\0"))
        cut.history.acknowledged = seq_before
        await reopen_and_judge(cut.path, cut.history)
        ends.append(cut.history.last)
        shutil.rmtree(cut.folder)
    assert seq_before < seq
    assert len(set(ends)) == 2, "either without the frame or with all of it"


def flip_a_bit_in_the_middle(left: Left) -> None:
    offset, _, _ = left.frames(1)[1]
    flip(left.segments[1], offset + 50)


def flip_a_bit_in_the_last_frame(left: Left) -> None:
    last = max(number for number in range(len(left.segments)) if left.frames(number))
    flip(left.segments[last], left.frames(last)[-1][0] + 40)


def flip_a_bit_in_a_header(left: Left) -> None:
    flip(left.segments[1], 20)


def cut_a_header(left: Left) -> None:
    left.segments[0].write_bytes(left.segments[0].read_bytes()[:100])


def empty_a_segment(left: Left) -> None:
    left.segments[1].write_bytes(b"")


def cut_a_segment_in_the_middle(left: Left) -> None:
    offset, _, _ = left.frames(0)[-1]
    left.segments[0].write_bytes(left.segments[0].read_bytes()[: offset + 30])


def lose_a_segment(left: Left) -> None:
    left.segments[1].unlink()


def lose_the_first_segment(left: Left) -> None:
    left.segments[0].unlink()


def bring_in_a_foreign_segment(left: Left) -> None:
    content = bytearray(left.segments[1].read_bytes())
    header = encode_header(2, b"another database", bytes(content[32:40]), len(content))
    left.segments[1].write_bytes(header + content[BLOCK_BYTES:])


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    "harm",
    [
        flip_a_bit_in_the_middle,
        flip_a_bit_in_the_last_frame,
        flip_a_bit_in_a_header,
        cut_a_header,
        empty_a_segment,
        cut_a_segment_in_the_middle,
        lose_a_segment,
        lose_the_first_segment,
        bring_in_a_foreign_segment,
    ],
)
async def test_a_journal_that_lacks_something_acknowledged_is_refused_and_nothing_changed(
    harm: Callable[[Left], None], left: Left
) -> None:
    harm(left)
    before = files(left.folder)
    for _ in range(2):
        with pytest.raises(CannotOpen) as refused:
            await SQLiteEngine(left.path).open()
        assert refused.value.code == "damaged"
        assert "app.db-log.0000000" in refused.value.message, "it names the segment"
        assert files(left.folder) == before
