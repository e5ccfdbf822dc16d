"""Databases of applications for tests, with the tables of Onceward and one of their own."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import psycopg

from onceward import sql
from onceward.testing.postgres import PostgresServer

PAID = "CREATE TABLE paid (job text)"


def make_postgres(server: PostgresServer, name: str) -> str:
    """Create a database; returns its URL."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = server.url.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(url) as connection:
        for statement in (*sql.statements("postgresql"), PAID):
            connection.execute(statement)
    return url


def make_sqlite(folder: Path) -> str:
    """Create a database; returns its URL."""
    url = f"sqlite:///{folder / 'shop.db'}"
    run(url, *sql.statements("sqlite"), PAID)
    return url


def run(url: str, *statements: str) -> list[Sequence[object]]:
    """Run statements in one transaction; returns the rows of the last one."""
    rows: list[Sequence[object]] = []
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        try:
            with connection:
                for statement in statements:
                    rows = connection.execute(statement).fetchall()
        finally:
            connection.close()
        return rows
    with psycopg.connect(url) as postgres:
        for statement in statements:
            cursor = postgres.execute(statement)  # type: ignore[arg-type]
            rows = list(cursor.fetchall()) if cursor.description else []
    return rows


def paid(url: str) -> list[object]:
    return [job for (job,) in run(url, "SELECT job FROM paid")]
