"""Calls a server over the protocol of `onceward serve`, on connections in memory; or as an ASGI
application, if it is mounted in another one."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from string import punctuation
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote

from uvicorn.server import ServerState

from onceward.app import App
from onceward.web.auth import ApiKey, Auth, digest_of
from onceward.web.protocol import Protocol
from onceward.web.server import Server
from tests.work.apps import Apps

Header = tuple[str, str | bytes]

HOST = "127.0.0.1:8080"


class Answer:
    """What was answered."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of a problem document, which says the same as the status."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        problem = self.json
        assert problem["status"] == self.status
        assert problem["type"] == f"urn:onceward:problem:{problem['code']}"
        assert problem["detail"]
        found: str = problem["code"]
        return found

    @property
    def verdict(self) -> tuple[int, str]:
        return self.status, self.code


class Call:
    """One request, which may be left waiting."""

    def __init__(
        self,
        server: Server,
        line: tuple[str, str],
        headers: list[tuple[bytes, bytes]],
        pieces: Sequence[bytes],
        client: tuple[str, int] | None = None,
    ) -> None:
        self.gone = asyncio.Event()
        """Set it, and the caller disconnects."""
        self._server = server
        self._line = line
        self._headers = headers
        self._pieces = list(pieces)
        self._client = client

    async def run(self) -> Answer | None:
        """The answer; None if there was none, since the caller has gone."""
        config: Any = SimpleNamespace(
            loaded_app=self._server, timeout_keep_alive=75, ws_protocol_class=None
        )
        state = ServerState()
        protocol = Protocol(config, state, {})
        pipe = Pipe(protocol, self._line[0], self._client)
        protocol.connection_made(pipe)
        answering = list(state.tasks)
        gone = asyncio.create_task(self.gone.wait())
        try:
            for piece in self._written():
                if self.gone.is_set():
                    break
                await pipe.feed(piece)
            await asyncio.wait([gone, pipe.answered], return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            pipe.abort()
        await asyncio.wait(answering)
        return pipe.answered.result() if pipe.answered.done() else None

    def _written(self) -> Iterable[bytes]:
        """The request as it is sent, in pieces."""
        method, target = self._line
        names = {name for name, _ in self._headers}
        body = [] if names & {b"content-length", b"transfer-encoding"} else [self._length()]
        lines = [b"%b: %b" % header for header in [*self._headers, *body]]
        head = b"\r\n".join([f"{method} {target} HTTP/1.1".encode(), *lines, b"", b""])
        if b"transfer-encoding" in names:
            pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in self._pieces if piece]
            return [head, *pieces, b"0\r\n\r\n"]
        first, *rest = self._pieces or [b""]
        return [head + first, *rest]

    def _length(self) -> tuple[bytes, bytes]:
        return b"content-length", str(sum(map(len, self._pieces))).encode()


class AsgiCall(Call):
    """One request to a server that is mounted in another application."""

    def __init__(self, *args: Any, root_path: str = "") -> None:
        super().__init__(*args)
        self._root_path = root_path

    async def run(self) -> Answer | None:
        method, target = self._line
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path, errors="replace"),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": self._root_path,
            "headers": self._headers,
        }
        messages: list[Any] = []

        async def send(message: Any) -> None:
            messages.append(message)

        await self._server(scope, self._receive, send)
        if not messages:
            return None
        start, *bodies = messages
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], headers, b"".join(one["body"] for one in bodies))

    async def _receive(self) -> dict[str, Any]:
        if self._pieces and not self.gone.is_set():
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self.gone.wait()
        return {"type": "http.disconnect"}


class Pipe(asyncio.Transport):
    """The transport of a connection in memory, which reads one answer."""

    def __init__(self, protocol: Protocol, method: str, client: tuple[str, int] | None) -> None:
        super().__init__()
        self.answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._protocol = protocol
        self._method = method
        self._client = client
        self._reads = asyncio.Event()
        self._reads.set()
        self._closing = False
        self._written = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        # A descriptor that is surely not one of the last ones.
        found = {"peername": self._client, "socket": SimpleNamespace(fileno=lambda: 3)}
        return found.get(name, default)

    async def feed(self, data: bytes) -> None:
        """Let something come, as soon as it is read."""
        while data and not self._closing:
            await self._reads.wait()
            buffer = self._protocol.get_buffer(-1)
            count = min(len(data), len(buffer))
            buffer[:count] = data[:count]
            self._protocol.buffer_updated(count)
            data = data[count:]
            await asyncio.sleep(0)

    def write(self, data: Any) -> None:
        self._written += data
        head, found, body = self._written.partition(b"\r\n\r\n")
        if not found or self.answered.done():
            return
        line, *lines = head.decode().split("\r\n")
        status = int(line.split(" ")[1])
        if status == 100:
            self._written = body
            return
        headers = dict(one.split(": ", 1) for one in lines)
        empty = self._method == "HEAD" or status in (204, 304)
        if empty or len(body) == int(headers["content-length"]):
            self.answered.set_result(Answer(status, headers, body))

    def pause_reading(self) -> None:
        self._reads.clear()

    def resume_reading(self) -> None:
        self._reads.set()

    def write_eof(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            self._reads.set()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


class Caller:
    """Calls a server, with credentials if it has some."""

    def __init__(self, server: Server, token: str | None = None) -> None:
        self.server = server
        self.app: App = server.app
        self.token = token

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | Sequence[bytes] | None = None,
        headers: Iterable[Header] = (),
        client: tuple[str, int] | None = None,
    ) -> Call:
        """A request that has yet to be made. The body is JSON, or comes raw, maybe in pieces."""
        if raw is None:
            raw = b"" if body is None else json.dumps(body).encode()
        pieces = [raw] if isinstance(raw, bytes) else list(raw)
        named = {"host": HOST, "content-type": "application/json"}
        if self.token is not None:
            named["authorization"] = f"Bearer {self.token}"
        asked = [(name.lower(), value) for name, value in headers]
        kept = [(name, value) for name, value in named.items() if name not in dict(asked)]
        encoded = [
            (name.encode(), value.encode() if isinstance(value, str) else value)
            for name, value in [*kept, *asked]
        ]
        return self._made((method, quote(path, safe=punctuation)), encoded, pieces, client)

    def _made(self, *args: Any) -> Call:
        return Call(self.server, *args)

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        """Make a request, and return the answer."""
        answer = await self.call(method, path, body, **options).run()
        assert answer is not None
        return answer

    async def ok(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The value that was answered to a request that went well."""
        answer = await self(method, path, body, **options)
        assert answer.status in (200, 202), answer.body
        return answer.json


class AsgiCaller(Caller):
    """Calls a server as another ASGI server does, or `web`: in which it is mounted, or a site."""

    def __init__(
        self, server: Server | None = None, *, web: Any = None, root_path: str = ""
    ) -> None:
        if server is not None:
            super().__init__(server)
        self.token = None
        self._web = web or server
        self._root_path = root_path

    def _made(self, *args: Any) -> Call:
        return AsgiCall(self._web, *args, root_path=self._root_path)


@asynccontextmanager
async def serving(
    app: App | None = None, auth: Auth | None = None, **options: Any
) -> AsyncIterator[Caller]:
    """A server in virtual time, on a memory of its own, in dev mode."""
    app = app or Apps(shared=False).make()
    async with Server(app, auth or Auth(dev=True), **options) as server:
        yield Caller(server)


def keyed(**scopes: str) -> tuple[Auth, dict[str, str]]:
    """Callers by name, with the scopes of each; and the key of each."""
    keys = {name: f"ow_{name}" for name in scopes}
    return Auth(
        [ApiKey(name, digest_of(keys[name]), tuple(scopes[name].split())) for name in scopes]
    ), keys


@asynccontextmanager
async def serving_to(**scopes: str) -> AsyncIterator[dict[str, Caller]]:
    """A server that knows these callers, by name, with the scopes of each."""
    auth, keys = keyed(**scopes)
    async with serving(auth=auth) as caller:
        yield {name: Caller(caller.server, key) for name, key in keys.items()}
