"""Databases with an outbox, as a node reads them."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol, TypeVar, runtime_checkable
from urllib.parse import unquote, urlsplit

from onceward import limits
from onceward.engine.base import Engine
from onceward.errors import BadInput, Unavailable
from onceward.extras import missing
from onceward.redaction import redact, redact_url
from onceward.sql.connections import lacks_tables
from onceward.sql.databases import address_of, open_sqlite
from onceward.sql.messages import Row
from onceward.sql.schema import statements

T = TypeVar("T")

_TEXT_MAX: Final = limits.OUTBOX_TEXT_MAX + 1
_NAME_MAX: Final = limits.DEDUPE_KEY_BYTES_MAX + 1
"""Longer texts are cut, so that rows of any size fit into memory. They are refused later."""

Removal = tuple[int, str, str | None]
"""A row to delete: id and message, and the reason if it is moved to the failed ones."""


@runtime_checkable
class Source(Protocol):
    """A database with an outbox. Methods raise `Unavailable` if the database cannot be used."""

    name: str
    """Host and path, without credentials."""

    async def read(self, without: Collection[str], limit: int) -> list[Row]:
        """The first rows by id, without those of some queues."""

    async def remove(self, rows: Sequence[Removal]) -> None:
        """Delete rows, given as id, message and reason. A row with a reason is moved to the failed
        ones. A row counts only if id and message match. Idempotent."""

    async def migrate(self, *, notify: bool) -> None:
        """Create the tables, or bring them up to date."""

    async def close(self) -> None:
        """Close the connection. It is opened again when needed."""


def source_of(url: str, woken: Callable[[], None] | None = None) -> Source:
    """The source for a database URL. `woken` is called on notifications. Raises `BadInput`."""
    if not isinstance(url, str):
        raise BadInput(f"the URL of an outbox must be text, not {type(url).__name__}")
    parts = urlsplit(url)
    if parts.scheme in ("postgresql", "postgres"):
        return PostgresSource(url, woken)
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1 and not parts.query:
        if woken is not None:
            raise BadInput("SQLite has no NOTIFY; omit `notify`")
        return SqliteSource(unquote(parts.path[1:]))
    raise BadInput(
        f"unsupported database URL {redact_url(url)!r} for an outbox; use sqlite:///file.db, "
        "sqlite:////var/lib/file.db or postgresql://…",
        code="bad_engine_url",
    )


# `substr` alone would cut text at a NUL character.
_LITE_NAME: Final = (
    f"CASE WHEN length(CAST({{0}} AS BLOB)) > {_NAME_MAX} THEN substr({{0}}, 1, {_NAME_MAX}) "
    "ELSE {0} END"
)


class SqliteSource:
    """An SQLite database, used in a separate thread: its writers wait for each other."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.name = self.path
        self._thread = ThreadPoolExecutor(1, "onceward-outbox")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    async def read(self, without: Collection[str], limit: int) -> list[Row]:
        names = ", ".join("?" * len(without))
        queue, key, order_key = (
            _LITE_NAME.format(column) for column in ("queue", "key", "order_key")
        )
        query = (
            f"SELECT id, CAST(message AS BLOB), {queue}, "  # noqa: S608
            f"substr(CAST(body AS TEXT), 1, {_TEXT_MAX}), {key}, {order_key}, "
            f"substr(CAST(options AS TEXT), 1, {_TEXT_MAX}), created_ms "
            f"FROM onceward_outbox WHERE queue NOT IN ({names}) ORDER BY id LIMIT ?"
        )
        return await self._run(
            lambda use: [
                Row(id_, message.decode(errors="surrogateescape"), *row)
                for id_, message, *row in use.execute(query, [*without, limit])
            ]
        )

    async def remove(self, rows: Sequence[Removal]) -> None:
        # Ids that are no text can be deleted as well.
        raw = [(id_, message.encode(errors="surrogateescape")) for id_, message, _ in rows]
        reasons = [row[2] for row in rows]

        def write(use: sqlite3.Connection) -> None:
            with use:
                use.execute("BEGIN IMMEDIATE")
                use.executemany(
                    "INSERT OR REPLACE INTO onceward_outbox_failed "
                    "(message, queue, body, key, order_key, options, created_ms, reason) "
                    "SELECT message, queue, body, key, order_key, options, created_ms, ? "
                    "FROM onceward_outbox WHERE id = ? AND CAST(message AS BLOB) = ?",
                    [(why, *row) for why, row in zip(reasons, raw, strict=True) if why is not None],
                )
                use.executemany(
                    "DELETE FROM onceward_outbox WHERE id = ? AND CAST(message AS BLOB) = ?", raw
                )

        await self._run(write)

    async def migrate(self, *, notify: bool) -> None:
        script = "\n\n".join(statements("sqlite", notify=notify))
        await self._run(lambda use: use.executescript(f"BEGIN;\n{script}\nCOMMIT;"), create=True)

    async def close(self) -> None:
        def close() -> None:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

        await asyncio.get_running_loop().run_in_executor(self._thread, close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T], *, create: bool = False) -> T:
        def run() -> T:
            try:
                if self._connection is not None and self._file != _file(self.path):
                    # Replaced, as by a restored copy: the open file has no name.
                    self._connection.close()
                    self._connection = None
                if self._connection is None:
                    self._connection = self._open(create)
                    self._file = _file(self.path)
                return work(self._connection)
            except sqlite3.Error as error:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                raise Unavailable(
                    f"the outbox in {self.name} cannot be used: {error}{_advice(error)}"
                ) from error

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _open(self, create: bool) -> sqlite3.Connection:
        connection = open_sqlite(self.path, create=create, isolation_level=None)
        # Text that is not UTF-8 fails its row, not all of them.
        connection.text_factory = lambda text: text.decode(errors="replace")
        return connection


def _file(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_READ: Final = """
SELECT id, message::text, left(queue, {name_max}), left(body::text, {text_max}),
    left(key, {name_max}), left(order_key, {name_max}),
    left(options::text, {text_max}),
    CASE WHEN isfinite(created_at) THEN (extract(epoch FROM created_at) * 1000)::bigint ELSE 0 END
FROM {schema}onceward_outbox WHERE queue <> ALL ($1::text[]) ORDER BY id LIMIT $2
"""
_REMOVE: Final = """
WITH gone AS (
    DELETE FROM {schema}onceward_outbox AS o
    USING unnest($1::bigint[], $2::uuid[], $3::text[]) AS d(id, message, reason)
    WHERE o.id = d.id AND o.message = d.message
    RETURNING o.message, o.queue, o.body, o.key, o.order_key, o.options, o.created_at, d.reason
)
INSERT INTO {schema}onceward_outbox_failed
    (message, queue, body, key, order_key, options, created_at, reason)
SELECT DISTINCT ON (message) * FROM gone WHERE reason IS NOT NULL
ON CONFLICT (message) DO UPDATE SET reason = excluded.reason, failed_at = clock_timestamp()
"""


class PostgresSource:
    """A PostgreSQL database, used over one connection. Poolers in transaction mode work, without
    notifications."""

    def __init__(
        self, url: str, woken: Callable[[], None] | None = None, *, schema: str = ""
    ) -> None:
        """`schema` is the default for URLs without one; empty: the search path of the session."""
        parts = urlsplit(url)
        self._dsn, schema = address_of(url, schema)
        self._schema = f"{schema}." if schema else ""
        self._read = _READ.format(schema=self._schema, text_max=_TEXT_MAX, name_max=_NAME_MAX)
        self.name = f"{parts.netloc.rpartition('@')[2]}{parts.path}{schema and f' {schema}'}"
        self._woken = woken
        self._connection: Any = None
        try:
            import asyncpg  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            if (needed := missing(error)) is None:
                raise
            raise BadInput(f"postgresql:// needs {needed}", code="bad_engine_url") from error
        self._driver = asyncpg

    async def read(self, without: Collection[str], limit: int) -> list[Row]:
        rows = await self._run("fetch", self._read, list(without), limit)
        return [Row(*row) for row in rows]

    async def remove(self, rows: Sequence[Removal]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        await self._run("execute", _REMOVE.format(schema=self._schema), *columns)

    async def migrate(self, *, notify: bool) -> None:
        begin = f"SET LOCAL search_path = {self._schema[:-1]};\n" if self._schema else ""
        script = "\n\n".join(statements("postgresql", notify=notify))
        await self._run("execute", f"BEGIN;\n{begin}{script}\nCOMMIT;")

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def _run(self, method: str, *arguments: Any) -> Any:
        try:
            async with asyncio.timeout(limits.OUTBOX_ANSWER_S):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._connect()
                return await getattr(self._connection, method)(*arguments)
        except (
            *(self._driver.PostgresError, self._driver.InterfaceError, OSError, TimeoutError),
            self._driver.InternalClientError,
        ) as error:
            await self.close()
            reason = redact(str(error)) or type(error).__name__
            raise Unavailable(
                f"the outbox in {self.name} cannot be used: {reason}{_advice(error)}"
            ) from error
        except BaseException:
            await self.close()  # cancelled during a statement: the connection cannot be used again
            raise

    async def _connect(self) -> Any:
        connection = await self._driver.connect(
            self._dsn,
            timeout=limits.OUTBOX_CONNECT_S,
            statement_cache_size=0,  # for poolers in transaction mode
        )
        if self._woken is not None:
            await connection.add_listener("onceward_outbox", partial(_wake, self._woken))
            self._woken()  # for messages before the listener
        return connection


class OwnSource(PostgresSource):
    """The outbox in Onceward's own database, used over the connections of its engine."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.outbox_url, schema="onceward")
        self._engine = engine

    async def _run(self, method: str, *arguments: Any) -> Any:
        return await self._engine.ask_sql(*arguments)


def _wake(woken: Callable[[], None], *notification: Any) -> None:
    woken()


def _advice(error: BaseException) -> str:
    return ". Run `onceward outbox migrate URL`" if lacks_tables(error) else ""
