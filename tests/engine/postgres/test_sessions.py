"""SQL of the application, records and the end of a job in one transaction of PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

import onceward
from onceward import limits
from onceward.testing.postgres import PostgresServer
from tests.sql.cutting import Cutter
from tests.sql.shops import run

WAIT_S = 60.0
STRIDE = 13


@pytest.fixture
def table(server: PostgresServer, schema: str) -> str:
    """A table of the application."""
    run(server.url, f"CREATE TABLE {schema}_paid (job text PRIMARY KEY)")
    return f"{schema}_paid"


@pytest.fixture
async def app(url: str) -> AsyncIterator[onceward.App]:
    async with onceward.App(url, slots=2) as app:
        yield app


def rows(server: PostgresServer, table: str) -> list[Any]:
    return [job for (job,) in run(server.url, f"SELECT job FROM {table} ORDER BY job")]


async def outcome(app: onceward.App, body: Any = None) -> Any:
    async with asyncio.timeout(WAIT_S):
        return await app.wait((await app.send("q", body)).id)


async def test_statements_records_and_the_end_of_a_job_commit_together(
    url: str, server: PostgresServer, table: str
) -> None:
    app = onceward.App(url, slots=2)

    @app.handler("q", attempts_max=1)
    async def work(job: onceward.Job) -> str:
        connection = await job.sql()
        assert connection is await job.sql()
        assert await connection.fetchval("SHOW enable_seqscan") == "on"
        assert await connection.fetchval("SHOW transaction_isolation") == "read committed"
        await connection.execute(f"INSERT INTO {table} VALUES ($1)", job.id)
        job.tx.put(("paid", job.id), 1)
        await job.send("next", job.id)
        if job.body == "fail":
            raise RuntimeError("no")
        return "paid"

    async with app:
        paid = await outcome(app)
        failed = await outcome(app, "fail")
        assert (paid.state, paid.result, failed.state) == ("succeeded", "paid", "failed")
        records = await app.run(lambda tx: tx.scan("paid"))
        assert len(records) == len(await app.claim("next", "w", lease_s=9, max=9)) == 1
    assert [row.key[1] for row in records] == rows(server, table)


async def test_transactions_that_wait_for_each_other_end(
    app: onceward.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a connection and needs a second one. All wait, until the first wait ends."""
    ready = asyncio.Barrier(limits.SESSIONS)

    async def outer(tx: onceward.Transaction) -> None:
        await tx.sql()
        await ready.wait()
        monkeypatch.setattr(limits, "SESSION_WAIT_S", 0.05)
        await app.run(lambda inner: inner.sql())

    async with asyncio.timeout(WAIT_S):
        calls = [app.run(outer) for _ in range(limits.SESSIONS)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        errors = [error for error in found if error is not None]
        assert errors
        assert all("no SQL connection became free" in str(error) for error in errors)
        monkeypatch.undo()
        await app.run(lambda tx: tx.sql())


async def test_a_transaction_of_the_application_has_statements(
    app: onceward.App, server: PostgresServer, table: str
) -> None:
    async def pay(tx: onceward.Transaction, name: str) -> None:
        connection = await tx.sql()
        await connection.execute(f"INSERT INTO {table} VALUES ($1)", name)
        tx.put(("paid", name), 1)

    async def only_sql(tx: onceward.Transaction) -> None:
        await (await tx.sql()).execute(f"INSERT INTO {table} VALUES ('sql')")

    async def broken(tx: onceward.Transaction) -> None:
        await pay(tx, "broken")
        raise KeyError

    await app.run(lambda tx: pay(tx, "a"))
    await app.run(only_sql)
    with pytest.raises(KeyError):
        await app.run(broken)
    with pytest.raises(asyncpg.UniqueViolationError):
        await app.run(lambda tx: pay(tx, "a"))
    assert rows(server, table) == ["a", "sql"]
    assert [row.key[1] for row in await app.run(lambda tx: tx.scan("paid"))] == ["a"]


async def test_savepoints_end_with_the_transaction(
    app: onceward.App, server: PostgresServer, table: str
) -> None:
    async def fn(tx: onceward.Transaction) -> None:
        connection = await tx.sql()
        insert = f"INSERT INTO {table} VALUES ($1)"
        async with connection.transaction():
            await connection.execute(insert, "kept")
        with suppress(asyncpg.UniqueViolationError):
            async with connection.transaction():
                await connection.execute(insert, "rolled back")
                await connection.execute(insert, "kept")
        await connection.transaction().start()
        await connection.execute(insert, "left open")
        tx.put(("done", "1"), 1)

    await app.run(fn)
    assert rows(server, table) == ["kept", "left open"]


async def test_later_transactions_are_not_affected_by_settings(
    app: onceward.App, server: PostgresServer, schema: str, table: str
) -> None:
    """Each one has the role, the settings and the temporary tables of a new connection."""
    run(server.url, f"CREATE ROLE {schema}")
    pids = set()

    async def spoil(tx: onceward.Transaction) -> None:
        connection = await tx.sql()
        pids.add(connection.get_server_pid())
        for statement in (
            "SET search_path = pg_catalog",
            "SET default_transaction_read_only = on",
            "SET statement_timeout = 60000",
            "CREATE TEMP TABLE spoilt (a int)",
            "LISTEN spoilt",
            "SELECT pg_advisory_lock(7)",
            f"SET ROLE {schema}",
        ):
            await connection.execute(statement)
        tx.put(("spoilt", "1"), 1)

    async def look(tx: onceward.Transaction) -> list[Any]:
        connection = await tx.sql()
        pids.add(connection.get_server_pid())
        await connection.execute(f"INSERT INTO {table} VALUES ('a')")
        return list(
            await connection.fetchrow(
                "SELECT current_user = session_user, current_setting('search_path'), "
                "current_setting('statement_timeout'), to_regclass('spoilt'), "
                "(SELECT count(*) FROM pg_listening_channels()), "
                "(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7), "
                "current_setting('application_name')"
            )
        )

    await app.run(spoil)
    found = await app.run(look)
    assert found == [True, '"$user", public', "0", None, 0, 0, "onceward session"]
    assert len(pids) == 1
    assert rows(server, table) == ["a"]


async def test_a_transaction_that_only_reads_cannot_commit_records(app: onceward.App) -> None:
    async def fn(tx: onceward.Transaction) -> None:
        await (await tx.sql()).execute("SET TRANSACTION READ ONLY")
        tx.put(("x", "1"), 1)

    with pytest.raises(onceward.BadInput, match=r"cannot commit records: .*read-only"):
        await app.run(fn)
    await app.run(lambda tx: tx.sql())


async def test_conflicts_of_records_and_of_rows_run_the_function_again(
    app: onceward.App, server: PostgresServer, table: str
) -> None:
    run(server.url, f"INSERT INTO {table} VALUES ('a'), ('b')")
    runs = 0

    async def changed(tx: onceward.Transaction) -> None:
        nonlocal runs
        runs += 1
        await (await tx.sql()).execute(f"INSERT INTO {table} VALUES ('run {runs}')")
        count = await tx.get(("count", "1")) or 0
        if runs == 1:
            await app.run(_write)
        tx.put(("count", "1"), count + 1)

    async def _write(tx: onceward.Transaction) -> None:
        tx.put(("count", "1"), 5)

    await app.run(changed)
    assert await app.run(lambda tx: tx.get(("count", "1"))) == 6
    assert rows(server, table) == ["a", "b", "run 2"]

    locked = [asyncio.Event(), asyncio.Event()]
    tries = 0

    async def deadlock(tx: onceward.Transaction, mine: int) -> None:
        nonlocal tries
        tries += 1
        connection = await tx.sql()
        lock = f"SELECT FROM {table} WHERE job = $1 FOR UPDATE"
        await connection.execute(lock, "ab"[mine])
        locked[mine].set()
        await locked[1 - mine].wait()
        await connection.execute(lock, "ab"[1 - mine])
        tx.put(("done", str(mine)), 1)

    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*[app.run(lambda tx, n=n: deadlock(tx, n)) for n in range(2)])
    assert tries >= 3


async def test_a_handler_that_the_server_aborts_runs_again_in_the_same_attempt(
    url: str, server: PostgresServer, table: str
) -> None:
    app = onceward.App(url, slots=2)
    runs = 0

    @app.handler("q", attempts_max=1)
    async def work(job: onceward.Job) -> int:
        nonlocal runs
        runs += 1
        connection = await job.sql()
        await connection.execute(f"INSERT INTO {table} VALUES ($1)", str(runs))
        if runs == 1:
            await connection.execute("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
        return job.attempt

    async with app:
        job = await outcome(app)
    assert (job.state, job.result, runs) == ("succeeded", 1, 2)
    assert rows(server, table) == ["2"]


async def test_misuse_of_the_connection_fails_the_attempt_and_writes_nothing(
    url: str, server: PostgresServer, table: str
) -> None:
    app = onceward.App(url, slots=2)

    @app.handler("q", attempts_max=1)
    async def work(job: onceward.Job) -> None:
        connection = await job.sql()
        await connection.execute(f"INSERT INTO {table} VALUES ($1)", job.id)
        if job.body == "restart":
            await connection.execute("ROLLBACK")
            await connection.execute("BEGIN")
        elif job.body == "rollback":
            await connection.execute("ROLLBACK")
        elif job.body == "step":
            await job.step("late", print)
        elif job.body == "sleep":
            await job.sleep(1)
        elif job.body == "deferred":
            await connection.execute(
                f"ALTER TABLE {table} ADD CONSTRAINT c FOREIGN KEY (job) REFERENCES {table}_2 "
                "DEFERRABLE INITIALLY DEFERRED"
            )
        else:
            try:
                await connection.execute("SELECT 1 / 0")
            except asyncpg.DivisionByZeroError:
                pass

    @app.handler("many", attempts_max=1, batch=2)
    async def batch(jobs: list[onceward.Job]) -> None:
        await jobs[0].sql()

    words = {
        "restart": "leave COMMIT and ROLLBACK to Onceward",
        "rollback": "leave COMMIT and ROLLBACK to Onceward",
        "caught": "Use a savepoint",
        "step": "comes after the first use of job.tx",
        "sleep": "comes after the first use of job.tx",
    }
    async with app:
        for body, why in words.items():
            job = await outcome(app, body)
            assert (job.state, why in job.reason) == ("failed", True), (body, job.reason)
        job = await app.wait((await app.send("many", 1)).id)
        assert "is part of a batch" in job.reason
        # The next transactions have usable connections.
        await app.run(lambda tx: tx.sql())
    assert rows(server, table) == []


async def test_a_constraint_that_is_checked_at_the_commit_is_a_failure(
    app: onceward.App, server: PostgresServer, table: str
) -> None:
    run(
        server.url,
        f"CREATE TABLE {table}_line (job text REFERENCES {table} DEFERRABLE INITIALLY DEFERRED)",
    )

    async def orphan(tx: onceward.Transaction) -> None:
        await (await tx.sql()).execute(f"INSERT INTO {table}_line VALUES ('x')")
        tx.put(("a", "b"), 1)

    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await app.run(orphan)
    assert await app.run(lambda tx: tx.get(("a", "b"))) is None


async def test_other_databases_have_no_connection() -> None:
    async with onceward.App("memory://") as app:
        with pytest.raises(onceward.BadInput, match="use PostgreSQL as Onceward's database"):
            await app.run(lambda tx: tx.sql())


@pytest.mark.outage
@pytest.mark.parametrize("after", [False, True], ids=["lost", "arrives"])
async def test_a_shared_commit_takes_effect_once_wherever_it_is_cut(
    after: bool, url: str, server: PostgresServer, table: str, soak: bool
) -> None:
    number, cut = 0, True
    app = onceward.App(url, slots=1)

    async def pay(tx: onceward.Transaction, name: str) -> None:
        await (await tx.sql()).execute(f"INSERT INTO {table} VALUES ($1)", name)
        tx.put(("paid", name), 1)

    async def paid(name: str) -> Any:
        return await app.run(lambda tx: tx.get(("paid", name)))

    async with app:
        while cut:
            name = f"{number:04d}"
            async with Cutter(server.port, number, after=after) as cutter:
                # Only the sessions are cut: everything else has connections of its own.
                target = app.engine.target  # type: ignore[attr-defined]
                dsn = target.dsn.replace(f":{server.port}/", f":{cutter.port}/")
                await app.engine.move_sessions(target._replace(dsn=dsn))  # type: ignore[attr-defined]
                async with asyncio.timeout(WAIT_S):
                    while not await paid(name):
                        try:
                            await app.run(lambda tx, name=name: pay(tx, name))
                        except onceward.Unavailable:
                            await asyncio.sleep(0)
                        except asyncpg.UniqueViolationError:
                            raise AssertionError((number, cutter.passed)) from None
                        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                            pass  # of a statement of the application
                cut = cutter.cut
            found = [row.key[1] for row in await app.run(lambda tx: tx.scan("paid", limit=900))]
            assert name in found, (number, cutter.passed)
            assert rows(server, table) == found
            number += 1 if soak else STRIDE
    assert number > 30


async def test_sessions_of_the_application_enqueue_without_set_up(
    app: onceward.App, server: PostgresServer, schema: str, table: str
) -> None:
    enqueue = f"SELECT {schema}.onceward_enqueue('q', '1', key => 'k', order_key => 'o')"
    run(server.url, f"INSERT INTO {table} VALUES ('a')", enqueue)
    [claim] = await app.claim("q", "w", lease_s=60, wait_s=WAIT_S)
    assert (claim.body, claim.options.order_key) == (1, "o")
    run(server.url, f"SET search_path = {schema}", "SELECT onceward_enqueue('no queue')")
    query = f"SELECT reason FROM {schema}.onceward_outbox_failed"
    while not (found := run(server.url, query)):  # noqa: ASYNC110 - nobody else could tell
        await asyncio.sleep(0)
    assert "a queue name must have" in str(found[0][0])
