"""Callers without credentials that misbehave, as a process of their own:

python -m tests.web.strangers PORT WAY CONNECTIONS ADDRESSES

It runs until it is killed. Connections that are closed are opened again. Strangers would have
machines of their own: so this process has a lower priority than the server.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from onceward.clock import Clock

_HOST = b"Host: localhost\r\n"
_UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\n" + _HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_BODY = b"POST /v1/inbox/q/batch HTTP/1.1\r\n" + _HOST + b"Content-Length: 8000000\r\n\r\n"
_FRAME = b"\x81\xff" + (1 << 20).to_bytes(8) + b"mask" + b"x" * 900_000
_PAUSE_S = 0.5

Way = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _held(reader: asyncio.StreamReader) -> None:
    """Read until the server closes."""
    while await reader.read(1 << 16):
        pass


def _sending(start: bytes, data: bytes, times: int) -> Way:
    """Send something many times and never finish it."""

    async def way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reading = asyncio.create_task(_held(reader))
        try:
            writer.write(start)
            for _ in range(times):
                writer.write(data)
                await writer.drain()
            await reading
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    return way


WAYS: dict[str, Way] = {
    "idle connections": _sending(b"", b"", 0),
    "unfinished heads of short headers": _sending(
        b"GET / HTTP/1.1\r\n" + _HOST, b"a:b\r\n" * 100, 120
    ),
    "pipelined requests": _sending(b"", b"GET /healthz HTTP/1.1\r\n" + _HOST + b"\r\n", 1 << 30),
    "unfinished bodies": _sending(_BODY, b"x" * 100_000, 79),
    "WebSockets before `hello`": _sending(_UPGRADE, _FRAME, 1),
}
MIXED = "all of them"


async def _misbehave(port: int, ways: list[Way], number: int, addresses: int) -> None:
    clock, local = Clock(), (f"127.0.0.{2 + number % addresses}", 0)
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=local)
        except OSError:
            await clock.sleep(_PAUSE_S)
            continue
        try:
            await ways[number % len(ways)](reader, writer)
        except OSError:
            pass
        finally:
            writer.close()
        await clock.sleep(_PAUSE_S)


async def _run(port: int, way: str, connections: int, addresses: int) -> None:
    ways = list(WAYS.values()) if way == MIXED else [WAYS[way]]
    tasks = [
        asyncio.create_task(_misbehave(port, ways, number, addresses))
        for number in range(connections)
    ]
    print("ready", flush=True)
    await asyncio.wait(tasks)


if __name__ == "__main__":
    os.nice(10)
    asyncio.run(_run(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
