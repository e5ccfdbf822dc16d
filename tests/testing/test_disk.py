import errno
import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from onceward.testing.disk import Faults, Observer, Operation, Strike, Watched, WatchedDisk


class Seen(Observer):
    def __init__(self) -> None:
        self.operations: list[str] = []

    def after(self, operation: Operation) -> None:
        self.operations.append(str(operation))


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def watched(seen: Seen) -> Iterator[Watched]:
    with Watched(seen) as watched:
        yield watched


def use(watched: Watched, path: Path) -> None:
    connection = apsw.Connection(str(path), vfs=watched.vfs)
    connection.pragma("journal_mode", "wal")
    connection.execute("CREATE TABLE t (a)")
    connection.close()


def test_everything_the_journal_does_is_seen_under_the_files_present_name(
    watched: Watched, seen: Seen, tmp_path: Path
) -> None:
    disk = watched.disk
    fd = disk.create(str(tmp_path / "draft"), 1_000, b"head")
    disk.rename(str(tmp_path / "draft"), str(tmp_path / "log"))
    disk.sync_directory(str(tmp_path / "log"))
    disk.write(fd, b"frame", 4)
    disk.sync(fd)
    disk.close(fd)
    disk.close(disk.open(str(tmp_path / "log")))
    disk.remove(str(tmp_path / "log"))
    assert seen.operations == [
        "disk.open draft",
        "disk.write draft",
        "disk.write draft",
        "disk.sync draft",
        "disk.rename draft",
        f"disk.sync_directory {tmp_path.name}",
        "disk.write log",
        "disk.sync log",
        "disk.open log",
        "disk.remove log",
    ]


def test_a_durable_write_is_seen_as_a_write_and_a_sync_of_it_alone(tmp_path: Path) -> None:
    class Entries(Observer):
        def __init__(self) -> None:
            self.operations: list[Operation] = []

        def after(self, operation: Operation) -> None:
            self.operations.append(operation)

    entries, path = Entries(), str(tmp_path / "log")
    disk = WatchedDisk(entries)
    fd = disk.create(path, 10, b"head")
    disk.write_durably(fd, b"frame", 4)
    disk.close(fd)
    write = Operation("disk.write", path, 4, b"frame")
    assert entries.operations[-2:] == [write, write._replace(kind="disk.sync")]


@pytest.mark.parametrize("blow", [Strike("disk.write", 2, short=True), Strike("disk.sync", 2)])
def test_a_durable_write_that_fails_may_have_been_made_in_part_or_whole(
    blow: Strike, tmp_path: Path
) -> None:
    disk = WatchedDisk(Faults(blow))
    fd = disk.create(str(tmp_path / "log"), 4, b"head")
    with pytest.raises(OSError, match="Input/output"):
        disk.write_durably(fd, b"frame!", 4)
    disk.close(fd)
    made = b"headfra" if blow.short else b"headframe!"
    assert (tmp_path / "log").read_bytes() == made


def test_everything_sqlite_does_is_seen(watched: Watched, seen: Seen, tmp_path: Path) -> None:
    use(watched, tmp_path / "app.db")
    kinds = {operation.split()[0] for operation in seen.operations}
    assert kinds == {"vfs.open", "vfs.write", "vfs.sync", "vfs.truncate", "vfs.remove"}
    assert "vfs.write app.db-wal" in seen.operations


def test_temporary_files_of_sqlite_are_its_own_business(watched: Watched, seen: Seen) -> None:
    connection = apsw.Connection("", vfs=watched.vfs)
    connection.execute("PRAGMA cache_size = 1; CREATE TABLE t (a)")
    connection.execute("INSERT INTO t SELECT zeroblob(1000) FROM json_each('[1,2,3,4,5,6,7,8,9]')")
    connection.close()
    assert seen.operations == []


@pytest.mark.parametrize("kind", ["write", "sync", "rename", "remove", "open", "sync_directory"])
def test_the_chosen_operation_of_the_journal_fails_and_no_other(kind: str, tmp_path: Path) -> None:
    faults = Faults(Strike(f"disk.{kind}", 2, errno.ENOSPC))
    disk = WatchedDisk(faults)

    def all_operations() -> None:
        fd = disk.create(str(tmp_path / "a"), 4, b"head")
        disk.rename(str(tmp_path / "a"), str(tmp_path / "b"))
        disk.sync_directory(str(tmp_path / "b"))
        disk.close(fd)
        disk.remove(str(tmp_path / "b"))

    all_operations()
    with pytest.raises(OSError, match="No space") as failed:
        all_operations()
    assert failed.value.errno == errno.ENOSPC
    assert len(faults.struck) == 1
    for file in tmp_path.iterdir():
        file.unlink()
    all_operations()


def test_a_short_write_leaves_its_first_half(tmp_path: Path) -> None:
    faults = Faults(Strike("disk.write", 2, short=True))
    disk = WatchedDisk(faults)
    fd = disk.create(str(tmp_path / "log"), 4, b"head")
    with pytest.raises(OSError, match="Input/output"):
        disk.write(fd, b"frame!", 4)
    disk.close(fd)
    assert (tmp_path / "log").read_bytes() == b"headfra"


def test_a_lasting_failure_lasts_until_it_is_healed(tmp_path: Path) -> None:
    faults = Faults(Strike("disk.write", 1, lasting=True))
    disk = WatchedDisk(faults)
    with pytest.raises(OSError, match="Input/output"):
        disk.create(str(tmp_path / "log"), 4, b"head")
    with pytest.raises(OSError, match="Input/output"):
        disk.open(str(tmp_path / "log"))
    faults.heal()
    disk.close(disk.open(str(tmp_path / "log")))


@pytest.mark.parametrize(
    ("strike", "error"),
    [
        (Strike("vfs.open", 1), apsw.CantOpenError),
        (Strike("vfs.write", 1), apsw.IOError),
        (Strike("vfs.write", 1, errno.ENOSPC), apsw.FullError),
        (Strike("vfs.write", 2, errno.ENOSPC, short=True), apsw.FullError),
        (Strike("vfs.sync", 1, errno.ENOSPC), apsw.IOError),
        (Strike("vfs.remove", 1), apsw.IOError),
    ],
    ids=str,
)
def test_sqlite_answers_a_failure_as_it_does_for_the_system(
    strike: Strike, error: type[Exception], tmp_path: Path
) -> None:
    with Watched(Faults(strike)) as watched, pytest.raises(error):
        use(watched, tmp_path / "app.db")


def test_what_was_killed_changes_nothing_more(watched: Watched, seen: Seen, tmp_path: Path) -> None:
    fd = watched.disk.create(str(tmp_path / "log"), 4, b"head")
    watched.kill(1, "disk.write")
    watched.disk.write(fd, b"1", 0)
    watched.disk.sync(fd)
    with pytest.raises(OSError, match="killed"):
        watched.disk.write(fd, b"2", 0)
    with pytest.raises(OSError, match="killed"):
        watched.disk.sync(fd)
    with pytest.raises(apsw.CantOpenError):
        use(watched, tmp_path / "app.db")
    watched.disk.close(fd)
    assert os.listdir(tmp_path) == ["log"]
    assert (tmp_path / "log").read_bytes() == b"1ead"


def test_closing_twice_is_closing_once(seen: Seen) -> None:
    watched = Watched(seen)
    assert watched.vfs in apsw.vfs_names()
    watched.close()
    watched.close()
    assert watched.vfs not in apsw.vfs_names()


def test_a_strike_says_what_it_does() -> None:
    assert str(Strike("vfs.write", 3, errno.ENOSPC, short=True)) == "vfs.write 3 ENOSPC short"
    assert str(Strike("disk.sync", 1, lasting=True)) == "disk.sync 1 EIO lasting"
