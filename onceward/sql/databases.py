"""Databases of applications, by kind: how a transaction begins and commits.

A database is an engine, a session factory, a pool, a connection or a URL.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from onceward import limits
from onceward.errors import BadInput
from onceward.redaction import redact_url
from onceward.sql.connections import class_names


class Database(NamedTuple):
    """A kind of databases."""

    classes: frozenset[str]
    """Full names of the class or a base class."""
    asynchronous: bool
    begin: Callable[[Any], Any]
    """Returns a context manager of a connection. Its transaction is committed at the end, or rolled
    back after an error."""
    threaded: bool = True
    """Whether a synchronous transaction can run in another thread."""


def database_of(database: Any) -> Database:
    """The kind of a database. Raises `BadInput`."""
    if isinstance(database, str):
        scheme = urlsplit(database).scheme
        if scheme in ("postgresql", "postgres"):
            address_of(database)
            return Database(frozenset(), True, _postgres_url)
        if scheme == "sqlite" and len(urlsplit(database).path) > 1 and not urlsplit(database).query:
            return Database(frozenset(), False, _sqlite_url)
        raise BadInput(
            f"unsupported database URL {redact_url(database)!r}; use sqlite:///file.db or "
            "postgresql://…",
            code="bad_engine_url",
        )
    names = class_names(database)
    for kind in _DATABASES:
        if names & kind.classes:
            return kind
    raise BadInput(
        f"a {type(database).__name__} is no supported database; use an engine, session factory or "
        "connection of SQLAlchemy, django.db.connection, a pool or connection of psycopg or "
        "asyncpg, a connection of sqlite3 or aiosqlite, or a URL"
    )


_PATH: Final = (
    "SELECT to_regproc('{schema}.onceward_step_begin') IS NOT NULL, set_config('search_path', "
    "concat_ws(', ', '{schema}', nullif(current_setting('search_path'), '')), true)"
)


def address_of(url: str, schema: str = "") -> tuple[str, str]:
    """A PostgreSQL URL for its driver, and the schema with the tables of Onceward; empty: that of
    the search path. Raises `BadInput`."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = query.pop("schema", schema)
    if schema and not (schema.isascii() and schema.isidentifier() and schema.islower()):
        raise BadInput(
            f"invalid schema name {schema[:100]!r}: use lower-case letters, digits and _",
            code="bad_engine_url",
        )
    return parts._replace(query=urlencode(query)).geturl(), schema


def _must_be_idle(busy: bool) -> None:
    if busy:
        raise BadInput(
            "the connection is in a transaction: a SQL step needs a separate one. Commit or roll "
            "back first, or pass an engine or a pool."
        )


@contextmanager
def _sqlite(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    _must_be_idle(connection.in_transaction)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")  # `commit()` has no effect in the mode `autocommit=True`
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def open_sqlite(path: str, *, create: bool = False, **options: Any) -> sqlite3.Connection:
    """Open an SQLite database; unlike the driver, only an existing one by default."""
    uri = f"file:{path.replace('%', '%25').replace('?', '%3f').replace('#', '%23')}"
    mode = "rwc" if create else "rw"
    found: sqlite3.Connection = sqlite3.connect(
        f"{uri}?mode={mode}", uri=True, timeout=limits.OUTBOX_CONNECT_S, **options
    )
    return found


@contextmanager
def _sqlite_url(url: str) -> Iterator[sqlite3.Connection]:
    path = unquote(urlsplit(url).path[1:])
    with closing(open_sqlite(path)) as connection, _sqlite(connection):
        yield connection


@asynccontextmanager
async def _aiosqlite(connection: Any) -> AsyncIterator[Any]:
    _must_be_idle(connection.in_transaction)
    try:
        await connection.execute("BEGIN IMMEDIATE")
        yield connection
        await connection.execute("COMMIT")  # as above
    except BaseException:
        # A cancelled call takes effect in the thread of the connection, before the next one.
        await connection.rollback()
        if connection.in_transaction:
            await connection.execute("ROLLBACK")
        raise


@contextmanager
def _psycopg(connection: Any) -> Iterator[Any]:
    _must_be_idle(connection.info.transaction_status != 0)
    with connection.transaction():
        yield connection


@asynccontextmanager
async def _psycopg_async(connection: Any) -> AsyncIterator[Any]:
    _must_be_idle(connection.info.transaction_status != 0)
    async with connection.transaction():
        yield connection


@contextmanager
def _psycopg_pool(pool: Any) -> Iterator[Any]:
    with pool.connection() as connection, _psycopg(connection):
        yield connection


@asynccontextmanager
async def _psycopg_pool_async(pool: Any) -> AsyncIterator[Any]:
    async with pool.connection() as connection, _psycopg_async(connection):
        yield connection


@asynccontextmanager
async def _asyncpg(connection: Any) -> AsyncIterator[Any]:
    _must_be_idle(connection.is_in_transaction())
    async with connection.transaction():
        yield connection


@asynccontextmanager
async def _asyncpg_pool(pool: Any) -> AsyncIterator[Any]:
    async with pool.acquire() as connection, _asyncpg(connection):
        yield connection


@asynccontextmanager
async def _postgres_url(url: str) -> AsyncIterator[Any]:
    dsn, schema = address_of(url)
    connection = await import_module("asyncpg").connect(
        dsn,
        timeout=limits.OUTBOX_CONNECT_S,
        statement_cache_size=0,  # for poolers in transaction mode
    )
    try:
        async with connection.transaction():
            if schema and not await connection.fetchval(_PATH.format(schema=schema)):
                raise BadInput(
                    f"the schema {schema!r} has no tables for SQL steps; run `onceward outbox "
                    "migrate URL` with this URL"
                )
            yield connection
    finally:
        await connection.close(timeout=limits.OUTBOX_CONNECT_S)


@contextmanager
def _sqlalchemy(connection: Any) -> Iterator[Any]:
    _must_be_idle(connection.in_transaction())
    with connection.begin():
        yield connection


@asynccontextmanager
async def _sqlalchemy_async(connection: Any) -> AsyncIterator[Any]:
    _must_be_idle(connection.in_transaction())
    async with connection.begin():
        yield connection


@contextmanager
def _django(connection: Any) -> Iterator[Any]:
    # Connections belong to threads: this is the one of the thread that runs the step.
    alias = connection.alias
    own = import_module("django.db").connections[alias]
    own.close_if_unusable_or_obsolete()
    with import_module("django.db.transaction").atomic(using=alias, durable=True):
        yield own


def _begin(database: Any) -> Any:
    return database.begin()


_ALCHEMY: Final = "sqlalchemy.ext.asyncio"
_DATABASES: Final = (
    Database(frozenset({"sqlite3.Connection"}), False, _sqlite, threaded=False),
    Database(frozenset({"aiosqlite.core.Connection"}), True, _aiosqlite),
    Database(frozenset({"psycopg.Connection"}), False, _psycopg),
    Database(frozenset({"psycopg.AsyncConnection"}), True, _psycopg_async),
    Database(frozenset({"psycopg_pool.pool.ConnectionPool"}), False, _psycopg_pool),
    Database(frozenset({"psycopg_pool.pool_async.AsyncConnectionPool"}), True, _psycopg_pool_async),
    Database(frozenset({"asyncpg.pool.Pool"}), True, _asyncpg_pool),
    Database(
        frozenset({"asyncpg.connection.Connection", "asyncpg.pool.PoolConnectionProxy"}),
        True,
        _asyncpg,
    ),
    Database(
        frozenset({"sqlalchemy.engine.base.Engine", "sqlalchemy.orm.session.sessionmaker"}),
        False,
        _begin,
    ),
    Database(
        frozenset({f"{_ALCHEMY}.engine.AsyncEngine", f"{_ALCHEMY}.session.async_sessionmaker"}),
        True,
        _begin,
    ),
    Database(
        frozenset({"sqlalchemy.engine.base.Connection", "sqlalchemy.orm.session.Session"}),
        False,
        _sqlalchemy,
    ),
    Database(
        frozenset({f"{_ALCHEMY}.engine.AsyncConnection", f"{_ALCHEMY}.session.AsyncSession"}),
        True,
        _sqlalchemy_async,
    ),
    Database(
        frozenset(
            {
                "django.utils.connection.ConnectionProxy",
                "django.db.backends.base.base.BaseDatabaseWrapper",
            }
        ),
        False,
        _django,
    ),
)
