"""Opening a database: made ready once, by whoever comes first, or refused with a reason."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from onceward.engine.base import Put
from onceward.engine.postgres import PostgresEngine
from onceward.engine.postgres.schema import migrations
from onceward.errors import CannotOpen
from onceward.testing.postgres import PostgresServer

A = ("p", "a")


@pytest.fixture
async def admin(server: PostgresServer) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(server.url)
    yield connection
    await connection.close()


async def refused(url: str) -> CannotOpen:
    with pytest.raises(CannotOpen) as refusal:
        await PostgresEngine(url).open()
    return refusal.value


async def test_nodes_that_start_at_the_same_time_make_the_schema_once(url: str) -> None:
    engines = [PostgresEngine(url) for _ in range(8)]
    await asyncio.gather(*(engine.open() for engine in engines))
    await engines[0].commit([Put(A, b"1")], 0)
    for engine in engines:
        [record] = await engine.get([A], 0)
        assert record is not None
        await engine.close()


async def test_schemas_of_one_database_are_apart(server: PostgresServer, schema: str) -> None:
    async with (
        PostgresEngine(f"{server.url}?schema={schema}") as one,
        PostgresEngine(f"{server.url}?schema={schema}_other") as other,
    ):
        await one.commit([Put(A, b"1")], 0)
        assert await other.get([A], 0) == [None]


async def test_migrations_go_on_where_they_stopped(admin: Any, url: str, schema: str) -> None:
    async with PostgresEngine(url) as engine:
        await engine.commit([Put(A, b"1")], 0)
    await admin.execute(f"DROP FUNCTION {schema}.commit_batch, {schema}.commit_lane")
    await admin.execute(f"DROP FUNCTION {schema}.open_lane, {schema}.settle_batch")
    await admin.execute(f"DROP FUNCTION {schema}.be_durable")
    await admin.execute(f"DROP FUNCTION {schema}.server_identity, {schema}.find_incarnation")
    await admin.execute(f"DROP FUNCTION {schema}.accept_lost_commits")
    await admin.execute(f"DROP TABLE {schema}.lane, {schema}.incarnation")
    await admin.execute(f"DROP TABLE {schema}.onceward_outbox, {schema}.onceward_outbox_failed")
    await admin.execute(f"DROP FUNCTION {schema}.onceward_outbox_order, {schema}.onceward_enqueue")
    await admin.execute(f"UPDATE {schema}.meta SET value = '1'")
    async with PostgresEngine(url) as engine:
        await engine.commit([Put(A, b"2")], 0)
    applied = await admin.fetchval(f"SELECT value FROM {schema}.meta")
    assert int(applied) == len(migrations())


async def test_a_migration_that_fails_leaves_everything_as_it_was(
    admin: Any, url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = [*migrations(), "CREATE TABLE @schema@.more (n int); SELECT 1 / 0"]
    monkeypatch.setattr("onceward.engine.postgres.schema.migrations", lambda: scripts)
    error = await refused(url)
    assert error.code == "storage_failed"
    assert "division by zero" in error.message
    assert await admin.fetchval("SELECT to_regnamespace($1)", schema) is None


async def test_a_migration_may_take_longer_than_other_statements(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = [*migrations(), "SELECT pg_sleep(1)"]
    monkeypatch.setattr("onceward.engine.postgres.schema.migrations", lambda: scripts)
    engines = [PostgresEngine(url, answer_s=0.5) for _ in range(2)]
    await asyncio.gather(*(engine.open() for engine in engines))
    for engine in engines:
        await engine.close()


async def test_a_database_of_a_newer_version_is_refused(admin: Any, url: str, schema: str) -> None:
    async with PostgresEngine(url):
        pass
    await admin.execute(f"UPDATE {schema}.meta SET value = '99'")
    error = await refused(url)
    assert error.code == "database_newer"
    assert "Upgrade" in error.message


@pytest.mark.parametrize("columns", ["(other int)", "(name text, value text)"])
async def test_a_table_that_is_not_ours_is_left_alone(
    admin: Any, url: str, schema: str, columns: str
) -> None:
    await admin.execute(f"CREATE SCHEMA {schema}; CREATE TABLE {schema}.meta {columns}")
    error = await refused(url)
    assert error.code == "not_a_database"
    assert "another schema" in error.message
    assert await admin.fetchval(f"SELECT to_regclass('{schema}.record')") is None


async def test_a_schema_that_its_owner_has_made_is_filled(
    admin: Any, url: str, schema: str
) -> None:
    await admin.execute(f"CREATE SCHEMA {schema}")
    async with PostgresEngine(url) as engine:
        await engine.commit([Put(A, b"1")], 0)


async def test_a_database_that_is_not_there_is_named(server: PostgresServer) -> None:
    error = await refused(server.url.removesuffix("postgres") + "nowhere")
    assert error.code == "no_such_database"
    assert "/nowhere" in error.message


async def test_a_database_in_another_encoding_is_refused(
    admin: Any, server: PostgresServer
) -> None:
    await admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    error = await refused(server.url.removesuffix("postgres") + "latin")
    assert error.code == "not_a_database"
    assert "LATIN1" in error.message


async def test_who_may_not_make_the_schema_is_told_what_to_do(
    admin: Any, server: PostgresServer, schema: str
) -> None:
    await admin.execute(f"CREATE ROLE {schema} LOGIN")
    url = server.url.replace("postgres@", f"{schema}@")
    error = await refused(f"{url}?schema={schema}")
    assert error.code == "access_denied"
    assert "Grant" in error.message


async def test_who_may_use_the_schema_need_not_be_its_owner(
    admin: Any, server: PostgresServer, schema: str
) -> None:
    async with PostgresEngine(f"{server.url}?schema={schema}"):
        pass
    await admin.execute(f"""
        CREATE ROLE {schema} LOGIN;
        GRANT USAGE ON SCHEMA {schema} TO {schema};
        GRANT SELECT ON {schema}.meta TO {schema};
        GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.record, {schema}.lane TO {schema};
        GRANT USAGE ON SEQUENCE {schema}.batch TO {schema};
    """)
    url = server.url.replace("postgres@", f"{schema}@")
    async with PostgresEngine(f"{url}?schema={schema}") as engine:
        await engine.commit([Put(A, b"1")], 0)
        assert await engine.sweep(0) == 0


async def test_a_server_that_is_not_there_is_named(unused_port: int) -> None:
    error = await refused(f"postgresql://user:secret@127.0.0.1:{unused_port}/db")
    assert error.code == "engine_unreachable"
    assert f"127.0.0.1:{unused_port}/db" in error.message
    assert "secret" not in error.message


async def test_a_user_that_is_not_there_is_refused(server: PostgresServer) -> None:
    error = await refused(server.url.replace("postgres@", "nobody@"))
    assert error.code == "access_denied"
    assert "nobody" in error.message
