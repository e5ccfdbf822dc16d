"""Segments and frames on disk, and what recovery makes of them."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward import limits
from onceward.engine.base import Record
from onceward.engine.sqlite import journal as journal_module
from onceward.engine.sqlite.disk import Disk
from onceward.engine.sqlite.frames import BLOCK_BYTES, Commits, Segment
from onceward.engine.sqlite.journal import Journal, read_segment, segment_paths
from onceward.errors import CannotOpen
from onceward.testing.disk import Faults, Observer, Operation, Strike, WatchedDisk
from tests.engine.sqlite.child import Forgetful

ID = bytes(range(16))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEGMENT_BYTES_FIRST", 2_048)
    monkeypatch.setattr(limits, "SEGMENT_BYTES_MIN", 4_096)
    monkeypatch.setattr(limits, "SEGMENT_BYTES_MAX", 16_384)


@pytest.fixture
def folder(memory_path: Path) -> Path:
    return memory_path


def journal_in(folder: Path, observer: Observer | None = None, seed: int = 0) -> Journal:
    disk = WatchedDisk(observer or Observer())
    return Journal(str(folder / "app.db"), ID, disk, Random(seed).randbytes)


def commit(seq: int, size_bytes: int = 10) -> list[Record]:
    return [Record(("p", f"{seq}"), b"1" * size_bytes, seq)]


def write(journal: Journal, first_seq: int, *commits: list[Record]) -> Segment:
    if journal.room_bytes < 1_024:
        journal.spare = journal.make_segment()
    segment, offset, frame = journal.place(first_seq, list(commits))
    journal.write(segment, offset, frame)
    return segment


def recovered(folder: Path, folded_seq: int = 0) -> list[int]:
    """The sequence numbers of the commits that recovery finds."""
    found = []
    for frame in journal_in(folder, seed=1).recover(folded_seq):
        found += range(frame.first_seq, frame.last_seq + 1)
    return found


def written(folder: Path, frames: int) -> list[Segment]:
    """A journal of so many frames with two commits each; its segments."""
    journal = journal_in(folder)
    journal.start()
    segments: dict[str, Segment] = {}
    for number in range(frames):
        segment = write(journal, 2 * number + 1, commit(2 * number + 1), commit(2 * number + 2))
        segments[segment.path] = segment
    journal.close(remove=False)
    return list(segments.values())


def damage(folder: Path, folded_seq: int = 0) -> str:
    with pytest.raises(CannotOpen) as refused:
        recovered(folder, folded_seq)
    assert refused.value.code == "damaged"
    assert "Nothing was changed" in refused.value.message
    return refused.value.message


keys = st.tuples(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20), st.text("aé😀"))
records = st.builds(
    Record, keys, st.binary(max_size=50), st.integers(1, 2**62), st.none() | st.integers(0, 2**62)
)


@settings(max_examples=50)
@given(st.lists(st.lists(st.lists(records, min_size=1), min_size=1, max_size=3), max_size=5))
def test_what_is_written_is_recovered(
    tmp_path_factory: pytest.TempPathFactory, frames: list[Commits]
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(str(folder / "app.db"), ID, Forgetful(), Random(0).randbytes)
    journal.start()
    seq = 1
    for commits in frames:
        journal.spare = journal.spare or journal.make_segment(64 << 10)
        segment, offset, frame = journal.place(seq, commits)
        journal.write(segment, offset, frame)
        seq += len(commits)
    journal.close(remove=False)
    found = list(journal_in(folder).recover(0))
    assert [frame.commits for frame in found] == frames
    assert [frame.first_seq for frame in found] == [
        1 + sum(len(commits) for commits in frames[:n]) for n in range(len(frames))
    ]


def test_frames_stand_on_blocks_so_that_writing_one_never_touches_another(folder: Path) -> None:
    class Writes(Observer):
        def __init__(self) -> None:
            self.spans: list[tuple[int, int]] = []

        def before(self, operation: Operation) -> int | None:
            if operation.kind == "disk.write" and operation.path.endswith("1"):
                end = operation.offset + len(operation.data)
                self.spans.append((operation.offset // BLOCK_BYTES, (end - 1) // BLOCK_BYTES))
            return None

    writes = Writes()
    journal = journal_in(folder, writes)
    journal.current = journal.make_segment(4_096)
    for seq, size_bytes in enumerate((1, 900, 2), start=1):
        write(journal, seq, commit(seq, size_bytes))
    journal.close(remove=False)
    blocks = [block for first, last in writes.spans for block in range(first, last + 1)]
    assert blocks == [1, 2, 3, 4], "the header has block 0"
    assert recovered(folder) == [1, 2, 3]


def test_a_large_frame_takes_up_memory_only_while_it_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_BUFFER_BYTES", 1_024)
    journal = journal_in(folder)
    journal.current = journal.make_segment(16_384)
    journal.current.direct = True
    for seq, size_bytes in enumerate((10, 9_000, 900), start=1):
        write(journal, seq, commit(seq, size_bytes))
    assert len(journal._buffer) == 1_024
    journal.close(remove=False)
    assert recovered(folder) == [1, 2, 3]


def test_a_frame_too_large_for_the_segment_goes_whole_into_the_next(folder: Path) -> None:
    journal = journal_in(folder)
    journal.start()
    journal.spare = journal.make_segment()
    assert journal.room_bytes == 4_096 - BLOCK_BYTES
    write(journal, 1, commit(1, 3_000))
    assert journal.spare is None
    assert [segment.number for segment in journal.filled] == [1]
    assert journal.current is not None
    assert journal.current.number == 2
    journal.close(remove=False)
    assert recovered(folder) == [1]


def test_segments_grow_up_to_the_largest(folder: Path) -> None:
    journal = journal_in(folder)
    journal.start()
    sizes = [journal.make_segment().size_bytes for _ in range(4)]
    assert sizes == [4_096, 8_192, 16_384, 16_384]
    names = segment_paths(str(folder / "app.db-log."))
    assert [os.path.getsize(name) for name in names] == [2_048, *sizes]


def test_after_a_failure_the_smallest_segment_is_tried(folder: Path) -> None:
    faults = Faults()
    journal = journal_in(folder, faults)
    journal.start()
    assert journal.make_segment().size_bytes == 4_096
    faults.strike = Strike("disk.write", faults.counts["disk.write"] + 1, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        journal.make_segment()
    again = journal.make_segment()
    assert (again.size_bytes, again.number) == (4_096, 3)
    assert not (folder / "app.db-log.draft").exists()


@pytest.mark.parametrize("kind", ["disk.rename", "disk.write", "disk.sync", "disk.sync_directory"])
def test_a_segment_that_cannot_be_reused_leaves_no_file_open(kind: str, folder: Path) -> None:
    faults = Faults()
    journal = journal_in(folder, faults)
    journal.start()
    write(journal, 1, commit(1))
    journal.filled.append(journal.make_segment())
    journal.retire(99)
    before = len(os.listdir("/proc/self/fd"))
    faults.strike = Strike(kind, faults.counts[kind] + 1)
    with pytest.raises(OSError, match="Input/output"):
        journal.make_segment(4_096)
    assert len(os.listdir("/proc/self/fd")) == before - 1
    assert journal.make_segment(4_096).number == 3
    journal.close(remove=False)
    assert recovered(folder) == [1]


def test_a_reused_segment_shows_nothing_of_its_former_use(folder: Path) -> None:
    journal = journal_in(folder)
    journal.start()
    first = write(journal, 1, commit(1), commit(2))
    write(journal, 3, commit(3))
    inode = os.stat(first.path).st_ino
    journal.spare = journal.make_segment()
    write(journal, 4, commit(4, 3_000))
    journal.retire(3)
    again = journal.make_segment(limits.SEGMENT_BYTES_FIRST)
    assert os.stat(again.path).st_ino == inode
    assert again.salt != first.salt
    assert not os.path.exists(first.path)
    content = Path(again.path).read_bytes()
    assert content[BLOCK_BYTES : BLOCK_BYTES + 8] == first.salt, "the old frames are still there"
    assert read_segment(again.path, ID)[1] == []
    journal.close(remove=False)
    assert recovered(folder, folded_seq=3) == [4]


def test_only_segments_that_the_table_covers_are_given_up(folder: Path) -> None:
    journal = journal_in(folder)
    journal.start()
    for seq in range(1, 6):
        journal.spare = journal.spare or journal.make_segment(2_048)
        write(journal, seq, commit(seq, 1_200))
    assert [segment.last_seq for segment in journal.filled] == [1, 2, 3, 4]
    journal.retire(2)
    assert [segment.last_seq for segment in journal.filled] == [3, 4]
    assert [segment.last_seq for segment in journal.retired] == [1, 2]
    journal.trim(1)
    assert [segment.last_seq for segment in journal.retired] == [2]
    assert recovered(folder, folded_seq=2) == [3, 4, 5]


def test_how_much_to_fold_follows_from_what_the_journal_may_keep(folder: Path) -> None:
    journal = journal_in(folder)
    journal.start()
    for seq in range(1, 6):
        journal.spare = journal.spare or journal.make_segment(2_048)
        write(journal, seq, commit(seq, 1_200))
    each = journal.filled[0].end
    assert journal.excess_seq(4 * each) == 0
    assert journal.excess_seq(4 * each - 1) == 1
    assert journal.excess_seq(2 * each) == 2
    assert journal.excess_seq(0) == 4


def test_segments_that_the_table_covers_may_be_missing_in_any_order(folder: Path) -> None:
    first, second, _ = written(folder, 20)
    Path(second.path).unlink()
    assert recovered(folder, second.last_seq) == list(range(second.last_seq + 1, 41))
    Path(first.path).unlink()
    assert recovered(folder, second.last_seq) == list(range(second.last_seq + 1, 41))


def test_a_missing_segment_that_is_needed_is_damage(folder: Path) -> None:
    first, second, _ = written(folder, 20)
    Path(second.path).unlink()
    assert f"commits {first.last_seq + 1} to {second.last_seq} are missing" in damage(folder)
    Path(first.path).unlink()
    assert f"commits 1 to {second.last_seq} are missing" in damage(folder)


def test_a_frame_that_is_there_twice_is_damage(folder: Path) -> None:
    *_, last = written(folder, 8)
    name = f"{last.path[:-8]}{last.number + 1:08}"
    Path(name).write_bytes(Path(last.path).read_bytes())
    assert "duplicated" in damage(folder)


def test_the_draft_of_a_segment_is_removed(folder: Path) -> None:
    written(folder, 2)
    draft = folder / "app.db-log.draft"
    draft.write_bytes(b"half")
    assert recovered(folder) == [1, 2, 3, 4]
    assert not draft.exists()


def test_recovery_writes_and_syncs_the_last_frame_again(folder: Path) -> None:
    class Seen(Observer):
        def __init__(self) -> None:
            self.operations: list[Operation] = []

        def after(self, operation: Operation) -> None:
            self.operations.append(operation)

    [segment] = written(folder, 2)
    before, seen = Path(segment.path).read_bytes(), Seen()
    list(journal_in(folder, seen).recover(0))
    assert [op.kind for op in seen.operations] == ["disk.open", "disk.write", "disk.sync"]
    assert seen.operations[1].offset == segment.end - BLOCK_BYTES
    assert Path(segment.path).read_bytes() == before


def test_recovery_of_what_is_folded_writes_nothing(folder: Path) -> None:
    written(folder, 2)
    faults = Faults()
    assert list(journal_in(folder, faults).recover(4)) == []
    assert not faults.counts


def all_bytes_of_last_frame(folder: Path) -> Iterator[tuple[Path, bytes, int]]:
    """(its segment, the segment's content, each byte of the last frame with its padding)"""
    [segment] = written(folder, 2)
    content = Path(segment.path).read_bytes()
    for offset in range(segment.end - BLOCK_BYTES, segment.end):
        yield Path(segment.path), content, offset


def test_a_journal_shorter_than_it_was_made_is_damage(folder: Path) -> None:
    for path, content, offset in all_bytes_of_last_frame(folder):
        path.write_bytes(content[:offset])
        assert f"it has {offset} bytes instead of {len(content)}" in damage(folder)


def test_a_journal_with_zeros_from_any_byte_of_its_last_frame_ends_with_the_commit_before(
    folder: Path,
) -> None:
    for path, content, offset in all_bytes_of_last_frame(folder):
        path.write_bytes(content[:offset].ljust(len(content), b"\x00"))
        assert recovered(folder) in ([1, 2], [1, 2, 3, 4])


def test_a_flipped_bit_in_the_last_frame_is_damage(folder: Path) -> None:
    random, length = Random(0), 0
    for path, content, offset in all_bytes_of_last_frame(folder):
        flipped = bytearray(content)
        flipped[offset] ^= 1 << random.randrange(8)
        path.write_bytes(flipped)
        if not any(content[offset:]):
            assert recovered(folder) == [1, 2, 3, 4], "only the padding may be flipped"
        else:
            assert "one bit" in damage(folder)
            length += 1
    assert 28 < length < 120


def test_a_flipped_bit_in_a_frame_that_others_follow_is_damage(folder: Path) -> None:
    [segment] = written(folder, 3)
    path, random = Path(segment.path), Random(0)
    content = path.read_bytes()
    for offset in range(BLOCK_BYTES, BLOCK_BYTES + 60):
        flipped = bytearray(content)
        flipped[offset] ^= 1 << random.randrange(8)
        path.write_bytes(flipped)
        assert "corrupt, and valid frames follow" in damage(folder)


def test_a_flipped_bit_in_the_last_frame_of_an_earlier_segment_is_damage(folder: Path) -> None:
    first, *_ = written(folder, 8)
    path = Path(first.path)
    flipped = bytearray(path.read_bytes())
    flipped[first.end - BLOCK_BYTES + 40] ^= 1
    path.write_bytes(flipped)
    assert "one bit" in damage(folder)
    flipped[first.end - BLOCK_BYTES + 41] ^= 1
    path.write_bytes(flipped)
    assert "miss" in damage(folder)


def test_a_header_that_is_cut_or_flipped_is_damage(folder: Path) -> None:
    [segment] = written(folder, 2)
    path, random = Path(segment.path), Random(0)
    content = path.read_bytes()
    for size in range(0, BLOCK_BYTES, 7):
        path.write_bytes(content[:size])
        assert "header is truncated" in damage(folder)
    for offset in range(44):
        flipped = bytearray(content)
        flipped[offset] ^= 1 << random.randrange(8)
        path.write_bytes(flipped)
        assert "header" in damage(folder)


def test_a_segment_of_another_database_is_damage(folder: Path) -> None:
    written(folder, 2)
    with pytest.raises(CannotOpen, match="another database"):
        list(Journal(str(folder / "app.db"), bytes(16), Disk(), os.urandom).recover(0))


def test_closing_removes_the_files_or_leaves_them_where_that_fails(folder: Path) -> None:
    faults = Faults()
    journal = journal_in(folder, faults)
    journal.start()
    journal.spare = journal.make_segment()
    faults.strike = Strike("disk.remove", 1)
    journal.close(remove=True)
    assert len(segment_paths(str(folder / "app.db-log."))) == 1


def test_segments_are_sorted_by_number_also_beyond_eight_digits(folder: Path) -> None:
    names = ["app.db-log.00000002", "app.db-log.100000000", "app.db-log.99999999"]
    for name in [*names, "app.db-log.draft", "app.db-log.7", "xapp.db-log.00000001"]:
        (folder / name).touch()
    found = segment_paths(str(folder / "app.db-log."))
    assert [os.path.basename(path) for path in found] == [names[0], names[2], names[1]]
