import errno
import os
from pathlib import Path

import pytest

from onceward.engine.sqlite.disk import Disk, aligned


class Halting(Disk):
    """Writes a few bytes at a time, and fails after so many calls."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        self.calls -= 1
        if self.calls < 0:
            raise OSError(28, "No space left on device")
        return super().pwrite(fd, data[:1_000], offset)


def test_a_new_file_is_written_out_in_full(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "log"
    fd = disk.create(str(path), 3_000_000, b"header")
    assert path.read_bytes() == b"header".ljust(3_000_000, b"\x00")
    assert os.stat(path).st_blocks * 512 >= 3_000_000, "no holes"
    disk.close(fd)


def test_writes_that_are_cut_short_go_on(tmp_path: Path) -> None:
    disk, path = Halting(1_000), tmp_path / "log"
    fd = disk.create(str(path), 10_000, b"h")
    disk.write(fd, b"x" * 5_000, 2_000)
    assert path.read_bytes()[2_000:7_000] == b"x" * 5_000
    disk.close(fd)


@pytest.mark.parametrize("missing", [None, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_durable_write_is_made_with_or_without_a_call_of_its_own(
    missing: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    pwritev, fdatasync = os.pwritev, os.fdatasync

    def write(fd: int, pieces: list[memoryview], offset: int, flags: int) -> int:
        if missing is not None:
            raise OSError(missing, os.strerror(missing))
        assert flags == os.RWF_DSYNC
        made.append("durable write")
        return pwritev(fd, [piece[:1_000] for piece in pieces], offset, flags)

    def sync(fd: int) -> None:
        made.append("sync")
        fdatasync(fd)

    monkeypatch.setattr(os, "pwritev", write)
    monkeypatch.setattr(os, "fdatasync", sync)
    disk, path = Disk(), tmp_path / "log"
    fd = disk.create(str(path), 10_000, b"h")
    disk.write_durably(fd, b"x" * 2_500, 2_000)
    disk.close(fd)
    assert path.read_bytes()[1_999:4_501] == b"\x00" + b"x" * 2_500 + b"\x00"
    assert made == (["durable write"] * 3 if missing is None else ["sync"])


def test_a_durable_write_that_fails_is_not_tried_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> int:
        raise OSError(5, "Input/output error")

    disk = Disk()
    fd = disk.create(str(tmp_path / "log"), 512, b"h")
    monkeypatch.setattr(os, "pwritev", fail)
    with pytest.raises(OSError, match="Input/output"):
        disk.write_durably(fd, b"x", 0)
    disk.close(fd)


def test_half_a_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with pytest.raises(OSError, match="No space"):
        Halting(5).create(str(path), 10_000, b"h")
    assert not path.exists()


def test_the_error_that_counts_is_told_also_when_half_a_file_cannot_be_removed(
    tmp_path: Path,
) -> None:
    class Stubborn(Halting):
        def remove(self, path: str) -> None:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="No space"):
        Stubborn(5).create(str(tmp_path / "log"), 10_000, b"h")


def test_a_file_that_is_there_is_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        Disk().create(str(path), 100, b"h")
    assert path.read_bytes() == b"precious"


def test_names_change_and_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    fd = disk.create(str(tmp_path / "a"), 512, b"h")
    disk.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    disk.sync_directory(str(tmp_path / "b"))
    disk.sync(fd)
    disk.close(fd)
    fd = disk.open(str(tmp_path / "b"))
    disk.close(fd)
    disk.remove(str(tmp_path / "b"))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.chdir(tmp_path)
    disk.sync_directory("b")


def test_blocks_that_bypass_the_cache_are_there_for_everyone(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "log"
    fd = disk.create(str(path), 8_192, b"header")
    if disk.bypass_cache(fd, 512):
        with pytest.raises(OSError, match="Invalid argument"):
            disk.write(fd, aligned(b"x" * 100), 512)
    disk.write(fd, aligned(b"x" * 1_024), 512)
    assert path.read_bytes()[:2_048] == b"header".ljust(512, b"\x00") + b"x" * 1_024 + bytes(512)
    disk.use_cache(fd)
    disk.write(fd, b"anything", 3)
    assert path.read_bytes()[:11] == b"heaanything"
    disk.close(fd)


def test_a_device_that_takes_no_such_blocks_is_written_through_the_cache(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "log"
    fd = disk.create(str(path), 8_192, b"header")
    assert not disk.bypass_cache(fd, 100)
    disk.write(fd, b"anything", 3)
    assert path.read_bytes()[:11] == b"heaanything"
    disk.close(fd)
