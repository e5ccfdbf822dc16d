"""Connections of applications, by kind: how each one runs a statement.

Statements have `?` for parameters. Rows are tuples, regardless of the application's settings.
Drivers are found by the names of their classes, so none is imported.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from onceward.errors import BadInput
from onceward.sql.schema import DIALECTS

Rows = list[Any]


class Kind(NamedTuple):
    """A kind of connections."""

    classes: frozenset[str]
    """Full names of the class or a base class."""
    asynchronous: bool
    execute: Callable[[Any, str, Sequence[Any]], Any]
    """Runs a statement; returns its rows, or an awaitable of them."""
    dialect: Callable[[Any], str]


def class_names(value: Any) -> set[str]:
    """The full names of the class of a value and of its base classes."""
    return {f"{one.__module__}.{one.__qualname__}" for one in type(value).__mro__}


def kind_of(connection: Any) -> Kind:
    """The kind of a connection. Raises `BadInput` for unknown kinds and unsupported databases."""
    names = class_names(connection)
    for kind in _KINDS:
        if names & kind.classes:
            if (dialect := kind.dialect(connection)) not in DIALECTS:
                raise BadInput(
                    f"unsupported database {dialect!r}; use {' or '.join(DIALECTS)}",
                    code="bad_engine_url",
                )
            return kind
    raise BadInput(
        f"a {type(connection).__name__} is no supported connection; use one of SQLAlchemy, Django, "
        "psycopg, asyncpg, aiosqlite or sqlite3"
    )


def lacks_tables(error: BaseException) -> bool:
    """Whether a statement failed because the tables or functions of Onceward do not exist."""
    cause = getattr(error, "orig", None) or error.__cause__ or error  # SQLAlchemy, Django
    text = str(cause)
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    missing = state in ("42P01", "42883") or "no such table" in text
    return missing and "onceward_" in text


def _sqlite3(connection: Any, sql: str, parameters: Sequence[Any]) -> Rows:
    cursor = connection.cursor()
    cursor.row_factory = None
    return list(cursor.execute(sql, parameters).fetchall())


async def _aiosqlite(connection: Any, sql: str, parameters: Sequence[Any]) -> Rows:
    async with connection.cursor() as cursor:
        cursor.row_factory = None
        await cursor.execute(sql, parameters)
        return list(await cursor.fetchall())


def _tuples(cursor: Any) -> Callable[[Sequence[Any]], Any]:
    return tuple


def _psycopg_query(cursor: Any, sql: str) -> str:
    raw = "psycopg.raw_cursor.RawCursorMixin" in class_names(cursor)
    return _numbered(sql) if raw else sql.replace("?", "%s")


def _numbered(sql: str) -> str:
    first, *rest = sql.split("?")
    return "".join([first, *[f"${number}{part}" for number, part in enumerate(rest, 1)]])


def _psycopg(connection: Any, sql: str, parameters: Sequence[Any]) -> Rows:
    with connection.cursor(row_factory=_tuples) as cursor:
        cursor.execute(_psycopg_query(cursor, sql), parameters)
        return list(cursor.fetchall()) if cursor.description else []


async def _psycopg_async(connection: Any, sql: str, parameters: Sequence[Any]) -> Rows:
    async with connection.cursor(row_factory=_tuples) as cursor:
        await cursor.execute(_psycopg_query(cursor, sql), parameters)
        return list(await cursor.fetchall()) if cursor.description else []


def _django(connection: Any, sql: str, parameters: Sequence[Any]) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(sql.replace("?", "%s"), parameters)
        return list(cursor.fetchall()) if cursor.description else []


async def _asyncpg(connection: Any, sql: str, parameters: Sequence[Any]) -> Rows:
    return list(await connection.fetch(_numbered(sql), *parameters))


def _named(sql: str, parameters: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    first, *rest = sql.split("?")
    named = [f":p{number}{part}" for number, part in enumerate(rest)]
    values = {f"p{number}": value for number, value in enumerate(parameters)}
    return import_module("sqlalchemy").text("".join([first, *named])), values


def _sqlalchemy(connection: Any, sql: str, parameters: Sequence[Any]) -> Rows:
    result = connection.execute(*_named(sql, parameters))
    return list(result.fetchall()) if result.returns_rows else []


async def _sqlalchemy_async(connection: Any, sql: str, parameters: Sequence[Any]) -> Rows:
    result = await connection.execute(*_named(sql, parameters))
    return list(result.fetchall()) if result.returns_rows else []


def _sqlalchemy_dialect(connection: Any) -> str:
    bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
    return str(bind.dialect.name)


def in_autocommit(connection: Any) -> bool:
    """Whether a statement that wrote to SQLite through SQLAlchemy is committed already."""
    if not any(name.startswith("sqlalchemy.") for name in class_names(connection)):
        return False
    for name in ("sync_session", "sync_connection"):
        connection = getattr(connection, name, connection)
    bound = connection.connection() if callable(connection.connection) else connection
    return getattr(bound.connection.driver_connection, "in_transaction", True) is False


_POSTGRESQL: Final = lambda connection: "postgresql"  # noqa: E731
_SQLITE: Final = lambda connection: "sqlite"  # noqa: E731
_KINDS: Final = (
    Kind(frozenset({"sqlite3.Connection"}), False, _sqlite3, _SQLITE),
    Kind(frozenset({"aiosqlite.core.Connection"}), True, _aiosqlite, _SQLITE),
    Kind(frozenset({"psycopg.Connection"}), False, _psycopg, _POSTGRESQL),
    Kind(frozenset({"psycopg.AsyncConnection"}), True, _psycopg_async, _POSTGRESQL),
    Kind(
        frozenset({"asyncpg.connection.Connection", "asyncpg.pool.PoolConnectionProxy"}),
        True,
        _asyncpg,
        _POSTGRESQL,
    ),
    Kind(
        frozenset(
            {
                "sqlalchemy.engine.base.Connection",
                "sqlalchemy.orm.session.Session",
                "sqlalchemy.orm.scoping.scoped_session",
            }
        ),
        False,
        _sqlalchemy,
        _sqlalchemy_dialect,
    ),
    Kind(
        frozenset(
            {
                "sqlalchemy.ext.asyncio.engine.AsyncConnection",
                "sqlalchemy.ext.asyncio.session.AsyncSession",
                "sqlalchemy.ext.asyncio.scoping.async_scoped_session",
            }
        ),
        True,
        _sqlalchemy_async,
        _sqlalchemy_dialect,
    ),
    Kind(
        frozenset(
            {
                "django.utils.connection.ConnectionProxy",
                "django.db.backends.base.base.BaseDatabaseWrapper",
            }
        ),
        False,
        _django,
        lambda connection: str(connection.vendor),
    ),
)
