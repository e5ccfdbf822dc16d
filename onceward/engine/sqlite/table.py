"""The SQLite file: its schema, and the statements for reads and folds.

Readable by anyone with `sqlite3`; it lags behind by what is still in the journal.
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
# Many rows in one statement, so that SQLite sorts them in and writes them in a single call without
# the interpreter's lock: the event loop goes on. The sizes are few, so that each is prepared once.
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
# The row at a place in the order of keys, whatever partition it is of.
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
# Four statements, since a bound that might be missing would not bound the search.
_RANGES = {
    (bounded, reverse): _RANGE.format(
        end="AND sort < ?3" if bounded else "", order="DESC" if reverse else "ASC"
    )
    for bounded in (False, True)
    for reverse in (False, True)
}
# Text that is not UTF-8 any more cannot be read as text.
_AS_TEXT = "SELECT partition, sort, checksum, value"
_AS_BYTES = """
SELECT CAST(partition AS BLOB), CAST(sort AS BLOB), checksum, CAST(value AS BLOB)
"""
_SORTS = """
SELECT sort, checksum FROM record WHERE partition = ?1 AND sort > ?2 ORDER BY sort LIMIT ?3
"""
# Answered from the index alone.
_EXPIRED = """
SELECT partition, sort, expires_at_ms FROM record
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
                self.meta = read_meta(self._fold, path)
                self.pages_verified = verify_small(self._fold, path)
                self._read = connect(path, vfs=vfs)
                self._read.execute("PRAGMA query_only = 1")
            except BaseException:
                self._fold.close()
                raise
        self._seek = self._read.cursor()
        self.skipped = 0
        """How many rows with a damaged key were left out of ranges."""
        self.on_damaged: Callable[[Key, str], None] = lambda key, what: None
        """Called with the key of each damaged record that a read finds, as it is stored."""

    def seek(self, key: Key) -> Record | None:
        """The record under the key or, if there is none, the next one of its partition. Raises
        `Damaged` if a record beside the place of the key may be the one that is looked for."""
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
        """The records in [start, end) in order; close the iterator if not used up.

        Rows whose key is damaged are skipped or raise `Damaged`, also those beside the range:
        their right place may be in it.
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
            # Searches end at the first row that is out of bounds: it may be there by mistake.
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
        """Verify the row beside a place in the order of keys."""
        try:
            row = self._first(statement or (_FROM if reverse else _BEFORE), key)
            if row is not None:
                self._verified(row)
        except Damaged:
            if not skip_damaged:
                raise
            self.skipped += 1

    def _first(self, statement: str, key: Key) -> tuple[Any, ...] | None:
        # `get` uses the statement up: one left standing on its row would keep its view of the
        # table for all later reads, and SQLite's log from starting over.
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
        """The rows in [start, end). If one of them is no text, they are read as bytes."""
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
                # From the start: a search for the middle could go past a damaged key.
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
        """The next few sort keys of a partition, in order."""
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
        """Expired records, without values and versions, by expiry, from behind `after` on. They
        come from an index and are not verified: whoever removes them looks at them first."""
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
        """Write rows (an empty value removes), and how far the journal is folded, and up to
        where it is durable.

        Durable once it says how far: until then the journal has them, and after a loss of power
        it is as after one of the calls before. Raises `StorageFull` (nothing was changed) or
        `apsw.Error`.
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
        """Record durably whether a journal belongs to the table: in the file itself, where a copy
        of that file alone has it. Raises as `fold` does."""
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
            raise StorageFull(f"no space is left to fold the journal into {self.path}") from error

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
    if (found := connection.pragma("user_version")) != FORMAT:
        raise CannotOpen(
            f"{path} has the file format {found}, and this version of Onceward uses {FORMAT}. "
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
    """What the table knows of itself and of its journal."""

    database_id: bytes
    folded_seq: int = 0
    """Up to which commit the table has everything."""
    durable_seq: int = 0
    """Up to which commit the journal has been durable, at least."""
    journal: bool = False
    """Whether commits may be in the journal alone: from the opening to an orderly close."""

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
    """What the table knows of itself; raises `CannotOpen` if that does not verify."""
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
            f"{path} is damaged: its table meta is not as it should be ({error!r}). Restore a "
            "backup.",
            code="damaged",
        ) from error


def verify_small(connection: apsw.Connection, path: str) -> bool:
    """Verify the pages of a file that is small enough to do that while it is opened; whether it
    is. Raises `CannotOpen`."""
    pages, page_bytes = connection.pragma("page_count"), connection.pragma("page_size")
    if pages * page_bytes > limits.VERIFY_AT_OPEN_BYTES:
        return False
    if (problem := page_problem(connection)) is not None:
        raise damaged_pages(path, problem)
    return True


def page_problem(connection: apsw.Connection) -> str | None:
    """What SQLite finds wrong with the pages of the file: records may be missing then."""
    found = connection.execute("PRAGMA quick_check(1)").get
    return None if found == "ok" else str(found)


def journal_missing(path: str) -> CannotOpen:
    name = os.path.basename(path)
    return CannotOpen(
        f"the journal of {path} ({name}-log.*) is missing or lacks its end, so commits would be "
        f"lost. Put all files {name}* of the database beside each other, or restore a backup. To "
        "copy a database, use `onceward backup`.",
        code="journal_missing",
    )


def damaged_pages(path: str, problem: str) -> CannotOpen:
    return CannotOpen(
        f"{path} is damaged ({problem}), so records may be missing. Run `onceward check`, and "
        "restore a backup.",
        code="damaged",
    )


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
    message = f"{path} could not be read ({error}). Nothing was changed by this call."
    # Our statements are right: if SQLite does not understand them, the schema is damaged.
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
    """A row that was read as bytes, which may be no text."""
    return tuple(
        one.decode("utf-8", "surrogateescape") if type(one) is bytes else one for one in row
    )
