"""The server: an ASGI application around an `App`, standalone or mounted."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import cached_property
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar

from onceward import limits
from onceward.app import App
from onceward.callers import Caller
from onceward.clock import boot_ns
from onceward.errors import BadInput, OncewardError, Unavailable
from onceward.file_descriptors import NONE_LEFT, is_reserved
from onceward.meters import Counter, Histogram
from onceward.observe.counts import Counts
from onceward.observe.samples import Samples
from onceward.repeats import Repeats
from onceward.web import asgi, event_pages, portal
from onceward.web.api import ROUTES
from onceward.web.auth import DEVELOPER, Access, Auth
from onceward.web.connections import Connections
from onceward.web.console import MOUNTED
from onceward.web.handshake import Admission, admit, behind, is_from_node
from onceward.web.health import Health
from onceward.web.http import (
    CONNECTION,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    is_local,
    problem,
)
from onceward.web.keyring import Keyring
from onceward.web.mounts import Mount, Mounts
from onceward.web.node_links import dial
from onceward.web.openapi import document
from onceward.web.rates import Rates, network_of
from onceward.web.routes import Route, Routes
from onceward.web.sessions import HEADER, Sessions
from onceward.web.settings import Setting
from onceward.web.telemetry import Telemetry
from onceward.web.websocket import Hearing

logger = logging.getLogger("onceward.http")

T = TypeVar("T")

CROWDED = "connections_refused"
"""The alarm while connections are rejected."""
_CALM = 0.9  # fraction of the connections at the last rejection; the alarm ends below it
_COUNTED = "onceward.counted"
"""Set in the scope of a request that was counted for its caller."""


class ServerKeywords(TypedDict, total=False):
    """The options of `Server`, except `work`."""

    telemetry: bool
    append_id: bool
    origins: Collection[str]
    frame_rate: float
    request_rate: float
    request_burst: int
    metrics_auth: bool
    connections: Connections | None
    settings: Sequence[Setting]


class Server:
    """Serves the `/v1` API of an application.

    As an ASGI application, it starts and stops the application with the ASGI server. When it is
    mounted in another application, whose lifespan events do not reach it, use it with `async with`.
    """

    def __init__(
        self,
        app: App,
        auth: Auth,
        *,
        work: bool = True,
        telemetry: bool = False,
        append_id: bool = False,
        origins: Collection[str] = (),
        frame_rate: float = limits.FRAMES_PER_S,
        request_rate: float = 0.0,
        request_burst: int = 0,
        metrics_auth: bool = False,
        connections: Connections | None = None,
        settings: Sequence[Setting] = (),
    ) -> None:
        """Create a server for an application.

        Args:
            work: Run the application's handlers in this process.
            telemetry: Create OpenTelemetry spans of requests.
            append_id: Append the id of timers in the plain form to their URL.
            origins: Origins of other pages that may open WebSocket connections.
            frame_rate: Maximum number of frames per second from one connection.
            request_rate: Maximum number of requests per second of each caller, on average;
                0 for no limit.
            request_burst: Maximum number of requests at once; 0 for as many as in a second.
            metrics_auth: Require credentials with the scope `metrics` for `/metrics`.
            connections: Connection limits, which `onceward serve` applies.
            settings: Settings that the console shows.
        """
        self.app = app
        self.auth = auth
        self.connections = connections or Connections()
        self.routes = Routes(ROUTES)
        self._mounts = Mounts({**MOUNTED, **event_pages.MOUNTED, **app.mounted}, self.routes)
        self.draining = asyncio.Event()
        """Set when the server stops; waiting requests then return immediately."""
        self.append_id = append_id
        self.metrics_auth = metrics_auth
        self.settings = settings
        self.origins = frozenset(origins)
        self._frame_rate = frame_rate
        self._request_rate, self._request_burst = request_rate, request_burst
        self._rates: Rates | None = None
        self._work = work
        self._telemetry = Telemetry(spans=telemetry)
        self._counting: asyncio.Task[None] | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._repeats = Repeats()
        self._crowd = 0
        """The number of connections at the last rejection; 0 after the alarm has ended."""
        self._measured: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    @cached_property
    def openapi(self) -> bytes:
        """The OpenAPI document."""
        return document(self.routes)

    async def start(self) -> Self:
        """Open the database and start. Raises errors of `App.start`."""
        await self.app.start(work=self._work)
        self._measured.clear()
        self.connections.meters = self.app.store.meters
        for route in self.routes:
            for status in (route.statuses[0], 500):
                self._measure(route.path, route.method, status)
        if self._request_rate:
            store = self.app.store
            rate, burst = self._request_rate, self._request_burst
            self._rates = Rates(rate, burst, store.clock, store.meters)
        self.app.hub.visitor = self.visitor
        self.app.hub.dial = dial
        self.counts = Counts(self.app.store, self.app.node.schedule.slots)
        self.samples = Samples(self.app.store, self.counts, self.app.hub.gauges)
        self.health = Health(self.app, self.counts)
        self.started_ms = self.app.store.clock.now_ms()
        self.keyring = Keyring(self.app.store, self.app.hub.dismiss)
        self.auth.stored = self.keyring.caller
        self.sessions = Sessions(self.app, self.auth.holder)
        try:
            await self.app.key_source.unlock()
            await self.keyring.load()
        except OncewardError:
            await self.app.stop()
            raise
        self._counting = asyncio.create_task(self.counts.run(), name="onceward-counts")
        self._watching = [
            asyncio.create_task(self.samples.run(), name="onceward-samples"),
            asyncio.create_task(self.keyring.run(), name="onceward-keyring"),
        ]
        self.draining.clear()
        return self

    def console_link(self) -> str:
        """The URL of the console with a one-time sign-in token. For dev mode; it grants full
        access."""
        return f"/console#enter={self.sessions.link(DEVELOPER, 'dev')}"

    def drain(self) -> None:
        """End all waiting requests. Idempotent."""
        self.draining.set()
        if self._counting is not None:
            self.app.hub.drain()

    async def stop(self) -> None:
        """Finish running requests and close. Idempotent."""
        self.drain()
        if self._counting is not None:
            watching = [self._counting, *self._watching]
            for task in watching:
                task.cancel()
            await asyncio.wait(watching)
            self._counting, self._watching = None, []
        await self.app.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface, for servers in which this one is mounted."""
        await asgi.call(self, scope, receive, send)

    async def admit(self, request: Request) -> Admission:
        """Check a request for a WebSocket connection. Raises the reason to reject it."""
        if self._counting is None:
            raise Unavailable("the server is not started; retry later", code="node_stopped")
        if request.header(HEADER) is not None:
            await self.sessions.find(request)
        return admit(self, request)

    async def hear(self, wire: Hearing, admission: Admission) -> None:
        """Serve an accepted connection until it ends."""
        rate = limits.FRAMES_RELAYED_PER_S if admission.relayed else self._frame_rate
        session = self.app.hub.connect(wire, admission.caller, relayed=admission.relayed)
        await wire.hear(session, rate)

    async def answer(self, request: Request) -> Response:
        """The response to a request."""
        begun_ns = boot_ns()
        route: Route | Mount | OncewardError
        try:
            route = self._mounts.find(request) or self.routes.find(request)
        except OncewardError as unknown:
            route = unknown
        with self._telemetry.span(request) as span:
            if isinstance(route, OncewardError):
                response = self._problem(request, route)
            else:
                response = await self._answer(route, request)
            span.answered(response.status, failed=response.status >= 500)
        if request.method == "HEAD":
            response.body = b""
        if self._counting is not None:  # there are no meters before the start
            # Unknown routes have methods chosen by callers.
            method = "any" if isinstance(route, OncewardError) else request.method
            known = self._measured.get((request.route, method, response.status))
            counter, histogram = known or self._measure(request.route, method, response.status)
            counter.value += 1
            histogram.observe((boot_ns() - begun_ns) / 1e9)
        return response

    def _measure(self, route: str, method: str, status: int) -> tuple[Counter, Histogram]:
        """The meters for this kind of response."""
        meters, name = self.app.store.meters, route or "none"
        counter = meters.counter("requests", route=name, method=method, status=str(status))
        histogram = meters.histogram("request_seconds", route=name)
        self._measured[route, method, status] = counter, histogram
        return counter, histogram

    def refusal(self, scope: Scope, error: OncewardError) -> Response:
        """The response to a request whose body is not read. Only the path of the scope is used."""
        try:
            mount = self._mounts.at(scope)
        except BadInput:
            mount = None
        return problem(error, _headers(error)) if mount is None else mount.refusal(error)

    def vouch(self, request: Request) -> bool:
        """Whether a request has valid credentials, before its body is read.

        Raises `no_credentials` if it needs credentials and has none, and `BadInput` for an unknown
        route.
        """
        if self._counting is None:
            return False
        route = self._mounts.find(request) or self.routes.find(request)
        if self.sessions.is_signed(request):
            return True  # revocation is checked after the body has arrived
        try:
            self._caller(request)
        except OncewardError:
            if isinstance(route, Mount) or route.public or route.signs_in:
                return False
            raise
        return True

    def takes(self, descriptor: int, connections: int) -> bool:
        """Whether to accept a new connection, by its file descriptor and the number of connections.
        Descriptors reserved for the engine are never used."""
        if is_reserved(descriptor):
            self._crowd = connections
            self.app.alarms.raise_(
                CROWDED,
                "connections are rejected: the process has reached its limit of open files, except "
                "for the reserve of the engine. Raise the limit (ulimit -n).",
            )
            return False
        if connections < self._crowd * _CALM:
            self._crowd = 0
            self.app.alarms.clear(CROWDED)
        return True

    async def _answer(self, route: Route | Mount, request: Request) -> Response:
        try:
            if self._counting is None:
                raise Unavailable("the server is not started; retry later", code="node_stopped")
            if request.header(HEADER) is not None:
                await self.sessions.find(request)
            if isinstance(route, Mount):
                if self._rates is not None and route.prefix not in MOUNTED:
                    self._count_at(route, request)
                return await route.answer(self, request)
            if self.auth.dev and route.public:
                insist_local(request)  # for other routes `caller` does this
            return await route.handle(self, request)
        except OncewardError as error:
            return self._problem(request, error)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NONE_LEFT:
                return self._problem(request, Unavailable(str(error), code="overloaded"))
            logger.exception("%s %s", request.method, request.route)
            return problem(OncewardError("internal error; see the server's log", code="internal"))

    def _problem(self, request: Request, error: OncewardError) -> Response:
        if error.kind.status >= 500:
            left_out = self._repeats.count(error.code)
            if left_out is not None:
                more = f" ({left_out} more since the last line)" if left_out else ""
                logger.error("%s %s: %s%s", request.method, request.route, error, more)
            if not self.auth.dev:
                # Details of the database are only for the log.
                error = error.concealed()
        return problem(error, _headers(error))

    def caller(self, request: Request) -> Access:
        """Return the caller of a request, or the caller for whom another node makes it.

        The request counts once for the caller's rate limit. Raises `no_credentials`,
        `rate_limited`.
        """
        caller = self._caller(request)
        self.count(request, caller)
        return caller

    def count(self, request: Request, caller: Access) -> None:
        """Count a request of an authenticated caller once. Raises `rate_limited`."""
        connection = request.scope.get(CONNECTION)
        if connection is not None:
            connection.authenticate()
        if self._rates is not None and _COUNTED not in request.scope:
            request.scope[_COUNTED] = True
            if not is_from_node(request):  # the other node has counted it
                self._rates.take(caller.id)

    def _count_at(self, mount: Mount, request: Request) -> None:
        """Count a request to a mounted application, which may have its own authentication: for its
        caller, or else for its address. Raises `rate_limited`."""
        assert self._rates is not None
        try:
            self.caller(request)
        except BadInput:
            client = request.scope.get("client")
            if client and not self.connections.is_proxy(str(client[0])):
                request.scope[_COUNTED] = True
                self._rates.take(f"{network_of(client)} at {mount.prefix}")

    def _caller(self, request: Request) -> Access:
        if is_from_node(request):
            return behind(self, request)
        authorization = request.header(b"authorization")
        if self.auth.dev:
            insist_local(request)
        signed_in = self.sessions.caller(request)
        if signed_in is not None:
            return signed_in
        bearer = (authorization or "").partition(" ")[2]
        if bearer.startswith(portal.PREFIX):
            keys, now_ms = self.app.store.server_keys, self.app.store.clock.now_ms()
            return portal.read(keys, bearer, now_ms)
        if self.auth.dev:
            return self.visitor(bearer)
        return self.auth.caller(authorization, self.app.store.clock.now_ms())

    def visitor(self, token: str) -> Access:
        """Return the caller of a token. In dev mode `dev:NAME` is a valid token for any name.
        Raises `no_credentials`."""
        if self.auth.dev:
            name = token.removeprefix("dev:")
            if name in ("", token):
                return DEVELOPER
            return Access(Caller("user", "", name), DEVELOPER.grants)
        return self.auth.caller(f"Bearer {token}", self.app.store.clock.now_ms())

    async def probe(self) -> None:
        """See `Health.probe`."""
        await self.health.probe()

    async def metrics(self) -> bytes:
        """See `Health.metrics`."""
        return await self.health.metrics()

    async def patiently(
        self,
        request: Request,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], object] = lambda result: None,
    ) -> T | None:
        """Run a long operation. It is cancelled, with the result None, if the caller disconnects or
        the server stops. `undo` gets a result that came when the caller had disconnected."""
        working = asyncio.create_task(work, name="onceward-patient-call")
        gone = asyncio.create_task(request.gone(), name="onceward-disconnect")
        draining = asyncio.create_task(self.draining.wait(), name="onceward-draining")
        try:
            await asyncio.wait([working, gone, draining], return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnected = gone.done()
            gone.cancel()
            draining.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait([working])
        if working.cancelled():
            return None
        if disconnected and working.exception() is None:
            undo(working.result())
            return None
        return working.result()


def _headers(error: OncewardError) -> list[tuple[bytes, bytes]]:
    """The headers for an error."""
    if error.code in ("no_credentials", "token_expired"):
        return [(b"www-authenticate", b"Bearer")]
    if error.code == "method_not_allowed":
        return [(b"allow", str(error.details["allow"]).encode())]
    return []


def insist_local(request: Request) -> None:
    """Reject requests from pages of other sites in dev mode, which needs no credentials.

    A browser on this machine could be made to call it, by its name or by one that resolves here.
    Raises `wrong_host`, `origin_refused`.
    """
    host, origin = request.header(b"host"), request.header(b"origin")
    if host is not None and not is_local(host):
        raise BadInput(
            f"dev mode is available at localhost, not {host[:100]!a}; set up keys for other names",
            code="wrong_host",
        )
    foreign = origin is not None and origin.partition("://")[2] != host
    # Some requests of other pages have no Origin header: images, scripts and similar.
    if foreign or (
        request.header(b"sec-fetch-site") in ("cross-site", "same-site") and not _is_link(request)
    ):
        raise BadInput(
            "dev mode rejects pages of other sites; set up keys and allow the origin",
            code="origin_refused",
        )


def _is_link(request: Request) -> bool:
    """Whether a user followed a link; the page with the link cannot see the response."""
    return (
        request.method in ("GET", "HEAD")
        and request.header(b"sec-fetch-mode") == "navigate"
        and request.header(b"sec-fetch-dest") == "document"
    )


def insist_dev(request: Request) -> None:
    """Raise `no_credentials` outside of dev mode; for mounted applications without authentication.

    Only dev mode is limited to this machine. Request headers about the host can be forged.
    """
    server = request.scope.get("onceward")
    if server is None or not server.auth.dev:
        raise BadInput(
            "this is available only in dev mode; start the server without keys, on this machine",
            code="no_credentials",
        )
    insist_local(request)
