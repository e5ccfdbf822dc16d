"""HTTP functions for health, readiness, metrics and the OpenAPI document."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from onceward.api import server as api
from onceward.errors import Unavailable
from onceward.web import metrics as metrics_text
from onceward.web.http import Request, Response
from onceward.web.openapi import at_root
from onceward.web.routes import Route

if TYPE_CHECKING:
    from onceward.web.server import Server

_WEB = files("onceward.web")
# In the colours of the console.
_PAGE = (
    _WEB.joinpath("api.html")
    .read_bytes()
    .replace(b"/* colours */\n", _WEB.joinpath("page", "colours.css").read_bytes())
)


def _digest(tag: str) -> str:
    """The digest of the page's only script or style, for the Content-Security-Policy."""
    [text] = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>".encode(), _PAGE, re.DOTALL)
    return f"'sha256-{b64encode(sha256(text).digest()).decode()}'"


_HEADERS = [
    (
        b"content-security-policy",
        f"default-src 'none'; script-src {_digest('script')}; style-src {_digest('style')}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'".encode(),
    ),
    (b"referrer-policy", b"no-referrer"),
]


async def healthz(server: "Server", request: Request) -> Response:
    """Respond if the process runs. The readiness check covers the storage."""
    return Response.of(api.Health("ok"))


async def readyz(server: "Server", request: Request) -> Response:
    """Respond if the node can work now. Raises the reason otherwise."""
    if server.draining.is_set():
        raise Unavailable("the server is stopping; retry", code="node_stopped")
    await server.probe()
    alarms = [api.ActiveAlarm(alarm.code, alarm.since_ms) for alarm in server.app.alarms]
    return Response.of(api.Health("ready", alarms))


async def metrics(server: "Server", request: Request) -> Response:
    if server.metrics_auth:
        server.caller(request).insist("metrics", server.app.name)
    return Response(200, await server.metrics(), metrics_text.KIND)


async def openapi(server: "Server", request: Request) -> Response:
    return Response(200, at_root(server.openapi, request.scope.get("root_path", "")))


async def page(server: "Server", request: Request) -> Response:
    return Response(200, _PAGE, b"text/html; charset=utf-8", _HEADERS)


ROUTES = [
    Route.of(api.HEALTH, healthz),
    Route.of(api.READY, readyz),
    Route.of(api.METRICS, metrics),
    Route.of(api.OPENAPI, openapi),
    Route.of(api.DOCS, page),
]
