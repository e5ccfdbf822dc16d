"""The protocol on real connections, with a small application behind it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn

from onceward.errors import BadInput, OncewardError
from onceward.web.connections import Connections
from onceward.web.http import CONNECTION, Request, Response, Scope, problem
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

    def takes(self, descriptor: int, connections: int) -> bool:
        return True

    def refusal(self, scope: Scope, error: OncewardError) -> Response:
        return problem(error)

    async def answer(self, request: Request) -> Response:
        if self.vouch(request):
            request.scope[CONNECTION].authenticate()
        self.bodies.append(request.whole)
        self.paths.append(request.scope["raw_path"])
        self.headers = request.scope["headers"]
        self.asked.set()
        if self.hold is not None:
            gone = asyncio.ensure_future(request.gone())
            held = asyncio.create_task(self.hold.wait())
            await asyncio.wait([gone, held], return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self.gone.set()
            for waiting in (gone, held):
                waiting.cancel()
        response = Response(200)
        response.body = self.answered
        response.headers = [(b"content-length", str(len(self.answered)).encode())]
        return response

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
        interface="asgi3",
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
