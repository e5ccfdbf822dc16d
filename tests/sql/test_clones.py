"""Databases of applications that are cloned or restored, and ids of rows that come back."""

import asyncio
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

import onceward
from onceward import sql
from onceward.sql.sources import source_of
from onceward.testing.postgres import PostgresServer
from tests.sql.shops import make_postgres, make_sqlite, paid, run

WAIT_S = 60.0
PLACES = pytest.mark.parametrize("place", ["file", "shop"], ids=["sqlite", "postgres"])


@pytest.fixture
def shop(server: PostgresServer, schema: str) -> str:
    return make_postgres(server, schema)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return make_sqlite(tmp_path)


def clone(url: str) -> str:
    """Copy a database; returns the URL of the copy."""
    if url.startswith("sqlite"):
        copy = url.replace("shop.db", "clone.db")
        shutil.copy(url.removeprefix("sqlite:///"), copy.removeprefix("sqlite:///"))
        return copy
    server, _, name = url.rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}_clone TEMPLATE {name}")
    return f"{url}_clone"


def enqueue(url: str, body: Any, **options: Any) -> str:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            message = sql.enqueue(connection, "q", body, **options)
        connection.close()
        return message
    with psycopg.connect(url) as postgres:
        return sql.enqueue(postgres, "q", body, **options)


def application() -> tuple[onceward.App, "asyncio.Queue[Any]"]:
    app = onceward.App("memory://", slots=1)
    runs: asyncio.Queue[Any] = asyncio.Queue()

    @app.handler("q")
    async def work(job: onceward.Job) -> None:
        runs.put_nowait(job.body)

    return app, runs


async def emptied(*urls: str) -> None:
    for url in urls:
        source = source_of(url)
        while await source.read((), 1):  # noqa: ASYNC110 - nobody else could tell
            await asyncio.sleep(0)
        await source.close()


@PLACES
async def test_rows_of_a_clone_have_no_second_job(
    place: str, request: pytest.FixtureRequest
) -> None:
    """Rows from before the clone have the same ids. Later ones have the same row ids only."""
    url = request.getfixturevalue(place)
    for body in ("a", "b"):
        enqueue(url, body)
    enqueue(url, "c", key="c")
    copy = clone(url)
    enqueue(url, "only original")
    enqueue(copy, "only clone")
    rows = [run(one, "SELECT id FROM onceward_outbox ORDER BY id") for one in (url, copy)]
    assert rows[0] == rows[1]
    app, runs = application()
    app.sql_outbox(url)
    app.sql_outbox(copy)
    async with app, asyncio.timeout(WAIT_S):
        found = [await runs.get() for _ in range(5)]
        await emptied(url, copy)
        assert app.meters.total("outbox_rows", verdict="accepted") == 8
    assert sorted(found) == ["a", "b", "c", "only clone", "only original"]
    assert runs.empty()
    for one in (url, copy):
        assert run(one, "SELECT count(*) FROM onceward_outbox_failed") == [(0,)]


@PLACES
async def test_rows_of_a_restored_backup_have_no_second_job(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Rows that have become jobs are rows again, and new ones have the ids of lost ones."""
    url = request.getfixturevalue(place)
    enqueue(url, "before")
    backup = clone(url)
    enqueue(url, "lost in the restore")
    app, runs = application()
    app.sql_outbox(url, name="shop")
    async with app, asyncio.timeout(WAIT_S):
        assert sorted([await runs.get(), await runs.get()]) == ["before", "lost in the restore"]
        await emptied(url)
        if place == "file":
            shutil.move(tmp_path / "clone.db", tmp_path / "shop.db")
        else:
            _swap(url, backup)
        enqueue(url, "after")
        assert await runs.get() == "after"
        await emptied(url)
    assert runs.empty()


def _swap(url: str, backup: str) -> None:
    """Replace a database by its backup, under its name."""
    server, _, name = url.rpartition("/")
    other = backup.rpartition("/")[2]
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        connection.execute(f"ALTER DATABASE {other} RENAME TO {name}")


@PLACES
async def test_a_step_takes_effect_once_in_each_database(
    place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of a step is in the database that has its effect. An attempt that uses a clone
    runs a step if the clone has no record of it, unless the job has recorded its result."""
    url = request.getfixturevalue(place)
    app = onceward.App("memory://", slots=1)
    urls: list[str] = []

    async def crash(*args: Any) -> Any:
        raise RuntimeError("the process is gone")

    def pay_now(connection: Any, job: str) -> str:
        connection.execute(f"INSERT INTO paid (job) VALUES ('{job}')")
        return "paid"

    async def pay(connection: Any, job: str) -> str:
        await connection.execute(f"INSERT INTO paid (job) VALUES ('{job}')")
        return "paid"

    fn: Any = pay if place == "shop" else pay_now

    @app.handler("q", attempts_max=2, retry_first_s=0.001)
    async def work(job: onceward.Job) -> None:
        """The first attempt uses the original, and the second one the clone. A clone is made
        before or after the step, whose result the job may have recorded."""
        when, recorded = job.body
        if job.attempt == 1:
            if when == "before":
                urls.append(clone(url))
            with monkeypatch.context() as patch:
                if not recorded:
                    patch.setattr(job, "_done", crash)
                try:
                    await job.sql_step(url, fn, job.id, name="pay")
                finally:
                    if when == "after":
                        urls.append(clone(url))
            raise RuntimeError("again")
        assert await job.sql_step(urls[-1], fn, job.id, name="pay") == "paid"

    wanted = {("before", False): 1, ("before", True): 0, ("after", False): 1, ("after", True): 1}
    async with app, asyncio.timeout(WAIT_S):
        for case, effects in wanted.items():
            id_ = (await app.send("q", case)).id
            job = await app.wait(id_)
            assert job.state == "succeeded", job.reason
            assert paid(url).count(id_) == 1, case
            assert paid(urls[-1]).count(id_) == effects, case
            if place == "shop":
                with psycopg.connect(url.rpartition("/")[0] + "/postgres", autocommit=True) as one:
                    one.execute(f"DROP DATABASE {urls[-1].rpartition('/')[2]}")


async def test_an_id_of_a_row_that_comes_back_is_another_message(file: str) -> None:
    app, runs = application()
    app.sql_outbox(file)
    rows = []
    async with app, asyncio.timeout(WAIT_S):
        for number in range(3):
            with sqlite3.connect(file.removeprefix("sqlite:///")) as connection:
                message = sql.enqueue(connection, "q", number)
                query = "SELECT id FROM onceward_outbox WHERE message = ?"
                rows += connection.execute(query, [message]).fetchall()
            connection.close()
            assert await runs.get() == number
            await emptied(file)
    assert rows == [(1,)] * 3
    # A deletion that comes late, after the application has used the id for another row.
    later = enqueue(file, "later")
    source = source_of(file)
    await source.remove([(1, message, None), (1, message, "failed")])
    assert [(row.id, row.message) for row in await source.read((), 9)] == [(1, later)]
    await source.close()
    assert run(file, "SELECT count(*) FROM onceward_outbox_failed") == [(0,)]


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_jobs_of_an_order_key_follow_transactions_that_commit_late(
    commits: bool, shop: str
) -> None:
    """Transactions with other keys do not wait for them, although their ids are larger."""
    late, next_, other = [await asyncpg.connect(shop) for _ in range(3)]
    app, runs = application()
    app.sql_outbox(shop)
    transaction = late.transaction()
    await transaction.start()
    await sql.enqueue_async(late, "q", "late 1", order_key="o")
    waiting = asyncio.create_task(sql.enqueue_async(next_, "q", "next", order_key="o"))
    pid = next_.get_server_pid()
    while not await other.fetchval("SELECT cardinality(pg_blocking_pids($1))", pid):  # noqa: ASYNC110
        await asyncio.sleep(0)
    async with app, asyncio.timeout(WAIT_S):
        for key in (None, "p"):
            await sql.enqueue_async(other, "q", f"other {key}", order_key=key)
            assert await runs.get() == f"other {key}"
        savepoint = late.transaction()
        await savepoint.start()
        await sql.enqueue_async(late, "q", "rolled back", order_key="o")
        await savepoint.rollback()
        await sql.enqueue_async(late, "q", "late 2", order_key="o")
        assert not waiting.done()
        await (transaction.commit() if commits else transaction.rollback())
        await waiting
        wanted = ["late 1", "late 2", "next"] if commits else ["next"]
        assert [await runs.get() for _ in wanted] == wanted
        await emptied(shop)
    assert runs.empty()
    for connection in (late, next_, other):
        await connection.close()
