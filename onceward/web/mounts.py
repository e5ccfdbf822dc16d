"""ASGI applications mounted below a prefix.

They get complete requests and return complete responses; there is no streaming.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from onceward.errors import OncewardError
from onceward.web.http import Request, Response, Scope, problem
from onceward.web.routes import Routes, words_of

_API = b"/v1/"
# The characters of a header (RFC 9110, 5.5 and 5.6.2), which exclude header injection.
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_NOT_IN_VALUE = re.compile(rb"[\r\n\0]")
# The server decides how a body is sent.
_FRAMING = {b"content-length", b"transfer-encoding", b"connection", b"keep-alive"}


class Mount(NamedTuple):
    """An ASGI application below a prefix."""

    prefix: str
    web: Any

    async def answer(self, server: Any, request: Request) -> Response:
        """Call the application; returns its response. The server is in its scope as `onceward`, for
        authentication.

        Raises errors of the application, and `RuntimeError` if it does not respond.
        """
        exchange = _MountedExchange(request)
        await self.web(self._whole(server, request.scope), exchange.receive, exchange.send)
        return exchange.response()

    def refusal(self, error: OncewardError) -> Response:
        """The response to a request that is rejected before it is complete: the application's
        `refusal` if it has this method, otherwise a problem document."""
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
    """All mounted applications."""

    def __init__(self, mounted: Mapping[str, Any], routes: Routes) -> None:
        """Raises `bad_settings` for a prefix that would hide a part of the API."""
        self._mounts = {
            tuple(prefix.split("/")[1:]): Mount(prefix, web) for prefix, web in mounted.items()
        }
        taken = {route.path.split("/")[1] for route in routes}
        for words, mount in self._mounts.items():
            if words[0] in taken:
                raise OncewardError(
                    f"cannot mount at {mount.prefix}: it belongs to the API; choose another prefix",
                    code="bad_settings",
                )

    def find(self, request: Request) -> Mount | None:
        """Find the application for a request, and set its route. Raises `BadInput` for an invalid
        path."""
        mount = self.at(request.scope)
        if mount is not None:
            request.route = mount.prefix
        return mount

    def at(self, scope: Scope) -> Mount | None:
        """Find the application at a path. Raises `BadInput` as `find`."""
        if not self._mounts or _is_api(scope):
            return None  # most requests are for the API, where nothing can be mounted
        words = words_of(scope)
        for count in range(len(words), 0, -1):
            if (mount := self._mounts.get(tuple(words[:count]))) is not None:
                return mount
        return None


class _MountedExchange:
    """A request and its response through the ASGI interface."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._read = False
        self._start: Scope | None = None
        self._body: list[bytes] = []

    async def receive(self) -> Scope:
        """Return the complete body, then a disconnect."""
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
            raise RuntimeError("the mounted application did not respond")
        response = Response(self._start["status"])
        if not 200 <= response.status < 600:
            raise RuntimeError(
                f"the mounted application responded with the status {response.status}"
            )
        given = [(bytes(name).lower(), bytes(value)) for name, value in self._start["headers"]]
        for name, value in given:
            if not _NAME.fullmatch(name) or _NOT_IN_VALUE.search(value):
                raise RuntimeError(
                    f"the mounted application responded with the invalid header {name[:100]!a}: "
                    f"{value[:100]!a}"
                )
        response.headers = [header for header in given if header[0] not in _FRAMING]
        if response.status in (204, 304):  # these have no body
            return response
        response.body = b"".join(self._body)
        response.headers.insert(0, (b"content-length", str(len(response.body)).encode()))
        return response


def _is_api(scope: Scope) -> bool:
    return (scope.get("raw_path") or b"").startswith(_API) and not scope.get("root_path")
