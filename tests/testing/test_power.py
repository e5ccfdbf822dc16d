from pathlib import Path
from random import Random

from onceward.testing.disk import Operation, Watched
from onceward.testing.power import Mark, PowerLog, Volume, restore

SEEDS = range(200)


def opened(path: str) -> Operation:
    return Operation("disk.open", path, created=True)


def write(path: str, data: bytes, offset: int = 0) -> Operation:
    return Operation("disk.write", path, offset, data)


def sync(path: str) -> Operation:
    return Operation("disk.sync", path)


def rename(old: str, new: str) -> Operation:
    return Operation("disk.rename", old, target=new)


SYNC_NAMES = Operation("disk.sync_directory", "")


def outcomes(*entries: Operation | Mark) -> set[tuple[tuple[str, bytes], ...]]:
    """All that many power cuts at this point may leave."""
    volume = Volume()
    for entry in entries:
        volume.apply(entry)
    return {tuple(sorted(volume.after_cut(Random(seed)).items())) for seed in SEEDS}


def test_what_was_synced_is_there_name_and_content() -> None:
    assert outcomes(opened("a"), write("a", b"x"), sync("a"), SYNC_NAMES) == {(("a", b"x"),)}


def test_a_name_that_was_not_synced_may_be_missing() -> None:
    assert outcomes(opened("a"), write("a", b"x"), sync("a")) == {(), (("a", b"x"),)}


def test_what_was_not_synced_may_be_there_or_not() -> None:
    found = outcomes(opened("a"), write("a", b"x"), sync("a"), SYNC_NAMES, write("a", b"y", 1))
    assert found == {(("a", b"x"),), (("a", b"xy"),)}


def test_a_write_is_torn_between_sectors_and_leaves_zeros_where_it_was_not_made() -> None:
    data = b"1" * 512 + b"2" * 512
    contents = {content for ((_, content),) in outcomes(opened("a"), SYNC_NAMES, write("a", data))}
    assert contents == {b"", b"1" * 512, bytes(512) + b"2" * 512, data}


def test_a_write_is_torn_where_the_disk_has_its_sectors() -> None:
    entries = (opened("a"), SYNC_NAMES, write("a", b"123", 510))
    contents = {content for ((_, content),) in outcomes(*entries)}
    assert contents == {b"", bytes(510) + b"12", bytes(512) + b"3", bytes(510) + b"123"}


def test_a_durable_write_may_be_torn_until_it_is_synced_and_syncs_nothing_else(
    tmp_path: Path,
) -> None:
    log, path = PowerLog(), str(tmp_path / "a")
    with Watched(log) as watched:
        fd = watched.disk.create(path, 1_024, bytes(1_024))
        watched.disk.sync_directory(path)
        watched.disk.write(fd, b"x", 0)
        watched.disk.write_durably(fd, b"1" * 512 + b"2" * 512, 1_024)
        watched.disk.close(fd)
    before = {content[1_024:] for ((_, content),) in outcomes(*log.entries[:-1])}
    assert before == {b"", b"1" * 512, bytes(512) + b"2" * 512, b"1" * 512 + b"2" * 512}
    after = {(content[:1], content[1_024:]) for ((_, content),) in outcomes(*log.entries)}
    assert after == {(b"x", b"1" * 512 + b"2" * 512), (b"\x00", b"1" * 512 + b"2" * 512)}


def test_a_rename_is_made_or_not() -> None:
    entries = (opened("a"), write("a", b"x"), sync("a"), SYNC_NAMES, rename("a", "b"))
    assert outcomes(*entries) == {(("a", b"x"),), (("b", b"x"),)}
    assert outcomes(*entries, SYNC_NAMES) == {(("b", b"x"),)}


def test_a_removed_file_may_come_back() -> None:
    entries = (opened("a"), sync("a"), SYNC_NAMES, Operation("vfs.remove", "a"))
    assert outcomes(*entries) == {(("a", b""),), ()}
    last = Operation("vfs.remove", "a", created=True)
    assert outcomes(*entries[:-1], last) == {()}, "SQLite synced the directory with it"


def test_a_truncation_is_made_or_not() -> None:
    entries = (opened("a"), write("a", b"xyz"), sync("a"), SYNC_NAMES)
    cut = Operation("vfs.truncate", "a", 1)
    assert outcomes(*entries, cut) == {(("a", b"xyz"),), (("a", b"x"),)}
    assert outcomes(*entries, cut, sync("a")) == {(("a", b"x"),)}


def test_a_new_file_of_an_old_name_is_another_file() -> None:
    entries = (opened("a"), write("a", b"old"), sync("a"), SYNC_NAMES)
    again = (Operation("disk.remove", "a"), opened("a"), write("a", b"new"), sync("a"))
    assert outcomes(*entries, *again) == {(("a", b"old"),), (), (("a", b"new"),)}


def test_the_first_sync_of_a_log_makes_its_name_durable() -> None:
    log = Operation("vfs.sync", "a", created=True)
    assert outcomes(opened("a"), write("a", b"x"), log) == {(("a", b"x"),)}


def test_a_record_is_made_of_what_a_disk_does_and_of_marks(tmp_path: Path) -> None:
    log = PowerLog()
    (tmp_path / "now").mkdir()
    (tmp_path / "later").mkdir()
    with Watched(log) as watched:
        fd = watched.disk.create(str(tmp_path / "now" / "log"), 6, b"head")
        log.mark("made", 1)
        watched.disk.sync_directory(str(tmp_path / "now" / "log"))
        watched.disk.write(fd, b"gone", 2)
        watched.disk.close(fd)
    volume = Volume()
    for entry in log.entries[: log.entries.index(Mark("made", 1)) + 2]:
        volume.apply(entry)
    restore(volume.after_cut(Random(0)), str(tmp_path / "later"))
    assert (tmp_path / "later" / "log").read_bytes() == b"head\x00\x00"
