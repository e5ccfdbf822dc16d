"""A read-only snapshot of all records of a database, for other processes.

A read transaction fixes the state of the table, and so its fold position. The journal, read right
after, must continue from there without a gap. The owner keeps running, folds and reuses segments. A
gap, a segment that vanished or changed while it was read, or a table folded further than the
journal mean that the read came too late; it is then repeated. A frame that is being written is a
torn end, as after a crash: it was not acknowledged before the read started.

The owner is not blocked and no file is written, except the locks of SQLite in its `-shm` file. If
no process has the database open and SQLite left no log, it is read without these locks: SQLite
would create files that the owner might not be able to write. At the end, the reader verifies that
the file did not change.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import apsw

from onceward import limits
from onceward.engine.base import Record
from onceward.engine.sqlite.checksum import verified
from onceward.engine.sqlite.frames import Frame, Segment
from onceward.engine.sqlite.journal import read_segment, segment_paths
from onceward.engine.sqlite.owner import is_owned
from onceward.engine.sqlite.table import connect, explained, is_ours, read_meta
from onceward.errors import CannotOpen, Contention
from onceward.keys import Key

T = TypeVar("T")

Progress = Callable[[str, int, int | None], None]
"""Called with the current step, the amount done, and the total if it is known."""

# How many steps of SQLite's virtual machine run between two progress calls.
_PROGRESS_STEPS = 200_000

_STORED = """
SELECT partition, sort, checksum, value, version, expires_at_ms FROM record
WHERE partition = ? AND sort = ?
"""
_SCAN = """
SELECT partition, sort, checksum, value, version, expires_at_ms FROM record
WHERE partition = ? ORDER BY sort
"""


class Snapshot:
    """The records of a database as of the commit `last_seq`. Valid until `read` returns."""

    def __init__(self, path: str, connection: apsw.Connection) -> None:
        """Start a read transaction, then read the journal."""
        self.path = path
        self.connection = connection
        """In a read transaction on the table."""
        connection.execute("BEGIN")
        if not is_ours(connection, path):
            raise CannotOpen(
                f"{path} is empty and not a database. Name another file.", code="not_a_database"
            )
        self.format = int(str(connection.pragma("user_version")))
        self.meta = read_meta(connection, path)
        self.database_id, self.folded_seq = self.meta.database_id, self.meta.folded_seq
        self.problems: list[str] = []
        """Problems of the journal."""
        self.segments: list[Segment] = []
        self.frames: list[Frame] = []
        """The commits of the journal that are not in the table."""
        self._read_journal()
        self.last_seq = self.frames[-1].last_seq if self.frames else self.folded_seq
        if not self.problems and (
            self.last_seq < self.meta.durable_seq or (self.meta.journal and not self.segments)
        ):
            self.problems.append("it is missing or truncated")
        self.rows: dict[Key, Record] = {
            row.key: row
            for frame in self.frames
            for commit in frame.commits[max(0, self.folded_seq + 1 - frame.first_seq) :]
            for row in commit
        }
        """The last row of each key in the journal; an empty value is a deletion."""

    def _read_journal(self) -> None:
        next_seq = self.folded_seq + 1
        for path in segment_paths(f"{self.path}-log."):
            try:
                segment, frames = read_segment(path, self.database_id)
            except FileNotFoundError as error:
                raise _Late from error
            except OSError as error:
                raise CannotOpen(
                    f"{path} cannot be read: {error.strerror}. Check the disk and the permissions.",
                    code="storage_failed",
                ) from error
            except CannotOpen as error:
                self.problems.append(f"{os.path.basename(path)}: {error.details['what']}")
                continue
            if not path.endswith(f".{segment.number:08d}"):
                # Reused between the listing and the read, or renamed.
                self.problems.append(f"{os.path.basename(path)}: it is number {segment.number}")
                continue
            self.segments.append(segment)
            for frame in frames:
                if frame.last_seq <= self.folded_seq:
                    continue
                # The table may be folded up to the middle of the first frame.
                first_seq = frame.first_seq if self.frames else max(frame.first_seq, next_seq)
                if first_seq != next_seq:
                    self.problems.append(
                        f"{os.path.basename(path)}: commit {frame.first_seq} comes after "
                        f"{next_seq - 1}"
                    )
                    return
                self.frames.append(frame)
                next_seq = frame.last_seq + 1

    def stored(self, key: Key) -> Record | None:
        """The record of a key in the table."""
        row = self.connection.execute(_STORED, key).fetchone()
        return None if row is None else verified(self.path, row)

    def get(self, key: Key) -> Record | None:
        """The record of a key, expired or not."""
        row = self.rows.get(key)
        if row is None:
            return self.stored(key)
        return row if row.value else None

    def scan(self, partition: str) -> Iterator[Record]:
        """The records of a partition in order, expired or not."""
        fresh = self.changed.get(partition, {})
        waiting = sorted(fresh, reverse=True)
        for stored in self.connection.execute(_SCAN, (partition,)):
            record = verified(self.path, stored)
            sort = record.key[1]
            while waiting and waiting[-1] < sort:
                if (row := fresh[waiting.pop()]).value:
                    yield row
            if sort not in fresh:
                yield record
        yield from (fresh[sort] for sort in reversed(waiting) if fresh[sort].value)

    @cached_property
    def changed(self) -> dict[str, dict[str, Record]]:
        """The rows of the journal, by partition and sort key."""
        found: dict[str, dict[str, Record]] = {}
        for (partition, sort), row in self.rows.items():
            found.setdefault(partition, {})[sort] = row
        return found

    @contextmanager
    def reporting(self, progress: Progress, what: str) -> Iterator[None]:
        """Call `progress` at intervals while statements run, which also lets Python handle
        signals."""

        def report() -> bool:
            progress(what, 0, None)
            return False

        self.connection.set_progress_handler(report, _PROGRESS_STEPS)
        try:
            yield
        finally:
            self.connection.set_progress_handler(None)


class _Late(Exception):
    """The owner changed the files during the read."""


class _Signs(NamedTuple):
    """Attributes that change when the database changes or is opened."""

    owned: bool
    wal_bytes: int
    inode: int
    size_bytes: int
    modified_ns: int

    @property
    def still(self) -> bool:
        """Whether no process has it open, and the file contains everything."""
        return not self.owned and self.wal_bytes == 0


def read(path: str, work: Callable[[Snapshot], T], *, lenient: bool = False) -> T:
    """Call `work` with a snapshot and return its result; repeat it if the file changed.

    With `lenient`, damage to the journal is passed to `work` in `Snapshot.problems`. Raises
    `CannotOpen` with a code for the reason, or `Contention` if the file changed in every attempt.
    """
    path = os.path.realpath(path)
    for left in reversed(range(limits.SNAPSHOT_TRIES_MAX)):
        admit(path)
        before = _signs(path)
        with (
            explained(path),
            _readable(path),
            closing(_connect(path, before.still)) as connection,
        ):
            try:
                snapshot = Snapshot(path, connection)
                late = not before.still and _is_late(snapshot, before)
                # Damage in the last attempt is not caused by timing.
                if late and (left or not snapshot.problems):
                    continue
                if snapshot.problems and not lenient:
                    raise CannotOpen(
                        f"the journal of {path} is damaged: {snapshot.problems[0]}. "
                        "Run `onceward db check`, or restore a backup.",
                        code="damaged",
                    )
                result = work(snapshot)
            except _Late:
                continue
            except Exception:
                if before.still and _signs(path) != before:
                    continue
                raise
            if not before.still or _signs(path) == before:
                return result
    raise Contention(f"{path} changes faster than it can be read. Try again.")


def admit(path: str) -> None:
    """Reject paths that are not a readable file, with a code for each reason."""
    if os.path.isdir(path):
        raise CannotOpen(f"{path} is a directory. Name a file in it.", code="is_a_directory")
    if not os.path.exists(path):
        raise CannotOpen(f"{path} does not exist. Check the path.", code="no_such_file")
    if not os.access(path, os.R_OK):
        raise CannotOpen(
            f"no permission to read {path}. Run the command as the user of the server.",
            code="storage_failed",
        )


def wal_path(path: str) -> str:
    return f"{path}-wal"


def size_bytes(path: str) -> int:
    """The size of a file; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _signs(path: str) -> _Signs:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise CannotOpen(
            f"{path} was removed during the read. Check the path.", code="no_such_file"
        ) from None
    return _Signs(
        is_owned(path), size_bytes(wal_path(path)), found.st_ino, found.st_size, found.st_mtime_ns
    )


def _connect(path: str, still: bool) -> apsw.Connection:
    # Opened only by SQLite: closing another descriptor would release all locks of this process on
    # the file, and it may be the owner.
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return connect(f"file:{quote(path)}{'?immutable=1' if still else ''}", flags=flags)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Translate errors that are specific to reading."""
    try:
        yield
    except apsw.CantOpenError as error:
        raise CannotOpen(
            f"cannot read {path}: SQLite keeps its locks in {path}-shm and has no permission to "
            f"write it. Copy {path} and all {os.path.basename(path)}-* to a writable folder.",
            code="read_only",
        ) from error
    except UnicodeDecodeError as error:
        raise CannotOpen(
            f"{path} is damaged: it contains text that is not UTF-8. Run `onceward db check`.",
            code="damaged",
        ) from error


def _is_late(snapshot: Snapshot, before: _Signs) -> bool:
    """Whether the owner folded commits between the reads of the table and of the journal."""
    if snapshot.problems:
        now = _signs(snapshot.path)
        return now.owned or now != before
    with closing(_connect(snapshot.path, still=False)) as connection:
        # Commits folded since may have left the journal before it was read.
        return read_meta(connection, snapshot.path).folded_seq > snapshot.last_seq
