"""Health checks and metrics on a separate port, for processes without the HTTP API."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from onceward.api import server as api
from onceward.app import App
from onceward.errors import Unavailable
from onceward.observe.counts import Counts
from onceward.web.api import system
from onceward.web.auth import Access, Auth
from onceward.web.health import Health
from onceward.web.http import Request
from onceward.web.routes import Route
from onceward.web.site import Site

_REQUESTS_MAX = 100


class HealthSite:
    """`/healthz`, `/readyz` and `/metrics` of a process that serves nothing else.

    It responds from the start of the process to its end: `/readyz` is 503 before the handlers run,
    and while they finish. Jobs are not counted: many processes can run the handlers of one
    database, and a count reads all jobs.
    """

    def __init__(self, app: App, auth: Auth, *, metrics_auth: bool) -> None:
        self.app = app
        self.metrics_auth = metrics_auth
        self.draining = asyncio.Event()
        """Set when the process stops."""
        self._auth = auth
        self._health: Health | None = None
        self.site = Site(
            [
                Route.of(api.HEALTH, system.healthz),
                Route.of(api.READY, system.readyz),
                Route.of(api.METRICS, system.metrics),
            ],
            self,
        )

    def started(self) -> None:
        """The application runs."""
        self._health = Health(self.app, Counts(self.app.store, self.app.node.schedule.slots))

    def caller(self, request: Request) -> Access:
        """The caller of a request. Raises `no_credentials`."""
        now_ms = self.app.store.clock.now_ms() if self._health is not None else 0
        return self._auth.caller(request.header(b"authorization"), now_ms)

    async def probe(self) -> None:
        await self._running().probe()

    async def metrics(self) -> bytes:
        return await self._running().metrics()

    def _running(self) -> Health:
        if self._health is None:
            raise Unavailable("the application is starting; retry later", code="node_stopped")
        return self._health

    @asynccontextmanager
    async def listen(self, listening: socket.socket) -> AsyncIterator[None]:
        """Serve requests at a socket."""
        config = uvicorn.Config(
            self.site,
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_REQUESTS_MAX,
            timeout_graceful_shutdown=1,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup([listening])
        try:
            yield
        finally:
            await server.shutdown([listening])
