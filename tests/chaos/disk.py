"""A small file system that can be full."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


class Disk:
    """A tmpfs, which takes as much memory as is in it."""

    def __init__(self, folder: Path, megabytes: int, left_bytes: int) -> None:
        """When it is full there is room for `left_bytes`."""
        self.folder = folder
        self._size_bytes = megabytes << 20
        self._left_bytes = left_bytes

    def mount(self) -> bool:
        """Begin to be there; says whether this process may do that."""
        self.folder.mkdir()
        try:
            option = f"size={self._size_bytes}"
            _run("mount", "-t", "tmpfs", "-o", option, "tmpfs", str(self.folder))
        except (OSError, subprocess.CalledProcessError):
            self.folder.rmdir()
            return False
        return True

    def unmount(self) -> None:
        _run("umount", "--lazy", str(self.folder))
        self.folder.rmdir()

    @asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        """Let there be room for a little, and no more."""
        await asyncio.to_thread(self._shrink)
        try:
            yield
        finally:
            await asyncio.to_thread(self._resize, self._size_bytes)

    def _shrink(self) -> None:
        while True:
            stat = os.statvfs(self.folder)
            used_bytes = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
            try:
                return self._resize(used_bytes + self._left_bytes)
            except subprocess.CalledProcessError:
                pass  # meanwhile more than that was written

    def _resize(self, size_bytes: int) -> None:
        _run("mount", "-o", f"remount,size={size_bytes}", str(self.folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)
