"""Integrity checks of a database file, for `onceward db check`.

It reads a snapshot of all data, verifies the checksum of each record, and changes nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain, islice
from typing import Any, NamedTuple

import apsw
import msgspec

from onceward import limits
from onceward.engine.base import Record, key_bytes
from onceward.engine.invariants import RULES, Rule
from onceward.engine.sqlite.checksum import checksum
from onceward.engine.sqlite.reader import Progress, Snapshot, read
from onceward.engine.sqlite.table import connect, create_schema
from onceward.errors import BadInput
from onceward.keys import Key, kind_of, shown_key

# As bytes, since damaged text may not be valid UTF-8.
_ROWS = """
SELECT CAST(partition AS BLOB), CAST(sort AS BLOB), CAST(value AS BLOB), version, checksum,
    expires_at_ms
FROM record
"""
_SCHEMA = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'"
# Uses only the index.
_EXPIRING = """
SELECT count(*) FROM record INDEXED BY record_expiry WHERE expires_at_ms IS NOT NULL
"""
_PROGRESS_RECORDS = 20_000

_json = msgspec.json.Decoder()


class Report(NamedTuple):
    """The result of a check."""

    records: int
    last_seq: int
    problems: list[str]
    more: bool
    """Whether there are more problems than listed."""


def check(path: str, rules: Sequence[Rule] = RULES, progress: Progress = lambda *_: None) -> Report:
    """Check a database. Raises the errors of `reader.read` if it cannot be read at all."""
    return read(path, lambda snapshot: _Check(snapshot, rules, progress).run(), lenient=True)


class _Check:
    def __init__(self, snapshot: Snapshot, rules: Sequence[Rule], progress: Progress) -> None:
        self._snapshot = snapshot
        self._progress = progress
        self._rules: dict[str, list[Rule]] = defaultdict(list)
        for rule in rules:
            self._rules[rule.kind].append(rule)
        self._records = 0

    def run(self) -> Report:
        found = chain(self._schema(), self._integrity(), self._journal(), self._table())
        problems = list(islice(found, limits.CHECK_PROBLEMS_MAX))
        more = next(found, None) is not None
        return Report(self._records, self._snapshot.last_seq, problems, more)

    def _schema(self) -> Iterator[str]:
        with closing(connect(":memory:")) as model:
            create_schema(model, b"")
            expected = _schema(model)
        found = _schema(self._snapshot.connection)
        for name in sorted(expected.keys() - found.keys()):
            yield f"schema: {name} is missing"
        for name in sorted(found.keys() - expected.keys()):
            yield f"schema: {name} is unexpected"
        for name in sorted(expected.keys() & found.keys()):
            if found[name] != expected[name]:
                yield f"schema: {name} differs from its definition"

    def _integrity(self) -> Iterator[str]:
        """Run SQLite's check of pages, types and indexes."""
        try:
            with self._snapshot.reporting(self._progress, "checking pages and indexes"):
                rows = self._snapshot.connection.execute(
                    f"PRAGMA integrity_check({limits.CHECK_PROBLEMS_MAX})"
                ).fetchall()
        except apsw.Error as error:
            yield f"pages: {error}"
            return
        for (text,) in rows:
            if text != "ok":
                yield from (f"pages: {line}" for line in str(text).splitlines())

    def _journal(self) -> Iterator[str]:
        snapshot = self._snapshot
        yield from (f"journal: {problem}" for problem in snapshot.problems)
        for frame in snapshot.frames:
            for seq, commit in enumerate(frame.commits, frame.first_seq):
                for row in commit:
                    if row.version != seq:
                        yield f"journal: {_name(row.key)} has version {row.version}, not {seq}"
                    if not row.value:
                        yield from _key_problems(row.key)
        for row in snapshot.rows.values():
            if row.value:
                yield from self._record(row)

    def _table(self) -> Iterator[str]:
        snapshot = self._snapshot
        try:
            with snapshot.reporting(self._progress, "counting records"):
                total = int(str(snapshot.connection.execute("SELECT count(*) FROM record").get))
            expiring = 0
            for number, row in enumerate(snapshot.connection.execute(_ROWS)):
                if number % _PROGRESS_RECORDS == 0:
                    self._progress("checking records", number, total)
                expiring += row[-1] is not None
                yield from self._table_row(*row)
            if "record_expiry" in _schema(snapshot.connection):
                yield from self._expiry_index(expiring)
        except apsw.Error as error:
            yield f"table: {error}"

    def _expiry_index(self, expiring: int) -> Iterator[str]:
        """SQLite's integrity check finds missing entries of such an index, but no surplus ones."""
        indexed = int(str(self._snapshot.connection.execute(_EXPIRING).get))
        if indexed > expiring:
            yield f"index record_expiry: {indexed} entries, but {expiring} records expire"

    def _table_row(
        self, partition: Any, sort: Any, value: Any, version: Any, stored: Any, expires_at_ms: Any
    ) -> Iterator[str]:
        if None in (partition, sort, value) or not isinstance(version, int):
            yield f"record {partition!r} {sort!r}: a column has a wrong type"
            return
        try:
            key = (partition.decode(), sort.decode())
        except UnicodeDecodeError:
            yield f"record {partition!r} {sort!r}: the key is not UTF-8"
            return
        if stored != checksum(*key, value, version, expires_at_ms):
            yield f"record {_name(key)}: its checksum is wrong"
        fresh = self._snapshot.rows.get(key)
        fresh_seq = 0 if fresh is None else int(fresh.version)
        if not 0 < version <= self._snapshot.last_seq:
            yield (
                f"record {_name(key)}: version {version}, "
                f"but the last commit is {self._snapshot.last_seq}"
            )
        elif version > self._snapshot.folded_seq and fresh_seq < version:
            # An unfinished fold writes rows that are also in the journal.
            yield f"record {_name(key)}: version {version} is not in the journal"
        if fresh is None:
            yield from self._record(Record(key, value, version, expires_at_ms))

    def _record(self, record: Record) -> Iterator[str]:
        """Check a record that a read would return."""
        self._records += 1
        name = _name(record.key)
        yield from _key_problems(record.key)
        if len(record.value) > limits.VALUE_BYTES_MAX:
            yield f"record {name}: the value has {len(record.value)} bytes"
        try:
            _json.decode(record.value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            yield f"record {name}: the value is not JSON: {error}"
            return  # rules assume valid values
        for rule in self._rules.get(kind_of(record.key[0]), ()):
            try:
                problems = list(rule.judge(record, self._snapshot.get))
            except Exception as error:  # damaged data may raise any error
                problems = [f"its rule failed: {error!r}"]
            for problem in problems:
                yield f"record {name}: {problem}"


def _schema(connection: apsw.Connection) -> dict[str, list[str]]:
    """The words of each schema statement, by name."""
    return {str(name): str(sql).split() for name, sql in connection.execute(_SCHEMA)}


def _key_problems(key: Key) -> Iterator[str]:
    try:
        key_bytes(key)
    except BadInput as error:
        yield f"record {_name(key)}: {error.message}"


def _name(key: Key) -> str:
    """A readable key on one line."""
    partition, sort = key = shown_key(key)
    return f"{partition} {sort}" if f"{partition}{sort}".isprintable() else repr(key)
