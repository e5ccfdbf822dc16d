"""The protocol on real connections, with a small application behind it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from onceward.errors import BadInput
from onceward.web.connections import Connections
from onceward.web.http import CONNECTION, Request
from onceward.web.protocol import Protocol
from tests.web.wire import Connection

HEAD = b"POST /v1/inbox/q HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"body":1,"key":"k"}'
CHUNKS = b"14\r\n" + BODY + b"\r\n0\r\n\r\n"
LENGTH = b"Content-Length: 20\r\n"
GOOD = b"Authorization: Bearer good\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


class Site:
    """The protocol alone, with an application that notes what it gets."""

    def __init__(self) -> None:
        self.connections = Connections()
        self.bodies: list[bytes] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.paths: list[bytes] = []
        self.answered = b"{}"
        self.hold: asyncio.Event | None = None
        """Answers wait for it, if there is one."""
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.port = 0
        self.server: uvicorn.Server

    def vouch(self, request: Request) -> bool:
        """Whether it has valid credentials, before its body has come."""
        if request.header(b"authorization") == "Bearer bad":
            raise BadInput("bad", code="no_credentials")
        return request.header(b"authorization") == "Bearer good"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.vouch(Request(scope, receive)):
            scope[CONNECTION].authenticate()
        self.bodies.append((await receive())["body"])
        self.paths.append(scope["raw_path"])
        self.headers = scope["headers"]
        self.asked.set()
        if self.hold is not None:
            gone = asyncio.create_task(receive())
            held = asyncio.create_task(self.hold.wait())
            await asyncio.wait([gone, held], return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                assert gone.result()["type"] == "http.disconnect"
                self.gone.set()
            for waiting in (gone, held):
                waiting.cancel()
        headers = [(b"content-length", str(len(self.answered)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.answered})

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 - nobody else could tell
                await asyncio.sleep(0)

    async def connect(self) -> Connection:
        return Connection(*await asyncio.open_connection("127.0.0.1", self.port))


@asynccontextmanager
async def standing() -> AsyncIterator[Site]:
    """A site that stands while the context does."""
    site = Site()
    config = uvicorn.Config(
        site,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        port=0,
        host="127.0.0.1",
        proxy_headers=False,
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    site.port = server.servers[0].sockets[0].getsockname()[1]
    site.server = server
    yield site
    await server.shutdown()
