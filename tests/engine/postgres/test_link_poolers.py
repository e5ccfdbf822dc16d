"""A pooler between a node and its server takes few parameters at the start of a connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from onceward.engine.base import Put
from onceward.engine.postgres import PostgresEngine
from onceward.errors import CannotOpen
from onceward.testing.postgres import PostgresServer

A = ("p", "a")
# What PgBouncer takes, unless it is told to ignore more.
TAKEN = {b"user", b"database", b"client_encoding", b"application_name"}


class Pooler:
    """Looks at how a connection starts, and then passes on what comes."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = await reader.readexactly(4)
        start = await reader.readexactly(int.from_bytes(length) - 4)
        refused = set(start[4:].rstrip(b"\0").split(b"\0")[::2]) - TAKEN
        if refused:
            text = b"unsupported startup parameter: " + min(refused)
            fields = b"SFATAL\0VFATAL\0C08P01\0M" + text + b"\0\0"
            writer.write(b"E" + (len(fields) + 4).to_bytes(4) + fields)
            writer.close()
            return
        other_reader, other = await asyncio.open_connection("127.0.0.1", self._server_port)
        other.write(length + start)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pass_on(reader, other))
            group.create_task(self._pass_on(other_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()


@pytest.fixture
async def pooled(server: PostgresServer, schema: str) -> AsyncIterator[str]:
    listener = await asyncio.start_server(Pooler(server.port).serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    yield f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable&schema={schema}"
    listener.close()


async def test_a_connection_starts_with_what_a_pooler_takes(pooled: str) -> None:
    async with PostgresEngine(pooled) as engine:
        await engine.commit([Put(A, b"1")], 0)
        [record] = await engine.get([A], 0)
        assert record is not None


async def test_who_has_the_pooler_asked_for_more_is_told_so(pooled: str) -> None:
    with pytest.raises(CannotOpen, match="unsupported startup parameter: work_mem") as refused:
        await PostgresEngine(f"{pooled}&work_mem=64MB").open()
    assert refused.value.code == "bad_engine_url"
    assert "pooler" in refused.value.message
