"""The system calls of the journal, behind an interface for fault injection."""

import errno
import fcntl
import mmap
import os


class Disk:
    """The file operations of the journal. Every method raises `OSError` as the system does."""

    def create(self, path: str, size_bytes: int, header: bytes) -> int:
        """Create a file of that size and return its descriptor.

        It is written completely, so that later writes change no metadata, and synced. The directory
        is not synced.
        """
        fd = self.open(path, create=True)
        try:
            self.write(fd, header, 0)
            zeros = bytes(min(size_bytes, 1 << 20))
            offset = len(header)
            while offset < size_bytes:
                piece = zeros[: size_bytes - offset]
                self.write(fd, piece, offset)
                offset += len(piece)
            self.sync_all(fd)
        except BaseException:
            self.close(fd)
            try:
                self.remove(path)  # free the space of an incomplete file
            except OSError:
                pass
            raise
        return fd

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file. New files are readable only by their owner, since they contain messages and
        secrets.
        """
        flags = os.O_CREAT | os.O_EXCL if create else 0
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)

    def bypass_cache(self, fd: int, block_bytes: int) -> bool:
        """Make later writes bypass the cache if the device supports blocks of that size; return
        whether.

        Those writes must consist of whole blocks in `aligned` memory.
        """
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
            os.preadv(fd, [aligned(bytes(block_bytes))], 0)
        except OSError:
            self.use_cache(fd)
            return False
        return True

    def use_cache(self, fd: int) -> None:
        """Undo `bypass_cache`."""
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all data, in several system calls if necessary."""
        view = memoryview(data)
        while view:
            written = self.pwrite(fd, view, offset)
            view = view[written:]
            offset += written

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def write_durably(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write all data durably; the file's size must not change.

        This normally takes one system call. Between two calls the thread would wait for the
        interpreter lock while the disk is idle.
        """
        view = memoryview(data)
        while view:
            written = self.pwrite_durably(fd, view, offset)
            view = view[written:]
            offset += written

    def pwrite_durably(self, fd: int, data: memoryview, offset: int) -> int:
        try:
            return os.pwritev(fd, [data], offset, os.RWF_DSYNC)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise
        # Some Linux-like systems do not support the flag.
        written = os.pwrite(fd, data, offset)
        os.fdatasync(fd)
        return written

    def sync(self, fd: int) -> None:
        """Make the data durable; the file's size must not have changed."""
        os.fdatasync(fd)

    def sync_all(self, fd: int) -> None:
        """Make data and metadata durable."""
        os.fsync(fd)

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory of `path` durable."""
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sync_all(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def close(self, fd: int) -> None:
        os.close(fd)


def aligned(data: bytes) -> memoryview:
    """A copy of the data in memory that supports direct I/O."""
    copy = memoryview(mmap.mmap(-1, len(data)))
    copy[:] = data
    return copy
