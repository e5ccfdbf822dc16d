"""A wire passes everything on, until it is told not to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from onceward.clock import Clock
from tests.chaos.wire import DOWN, UP, Wire

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """A server that says again what it hears, and notes it."""

    def __init__(self) -> None:
        self.heard = b""
        self.connections = 0
        self.gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while data := await reader.read(1_000):
                self.heard += data
                writer.write(data)
        except OSError:
            pass
        finally:
            self.gone.set()
            writer.close()


@asynccontextmanager
async def wired() -> AsyncIterator[tuple[Echo, Wire]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with server, Wire(server.sockets[0].getsockname()[1]) as wire:
        yield echo, wire


async def connect(wire: Wire) -> Streams:
    return await asyncio.open_connection("127.0.0.1", wire.port)


async def say(streams: Streams, text: bytes) -> bytes:
    """Say something, and hear what comes back."""
    reader, writer = streams
    writer.write(text)
    return await reader.readexactly(len(text))


async def lost(streams: Streams) -> bool:
    """Whether the connection ends."""
    try:
        return await streams[0].read(1) == b""
    except OSError:
        return True
    finally:
        streams[1].close()


async def test_what_is_said_comes_through_both_ways_and_so_does_the_end() -> None:
    async with wired() as (echo, wire):
        one, other = await connect(wire), await connect(wire)
        assert await say(one, b"hello") == b"hello"
        assert await say(other, b"x" * 200_000) == b"x" * 200_000
        other[1].close()
        await echo.gone.wait()
        assert await say(one, b"still here") == b"still here"
        one[1].close()
        assert wire.passed == 2


async def test_a_cut_ends_connections_for_both_sides_and_new_ones_can_be_made() -> None:
    async with wired() as (echo, wire):
        streams = await connect(wire)
        await say(streams, b"hello")
        assert wire.cut() == 1
        assert await lost(streams)
        await echo.gone.wait()
        streams = await connect(wire)
        assert await say(streams, b"again") == b"again"
        streams[1].close()


@pytest.mark.parametrize("direction", [UP, DOWN])
async def test_half_open_connections_swallow_one_direction_and_are_cut_in_the_end(
    direction: str,
) -> None:
    async with wired() as (echo, wire):
        old = await connect(wire)
        await say(old, b"before")
        async with wire.half_open(direction):
            new = await connect(wire)
            for _, writer in (old, new):
                writer.write(b"into the void")
            while echo.connections < 2 or (direction == DOWN and echo.heard.count(b"void") < 2):
                await Clock().sleep(0.001)
        assert await lost(old)
        assert await lost(new)
        assert (b"void" in echo.heard) == (direction == DOWN)
        streams = await connect(wire)
        assert await say(streams, b"after") == b"after"
        streams[1].close()


async def test_one_that_lasts_stays_until_someone_cuts_it() -> None:
    async with wired() as (echo, wire):
        old = await connect(wire)
        await say(old, b"before")
        async with wire.half_open(UP, lasting=True):
            pass
        old[1].write(b"nobody hears this")
        streams = await connect(wire)
        assert await say(streams, b"after") == b"after"
        streams[1].close()
        assert echo.heard == b"beforeafter"
        wire.cut()
        assert await lost(old)


async def test_what_is_delayed_comes_and_in_order() -> None:
    async with wired() as (_, wire):
        streams = await connect(wire)
        async with wire.delayed(0.01):
            assert await say(streams, b"one") == b"one"
            assert await say(streams, b"two") == b"two"
        streams[1].close()


async def test_a_server_that_is_down_is_a_connection_that_ends() -> None:
    server = await asyncio.start_server(Echo().serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with Wire(port) as wire:
        assert await lost(await connect(wire))
