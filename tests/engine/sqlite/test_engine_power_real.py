"""A real file system is shut down under a real process, as a power cut does it."""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from onceward.errors import OncewardError
from tests.engine.sqlite.victim import Acknowledged, Victim, judge_files

pytestmark = pytest.mark.power

EXT4_IOC_SHUTDOWN = 0x8004587D
NOLOGFLUSH = 2
"""Nothing that is not on the disk yet gets there, the file system's own log included."""


class Ext4:
    """A small ext4 in a file, mounted."""

    def __init__(self, folder: Path) -> None:
        self.mounted = folder / "mounted"
        self._image = folder / "image"
        self.mounted.mkdir()
        with self._image.open("wb") as file:
            file.truncate(64 << 20)
        run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount()

    def mount(self) -> None:
        run("mount", "-o", "loop", str(self._image), str(self.mounted))

    def unmount(self) -> None:
        run("umount", str(self.mounted))

    def cut_power(self) -> None:
        fd = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(fd)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Ext4]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    try:
        disk = Ext4(tmp_path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop-mounted ext4 here: {error}")
    yield disk
    # A test that failed may have left it unmounted.
    subprocess.run(["umount", str(disk.mounted)], capture_output=True, timeout=30)


async def run_until(
    count: int, end: Callable[[], None], path: str, acknowledged: Acknowledged, *args: str
) -> None:
    """Let a process commit, and kill it after so many commits and after calling `end`."""
    ended = False

    def heard(victim: Victim) -> None:
        nonlocal ended
        if victim.count >= count and not ended:
            ended = True
            end()
            victim.kill()

    await Victim(acknowledged).live(path, *args, heard=heard)
    assert ended


async def test_no_acknowledged_commit_is_lost_when_the_file_system_stops(
    ext4: Ext4, tmp_path: Path, soak: bool
) -> None:
    acknowledged, random = Acknowledged(), Random()
    path = str(ext4.mounted / "app.db")
    cuts = 100 if soak else 5
    for number in range(cuts):
        if number % 3 == 2:  # what it leaves behind is in the system's memory only
            await run_until(random.randrange(1, 500), lambda: None, path, acknowledged)
        count = random.randrange(1, 2_500 if number % 2 else 50)
        await run_until(count, ext4.cut_power, path, acknowledged)
        ext4.unmount()
        ext4.mount()
        # A copy is opened, so that the next process finds the files as the cut left them.
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(ext4.mounted, copy)
        await judge_files(str(copy / "app.db"), acknowledged)
        shutil.rmtree(copy)
    print(f"{cuts} real power cuts, {acknowledged.count} commits acknowledged, none lost")


async def test_a_process_that_does_not_sync_loses_commits_when_the_file_system_stops(
    ext4: Ext4,
) -> None:
    acknowledged = Acknowledged()
    path = str(ext4.mounted / "app.db")
    await run_until(500, ext4.cut_power, path, acknowledged, "unsynced")
    ext4.unmount()
    ext4.mount()
    with pytest.raises((AssertionError, OncewardError)):
        await judge_files(path, acknowledged)
