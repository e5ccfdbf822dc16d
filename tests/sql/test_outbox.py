"""Outboxes in real databases: messages of transactions, with every driver."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

import onceward
from onceward import sql
from onceward.cli import main
from onceward.errors import BadInput
from onceward.sql.sources import source_of
from onceward.testing.postgres import PostgresServer
from tests.sql import drivers
from tests.sql.shops import make_postgres, make_sqlite, run

WAIT_S = 60.0
CASES = [(f"sqlite {name}", enqueue) for name, enqueue in drivers.SQLITE.items()] + [
    (f"postgres {name}", enqueue) for name, enqueue in drivers.POSTGRES.items()
]


@pytest.fixture
def shop(server: PostgresServer, schema: str) -> str:
    return make_postgres(server, schema)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return make_sqlite(tmp_path)


async def migrate(url: str, *, notify: bool = False) -> None:
    source = source_of(url)
    await source.migrate(notify=notify)
    await source.close()


async def accepted(url: str, count: int) -> list[Any]:
    """Read an outbox until it is empty; returns the bodies of its jobs in any order."""
    app = onceward.App("memory://")
    app.sql_outbox(url)
    runs: asyncio.Queue[Any] = asyncio.Queue()

    @app.handler("q")
    async def work(job: onceward.Job) -> None:
        runs.put_nowait(job.body)

    async with app, asyncio.timeout(WAIT_S):
        found = [await runs.get() for _ in range(count)]
        source = source_of(url)
        while await source.read((), 1):  # noqa: ASYNC110 - nobody else could tell
            await asyncio.sleep(0)
        await source.close()
    assert runs.empty()
    return sorted(found, key=str)


@pytest.mark.parametrize(("name", "enqueue"), CASES, ids=[name for name, _ in CASES])
async def test_messages_are_enqueued_if_the_transaction_commits(
    name: str, enqueue: drivers.Enqueue, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("file" if name.startswith("sqlite") else "shop")
    body = {"text": "100% ü ? :p0 %s $1", "list": [1, None, 2.5]}
    with pytest.raises(drivers.Rollback):
        await enqueue(url, [{"queue": "q", "body": "rolled back"}], False)
    with pytest.raises(BadInput, match="a queue name must have"):
        await enqueue(url, [{"queue": "no queue", "body": 1}], True)
    with pytest.raises(BadInput, match="unknown name 'order'"):
        await enqueue(url, [{"queue": "q", "body": 1, "order": "x"}], True)
    ids = await enqueue(
        url, [{"queue": "q", "body": body}, {"queue": "q", "body": None, "order_key": "o"}], True
    )
    assert len(set(ids)) == 2
    assert await accepted(url, 2) == [None, body]


@pytest.mark.parametrize(("name", "enqueue"), CASES, ids=[name for name, _ in CASES])
async def test_a_database_without_an_outbox_is_reported_with_the_command(
    name: str, enqueue: drivers.Enqueue, server: PostgresServer, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/empty.db" if name.startswith("sqlite") else server.url
    with pytest.raises(BadInput, match="has no outbox; run `onceward outbox migrate URL`"):
        await enqueue(url, [{"queue": "q", "body": 1}], True)


def test_django_enqueues_in_atomic_blocks(shop: str, file: str) -> None:
    """In a process of its own: Django is configured once."""
    parts = shop.removeprefix("postgresql://").replace("/", ":").replace("@", ":").split(":")
    script = f"""
import django
from django.conf import settings
settings.configure(DATABASES={{
    "default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": {file[10:]!r}}},
    "shop": {{"ENGINE": "django.db.backends.postgresql", "USER": {parts[0]!r}, "HOST": {parts[1]!r},
             "PORT": {parts[2]!r}, "NAME": {parts[3]!r}}},
}})
django.setup()
from django.db import connection, connections, transaction
from onceward import sql
for one in (connection, connections["shop"]):
    with transaction.atomic(using=one.alias):
        sql.enqueue(one, "q", {{"text": "50% %s ?"}}, key="k")
    try:
        with transaction.atomic(using=one.alias):
            sql.enqueue(one, "q", "rolled back")
            raise KeyError
    except KeyError:
        pass
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    for url in (shop, file):
        assert asyncio.run(accepted(url, 1)) == [{"text": "50% %s ?"}]


def test_a_registry_of_sessions_is_a_connection(file: str) -> None:
    drivers.scoped_enqueue(file, "q", 1)
    assert asyncio.run(accepted(file, 1)) == [1]


async def test_plain_sql_enqueues(shop: str, file: str) -> None:
    connection = await asyncpg.connect(shop)
    await connection.execute("SELECT onceward_enqueue('q', '{\"a\": 1}')")
    await connection.execute("SELECT onceward_enqueue('q', 'true', key => 'k')")
    await connection.execute("INSERT INTO onceward_outbox (queue, body) VALUES ('q', '2')")
    await connection.close()
    assert await accepted(shop, 3) == [2, True, {"a": 1}]
    with sqlite3.connect(file.removeprefix("sqlite:///")) as database:
        database.execute("INSERT INTO onceward_outbox (queue, body, key) VALUES ('q', '[2]', 'l')")
    database.close()
    assert await accepted(file, 1) == [[2]]


async def test_rows_that_cannot_be_accepted_move_to_the_failed_ones(shop: str, file: str) -> None:
    connection = await asyncpg.connect(shop)
    await connection.execute("SELECT onceward_enqueue('no queue', 'true')")
    await connection.execute("SELECT onceward_enqueue('q', '1', options => '{\"priority\": 77}')")
    await connection.execute(
        "INSERT INTO onceward_outbox (queue, created_at, key) VALUES ('q', 'infinity', 'k')"
    )
    assert await accepted(shop, 1) == [None]
    rows = await connection.fetch("SELECT queue, reason FROM onceward_outbox_failed ORDER BY 1, 2")
    assert [row["queue"] for row in rows] == ["no queue", "q"]
    assert "a priority must be 0 (first) to 9, not 77" in rows[1]["reason"]
    assert await connection.fetchval("SELECT count(*) FROM onceward_outbox") == 0
    await connection.close()

    database = sqlite3.connect(file.removeprefix("sqlite:///"))
    for values in (("q", b"\xff\xfe"), (b"\xff", "1"), ("q", 1.5), ("q", "{")):
        database.execute("INSERT INTO onceward_outbox (queue, body) VALUES (?, ?)", values)
    database.execute("INSERT INTO onceward_outbox (queue, options) VALUES ('q', '[]')")
    database.execute("INSERT INTO onceward_outbox (queue, key) VALUES ('q', 'k')")
    database.commit()
    assert await accepted(file, 2) == [1.5, None]
    found = [reason for (reason,) in database.execute("SELECT reason FROM onceward_outbox_failed")]
    assert len(found) == 4
    assert any("the options of a message must be an object, not []" in reason for reason in found)
    database.close()


async def test_ids_of_messages_that_are_unusable_fail_their_rows(shop: str, file: str) -> None:
    """Ids that are too long to be recorded, that are no text, and that are used twice."""
    database = sqlite3.connect(file.removeprefix("sqlite:///"))
    for value in ("'" + "m" * 400_000 + "'", "x'00ff'", "CAST(x'ff41' AS TEXT)", "''"):
        query = "INSERT INTO onceward_outbox (queue, message, key) VALUES ('q', {}, 'k')"
        database.execute(query.format(value))
    database.execute("INSERT INTO onceward_outbox (queue) VALUES ('q')")
    database.commit()
    assert await accepted(file, 1) == [None]
    found = [reason for (reason,) in database.execute("SELECT reason FROM onceward_outbox_failed")]
    assert len(found) == 4
    assert all(
        "the id of a message must have 1 to 256 bytes of printable text" in one for one in found
    )
    database.close()

    connection = await asyncpg.connect(shop)
    for queue in ("no queue", "no queue", "q"):
        await connection.execute(
            "INSERT INTO onceward_outbox (queue, message) "
            "VALUES ($1, '00000000-0000-0000-0000-000000000001')",
            queue,
        )
    assert await accepted(shop, 1) == [None]
    assert await connection.fetchval("SELECT count(*) FROM onceward_outbox_failed") == 1
    await connection.close()


async def test_large_bodies_fit_into_memory_and_into_commits(shop: str, file: str) -> None:
    """Bodies of 4 bytes for each character, as many as fit, and one that is cut when it is read."""
    for url in (shop, file):
        bodies = [f"{number:02}" + "\N{ROCKET}" * 83_000 for number in range(12)]
        for body in ("x" * 3_000_000, *bodies):
            run(url, f"INSERT INTO onceward_outbox (queue, body) VALUES ('q', '\"{body}\"')")
        assert sorted(await accepted(url, 12)) == bodies
        [(reason,)] = run(url, "SELECT reason FROM onceward_outbox_failed")
        assert "the body of the message must have at most 1000000 characters" in str(reason)
        [(size,)] = run(url, "SELECT length(CAST(body AS text)) FROM onceward_outbox_failed")
        assert size == 3_000_002


async def test_names_of_rows_that_are_too_long_are_not_read_completely(
    shop: str, file: str
) -> None:
    for url in (shop, file):
        text = "x" * 2_000_000
        for row in (f"'{text}', NULL, NULL", f"'q', '{text}', NULL", f"'q', NULL, '{text}'"):
            run(url, f"INSERT INTO onceward_outbox (queue, key, order_key) VALUES ({row})")
        source = source_of(url)
        rows = await source.read((), 9)
        await source.close()
        assert max(len(text or "") for row in rows for text in row[2:6]) == 2_049
        run(url, "INSERT INTO onceward_outbox (queue) VALUES ('q')")
        assert await accepted(url, 1) == [None]
        reasons = run(url, "SELECT reason FROM onceward_outbox_failed ORDER BY reason")
        things = ("a queue name", "an idempotency key", "an order key")
        words = [f"{thing} must have" for thing in things]
        assert all(word in str(reason) for word, (reason,) in zip(words, reasons, strict=True))
        lengths = "length(queue) + coalesce(length(key), 0) + coalesce(length(order_key), 0)"
        query = f"SELECT min({lengths}) >= 2000000 FROM onceward_outbox_failed"
        assert run(url, query)[0][0]  # they are stored as they were


@pytest.mark.parametrize("name", ["key", "order_key", "limit_key"])
async def test_lone_surrogates_are_refused(name: str, file: str) -> None:
    options: dict[str, Any] = {name: "\ud800"}
    database = sqlite3.connect(file.removeprefix("sqlite:///"))
    with pytest.raises(BadInput, match="surrogates"):
        sql.enqueue(database, "q", 1, **options)
    database.close()


@pytest.mark.parametrize(
    "values", [{"body": ["\0"]}, {"key": "a\0"}, {"order_key": "\0"}, {"limit_key": "\0"}]
)
async def test_nul_characters_are_refused_before_postgres_does(
    values: dict[str, Any], shop: str, file: str
) -> None:
    """An error of the database would abort the transaction of the application."""
    message = {"queue": "q", "body": None, **values}
    with psycopg.connect(shop) as connection:
        with pytest.raises(BadInput, match="PostgreSQL cannot store NUL characters"):
            sql.enqueue(connection, **message)
        sql.enqueue(connection, "q", "\\u0000")
    assert await accepted(shop, 1) == ["\\u0000"]
    database = sqlite3.connect(file.removeprefix("sqlite:///"))
    with database:
        sql.enqueue(database, **message)
    database.close()
    assert await accepted(file, 1) == [message["body"]]


async def test_a_role_with_the_documented_privileges_enqueues(shop: str) -> None:
    name = shop.rpartition("/")[2]
    page = Path("docs/sql.md").read_text()
    grants = [line for line in page.splitlines() if line.startswith("GRANT ")]
    with psycopg.connect(shop) as connection:
        connection.execute(f"CREATE ROLE {name}")
        for grant in grants:
            grant = grant.replace("onceward.", "").replace("onceward ", "public ")
            connection.execute(grant.replace("TO shop", f"TO {name}"))
        connection.execute(f"SET LOCAL ROLE {name}")
        connection.execute("SELECT onceward_enqueue('q', '1', order_key => 'o')")
        sql.enqueue(connection, "q", 2)
        connection.execute("RESET ROLE")
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    assert sorted(await accepted(shop, 2)) == [1, 2]


async def test_a_row_in_an_open_transaction_is_accepted_when_it_commits(shop: str) -> None:
    late = await asyncpg.connect(shop)
    transaction = late.transaction()
    await transaction.start()
    await sql.enqueue_async(late, "other", "late", key="late")
    async with await psycopg.AsyncConnection.connect(shop) as connection:
        message = await sql.enqueue_async(connection, "q", "first")
    app = onceward.App("memory://")
    app.sql_outbox(shop, name="s")
    async with app, asyncio.timeout(WAIT_S):
        [claim] = await app.claim("q", "w", lease_s=60, wait_s=WAIT_S)
        assert (claim.body, claim.dedupe and claim.dedupe.key) == ("first", message)
        await transaction.commit()
        [claim] = await app.claim("other", "w", lease_s=60, wait_s=WAIT_S)
        assert claim.body == "late"
    await late.close()


async def test_transactions_with_one_order_key_wait_for_each_other(shop: str) -> None:
    first, second = await asyncpg.connect(shop), await asyncpg.connect(shop)
    transaction = first.transaction()
    await transaction.start()
    await first.execute("SELECT onceward_enqueue('q', '1', order_key => 'o')")
    # By a plain INSERT, which the trigger orders as well.
    waiting = asyncio.create_task(
        second.execute("INSERT INTO onceward_outbox (queue, body, order_key) VALUES ('q','3','o')")
    )
    pid = second.get_server_pid()
    while not await first.fetchval("SELECT cardinality(pg_blocking_pids($1))", pid):  # noqa: ASYNC110 - nobody else could tell
        await asyncio.sleep(0)
    await first.execute("SELECT onceward_enqueue('q', '2', order_key => 'o')")
    await transaction.commit()
    await waiting
    rows = await first.fetch("SELECT body FROM onceward_outbox ORDER BY id")
    assert [row["body"] for row in rows] == ["1", "2", "3"]
    await first.close()
    await second.close()


async def test_a_notification_wakes_the_node(shop: str) -> None:
    await migrate(shop, notify=True)
    app = onceward.App("memory://")
    app.sql_outbox(shop, notify=True, poll_s=3_600, idle_poll_s=3_600)
    async with app, await psycopg.AsyncConnection.connect(shop) as connection:
        for number in range(3):
            await sql.enqueue_async(connection, "q", number)
            await connection.commit()
            [claim] = await app.claim("q", "w", lease_s=60, wait_s=WAIT_S)
            assert claim.body == number


async def test_a_file_that_is_replaced_by_a_copy_is_read(file: str, tmp_path: Path) -> None:
    """Messages of the copy that are known have no second effect. Ids of rows come back."""
    path, copy = tmp_path / "shop.db", tmp_path / "copy.db"
    with sqlite3.connect(path) as connection:
        sql.enqueue(connection, "q", 1)
        connection.commit()
        copy.write_bytes(path.read_bytes())
        sql.enqueue(connection, "q", 2)
    connection.close()
    with sqlite3.connect(copy) as connection:
        sql.enqueue(connection, "q", 3)
    connection.close()
    app = onceward.App("memory://")
    app.sql_outbox(file)
    runs: asyncio.Queue[Any] = asyncio.Queue()

    @app.handler("q")
    async def work(job: onceward.Job) -> None:
        runs.put_nowait(job.body)

    async with app, asyncio.timeout(WAIT_S):
        assert sorted([await runs.get(), await runs.get()]) == [1, 2]
        copy.replace(path)
        assert await runs.get() == 3
    assert runs.empty()


@pytest.mark.parametrize("connection", [None, "sqlite:///shop.db", object()])
async def test_only_known_connections_are_accepted(connection: Any) -> None:
    with pytest.raises(BadInput, match="is no supported connection; use one of SQLAlchemy"):
        sql.enqueue(connection, "q", 1)
    with pytest.raises(BadInput, match="is no supported connection"):
        await sql.enqueue_async(connection, "q", 1)


async def test_the_function_must_fit_the_connection(file: str) -> None:
    with sqlite3.connect(":memory:") as database, pytest.raises(BadInput, match="use `enqueue"):
        await sql.enqueue_async(database, "q", 1)
    database.close()


def test_unsupported_databases_are_refused() -> None:
    import sqlalchemy

    class Dialect:
        name = "mysql"

    class Connection(sqlalchemy.Connection):
        dialect = Dialect()  # type: ignore[assignment]

        def __init__(self) -> None: ...

    with pytest.raises(BadInput, match="unsupported database 'mysql'; use postgresql or sqlite"):
        sql.enqueue(Connection(), "q", 1)
    with pytest.raises(BadInput, match="unsupported database 'mysql'"):
        sql.statements("mysql")
    with pytest.raises(BadInput, match="no NOTIFY"):
        sql.statements("sqlite", notify=True)


def test_the_command_creates_the_outbox_and_prints_its_sql(
    tmp_path: Path, shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main(["outbox", "migrate", f"sqlite:///{tmp_path}/new.db"]) == 0
        assert main(["outbox", "migrate", shop, "--notify"]) == 0
    assert "has an outbox" in capsys.readouterr().out
    assert main(["outbox", "sql", "sqlite"]) == 0
    database = sqlite3.connect(":memory:")
    database.executescript(capsys.readouterr().out)
    sql.enqueue(database, "q", 1)
    database.close()
    assert main(["outbox", "sql", "postgres", "--notify"]) == 0
    with psycopg.connect(shop) as connection:
        connection.execute(capsys.readouterr().out)
    for statement in sql.statements("postgresql", notify=True):  # for migration tools
        with psycopg.connect(shop) as connection:
            connection.execute(statement)
    assert main(["outbox", "migrate", "mysql://x"]) == 2
    assert main(["outbox", "migrate", "postgresql://u:secret@127.0.0.1:1/x"]) == 75
    assert "secret" not in capsys.readouterr().err


async def test_a_database_without_an_outbox_raises_an_alarm_that_names_the_command(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shop.db"
    sqlite3.connect(path).close()
    app = onceward.App("memory://")
    app.sql_outbox(f"sqlite:///{path}")
    app.sql_outbox(f"sqlite:///{tmp_path}/missing.db")
    async with app, asyncio.timeout(WAIT_S):
        while len(alarms := list(app.alarms)) < 2:  # noqa: ASYNC110 - nobody else could tell
            await asyncio.sleep(0)
        assert {alarm.code for alarm in alarms} == {"outbox_unavailable"}
        shop, missing = sorted([alarm.message for alarm in alarms], reverse=True)
        assert "shop.db cannot be used" in shop
        assert "onceward outbox migrate" in shop
        assert "missing.db cannot be used: unable to open" in missing
