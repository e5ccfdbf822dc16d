"""Online backup: a consistent copy of a database while its owner runs.

The table is copied page by page in the read transaction of a snapshot, so concurrent folds neither
appear in the copy nor restart it. Then the rows of the journal are written into the copy. It is
created under another name, synced and renamed: the target is complete or unchanged.

The copy gets a new database ID, because it and the original then assign the same sequence numbers
to different commits. If the copy replaces the original and segments of the original's journal
remain, opening it must reject them instead of mixing two histories.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

import apsw
import msgspec

from onceward import limits
from onceward.clock import boot_ns
from onceward.engine.sqlite.disk import Disk
from onceward.engine.sqlite.journal import segment_paths
from onceward.engine.sqlite.owner import describe, is_owned
from onceward.engine.sqlite.reader import Progress, Snapshot, admit, read
from onceward.engine.sqlite.table import Meta, connect, stored_row, write_meta
from onceward.errors import BadInput, CannotOpen, OncewardError, StorageFull
from onceward.ids import random_bytes

_PUT = "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE = "DELETE FROM record WHERE partition = ? AND sort = ?"
_READ_ERRORS = {apsw.SQLITE_IOERR_READ, apsw.SQLITE_IOERR_SHORT_READ}
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Copy(msgspec.Struct):
    """The result of a backup."""

    path: str
    records: int
    last_seq: int
    bytes: int
    seconds: float


def back_up(
    path: str,
    to: str,
    *,
    force: bool = False,
    progress: Progress = lambda *_: None,
    disk: Disk | None = None,
) -> Copy:
    """Copy a database to the file `to`; `force` replaces an existing file.

    Raises the errors of `reader.read`, and `CannotOpen`, `StorageFull` or `BadInput` if the target
    cannot be written or exists already. After an error the target is unchanged or, if the error
    came after the last step, the copy. A replaced file that could be neither restored nor removed
    stays beside it with `-replaced-` in its name.
    """
    start_ns = boot_ns()
    disk = disk or Disk()
    admit(path)
    _admit_target(path, to, force)
    draft = f"{to}-draft-{random_bytes(4).hex()}"
    try:
        last_seq, records = read(path, partial(_copy, draft=draft, to=to, progress=progress))
        with _writing(to):
            progress("syncing", 0, None)
            size_bytes = _sync(draft, disk)
            _admit_target(path, to, force)  # it may have been created since
            _put_in_place(draft, to, disk)
    finally:
        _remove_all(draft, "", "-wal", "-shm", "-journal")
    return Copy(to, records, last_seq, size_bytes, (boot_ns() - start_ns) / 1e9)


def _admit_target(path: str, to: str, force: bool) -> None:
    folder = os.path.dirname(to) or "."
    if not os.path.isdir(folder):
        raise CannotOpen(f"the folder {folder} does not exist. Create it.", code="no_such_file")
    if os.path.isdir(to):
        raise CannotOpen(f"{to} is a directory. Name a file in it.", code="is_a_directory")
    if not os.access(folder, os.W_OK):
        raise CannotOpen(
            f"the folder {folder} is not writable. Choose another one, or change its permissions.",
            code="read_only",
        )
    if os.path.exists(to) and os.path.samefile(path, to):
        raise BadInput(f"{to} is the database itself. Name another file.")
    if os.path.exists(to) and not stat.S_ISREG(os.stat(to).st_mode):
        raise CannotOpen(
            f"{to} exists and is not a regular file. Name another file.", code="file_exists"
        )
    there = [file for file in (to, *_companions(to)) if os.path.lexists(file)]
    if there and not force:
        raise CannotOpen(
            f"{there[0]} exists already. Name another file, or use --force to replace it.",
            code="file_exists",
        )
    if is_owned(to):
        raise CannotOpen(
            f"{to} is in use by {describe(to)}. Stop that process, or name another file.",
            code="database_in_use",
        )


def _companions(to: str) -> list[str]:
    """Files that SQLite would treat as parts of the copy: the logs of a database of that name."""
    logs = [f"{to}{suffix}" for suffix in ("-wal", "-shm", "-journal")]
    return [*logs, *segment_paths(f"{to}-log.")]


def _copy(snapshot: Snapshot, *, draft: str, to: str, progress: Progress) -> tuple[int, int]:
    """Write the draft; return its last sequence number and its number of records."""
    _remove_all(draft, "", "-wal", "-shm", "-journal")  # of a snapshot that became invalid
    with _writing(to):
        # The same permissions as the original.
        mode = stat.S_IMODE(os.stat(snapshot.path).st_mode)
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        os.chmod(draft, mode | stat.S_IWUSR)
        with closing(connect(draft)) as copy, _explained(copy, snapshot.path, to):
            # Durability is only needed at the end.
            copy.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
            _copy_pages(snapshot, copy, progress)
            progress("adding the journal", 0, len(snapshot.rows))
            _add_journal(snapshot, copy)
            progress("counting", 0, None)
            records = copy.execute("SELECT count(*) FROM record").get
    return snapshot.last_seq, int(str(records))


def _copy_pages(snapshot: Snapshot, copy: apsw.Connection, progress: Progress) -> None:
    with copy.backup("main", snapshot.connection, "main") as pages:
        while not pages.done:
            pages.step(limits.BACKUP_STEP_PAGES)
            progress("copying pages", pages.page_count - pages.remaining, pages.page_count)


def _add_journal(snapshot: Snapshot, copy: apsw.Connection) -> None:
    rows = snapshot.rows.values()
    # Not `with copy`: SQLite has already rolled back when the disk is full, so it would fail.
    copy.execute("BEGIN")
    copy.executemany(_REMOVE, (row.key for row in rows if not row.value))
    copy.executemany(_PUT, (stored_row(row) for row in rows if row.value))
    write_meta(copy, Meta(random_bytes(16), snapshot.last_seq, snapshot.last_seq))
    copy.execute("COMMIT")
    # The copied file is in WAL mode. Empty its log here, where an error is noticed.
    copy.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _sync(draft: str, disk: Disk) -> int:
    """Make the draft durable and return its size."""
    fd = disk.open(draft)
    try:
        disk.sync_all(fd)
        return os.fstat(fd).st_size
    finally:
        disk.close(fd)


def _put_in_place(draft: str, to: str, disk: Disk) -> None:
    """Rename the draft to the target and replace existing files.

    The logs of a replaced database must never be beside the copy, and its file must keep its logs.
    If there are logs, all its files are renamed first, the database file before its logs, which
    cannot be opened without it. They are renamed back if the copy cannot take the name.
    """
    stale = [file for file in _companions(to) if os.path.lexists(file)]
    aside = f"{to}-replaced-{random_bytes(4).hex()}"
    replaced = [to, *stale] if stale else []
    moves = [(file, aside + file.removeprefix(to)) for file in replaced]
    try:
        for file, other in moves:
            with suppress(FileNotFoundError):
                disk.rename(file, other)
        if moves:
            disk.sync_directory(to)
        disk.rename(draft, to)
    except BaseException:
        # A signal may arrive at any point, even right after the draft got its name.
        if os.path.lexists(draft):
            for file, other in reversed(moves):
                if os.path.lexists(other):
                    disk.rename(other, file)
        raise
    disk.sync_directory(to)
    for _, other in moves:
        with suppress(FileNotFoundError):
            disk.remove(other)


@contextmanager
def _writing(to: str) -> Iterator[None]:
    """Translate system errors about the target."""
    try:
        yield
    except OSError as error:
        raise _failed(to, error.errno, error.strerror or str(error)) from error


@contextmanager
def _explained(copy: apsw.Connection, path: str, to: str) -> Iterator[None]:
    """Translate SQLite errors during the copy, by the file that they are about."""
    try:
        yield
    except apsw.FullError as error:
        raise _failed(to, errno.ENOSPC, str(error)) from error
    except apsw.IOError as error:
        if getattr(error, "extendedresult", 0) in _READ_ERRORS:
            raise CannotOpen(
                f"{path} cannot be read: {error}. Check the disk.", code="storage_failed"
            ) from error
        raise _failed(to, copy.system_errno, str(error)) from error


def _failed(to: str, number: int | None, reason: str) -> OncewardError:
    if number in _NO_SPACE:
        return StorageFull(
            f"not enough disk space for {to} ({reason}). The incomplete copy was removed. "
            "Free disk space."
        )
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return CannotOpen(
            f"no permission to write {to}: {reason}. Choose another folder, or change its "
            "permissions.",
            code="read_only",
        )
    return CannotOpen(f"{to} cannot be written: {reason}. Check the disk.", code="storage_failed")


def _remove_all(draft: str, *suffixes: str) -> None:
    for suffix in suffixes:
        with suppress(FileNotFoundError):
            os.unlink(f"{draft}{suffix}")
