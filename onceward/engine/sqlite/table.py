"""The SQLite file: its schema, and the statements for reads and folds.

It is readable with `sqlite3`, but lacks the records that are still in the journal.
"""

import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import apsw
import msgspec

from onceward import limits
from onceward.engine.base import DAMAGED, Record
from onceward.engine.sqlite.checksum import (
    checksum,
    damaged_key,
    meta_checksum,
    verified,
    verify_key,
)
from onceward.errors import CannotOpen, Damaged, StorageFull, Unavailable
from onceward.keys import Key

APPLICATION_ID = 0x4F4E4345  # "ONCE"
FORMAT = 2

_SCHEMA = """
CREATE TABLE record (
    partition TEXT NOT NULL,
    sort TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    value TEXT NOT NULL,
    version INTEGER NOT NULL,
    expires_at_ms INTEGER,
    PRIMARY KEY (partition, sort)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_expiry ON record (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""
# Many rows in one statement, which SQLite sorts and writes without the interpreter lock, so that
# the event loop continues. A few fixed sizes, so that each is prepared once.
_ROWS_AT_ONCE = (limits.FOLD_ROWS, 200, 40, 8, 1)
_UPSERT = """
INSERT INTO record (partition, sort, checksum, value, version, expires_at_ms) VALUES {rows}
ON CONFLICT DO UPDATE SET checksum = excluded.checksum, value = excluded.value,
    version = excluded.version, expires_at_ms = excluded.expires_at_ms
"""
_UPSERTS = {
    count: _UPSERT.format(rows=",".join(["(?,?,?,?,?,?)"] * count)) for count in _ROWS_AT_ONCE
}
_REMOVE = """
DELETE FROM record WHERE (partition, sort) IN
    (SELECT value->>0, value->>1 FROM json_each(?1))
"""
# The row at a position in the order of keys, of any partition.
_FROM = """
SELECT partition, sort, checksum, value, version, expires_at_ms FROM record
WHERE (partition, sort) >= (?1, ?2) ORDER BY partition, sort LIMIT 1
"""
_BEFORE = """
SELECT partition, sort, checksum, value, version, expires_at_ms FROM record
WHERE (partition, sort) < (?1, ?2) ORDER BY partition DESC, sort DESC LIMIT 1
"""
_RANGE = """
SELECT partition, sort, checksum, value, version, expires_at_ms FROM record
WHERE partition = ?1 AND sort >= ?2 {end} ORDER BY sort {order}
"""
# Four statements, because an optional bound would prevent an index range scan.
_RANGES = {
    (bounded, reverse): _RANGE.format(
        end="AND sort < ?3" if bounded else "", order="DESC" if reverse else "ASC"
    )
    for bounded in (False, True)
    for reverse in (False, True)
}
# Damaged text may not be UTF-8, so it cannot be read as text.
_AS_TEXT = "SELECT partition, sort, checksum, value"
_AS_BYTES = """
SELECT CAST(partition AS BLOB), CAST(sort AS BLOB), checksum, CAST(value AS BLOB)
"""
_SORTS = """
SELECT sort, checksum FROM record WHERE partition = ?1 AND sort > ?2 ORDER BY sort LIMIT ?3
"""
# Uses only the index.
_EXPIRED = """
SELECT partition, sort, expires_at_ms FROM record
WHERE expires_at_ms IS NOT NULL AND expires_at_ms <= ?1
    AND (expires_at_ms, partition, sort) > (?2, ?3, ?4)
ORDER BY expires_at_ms, partition, sort LIMIT ?5
"""


class Table:
    """Two connections to the file: one for reads in the event loop's thread, one for folds."""

    def __init__(self, path: str, database_id: bytes, cache_bytes: int, vfs: str | None) -> None:
        """Open or create the file; the caller owns it. Raises `CannotOpen`."""
        self.path = path
        with explained(path):
            self._fold = connect(path, vfs=vfs)
            try:
                self._fold.execute(f"PRAGMA cache_size = -{cache_bytes // 1024}")
                self._fold.execute("PRAGMA synchronous = FULL")
                self._fold.execute("PRAGMA wal_autocheckpoint = 0")
                # A long backup makes SQLite's log grow; it is truncated afterwards.
                self._fold.execute(f"PRAGMA journal_size_limit = {limits.SQLITE_LOG_BYTES}")
                if not is_ours(self._fold, path):
                    create_schema(self._fold, database_id)
                self.meta = read_meta(self._fold, path)
                self.pages_verified = verify_small(self._fold, path)
                self._read = connect(path, vfs=vfs)
                self._read.execute("PRAGMA query_only = 1")
            except BaseException:
                self._fold.close()
                raise
        self._seek = self._read.cursor()
        self.skipped = 0
        """How many rows with a damaged key ranges have skipped."""
        self.on_damaged: Callable[[Key, str], None] = lambda key, what: None
        """Called with the stored key of each damaged record that a read finds."""

    def seek(self, key: Key) -> Record | None:
        """The record of the key, or else the next one of its partition.

        Raises `Damaged` if an adjacent record has a damaged key and may be the requested one.
        """
        row = self._first(_FROM, key)
        record = None if row is None else self._verified(row)
        if record is None or record.key != key:
            self._verify_at(key, False, False)
            if record is not None and record.key[0] != key[0]:
                return None
        return record

    def range(
        self,
        partition: str,
        start: str,
        end: str | None,
        reverse: bool,
        skip_damaged: bool = False,
    ) -> Iterator[Record]:
        """The records in [start, end) in order; close the iterator if it is not exhausted.

        Rows with a damaged key are skipped or raise `Damaged`. This includes the rows next to the
        range, which may belong in it.
        """
        low = partition, start
        high = (partition, end) if end is not None else (f"{partition}\0", "")
        rows = self._rows(partition, start, end, reverse)
        last: Key | None = None
        try:
            self._verify_at(high if reverse else low, reverse, skip_damaged)
            for row in rows:
                try:
                    record = self._verified(row)
                except Damaged:
                    if skip_damaged:
                        self.skipped += 1
                        continue
                    raise
                key = record.key
                if last is not None and (key >= last if reverse else key <= last):
                    raise damaged_key(self.path, key)
                last = key
                yield record
            # A search ends at the first row out of bounds, which may be there because its key is
            # damaged.
            if reverse:
                self._verify_at(last or high, False, skip_damaged, _BEFORE)
            else:
                beyond = low if last is None else (partition, f"{last[1]}\0")
                self._verify_at(beyond, True, skip_damaged, _FROM)
        finally:
            rows.close()

    def _verify_at(
        self, key: Key, reverse: bool, skip_damaged: bool, statement: str | None = None
    ) -> None:
        """Verify the row next to a position in the order of keys."""
        try:
            row = self._first(statement or (_FROM if reverse else _BEFORE), key)
            if row is not None:
                self._verified(row)
        except Damaged:
            if not skip_damaged:
                raise
            self.skipped += 1

    def _first(self, statement: str, key: Key) -> tuple[Any, ...] | None:
        # `get` exhausts the statement. An open statement would keep its snapshot for all later
        # reads, and prevent SQLite's log from restarting.
        row: tuple[Any, ...] | None
        try:
            try:
                row = self._seek.execute(statement, key).get
            except UnicodeDecodeError:
                row = self._seek.execute(_in_bytes(statement), key).get
                row = None if row is None else _in_text(row)
        except apsw.Error as error:
            raise unreadable(self.path, error) from error
        return row

    def _rows(
        self, partition: str, start: str, end: str | None, reverse: bool
    ) -> Generator[tuple[Any, ...]]:
        """The rows in [start, end), read as bytes if one of them is not valid text."""
        statement = _RANGES[end is not None, reverse]
        bounds = (partition, start) if end is None else (partition, start, end)
        cursor = self._read.cursor()
        passed = 0
        try:
            try:
                for row in cursor.execute(statement, bounds):
                    passed += 1
                    yield row
            except UnicodeDecodeError:
                # From the start: a search for the middle could pass a damaged key.
                rows = cursor.execute(_in_bytes(statement), bounds)
                yield from map(_in_text, islice(rows, passed, None))
        except apsw.Error as error:
            raise unreadable(self.path, error) from error
        finally:
            cursor.close()

    def _verified(self, row: tuple[Any, ...]) -> Record:
        try:
            record = verified(self.path, row)
        except Damaged:
            self.on_damaged((str(row[0]), str(row[1])), "its key does not verify")
            raise
        if record.value is DAMAGED:
            self.on_damaged(record.key, "its value does not verify")
        return record

    def sorts(self, partition: str, after: str, limit: int) -> list[str]:
        """The next sort keys of a partition, in order."""
        try:
            rows = self._read.execute(_SORTS, (partition, after, limit)).fetchall()
        except UnicodeDecodeError as error:
            raise damaged_key(self.path, (partition, "?")) from error
        except apsw.Error as error:
            raise unreadable(self.path, error) from error
        for sort, stored in rows:
            verify_key(self.path, partition, sort, stored)
        return [str(sort) for sort, _ in rows]

    def expired(self, now_ms: int, after: Record | None, limit: int) -> list[Record]:
        """Expired records without values and versions, ordered by expiry, after the record `after`.

        They come from an index and are not verified; the caller checks them before it removes them.
        """
        start = (-1, "", "") if after is None else (after.expires_at_ms, *after.key)
        try:
            rows: Any = self._read.execute(_EXPIRED, (now_ms, *start, limit)).fetchall()
        except UnicodeDecodeError as error:
            raise damaged_key(self.path, "of an expired record") from error
        except apsw.Error as error:
            raise unreadable(self.path, error) from error
        return [Record((partition, sort), b"", 0, expires) for partition, sort, expires in rows]

    def fold(
        self, rows: Sequence[Record], folded_seq: int | None = None, durable_seq: int | None = None
    ) -> None:
        """Write rows (an empty value deletes), the fold position, and the durable position of the
        journal.

        The rows are durable when `folded_seq` is written; until then the journal has them. After a
        power loss the table has the state of an earlier call. Raises `StorageFull` (nothing was
        changed) or `apsw.Error`.
        """
        puts = [row for row in rows if row.value]
        removals = [row.key for row in rows if not row.value]
        meta = self.meta
        if folded_seq is not None:
            meta = meta._replace(folded_seq=folded_seq, durable_seq=durable_seq or folded_seq)
        with self._with_space():
            durably = "NORMAL" if folded_seq is None else "FULL"
            self._fold.execute(f"PRAGMA synchronous = {durably}")
            with transaction(self._fold):
                self._put(puts)
                if removals:
                    self._fold.execute(_REMOVE, (json_text(removals),))
                if folded_seq is not None:
                    write_meta(self._fold, meta)
        self.meta = meta

    def note_journal(self, there: bool) -> None:
        """Store durably whether the table has a journal, so that a copy of the file without its
        journal is recognised. Raises the errors of `fold`.
        """
        if self.meta.journal == there:
            return
        meta = self.meta._replace(journal=there)
        with self._with_space():
            self._fold.execute("PRAGMA synchronous = FULL")
            with transaction(self._fold):
                write_meta(self._fold, meta)
        self.meta = meta
        self.checkpoint()

    @property
    def database_id(self) -> bytes:
        return self.meta.database_id

    @property
    def folded_seq(self) -> int:
        return self.meta.folded_seq

    @contextmanager
    def _with_space(self) -> Iterator[None]:
        try:
            yield
        except (apsw.FullError, apsw.IOError) as error:
            if not _finds_no_space(error):
                raise
            raise StorageFull(
                f"not enough disk space to fold the journal into {self.path}. Free disk space."
            ) from error

    def _put(self, rows: Sequence[Record]) -> None:
        start = 0
        for count in _ROWS_AT_ONCE:
            while len(rows) - start >= count:
                values: list[object] = []
                for row in rows[start : start + count]:
                    values += stored_row(row)
                self._fold.execute(_UPSERTS[count], values)
                start += count

    def checkpoint(self) -> None:
        """Copy SQLite's log into the file, as far as readers permit."""
        try:
            self._fold.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            pass  # another connection is doing it
        except (apsw.FullError, apsw.IOError) as error:
            if not _finds_no_space(error):
                raise
            raise StorageFull(f"not enough disk space for {self.path}. Free disk space.") from error

    def close(self) -> None:
        """Close both connections. The last one copies SQLite's log into the file; if that fails,
        the log stays and keeps its content.
        """
        for connection in (self._read, self._fold):
            try:
                connection.close()
            except apsw.Error:
                pass


def connect(path: str, *, vfs: str | None = None, flags: int | None = None) -> apsw.Connection:
    """Connect to an existing file, or by default create one, in WAL mode.

    A new file is readable only by its owner, since it contains messages and secrets. SQLite gives
    its logs the permissions of the file.
    """
    if flags is None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if vfs is None and path != ":memory:" and not os.path.lexists(path):
            make_private(path)
    connection = apsw.Connection(path, flags=flags, vfs=vfs)
    connection.set_busy_timeout(5_000)
    return connection


def make_private(path: str) -> None:
    """Create an empty file that only its owner may read. SQLite reports errors later."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        pass


def is_ours(connection: apsw.Connection, path: str) -> bool:
    """Whether the file has our schema. False if it is empty; `CannotOpen` if it is another
    database.
    """
    application_id = connection.pragma("application_id")
    if application_id == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").get == 0:
        return False
    if application_id != APPLICATION_ID:
        raise CannotOpen(
            f"{path} is an SQLite database, but not Onceward's. Name another file.",
            code="not_a_database",
        )
    if (found := connection.pragma("user_version")) != FORMAT:
        raise CannotOpen(
            f"{path} has the file format {found}, but this version of Onceward uses {FORMAT}. "
            "Start with a new database, or use the version that wrote it.",
            code="unsupported_format",
        )
    return True


def create_schema(connection: apsw.Connection, database_id: bytes) -> None:
    connection.pragma("journal_mode", "wal")
    with transaction(connection):
        connection.execute(_SCHEMA)
        write_meta(connection, Meta(database_id))
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", FORMAT)


class Meta(NamedTuple):
    """The metadata of a table and its journal."""

    database_id: bytes
    folded_seq: int = 0
    """The table contains all commits up to this one."""
    durable_seq: int = 0
    """The journal has been durable at least up to this commit."""
    journal: bool = False
    """Whether commits may be only in the journal: from opening to an orderly close."""

    def texts(self) -> dict[str, str]:
        found = {
            "database_id": self.database_id.hex(),
            "folded_seq": str(self.folded_seq),
            "durable_seq": str(self.durable_seq),
            "journal": "open" if self.journal else "closed",
        }
        return {**found, "checksum": meta_checksum(found)}


def write_meta(connection: apsw.Connection, meta: Meta) -> None:
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.texts().items())


def read_meta(connection: apsw.Connection, path: str) -> Meta:
    """Read and verify the metadata; raises `CannotOpen` if it is damaged."""
    try:
        rows: list[Any] = connection.execute("SELECT name, value FROM meta").fetchall()
        found: dict[str, str] = dict(rows)
        meta = Meta(
            bytes.fromhex(found["database_id"]),
            int(found["folded_seq"]),
            int(found["durable_seq"]),
            found["journal"] == "open",
        )
        if found != meta.texts():
            raise ValueError("its checksum is wrong")
        return meta
    except (apsw.SQLError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise CannotOpen(
            f"{path} is damaged: its table meta is invalid ({error!r}). Restore a backup.",
            code="damaged",
        ) from error


def verify_small(connection: apsw.Connection, path: str) -> bool:
    """Verify the pages of a small file during opening; return whether it was verified.

    Larger files are verified in the background. Raises `CannotOpen`.
    """
    pages, page_bytes = connection.pragma("page_count"), connection.pragma("page_size")
    if pages * page_bytes > limits.VERIFY_AT_OPEN_BYTES:
        return False
    if (problem := page_problem(connection)) is not None:
        raise damaged_pages(path, problem)
    return True


def page_problem(connection: apsw.Connection) -> str | None:
    """The first page error that SQLite finds; records may be missing then."""
    found = connection.execute("PRAGMA quick_check(1)").get
    return None if found == "ok" else str(found)


def journal_missing(path: str) -> CannotOpen:
    name = os.path.basename(path)
    return CannotOpen(
        f"the journal of {path} ({name}-log.*) is missing or truncated, so commits would be "
        f"lost. Put all files {name}* of the database beside each other, or restore a backup. To "
        "copy a database, use `onceward db backup`.",
        code="journal_missing",
    )


def damaged_pages(path: str, problem: str) -> CannotOpen:
    return CannotOpen(
        f"{path} is damaged ({problem}), so records may be missing. Run `onceward db check`, and "
        "restore a backup.",
        code="damaged",
    )


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Commit the block's statements, or roll them back on an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # With a full disk SQLite may have rolled back already, and ROLLBACK would fail.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def inspect_path(path: str) -> None:
    """Reject paths that cannot be an Onceward database, with a message and code for each reason."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise CannotOpen(f"{path} is a directory. Name a file in it.", code="is_a_directory")
    if not os.path.isdir(folder):
        raise CannotOpen(f"the folder {folder} does not exist. Create it.", code="no_such_file")
    if not os.path.exists(path):
        if not os.access(folder, os.W_OK):
            raise CannotOpen(
                f"the folder {folder} is not writable. Change its permissions.",
                code="read_only",
            )
        return
    # root may write any file, but a read-only file should stay unchanged.
    writable = os.stat(path).st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    if not writable or not os.access(path, os.W_OK):
        raise CannotOpen(
            f"{path} is not writable. Make it writable (chmod u+w), or copy it.", code="read_only"
        )
    if os.path.exists(f"{path}-journal"):
        return  # an interrupted creation, which SQLite rolls back
    if first_bytes(path) not in (b"", b"SQLite format 3\x00"):
        raise CannotOpen(f"{path} is not a database. Name another file.", code="not_a_database")


def first_bytes(path: str) -> bytes:
    """The first 16 bytes of the file, or nothing if it is empty.

    They are read by SQLite's VFS. Closing another descriptor would release all locks of this
    process on the file, including those of another engine. SQLite delays closing while it needs
    them.
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
    """Translate SQLite's errors during opening."""
    try:
        yield
    except apsw.NotADBError as error:
        raise CannotOpen(
            f"{path} is not a database: {error}. Name another file.", code="not_a_database"
        ) from error
    except apsw.CorruptError as error:
        raise CannotOpen(
            f"{path} is damaged: {error}. Restore a backup.", code="damaged"
        ) from error
    except apsw.ReadOnlyError as error:
        raise CannotOpen(
            f"{path} is not writable: {error}. Change its permissions.", code="read_only"
        ) from error
    except apsw.Error as error:
        if _finds_no_space(error) or free_bytes(path) < limits.SEGMENT_BYTES_FIRST:
            raise CannotOpen(
                f"not enough disk space to open {path}. Free disk space and try again.",
                code="storage_full",
            ) from error
        raise CannotOpen(
            f"cannot open {path}: {error}. Check the disk and the permissions.",
            code="storage_failed",
        ) from error


def _finds_no_space(error: apsw.Error) -> bool:
    """Whether the disk is full. SQLite reports an I/O error if there is no space for the shared
    memory file of its log.
    """
    told = getattr(error, "extendedresult", None)
    return isinstance(error, apsw.FullError) or told == apsw.SQLITE_IOERR_SHMSIZE


def free_bytes(path: str) -> int:
    """The free disk space at the path."""
    free = os.statvfs(os.path.dirname(path) or ".")
    return free.f_bavail * free.f_frsize


def unreadable(path: str, error: apsw.Error) -> Unavailable:
    """The error for a failed read, which changed nothing."""
    message = f"cannot read {path} ({error}). Nothing was changed."
    # The statements are correct, so an SQL error means that the schema is damaged.
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.SQLError):
        return Damaged(message)
    return Unavailable(message, code="storage_failed")


def json_text(rows: Sequence[object]) -> str:
    return msgspec.json.encode(rows).decode()


def stored_row(record: Record) -> tuple[object, ...]:
    """The columns of a record in the table."""
    (partition, sort), value = record.key, record.value
    version, expires_at_ms = record.version, record.expires_at_ms
    sum_ = checksum(partition, sort, value, version, expires_at_ms)
    return partition, sort, sum_, value.decode(), version, expires_at_ms


def _in_bytes(statement: str) -> str:
    return statement.replace(_AS_TEXT, _AS_BYTES)


def _in_text(row: Sequence[Any]) -> tuple[Any, ...]:
    """Decode a row that was read as bytes, which may not be valid text."""
    return tuple(
        one.decode("utf-8", "surrogateescape") if type(one) is bytes else one for one in row
    )
