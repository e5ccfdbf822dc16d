"""A server in this process, and what may stand between it and a client."""

import asyncio
import re
import socket
from collections.abc import Iterable
from enum import StrEnum
from types import TracebackType
from typing import Self

import uvicorn

from onceward.app import App
from onceward.clock import Clock
from onceward.web.auth import Auth
from onceward.web.protocol import Protocol
from onceward.web.server import Server
from onceward.web.websocket import WebSocket


class Served:
    """A server with a database in memory, on a port of its own."""

    def __init__(self, app: App | None = None, auth: Auth | None = None, port: int = 0) -> None:
        self.app = app or App("memory://", slots=4)
        self.port = port
        self.server = Server(self.app, auth or Auth(dev=True))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.server.start()
        # Named as TCP, so that asyncio lets small answers go at once.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        listening.listen()
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(
            self.server,
            http=Protocol,
            ws=WebSocket,
            lifespan="off",
            log_config=None,
            proxy_headers=False,
        )
        self._listener = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._listener.serve([listening]))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.server.drain()
        self._listener.should_exit = True
        await self._serving
        await self.server.stop()


class Loss(StrEnum):
    """What becomes of a request and its answer."""

    REQUEST = "request lost"
    """It never reaches the server."""
    ANSWER = "answer lost"
    """The server has done it; the client loses the connection before it hears so."""
    HALF = "answer cut in half"


class Cutter:
    """Stands before a server, and cuts connections at requests whose first line has a word in
    it: once for each loss given."""

    def __init__(self, port: int, word: str = "", losses: Iterable[Loss] = ()) -> None:
        self.word = word
        self.losses = list(losses)
        self.requests: list[str] = []
        """The first lines of all requests that came by."""
        self.deaf = asyncio.Event()
        """While set, nothing comes through at all."""
        self._upstream = port
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.deaf.is_set():
            writer.transport.abort()
            return
        answers, server = await asyncio.open_connection("127.0.0.1", self._upstream)
        self._writers |= {writer, server}
        try:
            while await self._pass_on(reader, server, answers, writer):
                pass
        except (EOFError, OSError):
            pass  # one of them has gone
        finally:
            self._writers -= {writer, server}
            writer.transport.abort()
            server.transport.abort()

    async def _pass_on(
        self,
        requests: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        client: asyncio.StreamWriter,
    ) -> bool:
        request = await read_message(requests)
        line = request.partition(b"\r\n")[0].decode()
        self.requests.append(line)
        loss = self.losses.pop(0) if self.losses and self.word in line else None
        if loss is Loss.REQUEST or self.deaf.is_set():
            return False
        server.write(request)
        answer = await read_message(answers)
        if loss is Loss.ANSWER:
            return False
        client.write(answer[: len(answer) // 2] if loss is Loss.HALF else answer)
        await client.drain()
        return loss is None


async def read_message(reader: asyncio.StreamReader) -> bytes:
    """A request or an answer; raises `EOFError` if there are no more."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return head + (await reader.readexactly(int(length[1])) if length else b"")


class Script:
    """Answers requests with what is written, one after the other and the last for ever; None
    closes the connection without an answer."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self._asked = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()

    async def until(self, requests: int) -> None:
        """Wait for so many."""
        while len(self.requests) < requests:
            self._asked.clear()
            await self._asked.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await read_message(reader))
            self._asked.set()
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if answer is not None:
                writer.write(answer)
                await writer.drain()
        except (EOFError, OSError):
            pass
        finally:
            writer.close()


def answer(status: int, body: bytes, *headers: str) -> bytes:
    """An answer as it goes over the wire."""
    lines = [f"HTTP/1.1 {status} Something", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


class Sprinting(Clock):
    """A clock whose time passes by sleeping, at once."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []
        super().__init__(boot_ns=lambda: int(sum(self.slept_s) * 1e9))

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await asyncio.sleep(0)
