"""SQL steps: an effect on the application's database and its record, in one transaction."""

import asyncio
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext import asyncio as sqlalchemy_async
from sqlalchemy.orm import sessionmaker

import onceward
from onceward import sql
from onceward.sql import steps
from onceward.testing.postgres import PostgresServer
from tests.sql.shops import make_postgres, make_sqlite, paid, run

WAIT_S = 60.0
INSERT = "INSERT INTO paid (job) VALUES ('{}')"


@pytest.fixture
def shop(server: PostgresServer, schema: str) -> str:
    return make_postgres(server, schema)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return make_sqlite(tmp_path)


@asynccontextmanager
async def opened(kind: str, url: str) -> AsyncIterator[Any]:
    """A database of an application, by the name of its kind."""
    path = url.removeprefix("sqlite:///")
    if kind == "url":
        yield url
    elif kind == "sqlite3":
        connection = sqlite3.connect(path)
        yield connection
        connection.close()
    elif kind == "aiosqlite":
        async with aiosqlite.connect(path) as found:
            yield found
    elif kind == "psycopg":
        with psycopg.connect(url) as found:
            yield found
    elif kind == "psycopg async":
        async with await psycopg.AsyncConnection.connect(url) as found:
            yield found
    elif kind == "asyncpg":
        found = await asyncpg.connect(url)
        yield found
        await found.close()
    elif kind == "asyncpg pool":
        async with asyncpg.create_pool(url, min_size=1) as found:
            yield found
    elif kind.startswith("async "):
        driver = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
        scheme = url.partition(":")[0]
        engine = sqlalchemy_async.create_async_engine(url.replace(scheme, driver[scheme], 1))
        made: dict[str, Callable[[Any], Any]] = {
            "async engine": lambda engine: engine,
            "async factory": sqlalchemy_async.async_sessionmaker,
            "async session": sqlalchemy_async.AsyncSession,
        }
        yield made[kind](engine)
        await engine.dispose()
    else:
        plain = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        yield {"engine": lambda: plain, "factory": lambda: sessionmaker(plain)}[kind]()
        plain.dispose()


async def execute(connection: Any, statement: str) -> None:
    """With every driver."""
    if isinstance(connection, sqlalchemy_async.AsyncSession | sqlalchemy_async.AsyncConnection):
        await connection.execute(sqlalchemy.text(statement))
    else:
        await connection.execute(statement)


def execute_now(connection: Any, statement: str) -> None:
    known = type(connection).__module__.startswith("sqlalchemy")
    connection.execute(sqlalchemy.text(statement) if known else statement)


KINDS = [
    *[("file", kind) for kind in ("url", "sqlite3", "aiosqlite", "engine", "factory")],
    *[("file", kind) for kind in ("async engine", "async factory", "async session")],
    *[("shop", kind) for kind in ("url", "psycopg", "psycopg async", "asyncpg", "asyncpg pool")],
    *[("shop", kind) for kind in ("engine", "factory", "async engine", "async session")],
]
ASYNC = ("aiosqlite", "psycopg async", "asyncpg", "asyncpg pool")


def is_async(place: str, kind: str) -> bool:
    return kind in ASYNC or kind.startswith("async") or (place, kind) == ("shop", "url")


@pytest.mark.parametrize(("place", "kind"), KINDS)
async def test_an_effect_takes_place_once_although_the_job_is_interrupted(
    place: str, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue(place)
    app = onceward.App("memory://", slots=1)
    results = []
    async with opened(kind, url) as database:

        async def pay(connection: Any, job: str, amount: int) -> dict[str, int]:
            await execute(connection, INSERT.format(job))
            return {"amount": amount}

        def pay_now(connection: Any, job: str, amount: int) -> dict[str, int]:
            execute_now(connection, INSERT.format(job))
            return {"amount": amount}

        @app.handler("q", retry_first_s=0.001, attempts_max=3)
        async def work(job: onceward.Job) -> None:
            if job.attempt == 1:
                monkeypatch.setattr(job, "_done", _crash)
            fn = pay if is_async(place, kind) else pay_now
            results.append(await job.sql_step(database, fn, job.id, 7, name="pay"))
            if job.attempt == 2:
                raise RuntimeError("after the step")

        async with app, asyncio.timeout(WAIT_S):
            id_ = (await app.send("q", 1)).id
            job = await app.wait(id_)
    assert (job.state, job.attempt) == ("succeeded", 3)
    assert results == [{"amount": 7}] * 2
    assert paid(url) == [id_]


async def _crash(*args: Any) -> None:
    raise RuntimeError("between the two commits")


@pytest.mark.parametrize("place", ["file", "shop"])
async def test_an_error_rolls_back_and_a_retry_of_a_failed_job_reuses_the_step(
    place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue(place)
    app = onceward.App("memory://", slots=1)
    runs = []

    async def pay(connection: Any, job: str) -> str:
        await execute(connection, INSERT.format(job))
        if len(runs) == 1:
            raise RuntimeError("rolled back")
        return "paid"

    def pay_now(connection: Any, job: str) -> str:
        execute_now(connection, INSERT.format(job))
        if len(runs) == 1:
            raise RuntimeError("rolled back")
        return "paid"

    @app.handler("q", attempts_max=1)
    async def work(job: onceward.Job) -> str:
        runs.append(job.attempt)
        if len(runs) == 2:
            monkeypatch.setattr(job, "_done", _crash)
        return str(await job.sql_step(url, pay if place == "shop" else pay_now, job.id))

    async with app, asyncio.timeout(WAIT_S):
        id_ = (await app.send("q", 1)).id
        for count in range(3):
            job = await app.wait(id_)
            assert paid(url) == [id_] * (count > 0)
            if count < 2:
                assert job.state == "failed"
                await app.queues.retry(id_)
                await app.wait(id_)
    assert (job.state, job.result) == ("succeeded", "paid")
    assert runs == [1, 1, 1]


def step(url: Any, fn: Any, *args: Any, **options: Any) -> Any:
    """One run of a step, without a node."""
    found = {"job": "j", "name": "s", "run": 1, "kept_ms": 1, "insist": lambda: 60_000, **options}
    return steps.SqlStep(elapsed_ns=lambda: 0, database=url, fn=fn, args=args, **found).result()


async def insert(connection: Any, job: str) -> str:
    await execute(connection, INSERT.format(job))
    return job


def insert_now(connection: Any, job: str) -> str:
    execute_now(connection, INSERT.format(job))
    return job


PLACES = pytest.mark.parametrize(
    ("place", "fn"), [("file", insert_now), ("shop", insert)], ids=["sqlite", "postgres"]
)


async def test_a_plain_handler_runs_steps_in_its_own_thread(file: str) -> None:
    app = onceward.App("memory://")
    path = file.removeprefix("sqlite:///")

    @app.handler("q")
    def work(job: onceward.SyncJob) -> list[str]:
        connection = sqlite3.connect(path)  # for this thread only
        found = [job.sql_step(connection, insert_now, job.id, name=name) for name in ("a", "b")]
        connection.close()
        return [*found, job.sql_step(file, insert_now, job.id)]

    async with app, asyncio.timeout(WAIT_S):
        job = await app.wait((await app.send("q", 1)).id)
    assert job.result == paid(file)
    assert len(job.result) == 3


@PLACES
async def test_an_earlier_lease_is_refused(
    place: str, fn: Any, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(place)
    assert await step(url, fn, "a", name="a", run=2) == "a"
    with pytest.raises(onceward.StaleToken, match="a later attempt of job j"):
        await step(url, fn, "b", name="b", run=1)
    assert await step(url, fn, "other", name="a", run=1, job="k") == "other"
    assert await step(url, fn, "not run", name="a", run=3) == "a"
    assert paid(url) == ["a", "other"]


async def test_a_later_lease_waits_for_the_transaction_of_an_earlier_one(shop: str) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def slow(connection: Any) -> str:
        await insert(connection, "first")
        inside.set()
        await go_on.wait()
        return "first"

    first = asyncio.create_task(step(shop, slow))
    await inside.wait()
    second = asyncio.create_task(step(shop, insert, "second", run=2))
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while run(shop, query) == [(0,)]:  # noqa: ASYNC110 - nobody else could tell
        await asyncio.sleep(0)
    go_on.set()
    assert await first == await second == "first"
    assert paid(shop) == ["first"]


async def test_the_lease_is_compared_when_the_transaction_commits(shop: str, file: str) -> None:
    """By the clock of that database, although this process believes in its lease."""
    with pytest.raises(asyncpg.PostgresError, match="the lease of job j has ended") as raised:
        await step(shop, insert, "late", insist=lambda: -1)
    assert raised.value.sqlstate == "OW002"

    def ended() -> int:
        raise onceward.StaleToken("the lease has ended")

    for url, fn in ((shop, insert), (file, insert_now)):
        with pytest.raises(onceward.StaleToken):
            await step(url, fn, "late", insist=ended)
        assert paid(url) == []


async def test_a_function_that_ends_the_transaction_is_reported(shop: str, file: str) -> None:
    async def commit(connection: Any) -> None:
        await connection.execute("COMMIT")

    async def restart(connection: Any) -> None:
        await connection.execute("COMMIT")
        await connection.execute("BEGIN")

    def commit_now(connection: Any) -> None:
        connection.execute("COMMIT")

    def rollback_now(connection: Any) -> None:
        connection.rollback()

    for url, fn in ((shop, commit), (shop, restart), (file, commit_now), (file, rollback_now)):
        with pytest.raises(onceward.BadInput, match="leave commit and rollback to sql_step"):
            await step(url, fn)
        assert run(url, "SELECT count(*) FROM onceward_step") == [(0,)]


async def test_bad_input_of_a_step_is_reported(shop: str, file: str, tmp_path: Path) -> None:
    with pytest.raises(onceward.BadInput, match="is async, but its database is not"):
        await step(file, insert, "x")
    with pytest.raises(onceward.BadInput, match="cannot be stored"):
        await step(file, lambda connection: {1, object()})
    empty = sqlite3.connect(tmp_path / "empty.db")
    with pytest.raises(onceward.BadInput, match="run `onceward outbox migrate URL`"):
        await step(empty, insert_now, "x")
    empty.execute("BEGIN")
    with pytest.raises(onceward.BadInput, match="the connection is in a transaction"):
        await step(empty, insert_now, "x")
    empty.close()
    with pytest.raises(onceward.BadInput, match="run `onceward outbox migrate URL`"):
        await step(shop.rpartition("/")[0] + "/postgres", insert, "x")
    connection = await asyncpg.connect(shop)
    async with connection.transaction():
        with pytest.raises(onceward.BadInput, match="the connection is in a transaction"):
            await step(connection, insert, "x")
    await connection.close()
    with psycopg.connect(shop) as psycopg_connection:
        psycopg_connection.execute("SELECT 1")
        with pytest.raises(onceward.BadInput, match="the connection is in a transaction"):
            await step(psycopg_connection, insert_now, "x")
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        await step(f"sqlite:///{tmp_path}/missing.db", insert_now, "x")
    assert not (tmp_path / "missing.db").exists()
    assert paid(file) == paid(shop) == []


async def test_a_url_names_the_schema_with_the_tables_of_steps(shop: str) -> None:
    """Tables of the application are found as before."""
    run(shop, "CREATE SCHEMA other", "SET search_path = other", *sql.statements("postgresql"))
    assert await step(f"{shop}?schema=other", insert, "a") == "a"
    assert paid(shop) == ["a"]
    query = "SELECT step FROM {}.onceward_step ORDER BY 1"
    assert run(shop, query.format("other")) == [("s",)]
    assert run(shop, query.format("public")) == []
    with pytest.raises(onceward.BadInput, match="'missing' has no tables for SQL steps; run"):
        await step(f"{shop}?schema=missing", insert, "x")
    for url in (f"{shop}?schema=A;B", "sqlite:///shop.db?schema=a"):
        with pytest.raises(onceward.BadInput, match=r"invalid schema|unsupported data"):
            await step(url, insert, "x")


async def test_rows_of_any_type_are_understood(shop: str, file: str) -> None:
    """Connections whose rows or placeholders are configured."""

    def named(cursor: Any, row: Any) -> dict[str, Any]:
        return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}

    plain = sqlite3.connect(file.removeprefix("sqlite:///"))
    plain.row_factory = named
    assert await step(plain, insert_now, "a", name="a") == "a"
    assert await step(plain, insert_now, "again", name="a") == "a"
    plain.close()
    async with aiosqlite.connect(file.removeprefix("sqlite:///")) as opened:
        opened.row_factory = named  # type: ignore[assignment]
        assert await step(opened, insert, "b", name="b") == "b"
    with psycopg.connect(shop, row_factory=dict_row) as connection:
        assert await step(connection, insert_now, "a", name="a") == "a"
    with psycopg.connect(shop, cursor_factory=psycopg.RawCursor) as connection:
        assert await step(connection, insert_now, "b", name="b") == "b"
    async with await psycopg.AsyncConnection.connect(shop, row_factory=dict_row) as opened:
        assert await step(opened, insert, "c", name="c") == "c"
    assert paid(file) == ["a", "b"]
    assert paid(shop) == ["a", "b", "c"]


async def test_pools_of_connections_in_autocommit_mode_begin_a_transaction(shop: str) -> None:
    """A pool of psycopg, which is no dependency, by the name of its class."""

    class ConnectionPool:
        def connection(self) -> Any:
            return psycopg.connect(shop, autocommit=True)

    ConnectionPool.__module__, ConnectionPool.__qualname__ = "psycopg_pool.pool", "ConnectionPool"

    def fails(connection: Any) -> None:
        insert_now(connection, "x")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await step(ConnectionPool(), fails)
    assert await step(ConnectionPool(), insert_now, "a") == "a"
    assert paid(shop) == ["a"]


@pytest.mark.parametrize("kind", ["plain", "session", "async", "async session"])
async def test_engines_in_autocommit_mode_are_refused(kind: str, shop: str, file: str) -> None:
    """Otherwise the effect is committed before its record."""
    for url, driver in (
        (file, "sqlite+aiosqlite" if "async" in kind else "sqlite"),
        (shop, "postgresql+asyncpg" if "async" in kind else "postgresql+psycopg"),
    ):
        engine: Any
        address = f"{driver}:{url.partition(':')[2]}"
        if "async" in kind:
            engine = sqlalchemy_async.create_async_engine(address, isolation_level="AUTOCOMMIT")
            factory: Any = sqlalchemy_async.async_sessionmaker(engine)
        else:
            engine = sqlalchemy.create_engine(address, isolation_level="AUTOCOMMIT")
            factory = sessionmaker(engine)
        fn = insert if "async" in kind else insert_now
        with pytest.raises(onceward.BadInput, match="the database is in autocommit mode"):
            await step(factory if "session" in kind else engine, fn, "x")
        if "async" in kind:
            await engine.dispose()
        else:
            engine.dispose()
        assert paid(url) == []


async def test_a_result_without_room_is_refused_before_the_commit(file: str) -> None:
    app = onceward.App("memory://")

    def pay(connection: Any, size: int) -> str:
        insert_now(connection, str(size))
        return "x" * size

    @app.handler("q", attempts_max=1)
    async def work(job: onceward.Job) -> None:
        await job.sql_step(file, pay, 300_000, name="a")
        await job.sql_step(file, pay, 100_000, name="b")

    async with app, asyncio.timeout(WAIT_S):
        job = await app.wait((await app.send("q", 1)).id)
    assert "with the result of the step 'b', the steps of job" in job.reason
    assert paid(file) == ["300000"]


async def test_a_cancelled_step_leaves_no_transaction_open(file: str) -> None:
    path = file.removeprefix("sqlite:///")
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")
    async with aiosqlite.connect(path) as connection:
        begun = asyncio.Event()
        execute = connection.execute  # in a thread, where it cannot be cancelled

        def noticed(*args: Any) -> Any:
            begun.set()
            return execute(*args)

        connection.execute = noticed  # type: ignore[method-assign,assignment]
        task = asyncio.create_task(step(connection, insert, "x"))
        await begun.wait()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        other.rollback()
        await asyncio.wait([task])
        assert task.cancelled()
        await connection.execute_fetchall("SELECT 1")
        assert not connection.in_transaction
    other.close()
    assert paid(file) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mysql://x", print), "unsupported database URL 'mysql://x'"),
        ((7, print), "a int is no supported database"),
        (("sqlite:///x.db", "fn"), "needs a function, not str"),
        (("sqlite:///x.db", lambda connection: 1), "needs a name; pass name="),
    ],
)
async def test_arguments_are_checked_before_the_step(arguments: Any, words: str) -> None:
    app = onceward.App("memory://")

    @app.handler("q", attempts_max=1)
    async def work(job: onceward.Job) -> None:
        await job.sql_step(*arguments)

    async with app, asyncio.timeout(WAIT_S):
        job = await app.wait((await app.send("q", 1)).id)
    assert job.state == "failed"
    assert words in job.reason


async def test_a_name_with_a_nul_character_is_refused(file: str) -> None:
    app = onceward.App("memory://")

    @app.handler("q", attempts_max=1)
    async def work(job: onceward.Job) -> None:
        await job.sql_step(file, insert_now, "x", name="a\0")

    async with app, asyncio.timeout(WAIT_S):
        job = await app.wait((await app.send("q", 1)).id)
    assert "has a NUL character: 'a\\x00'; remove it" in job.reason


async def test_a_step_inside_of_another_one_is_refused(shop: str) -> None:
    """It would wait for the lock of the other one. Steps at the same time wait for each other."""

    async def outer(connection: Any) -> Any:
        return await step(shop, insert, "inner", name="inner")

    with pytest.raises(onceward.BadInput, match="'inner' was called inside of another one"):
        await step(shop, outer, name="outer")
    names = ["a", "b", "c"]
    assert await asyncio.gather(*[step(shop, insert, name, name=name) for name in names]) == names
    assert sorted(map(str, paid(shop))) == names


@PLACES
async def test_records_are_kept_until_the_job_is_gone_and_then_a_while(
    place: str, fn: Any, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(place)
    app = onceward.App("memory://")
    async with app:
        id_ = (await app.send("nobody", 1)).id
        for job in (id_, "gone"):
            await step(url, fn, job, job=job, kept_ms=0)
        kept = "SELECT job FROM onceward_step_fence ORDER BY job"

        async def purged(kept_ms: int) -> int:
            return await steps.purge(app.store, url, kept_ms)

        while await purged(0) == 0:  # noqa: ASYNC110 - until the clock has moved, twice
            await asyncio.sleep(0)
        assert run(url, kept) == [(id_,)]
        assert run(url, "SELECT job FROM onceward_step") == [(id_,)]
        assert await purged(60_000) == 0
        await step(url, fn, "late", job="gone", name="b", run=2, kept_ms=0)
        await purged(60_000)
        assert await purged(60_000) == 0
        assert run(url, kept) == [(id_,), ("gone",)]


def test_django_runs_steps_in_threads(shop: str, file: str) -> None:
    """In a process of its own: Django is configured once."""
    user, host, port, name = re.findall(r"//(.*)@(.*):(.*)/(.*)", shop)[0]
    script = f"""
import asyncio, django
from django.conf import settings
settings.configure(DATABASES={{
    "default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": {file[10:]!r}}},
    "shop": {{"ENGINE": "django.db.backends.postgresql", "USER": {user!r}, "HOST": {host!r},
             "PORT": {port!r}, "NAME": {name!r}}},
}})
django.setup()
import onceward
from django.db import connection, connections
app = onceward.App("memory://")

def pay(connection, job):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO paid (job) VALUES (%s)", [job])

@app.handler("q")
async def work(job):
    for database in (connection, connections["shop"]):
        await job.sql_step(database, pay, job.body, name=database.alias)

async def main():
    async with app:
        job = await app.wait((await app.send("q", "django")).id)
        assert job.state == "succeeded", job.reason

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    assert paid(shop) == paid(file) == ["django"]
