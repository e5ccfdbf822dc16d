"""Applications with every supported driver: each enqueues messages in a transaction of its own."""

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext import asyncio as sqlalchemy_async
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from onceward import sql

Enqueue = Callable[[str, list[dict[str, Any]], bool], Awaitable[list[str]]]
"""`enqueue(url, messages, commit)` runs one transaction; returns the ids of its messages."""


class Rollback(Exception):
    pass


def end(commit: bool) -> None:
    if not commit:
        raise Rollback


async def with_sqlite3(url: str, messages: list[dict[str, Any]], commit: bool) -> list[str]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        with connection:
            ids = [sql.enqueue(connection, **message) for message in messages]
            end(commit)
        return ids
    finally:
        connection.close()


async def with_aiosqlite(url: str, messages: list[dict[str, Any]], commit: bool) -> list[str]:
    async with aiosqlite.connect(url.removeprefix("sqlite:///")) as connection:
        ids = [await sql.enqueue_async(connection, **message) for message in messages]
        end(commit)
        await connection.commit()
        return ids


async def with_psycopg(url: str, messages: list[dict[str, Any]], commit: bool) -> list[str]:
    with psycopg.connect(url) as connection:
        ids = [sql.enqueue(connection, **message) for message in messages]
        end(commit)
        return ids


async def with_psycopg_async(url: str, messages: list[dict[str, Any]], commit: bool) -> list[str]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        ids = [await sql.enqueue_async(connection, **message) for message in messages]
        end(commit)
        return ids


async def with_asyncpg(url: str, messages: list[dict[str, Any]], commit: bool) -> list[str]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        async with connection.transaction():
            ids = [await sql.enqueue_async(connection, **message) for message in messages]
            end(commit)
        return ids


def _sqlalchemy(make: Callable[[Any], Any], driver: str) -> Enqueue:
    async def enqueue(url: str, messages: list[dict[str, Any]], commit: bool) -> list[str]:
        engine = sqlalchemy.create_engine(url.replace("postgresql:", driver))
        try:
            with make(engine) as connection, connection.begin():
                ids = [sql.enqueue(connection, **message) for message in messages]
                end(commit)
            return ids
        finally:
            engine.dispose()

    return enqueue


def _sqlalchemy_async(make: Callable[[Any], Any], driver: str) -> Enqueue:
    async def enqueue(url: str, messages: list[dict[str, Any]], commit: bool) -> list[str]:
        scheme = url.partition(":")[0]
        engine = sqlalchemy_async.create_async_engine(url.replace(scheme, driver, 1))
        try:
            async with make(engine) as connection, connection.begin():
                ids = [await sql.enqueue_async(connection, **message) for message in messages]
                end(commit)
            return ids
        finally:
            await engine.dispose()

    return enqueue


def _connection(engine: Any) -> Any:
    return engine.connect()


def scoped_enqueue(url: str, queue: str, body: Any) -> str:
    """Enqueue through the registry of sessions itself, as Flask applications do."""
    engine = sqlalchemy.create_engine(url)
    session = scoped_session(sessionmaker(engine))
    try:
        message = sql.enqueue(session, queue, body)
        session.commit()
        return message
    finally:
        session.remove()
        engine.dispose()


SQLITE: dict[str, Enqueue] = {
    "sqlite3": with_sqlite3,
    "aiosqlite": with_aiosqlite,
    "sqlalchemy": _sqlalchemy(Session, ""),
    "sqlalchemy connection": _sqlalchemy(_connection, ""),
    "sqlalchemy async": _sqlalchemy_async(sqlalchemy_async.AsyncSession, "sqlite+aiosqlite"),
}
POSTGRES: dict[str, Enqueue] = {
    "psycopg": with_psycopg,
    "psycopg async": with_psycopg_async,
    "asyncpg": with_asyncpg,
    "sqlalchemy": _sqlalchemy(Session, "postgresql+psycopg:"),
    "sqlalchemy async": _sqlalchemy_async(sqlalchemy_async.AsyncSession, "postgresql+asyncpg"),
    "sqlalchemy async connection": _sqlalchemy_async(
        sqlalchemy_async.AsyncEngine.connect, "postgresql+psycopg"
    ),
}
