"""A read-only snapshot of all records of a database, for other processes.

A read transaction fixes what the table shows, and so how far it is folded; the journal,
read right after, must go on from there without a gap. Its owner may go on meanwhile,
fold, and use segments again: a gap, a segment that vanished or changes while it is read,
or a table folded further than what was found of the journal mean that the look came too
late, and it starts over. (A frame that is being written at this moment is a torn end,
as after a crash: it was not acknowledged before the look began.)

Nothing is locked against the owner and no file is written, but for the locks that SQLite
itself keeps in its `-shm` file. A database that nobody has open and that SQLite left
without a log is read without even these, since SQLite would leave files behind that the
owner might not be able to write; whether it stayed as it was is found out at the end.
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
"""Told what is being done, how much of it is, and of how much if that is known."""

# How many steps of SQLite's machine pass between two calls of a progress function.
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
    """The records of a database as of the commit `last_seq`. Good until `read` returns."""

    def __init__(self, path: str, connection: apsw.Connection) -> None:
        """Fix the moment, then read the journal."""
        self.path = path
        self.connection = connection
        """In a read transaction: what is in the table."""
        connection.execute("BEGIN")
        if not is_ours(connection, path):
            raise CannotOpen(f"{path} is empty: it never held a record.", code="not_a_database")
        self.format = int(str(connection.pragma("user_version")))
        self.meta = read_meta(connection, path)
        self.database_id, self.folded_seq = self.meta.database_id, self.meta.folded_seq
        self.problems: list[str] = []
        """What is wrong with the journal."""
        self.segments: list[Segment] = []
        self.frames: list[Frame] = []
        """What the journal has beyond the table."""
        self._read_journal()
        self.last_seq = self.frames[-1].last_seq if self.frames else self.folded_seq
        if not self.problems and (
            self.last_seq < self.meta.durable_seq or (self.meta.journal and not self.segments)
        ):
            self.problems.append("it is missing, or lacks its end")
        self.rows: dict[Key, Record] = {
            row.key: row
            for frame in self.frames
            for commit in frame.commits[max(0, self.folded_seq + 1 - frame.first_seq) :]
            for row in commit
        }
        """By key, the last that the journal says; an empty value says "deleted"."""

    def _read_journal(self) -> None:
        next_seq = self.folded_seq + 1
        for path in segment_paths(f"{self.path}-log."):
            try:
                segment, frames = read_segment(path, self.database_id)
            except FileNotFoundError as error:
                raise _Late from error
            except OSError as error:
                raise CannotOpen(
                    f"{path} cannot be read: {error.strerror}.", code="storage_failed"
                ) from error
            except CannotOpen as error:
                self.problems.append(f"{os.path.basename(path)}: {error.details['what']}")
                continue
            if not path.endswith(f".{segment.number:08d}"):
                # Used again between the listing and the reading, or given a wrong name.
                self.problems.append(f"{os.path.basename(path)}: it is number {segment.number}")
                continue
            self.segments.append(segment)
            for frame in frames:
                if frame.last_seq <= self.folded_seq:
                    continue
                # The table may be folded up to the middle of a frame, of the first one only.
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
        """What the table has under the key."""
        row = self.connection.execute(_STORED, key).fetchone()
        return None if row is None else verified(self.path, row)

    def get(self, key: Key) -> Record | None:
        """What stands under the key, expired or not."""
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
        """Call `progress` now and then while statements run, which also lets signals in."""

        def report() -> bool:
            progress(what, 0, None)
            return False

        self.connection.set_progress_handler(report, _PROGRESS_STEPS)
        try:
            yield
        finally:
            self.connection.set_progress_handler(None)


class _Late(Exception):
    """The owner was quicker."""


class _Signs(NamedTuple):
    """What would change if the database did, or someone opened it."""

    owned: bool
    wal_bytes: int
    inode: int
    size_bytes: int
    modified_ns: int

    @property
    def still(self) -> bool:
        """Nobody has it open, and all that SQLite knows is in the file itself."""
        return not self.owned and self.wal_bytes == 0


def read(path: str, work: Callable[[Snapshot], T], *, lenient: bool = False) -> T:
    """What `work` makes of a snapshot; it is called again if the file changed under it.

    With `lenient`, damage to the journal is left to `work`, in the snapshot's `problems`.
    Raises `CannotOpen` with a code that says why, or `Contention` if the owner was
    quicker every time.
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
                # Damage that is there each time is no accident of timing.
                if late and (left or not snapshot.problems):
                    continue
                if snapshot.problems and not lenient:
                    raise CannotOpen(
                        f"the journal of {path} is damaged: {snapshot.problems[0]}. "
                        "See `onceward check`, or restore a backup.",
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
    """Refuse what cannot be a database to read, each kind with a code of its own."""
    if os.path.isdir(path):
        raise CannotOpen(f"{path} is a directory. Name a file in it.", code="is_a_directory")
    if not os.path.exists(path):
        raise CannotOpen(f"{path} does not exist.", code="no_such_file")
    if not os.access(path, os.R_OK):
        raise CannotOpen(f"{path} may not be read: permission denied.", code="storage_failed")


def wal_path(path: str) -> str:
    return f"{path}-wal"


def size_bytes(path: str) -> int:
    """The size of a file; 0 if it is not there."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _signs(path: str) -> _Signs:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise CannotOpen(f"{path} is no longer there.", code="no_such_file") from None
    return _Signs(
        is_owned(path), size_bytes(wal_path(path)), found.st_ino, found.st_size, found.st_mtime_ns
    )


def _connect(path: str, still: bool) -> apsw.Connection:
    # Never opened by other means than SQLite's: closing a file gives up all the locks that
    # this process has on it, and the process may be the owner.
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return connect(f"file:{quote(path)}{'?immutable=1' if still else ''}", flags=flags)


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """What reading adds to the ways in which opening can fail."""
    try:
        yield
    except apsw.CantOpenError as error:
        raise CannotOpen(
            f"{path} cannot be read here: SQLite keeps its locks in {path}-shm, and may not "
            f"write that. Copy {path} and all {os.path.basename(path)}-* to a folder where it may.",
            code="read_only",
        ) from error
    except UnicodeDecodeError as error:
        raise CannotOpen(
            f"{path} is damaged: it holds text that is not UTF-8. See `onceward check`.",
            code="damaged",
        ) from error


def _is_late(snapshot: Snapshot, before: _Signs) -> bool:
    """Whether the owner went on between the table and the journal."""
    if snapshot.problems:
        now = _signs(snapshot.path)
        return now.owned or now != before
    with closing(_connect(snapshot.path, still=False)) as connection:
        # What was folded since may have left the journal before it was read.
        return read_meta(connection, snapshot.path).folded_seq > snapshot.last_seq
