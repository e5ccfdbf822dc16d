"""An endpoint that behaves as a test tells it to, well or badly."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Request:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """The first connection is 1."""


class Wire:
    """The connection a request came on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *pieces: bytes) -> None:
        """Send pieces one after the other, each on its own if the network likes."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Close it in good order."""
        self._writer.close()

    async def reset(self) -> None:
        """Close it as a machine that crashed does."""
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the other side has closed it."""
        try:
            while await self._reader.read(65536):
                pass
        except ConnectionError:
            pass


Behaviour = Callable[[Request, Wire], Awaitable[None]]


def answering(*pieces: bytes, end: bool = False) -> Behaviour:
    """Answers every request with these bytes."""

    async def answer(request: Request, wire: Wire) -> None:
        await wire.send(*pieces)
        if end:
            await wire.end()

    return answer


async def hanging(request: Request, wire: Wire) -> None:
    """Never answers."""
    await wire.gone()


class Gate:
    """Answers nobody until it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def __call__(self, request: Request, wire: Wire) -> None:
        await self.opened.wait()
        await wire.send(OK)


class Endpoint:
    """A server on this machine."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests: list[Request] = []
        self.connections = 0
        self._arrived = asyncio.Event()
        self.left = asyncio.Event()
        """A connection was closed by the other side."""
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str = "/hook", scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def arrived(self, count: int) -> None:
        """Wait until so many requests have come."""
        while len(self.requests) < count:
            self._arrived.clear()
            await self._arrived.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        connection = self.connections
        wire = Wire(reader, writer)
        try:
            while not writer.is_closing():
                request = await _read(reader, connection)
                self.requests.append(request)
                self._arrived.set()
                await self.behaviour(request, wire)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            self.left.set()
            writer.transport.abort()

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _read(reader: asyncio.StreamReader, connection: int) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(line, headers, body, connection)


@asynccontextmanager
async def endpoint(
    behaviour: Behaviour, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Endpoint]:
    """An endpoint that is there while the context is."""
    made = Endpoint(behaviour)
    server = await asyncio.start_server(made.serve, host, 0, ssl=tls, backlog=1024)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.stop()
        await server.wait_closed()


@contextmanager
def full(address: tuple[str, int]) -> Iterator[int]:
    """A port on which so many wait already that nobody else is let in; says which one."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(address, backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            assert waiting.connect_ex(server.getsockname()) in (0, errno.EINPROGRESS)
        yield server.getsockname()[1]
