"""Calls a server the way an ASGI server does, without a network."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

from onceward.app import App
from onceward.web.auth import ApiKey, Auth, digest_of
from onceward.web.server import Server
from tests.work.apps import Apps

Header = tuple[str, str | bytes]

HOST = "127.0.0.1:8080"


class Answer:
    """What was answered."""

    def __init__(self, messages: list[Any]) -> None:
        start, *bodies = messages
        self.status: int = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        self.body = b"".join(message["body"] for message in bodies)

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

    def __init__(self, server: Server, scope: dict[str, Any], pieces: Sequence[bytes]) -> None:
        self.gone = asyncio.Event()
        self.messages: list[Any] = []
        self._pieces = list(pieces) or [b""]
        self._server = server
        self._scope = scope

    async def run(self) -> Answer | None:
        """The answer; None if there was none, since the caller has gone."""
        await self._server(self._scope, self._receive, self._send)
        return Answer(self.messages) if self.messages else None

    async def _receive(self) -> dict[str, Any]:
        if self._pieces and not self.gone.is_set():
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.messages.append(message)


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
        **scope: Any,
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
        path, _, query = path.partition("?")
        whole = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path, errors="replace"),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (name.encode(), value.encode() if isinstance(value, str) else value)
                for name, value in [*kept, *asked]
            ],
            **scope,
        }
        return Call(self.server, whole, pieces)

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
