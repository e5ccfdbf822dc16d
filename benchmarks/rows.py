"""A baseline: the same contract as rows in SQLite, with the same group commit.

All commits of one turn of the event loop are one SQLite transaction: expectations are looked up,
rows written and removed one by one, then one COMMIT with one sync. It uses WAL mode,
synchronous=FULL and prepared statements. Statements and sync run in the event loop's thread, which
is the fastest way on a fast disk.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from onceward.engine.base import ABSENT, ANY, Put, Record, Version, Write
from onceward.engine.sqlite.table import connect, create_schema, is_ours
from onceward.errors import Conflict
from onceward.keys import Key

_GET = "SELECT value, version, expires_at_ms FROM record WHERE partition = ? AND sort = ?"
_PUT = "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM record WHERE partition = ? AND sort = ?"


class RowEngine:
    """The part of an engine that the benchmark uses."""

    def __init__(self, path: str, cache_bytes: int) -> None:
        self._path = path
        self._cache_bytes = cache_bytes
        self._queue: list[tuple[Sequence[Write], asyncio.Future[Any]]] = []

    async def open(self) -> "RowEngine":
        self._loop = asyncio.get_running_loop()
        self._db = connect(self._path)
        self._db.pragma("synchronous", "full")
        self._db.pragma("cache_size", -self._cache_bytes // 1024)
        if not is_ours(self._db, self._path):
            create_schema(self._db, bytes(16))
        self._cursor = self._db.cursor()
        self._seq = self._db.execute("SELECT coalesce(max(version), 0) FROM record").get
        return self

    async def close(self) -> None:
        self._db.close()

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        return [self._row(key) for key in keys]

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        future = self._loop.create_future()
        if not self._queue:
            self._loop.call_soon(self._flush)
        self._queue.append((writes, future))
        return await future

    def _flush(self) -> None:
        queue, self._queue = self._queue, []
        outcomes = []
        self._cursor.execute("BEGIN IMMEDIATE")
        for writes, future in queue:
            outcomes.append((future, self._apply(writes)))
        self._cursor.execute("COMMIT")
        for future, seq in outcomes:
            if seq is None:
                future.set_exception(Conflict("changed meanwhile"))
            else:
                future.set_result(seq)

    def _apply(self, writes: Sequence[Write]) -> int | None:
        for write in writes:
            if write.expect is not ANY:
                row = self._row(write.key)
                if (ABSENT if row is None else row.version) != write.expect:
                    return None
        self._seq += 1
        execute = self._cursor.execute
        for write in writes:
            if type(write) is Put:
                execute(_PUT, (*write.key, write.value.decode(), self._seq, write.expires_at_ms))
            else:
                execute(_DELETE, write.key)
        return self._seq

    def _row(self, key: Key) -> Record | None:
        row = self._cursor.execute(_GET, key).fetchone()
        return None if row is None else Record(key, row[0].encode(), row[1], row[2])


def fill(path: str, partitions: Sequence[str], count: int, value: str) -> None:
    """A database with `count` records, evenly over the partitions, in the order of keys."""
    db = connect(path)
    db.pragma("synchronous", "off")
    db.pragma("cache_size", -512 * 1024)
    if not is_ours(db, path):
        create_schema(db, bytes(range(16)))
    each = count // len(partitions)
    for partition in partitions:
        with db:
            db.execute(
                "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1) "
                "INSERT INTO record SELECT ?2, printf('%016d', i), ?3, 0, NULL FROM n",
                (each, partition, value),
            )
    db.pragma("synchronous", "full")
    try:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        db.close()
