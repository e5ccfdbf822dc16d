"""A disk with fault injection that records every system call.

The SQLite engine accesses its files in two ways: the journal through `Disk`, the table through
SQLite's VFS. `Watched` provides both, and shows every system call that changes something to an
observer first. `Faults` makes chosen calls fail, and `onceward.testing.power` records them to
simulate power cuts.

    faults = Faults(Strike("disk.sync", 3, errno.EIO))     # the third sync of the journal
    with Watched(faults) as watched:
        engine = SQLiteEngine("app.db", disk=watched.disk, vfs=watched.vfs)
"""

import errno
import os
import threading
from collections import Counter
from itertools import count
from types import TracebackType
from typing import Final, NamedTuple, Self

import apsw

from onceward.engine.sqlite.disk import Disk

DISK_KINDS: Final = tuple(
    f"disk.{name}" for name in ("open", "write", "sync", "sync_directory", "rename", "remove")
)
VFS_KINDS: Final = tuple(f"vfs.{name}" for name in ("open", "write", "sync", "truncate", "remove"))


class Operation(NamedTuple):
    """One system call, before or after it is made."""

    kind: str
    """One of `DISK_KINDS` or `VFS_KINDS`."""
    path: str
    """The current name of the file; for a rename, the old one."""
    offset: int = 0
    data: bytes = b""
    """The written bytes; for a sync of one write, the bytes of that write."""
    target: str = ""
    """The new name in a rename."""
    created: bool = False
    """Whether an open creates the file, or a sync also makes its new name durable."""

    def __str__(self) -> str:
        return f"{self.kind} {os.path.basename(self.path)}"


class Observer:
    """Receives every operation, and by default permits it. Called from several threads."""

    def before(self, operation: Operation) -> int | None:
        """Raise `OSError` to make the operation fail. For a write, return a number of bytes to
        write only those, and then fail with the error of `cut_short`."""
        return None

    def cut_short(self, operation: Operation) -> OSError:
        """The error of a write that was only partly made."""
        return OSError(errno.EIO, os.strerror(errno.EIO))

    def after(self, operation: Operation) -> None:
        """Called after the operation."""


class Strike(NamedTuple):
    """Which operation fails, and how."""

    kind: str
    number: int
    """The number of the operation among those of its kind, from 1."""
    error: int = errno.EIO
    lasting: bool = False
    """Whether all later operations fail as well, of any kind."""
    short: bool = False
    """Whether a write writes its first half before it fails."""

    def __str__(self) -> str:
        name = errno.errorcode[self.error]
        ways = [way for way in ("lasting", "short") if getattr(self, way)]
        return " ".join([f"{self.kind} {self.number}", name, *ways])


class Faults(Observer):
    """Makes one operation fail, or all from one on; `struck` lists the failed ones."""

    def __init__(self, strike: Strike | None = None) -> None:
        self.strike = strike
        self.counts: Counter[str] = Counter()
        self.struck: list[str] = []
        self._lock = threading.Lock()

    def heal(self) -> None:
        """Permit all operations from now on."""
        self.strike = None

    def before(self, operation: Operation) -> int | None:
        with self._lock:
            self.counts[operation.kind] += 1
            strike = self.strike
            if strike is None:
                return None
            hit = strike.kind == operation.kind and self.counts[strike.kind] == strike.number
            if not hit and not (strike.lasting and self.struck):
                return None
            self.struck.append(str(operation))
        if strike.short and operation.data:
            return len(operation.data) // 2
        raise self.cut_short(operation)

    def cut_short(self, operation: Operation) -> OSError:
        number = errno.EIO if self.strike is None else self.strike.error
        return OSError(number, os.strerror(number))


class _Gate(Observer):
    """Passes operations on until it is closed."""

    def __init__(self, observer: Observer) -> None:
        self.kind = ""
        self.left: int | None = None
        self._open = True
        self._observer = observer

    def before(self, operation: Operation) -> int | None:
        if self.left is not None and operation.kind.startswith(self.kind):
            self._open = self._open and self.left > 0
            self.left -= 1
        if not self._open:
            raise OSError(errno.EIO, "the process was killed")
        return self._observer.before(operation)

    def cut_short(self, operation: Operation) -> OSError:
        return self._observer.cut_short(operation)

    def after(self, operation: Operation) -> None:
        self._observer.after(operation)


class Watched:
    """A `Disk` and a VFS that show their operations to an observer. Close it after the engine."""

    _numbers = count(1)

    def __init__(self, observer: Observer) -> None:
        self._gate = _Gate(observer)
        self.disk = WatchedDisk(self._gate)
        self.vfs = f"onceward-watched-{next(self._numbers)}"
        self._registered: WatchedVFS | None = WatchedVFS(self.vfs, self._gate)

    def kill(self, after: int = 0, kind: str = "") -> None:
        """Reject all operations, now or after a number of operations of a kind ("disk.",
        "vfs.sync"). For the files this has the effect of a killed process.

        Close the engine afterwards to release its lock; closing changes nothing.
        """
        self._gate.kind, self._gate.left = kind, after

    def close(self) -> None:
        if self._registered is not None:
            self._registered.unregister()
            self._registered = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


class WatchedDisk(Disk):
    """The journal's system calls, shown to an observer."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._paths: dict[int, str] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        operation = Operation("disk.open", path, created=create)
        self._observer.before(operation)
        fd = super().open(path, create=create)
        self._paths[fd] = path
        self._observer.after(operation)
        return fd

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        operation = Operation("disk.write", self._paths[fd], offset, bytes(data))
        short = self._observer.before(operation)
        if short is None:
            written = super().pwrite(fd, data, offset)
        else:
            written = super().pwrite(fd, data[:short], offset)
        self._observer.after(operation._replace(data=operation.data[:written]))
        if short is not None:
            raise self._observer.cut_short(operation)
        return written

    def pwrite_durably(self, fd: int, data: memoryview, offset: int) -> int:
        """Shown as a write and a sync of that write, so that power cuts, kills and disk errors can
        occur between them."""
        path = self._paths[fd]
        operation = Operation("disk.write", path, offset, bytes(data))
        short = self._observer.before(operation)
        written = super().pwrite_durably(fd, data if short is None else data[:short], offset)
        operation = operation._replace(data=operation.data[:written])
        self._observer.after(operation)
        if short is not None:
            raise self._observer.cut_short(operation)
        self._observer.before(Operation("disk.sync", path))
        self._observer.after(operation._replace(kind="disk.sync"))
        return written

    def sync(self, fd: int) -> None:
        operation = Operation("disk.sync", self._paths[fd])
        self._observer.before(operation)
        super().sync(fd)
        self._observer.after(operation)

    def sync_all(self, fd: int) -> None:
        operation = Operation("disk.sync", self._paths[fd])
        self._observer.before(operation)
        super().sync_all(fd)
        self._observer.after(operation)

    def sync_directory(self, path: str) -> None:
        operation = Operation("disk.sync_directory", os.path.dirname(path))
        self._observer.before(operation)
        Disk().sync_directory(path)
        self._observer.after(operation)

    def rename(self, old: str, new: str) -> None:
        operation = Operation("disk.rename", old, target=new)
        self._observer.before(operation)
        super().rename(old, new)
        for fd, path in self._paths.items():
            if path == old:
                self._paths[fd] = new
        self._observer.after(operation)

    def remove(self, path: str) -> None:
        operation = Operation("disk.remove", path)
        self._observer.before(operation)
        super().remove(path)
        self._observer.after(operation)

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        super().close(fd)


class WatchedVFS(apsw.VFS):
    """The table's system calls, shown to an observer."""

    def __init__(self, name: str, observer: Observer) -> None:
        super().__init__(name, "")
        self._observer = observer

    def excepthook(self, etype: object, evalue: object, etraceback: object) -> bool:
        """Ignores errors that SQLite does not check, for example during cleanup."""
        return True

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None:  # a temporary file of SQLite, deleted with the process
            return apsw.VFSFile("", name, flags)
        creates = bool(flags[0] & apsw.SQLITE_OPEN_CREATE) and not os.path.exists(path)
        operation = Operation("vfs.open", path, created=creates)
        _before(self._observer, operation, apsw.SQLITE_CANTOPEN)
        file = WatchedFile(path, name, flags, self._observer, created=creates)
        self._observer.after(operation)
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        operation = Operation("vfs.remove", filename, created=syncdir)
        _before(self._observer, operation, apsw.SQLITE_IOERR_DELETE)
        super().xDelete(filename, syncdir)
        self._observer.after(operation)


class WatchedFile(apsw.VFSFile):
    """One of SQLite's files."""

    def __init__(
        self,
        path: str,
        name: str | apsw.URIFilename | None,
        flags: list[int],
        observer: Observer,
        *,
        created: bool,
    ) -> None:
        log = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
        self._path = path
        self._observer = observer
        self._name_is_new = created and bool(flags[0] & log)
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        operation = Operation("vfs.write", self._path, offset, bytes(data))
        short = _before(self._observer, operation, apsw.SQLITE_IOERR_WRITE)
        if short is None:
            super().xWrite(data, offset)
            self._observer.after(operation)
        else:
            super().xWrite(data[:short], offset)
            self._observer.after(operation._replace(data=operation.data[:short]))
            raise _as_sqlite(self._observer.cut_short(operation), apsw.SQLITE_IOERR_WRITE)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        operation = Operation("vfs.truncate", self._path, newsize)
        _before(self._observer, operation, apsw.SQLITE_IOERR_TRUNCATE)
        super().xTruncate(newsize)
        self._observer.after(operation)

    def xSync(self, flags: int) -> None:  # noqa: N802
        # The first sync of a new log also syncs the directory.
        operation = Operation("vfs.sync", self._path, created=self._name_is_new)
        _before(self._observer, operation, apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)
        self._name_is_new = False
        self._observer.after(operation)


def _before(observer: Observer, operation: Operation, code: int) -> int | None:
    try:
        return observer.before(operation)
    except OSError as error:
        raise _as_sqlite(error, code) from error


def _as_sqlite(error: OSError, code: int) -> Exception:
    """The exception that SQLite's own VFS would return for this system error."""
    full = error.errno == errno.ENOSPC and code == apsw.SQLITE_IOERR_WRITE
    answer = apsw.exception_for(apsw.SQLITE_FULL if full else code)
    answer.args = (error.strerror,)
    return answer
