"""ASGI applications mounted below a prefix.

They are called with all of a request at once, and answer in one piece: nothing is streamed.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from onceward.errors import OncewardError
from onceward.web.http import Request, Response, Scope, problem
from onceward.web.routes import Routes, words_of

_API = b"/v1/"
# What a header is made of (RFC 9110, 5.5 and 5.6.2): another one cannot begin in it.
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_NOT_IN_VALUE = re.compile(rb"[\r\n\0]")
# How a body is sent is for the server to say.
_FRAMING = {b"content-length", b"transfer-encoding", b"connection", b"keep-alive"}


class Mount(NamedTuple):
    """An ASGI application below a prefix."""

    prefix: str
    web: Any

    async def answer(self, server: Any, request: Request) -> Response:
        """What it answers. Its scope has the server as `onceward`, which tells callers by their
        credentials. Raises what it raises, and `RuntimeError` if it does not answer."""
        exchange = _MountedExchange(request)
        await self.web(self._whole(server, request.scope), exchange.receive, exchange.send)
        return exchange.response()

    def refusal(self, error: OncewardError) -> Response:
        """What is answered to a request that is refused before it was whole: a problem
        document, unless the application has a `refusal` of its own."""
        refusal = getattr(self.web, "refusal", problem)
        response: Response = refusal(error)
        return response

    def _whole(self, server: Any, scope: Scope) -> Scope:
        raw: bytes = scope.get("raw_path", b"")
        return {
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "path": unquote(raw.decode("latin-1"), errors="replace"),
            **scope,
            "root_path": scope.get("root_path", "").rstrip("/") + self.prefix,
            "onceward": server,
        }


class Mounts:
    """All of an application's."""

    def __init__(self, mounted: Mapping[str, Any], routes: Routes) -> None:
        """Raises `bad_settings` for a prefix that would hide a part of the API."""
        self._mounts = {
            tuple(prefix.split("/")[1:]): Mount(prefix, web) for prefix, web in mounted.items()
        }
        taken = {route.path.split("/")[1] for route in routes}
        for words, mount in self._mounts.items():
            if words[0] in taken:
                raise OncewardError(
                    f"nothing can be mounted at {mount.prefix}: the API is there",
                    code="bad_settings",
                )

    def find(self, request: Request) -> Mount | None:
        """What answers a request, whose route is set, if anything is mounted there. Raises
        `BadInput` for an address that is no text."""
        mount = self.at(request.scope)
        if mount is not None:
            request.route = mount.prefix
        return mount

    def at(self, scope: Scope) -> Mount | None:
        """What is mounted at an address, if anything is. Raises `BadInput` as `find`."""
        if not self._mounts or _is_api(scope):
            return None  # most requests are for the API, and nothing can be mounted there
        words = words_of(scope)
        for count in range(len(words), 0, -1):
            if (mount := self._mounts.get(tuple(words[:count]))) is not None:
                return mount
        return None


class _MountedExchange:
    """A request and its response, as an ASGI application gets and makes them."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._read = False
        self._start: Scope | None = None
        self._body: list[bytes] = []

    async def receive(self) -> Scope:
        """All of the body; after that, that the caller is gone."""
        if self._read:
            await self._request.gone()
            return {"type": "http.disconnect"}
        self._read = True
        return {"type": "http.request", "body": self._request.whole, "more_body": False}

    async def send(self, message: Scope) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            self._body.append(message.get("body", b""))

    def response(self) -> Response:
        if self._start is None:
            raise RuntimeError("what is mounted has not answered")
        response = Response(self._start["status"])
        if not 200 <= response.status < 600:
            raise RuntimeError(f"what is mounted has answered with the status {response.status}")
        given = [(bytes(name).lower(), bytes(value)) for name, value in self._start["headers"]]
        for name, value in given:
            if not _NAME.fullmatch(name) or _NOT_IN_VALUE.search(value):
                raise RuntimeError(
                    f"what is mounted has answered with the header {name[:100]!a}: "
                    f"{value[:100]!a}, which would end the header or is no name of one"
                )
        response.headers = [header for header in given if header[0] not in _FRAMING]
        if response.status in (204, 304):  # these end with their head
            return response
        response.body = b"".join(self._body)
        response.headers.insert(0, (b"content-length", str(len(response.body)).encode()))
        return response


def _is_api(scope: Scope) -> bool:
    return (scope.get("raw_path") or b"").startswith(_API) and not scope.get("root_path")
