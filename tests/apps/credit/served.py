"""ASGI applications on real sockets, in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn


@asynccontextmanager
async def serving(web: Any, **options: Any) -> AsyncIterator[str]:
    """The address of an application, while the context lasts."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(web, log_config=None, lifespan="off", ws="none", **options)
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve([listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await running


@asynccontextmanager
async def answering(answer: Callable[[bytes], bytes]) -> AsyncIterator[str]:
    """The address of something that answers each request with bytes of its own; with none, it
    cuts the connection."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(head))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def plain(status: int, body: bytes = b"{}", *headers: str) -> bytes:
    """An answer, as it goes over the wire."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
