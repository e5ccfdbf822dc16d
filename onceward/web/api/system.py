"""Whether the server is well, what it measures, and how it is called."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from onceward.errors import Unavailable
from onceward.web import metrics as metrics_text
from onceward.web.http import Request, Response
from onceward.web.routes import Route

if TYPE_CHECKING:
    from onceward.web.server import Server

_PAGE = files("onceward.web").joinpath("api.html").read_bytes()


def _digest(tag: str) -> str:
    """The one script or style of the page, as a Content-Security-Policy names it."""
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


class AlarmView(msgspec.Struct):
    """A condition that an operator should look at; `/v1/overview` has its message."""

    code: str
    since_ms: int


class Health(msgspec.Struct, omit_defaults=True):
    """Whether the server is well."""

    status: str
    alarms: list[AlarmView] = []


class ClockView(msgspec.Struct):
    """What time it is for the server."""

    now_ms: int
    wall_ms: int
    """What the clock of the machine or of the database shows."""
    held: bool
    """Whether that is not believed, since it is far ahead of the last commit."""


async def clock(server: "Server", request: Request) -> Response:
    server.caller(request).insist("operate", "")
    return Response.of(_clock(server))


async def confirm_clock(server: "Server", request: Request) -> Response:
    server.caller(request).insist("operate", "")
    await server.app.confirm_clock()
    return Response.of(_clock(server))


def _clock(server: "Server") -> ClockView:
    store = server.app.store
    return ClockView(store.clock.now_ms(), store.clock.wall_ms, store.clock_held)


async def healthz(server: "Server", request: Request) -> Response:
    """The process runs and answers. Whether storage works is for readiness to say."""
    return Response.of(Health("ok"))


async def readyz(server: "Server", request: Request) -> Response:
    """Whether it can do its work now. Raises what hinders it."""
    if server.draining.is_set():
        raise Unavailable("the server is stopping", code="node_stopped")
    await server.probe()
    alarms = [AlarmView(alarm.code, alarm.since_ms) for alarm in server.app.alarms]
    return Response.of(Health("ready", alarms))


async def metrics(server: "Server", request: Request) -> Response:
    if server.metrics_auth:
        server.caller(request).insist("metrics", server.app.name)
    return Response(200, await server.metrics(), metrics_text.KIND)


async def openapi(server: "Server", request: Request) -> Response:
    return Response(200, server.openapi)


async def page(server: "Server", request: Request) -> Response:
    return Response(200, _PAGE, b"text/html; charset=utf-8", _HEADERS)


ROUTES = [
    Route("GET", "/healthz", healthz, "Whether the process is alive", gives=Health, public=True),
    Route("GET", "/readyz", readyz, "Whether it can work now", gives=Health, public=True),
    Route(
        *("GET", "/metrics", metrics, "Metrics for Prometheus"),
        problems=("no_credentials", "not_allowed", "rate_limited"),
        public=True,
    ),
    Route("GET", "/v1/clock", clock, "What time it is for the server", gives=ClockView),
    Route(
        "POST",
        "/v1/clock/confirm",
        confirm_clock,
        "Believe a clock that is far ahead of the last commit",
        gives=ClockView,
    ),
    Route("GET", "/openapi.json", openapi, "This document", public=True),
    Route("GET", "/docs", page, "This document as a page", public=True),
]
