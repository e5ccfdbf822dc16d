"""The table: the SQLite file, its schema, and the statements that read and fold.

Readable by anyone with `sqlite3`; it lags behind by what is still in the journal.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apsw
import msgspec

from onceward import limits
from onceward.engine.base import Record
from onceward.errors import CannotOpen, StorageFull, Unavailable
from onceward.keys import Key

APPLICATION_ID = 0x4F4E4345  # "ONCE"
FORMAT = 1

_SCHEMA = """
CREATE TABLE record (
    partition TEXT NOT NULL,
    sort TEXT NOT NULL,
    value TEXT NOT NULL,
    version INTEGER NOT NULL,
    expires_at_ms INTEGER,
    PRIMARY KEY (partition, sort)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_expiry ON record (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""
# Many rows in one statement, so that SQLite sorts them in and writes them in a single call without
# the interpreter's lock: the event loop goes on. The sizes are few, so that each is prepared once.
_ROWS_AT_ONCE = (limits.FOLD_ROWS, 200, 40, 8, 1)
_UPSERT = """
INSERT INTO record (partition, sort, value, version, expires_at_ms) VALUES {rows}
ON CONFLICT DO UPDATE SET
    value = excluded.value, version = excluded.version, expires_at_ms = excluded.expires_at_ms
"""
_UPSERTS = {
    count: _UPSERT.format(rows=",".join(["(?,?,?,?,?)"] * count)) for count in _ROWS_AT_ONCE
}
_REMOVE = """
DELETE FROM record WHERE (partition, sort) IN
    (SELECT value->>0, value->>1 FROM json_each(?1))
"""
_SEEK = """
SELECT sort, value, version, expires_at_ms FROM record
WHERE partition = ?1 AND sort >= ?2 ORDER BY sort LIMIT 1
"""
_RANGE = """
SELECT sort, value, version, expires_at_ms FROM record
WHERE partition = ?1 AND sort >= ?2 {end} ORDER BY sort {order}
"""
# Four statements, since a bound that might be missing would not bound the search.
_RANGES = {
    (bounded, reverse): _RANGE.format(
        end="AND sort < ?3" if bounded else "", order="DESC" if reverse else "ASC"
    )
    for bounded in (False, True)
    for reverse in (False, True)
}
_SORTS = "SELECT sort FROM record WHERE partition = ?1 AND sort > ?2 ORDER BY sort LIMIT ?3"
# Answered from the index alone.
_EXPIRED = """
SELECT partition, sort, '', 0, expires_at_ms FROM record
WHERE expires_at_ms IS NOT NULL AND expires_at_ms <= ?1
    AND (expires_at_ms, partition, sort) > (?2, ?3, ?4)
ORDER BY expires_at_ms, partition, sort LIMIT ?5
"""


class Table:
    """Two connections to the file: one reads, in the event loop's thread; one folds."""

    def __init__(self, path: str, database_id: bytes, cache_bytes: int, vfs: str | None) -> None:
        """Open or create the file; the caller owns it. Raises `CannotOpen`."""
        self.path = path
        with explained(path):
            self._fold = connect(path, vfs=vfs)
            try:
                self._fold.execute(f"PRAGMA cache_size = -{cache_bytes // 1024}")
                self._fold.execute("PRAGMA synchronous = FULL")
                self._fold.execute("PRAGMA wal_autocheckpoint = 0")
                # A long backup lets SQLite's log grow; it need not stay that long.
                self._fold.execute(f"PRAGMA journal_size_limit = {limits.SQLITE_LOG_BYTES}")
                if not is_ours(self._fold, path):
                    create_schema(self._fold, database_id)
                self.database_id, self.folded_seq = read_meta(self._fold, path)
                self._read = connect(path, vfs=vfs)
                self._read.execute("PRAGMA query_only = 1")
            except BaseException:
                self._fold.close()
                raise
        self._seek = self._read.cursor()

    def seek(self, key: Key) -> Record | None:
        """The record under the key or, if there is none, the next one of its partition."""
        # `get` uses the statement up: one left standing on its row would keep its view of the
        # table for all later reads, and SQLite's log from starting over.
        try:
            row = self._seek.execute(_SEEK, key).get
        except apsw.Error as error:
            raise unreadable(self.path, error) from error
        return None if row is None else _record(key[0], row)

    def range(self, partition: str, start: str, end: str | None, reverse: bool) -> Iterator[Record]:
        """The records in [start, end) in order; close the iterator if not used up."""
        cursor = self._read.cursor()
        try:
            bounds = (partition, start) if end is None else (partition, start, end)
            for row in cursor.execute(_RANGES[end is not None, reverse], bounds):
                yield _record(partition, row)
        except apsw.Error as error:
            raise unreadable(self.path, error) from error
        finally:
            cursor.close()

    def sorts(self, partition: str, after: str, limit: int) -> list[str]:
        """The next few sort keys of a partition, in order."""
        try:
            return [str(sort) for (sort,) in self._read.execute(_SORTS, (partition, after, limit))]
        except apsw.Error as error:
            raise unreadable(self.path, error) from error

    def expired(self, now_ms: int, after: Record | None, limit: int) -> list[Record]:
        """Expired records, without values and versions, by expiry, from behind `after` on."""
        start = (-1, "", "") if after is None else (after.expires_at_ms, *after.key)
        try:
            rows = self._read.execute(_EXPIRED, (now_ms, *start, limit))
            return [_record(str(partition), row) for partition, *row in rows]
        except apsw.Error as error:
            raise unreadable(self.path, error) from error

    def fold(self, rows: Sequence[Record], folded_seq: int | None = None) -> None:
        """Write rows (an empty value removes), and how far the journal is folded.

        Durable once it says how far: until then the journal has them, and after a loss of power
        it is as after one of the calls before. Raises `StorageFull` (nothing was changed) or
        `apsw.Error`.
        """
        puts = [row for row in rows if row.value]
        removals = [row.key for row in rows if not row.value]
        try:
            durably = "NORMAL" if folded_seq is None else "FULL"
            self._fold.execute(f"PRAGMA synchronous = {durably}")
            with transaction(self._fold):
                self._put(puts)
                if removals:
                    self._fold.execute(_REMOVE, (json_text(removals),))
                if folded_seq is not None:
                    self._fold.execute(
                        "UPDATE meta SET value = ? WHERE name = 'folded_seq'", (str(folded_seq),)
                    )
        except (apsw.FullError, apsw.IOError) as error:
            if not _finds_no_space(error):
                raise
            raise StorageFull(f"no space is left to fold the journal into {self.path}") from error
        if folded_seq is not None:
            self.folded_seq = folded_seq

    def _put(self, rows: Sequence[Record]) -> None:
        start = 0
        for count in _ROWS_AT_ONCE:
            while len(rows) - start >= count:
                values: list[object] = []
                for row in rows[start : start + count]:
                    values += (*row.key, row.value.decode(), row.version, row.expires_at_ms)
                self._fold.execute(_UPSERTS[count], values)
                start += count

    def checkpoint(self) -> None:
        """Move SQLite's own log into the file, as far as readers allow."""
        try:
            self._fold.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            pass  # someone else is just doing it
        except (apsw.FullError, apsw.IOError) as error:
            if not _finds_no_space(error):
                raise
            raise StorageFull(f"no space is left in {self.path}") from error

    def close(self) -> None:
        """Close both connections; the last one moves SQLite's log into the file. If that fails
        the log stays as it is, and so does what it holds."""
        for connection in (self._read, self._fold):
            try:
                connection.close()
            except apsw.Error:
                pass


def connect(path: str, *, vfs: str | None = None, flags: int | None = None) -> apsw.Connection:
    """A connection in WAL mode to a file that exists or, by default, is created: for its owner
    alone, since it has messages and secrets in it. SQLite gives its logs the rights of the file."""
    if flags is None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if vfs is None and path != ":memory:" and not os.path.lexists(path):
            make_private(path)
    connection = apsw.Connection(path, flags=flags, vfs=vfs)
    connection.set_busy_timeout(5_000)
    return connection


def make_private(path: str) -> None:
    """Make an empty file that nobody else may read; what hinders it is for SQLite to tell."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        pass


def is_ours(connection: apsw.Connection, path: str) -> bool:
    """Whether the file has our schema; False if it is empty, `CannotOpen` if it is another's."""
    application_id = connection.pragma("application_id")
    if application_id == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").get == 0:
        return False
    if application_id != APPLICATION_ID:
        raise CannotOpen(
            f"{path} is an SQLite database, but not one of Onceward's. Name another file.",
            code="not_a_database",
        )
    if (found := connection.pragma("user_version")) > FORMAT:
        raise CannotOpen(
            f"{path} was written by a newer version (format {found}, this one knows {FORMAT}). "
            "Upgrade Onceward.",
            code="database_newer",
        )
    return True


def create_schema(connection: apsw.Connection, database_id: bytes) -> None:
    connection.pragma("journal_mode", "wal")
    with transaction(connection):
        connection.execute(_SCHEMA)
        connection.execute(
            "INSERT INTO meta VALUES ('database_id', ?), ('folded_seq', '0')", (database_id.hex(),)
        )
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", FORMAT)


def read_meta(connection: apsw.Connection, path: str) -> tuple[bytes, int]:
    """The id of the database, and how far it is folded."""
    try:
        rows = connection.execute("SELECT name, value FROM meta")
        meta = {str(name): str(value) for name, value in rows}
        return bytes.fromhex(meta["database_id"]), int(meta["folded_seq"])
    except (apsw.SQLError, KeyError, ValueError) as error:
        raise CannotOpen(
            f"{path} is damaged: its table meta is not as it should be ({error}).", code="damaged"
        ) from error


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """All of it is committed, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # When the disk is full SQLite may have rolled back already, and would complain.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def inspect_path(path: str) -> None:
    """Refuse what cannot be our file, each kind with a message and a code of its own."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise CannotOpen(f"{path} is a directory. Name a file in it.", code="is_a_directory")
    if not os.path.isdir(folder):
        raise CannotOpen(f"the folder {folder} does not exist. Create it.", code="no_such_file")
    if not os.path.exists(path):
        if not os.access(folder, os.W_OK):
            raise CannotOpen(f"the folder {folder} may not be written to.", code="read_only")
        return
    # The superuser may write anything; a file marked read-only is meant to stay as it is.
    writable = os.stat(path).st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    if not writable or not os.access(path, os.W_OK):
        raise CannotOpen(
            f"{path} may not be written to. Allow it (chmod u+w), or copy it.", code="read_only"
        )
    if os.path.exists(f"{path}-journal"):
        return  # its creation was cut off: SQLite will put that right
    if first_bytes(path) not in (b"", b"SQLite format 3\x00"):
        raise CannotOpen(f"{path} is not a database. Name another file.", code="not_a_database")


def first_bytes(path: str) -> bytes:
    """The first 16 bytes of the file, or none if it is empty.

    Read by SQLite's own means: closing a file gives up all locks that the process has on
    it, also those of another engine here; SQLite waits with the closing while it needs them.
    """
    if os.path.getsize(path) == 0:
        return b""
    with explained(path):
        flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
        file = apsw.VFSFile(apsw.vfs_names()[0], path, flags)
        try:
            return file.xRead(16, 0)
        finally:
            file.xClose()


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn SQLite's errors at opening into ours."""
    try:
        yield
    except apsw.NotADBError as error:
        raise CannotOpen(f"{path} is not a database: {error}", code="not_a_database") from error
    except apsw.CorruptError as error:
        raise CannotOpen(
            f"{path} is damaged: {error}. Restore a backup.", code="damaged"
        ) from error
    except apsw.ReadOnlyError as error:
        raise CannotOpen(f"{path} may not be written to: {error}", code="read_only") from error
    except apsw.Error as error:
        if _finds_no_space(error) or free_bytes(path) < limits.SEGMENT_BYTES_FIRST:
            raise CannotOpen(
                f"no space is left to open {path}. Free some and try again.", code="storage_full"
            ) from error
        raise CannotOpen(f"{path} cannot be opened: {error}", code="storage_failed") from error


def _finds_no_space(error: apsw.Error) -> bool:
    """Whether the disk is full. SQLite calls it an I/O error when it is the index of its own log,
    beside the file, that finds no space."""
    told = getattr(error, "extendedresult", None)
    return isinstance(error, apsw.FullError) or told == apsw.SQLITE_IOERR_SHMSIZE


def free_bytes(path: str) -> int:
    """How much space is left where the file is."""
    free = os.statvfs(os.path.dirname(path) or ".")
    return free.f_bavail * free.f_frsize


def unreadable(path: str, error: apsw.Error) -> Unavailable:
    """A read failed: the call that asked has changed nothing."""
    damaged = isinstance(error, apsw.CorruptError | apsw.NotADBError)
    return Unavailable(
        f"{path} could not be read ({error}). Nothing was changed by this call.",
        code="damaged" if damaged else "storage_failed",
    )


def json_text(rows: Sequence[object]) -> str:
    return msgspec.json.encode(rows).decode()


def _record(partition: str, row: Sequence[object]) -> Record:
    sort, value, version, expires_at_ms = row
    return Record((partition, sort), value.encode(), version, expires_at_ms)  # type: ignore[arg-type, attr-defined]
