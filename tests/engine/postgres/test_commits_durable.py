"""Commits are durable, whatever is set elsewhere."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from onceward.engine.base import Put
from onceward.engine.postgres import PostgresEngine

A, B = ("p", "a"), ("p", "b")
NOW_MS = 1_000


@pytest.fixture
async def engine(url: str) -> AsyncIterator[PostgresEngine]:
    async with PostgresEngine(url) as engine:
        yield engine


NOTE_DURABILITY = """
CREATE TABLE {schema}.noted (setting text);
CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.noted VALUES (current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note AFTER INSERT ON {schema}.record
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.note();
"""
"""What is set when a transaction comes to its end."""


@pytest.mark.parametrize("setting", ["off", "local", "on"])
async def test_commits_are_durable_though_the_server_is_set_otherwise_meanwhile(
    engine: PostgresEngine, url: str, schema: str, setting: str
) -> None:
    await engine.commit([Put(A, b"1")], NOW_MS)
    admin = await asyncpg.connect(url.partition("?")[0])
    await admin.execute(NOTE_DURABILITY.format(schema=schema))
    link = await engine._commits._links.take()
    try:
        await admin.execute(f"ALTER SYSTEM SET synchronous_commit = {setting}")
        await admin.execute("SELECT pg_reload_conf()")
        while (await link.fetch("SHOW synchronous_commit"))[0][0] != setting:
            pass
        engine._commits._links.give(link)
        await engine.commit([Put(B, b"1")], NOW_MS)
        noted = await admin.fetchval(f"SELECT setting FROM {schema}.noted")
        assert noted == ("on" if setting == "off" else setting)
    finally:
        await admin.execute("ALTER SYSTEM RESET synchronous_commit")
        await admin.execute("SELECT pg_reload_conf()")
        await admin.close()
