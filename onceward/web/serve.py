"""Running of a server on a port until it is stopped."""

import asyncio
import gc
import logging
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn
import uvloop

from onceward import limits
from onceward.app import App
from onceward.errors import BadInput, OncewardError
from onceward.web import logs
from onceward.web.application import application_of
from onceward.web.auth import Auth
from onceward.web.connections import Connections
from onceward.web.http import is_loopback
from onceward.web.protocol import Protocol
from onceward.web.server import Server
from onceward.web.settings import Setting, Settings, exposed
from onceward.web.websocket import WebSocket
from onceward.webhooks.delivery import Outward
from onceward.webhooks.http.addresses import Guard

logger = logging.getLogger("onceward")


def serve(
    settings: Settings,
    announce: Callable[[str], None],
    welcome: Callable[[str], None] = lambda link: None,
    found: Sequence[Setting] = (),
    developing: Callable[[App], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish running requests, hand over and close.

    `announce` is called with the address once the server listens. Before that, `welcome` gets the
    URL of the console; in dev mode it includes a one-time sign-in. `found` has the settings for the
    console. `developing` gets the running application in development; SIGINT is then ignored, since
    another process passes it on.

    Raises `bad_settings`, errors of `App.start`, and the error that ended the node if it
    was not a signal.
    """
    if settings.dev and not is_loopback(settings.host):
        raise OncewardError(
            f"without API keys, anyone could use the server at {settings.host}. Create a key with "
            "`onceward token`, or listen on 127.0.0.1.",
            code="bad_settings",
        )
    auth = Auth(settings.keys, settings.jwt, dev=settings.dev)
    app = application_of(settings, found)
    if app.outward is None:
        app.outward = outward_of(settings)
    logs.set_up(settings.log, settings.log_level)
    for warning in exposed(found):
        logger.warning("%s", warning)
    most = allow_files(settings.webhook_calls if settings.webhooks else 0, settings.connections)
    connections = Connections(most, settings.connections_per_address, settings.proxies)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, app, auth, announce, welcome, found, connections, developing))


def allow_files(calls: int, connections: int = limits.CONNECTIONS_MAX) -> int:
    """Raise the limit of open files to the maximum: each connection and each webhook call needs
    one.

    Logs a warning if that is too low. Returns the maximum number of connections: at least half of
    the files, even if calls need them.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < calls + _FILES_BESIDE_CALLS:
        logger.warning(
            "the limit of %d open files is too low for %d concurrent webhook calls and for "
            "connections; raise it (ulimit -Hn), or lower webhook_calls",
            *(hard, calls),
        )
    if hard == resource.RLIM_INFINITY:
        return connections
    return min(connections, max(hard - calls - _FILES_BESIDE_CALLS, hard // 2))


def outward_of(settings: Settings) -> Outward | None:
    """The settings of webhook calls. Raises `bad_settings`."""
    if not settings.webhooks:
        return None
    # In dev mode all callers are on this machine, so calls to it are allowed.
    own = ("127.0.0.0/8:*", "[::1]:*") if settings.dev else ()
    outward = Outward(
        allow=(*settings.webhook_allow, *own),
        ports=settings.webhook_ports,
        rate=settings.webhook_rate,
        pauses_s=settings.webhook_pauses_s,
        attempts_max=settings.webhook_attempts,
        connect_s=settings.webhook_connect_s,
        total_s=settings.webhook_timeout_s,
        concurrency=settings.webhook_calls,
        concurrency_per_host=settings.webhook_calls_per_host,
    )
    try:
        Guard(outward.allow, outward.ports)
    except BadInput as error:
        raise OncewardError(
            f"invalid setting webhook_allow: {error.message}; correct it", code="bad_settings"
        ) from error
    return outward


async def _serve(
    settings: Settings,
    app: App,
    auth: Auth,
    announce: Callable[[str], None],
    welcome: Callable[[str], None] = lambda link: None,
    found: Sequence[Setting] = (),
    connections: Connections | None = None,
    developing: Callable[[App], None] | None = None,
) -> None:
    listening = listen(settings.host, settings.port)
    try:
        async with Server(
            app,
            auth,
            telemetry=settings.telemetry,
            append_id=settings.timers_append_id,
            origins=settings.origins,
            frame_rate=settings.frame_rate,
            request_rate=settings.request_rate,
            request_burst=settings.request_burst,
            metrics_auth=settings.metrics_auth,
            connections=connections,
            settings=found,
        ) as server:
            config = uvicorn.Config(
                server,
                loop="uvloop",
                http=Protocol,  # type: ignore[arg-type]
                ws=WebSocket,  # type: ignore[arg-type]
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=int(settings.drain_s) or 1,
            )
            url = url_of(listening)
            app.hub.owners.announce(settings.advertise or url)

            def tell() -> None:
                welcome(url + (server.console_link() if auth.dev else "/console"))
                announce(url)

            if developing is not None:
                developing(app)
            listener = _Listener(config, server, tell, interrupts=developing is None)
            app.node.on_end(listener.leave)
            gc.collect()
            gc.freeze()  # objects of the start are permanent; skip them in later collections
            gc.set_threshold(_GARBAGE_OBJECTS, 5, 200)
            await listener.serve(sockets=[listening])
    finally:
        listening.close()


# Connections, and files of the engine and the interpreter.
_FILES_BESIDE_CALLS = 500
# Little garbage here is cyclic, so the collector runs rarely.
_GARBAGE_OBJECTS = 20_000


class _Listener(uvicorn.Server):
    """Ends waiting requests when it stops, so that shutdown does not wait for them."""

    def __init__(
        self,
        config: uvicorn.Config,
        server: Server,
        announce: Callable[[], None],
        *,
        interrupts: bool,
    ) -> None:
        super().__init__(config)
        self._interrupts = interrupts
        self._answering = server
        self._announce = announce
        self._signalled = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop gracefully on a signal, so that uvicorn does not raise it again. A second signal
        stops immediately."""
        if sig == signal.SIGINT and not self._interrupts:
            return
        self.force_exit, self._signalled = self._signalled, True
        self.should_exit = True

    def leave(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # After the handlers are installed, because a caller may send a signal at once.
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._answering.drain()
        await super().shutdown(sockets)


def url_of(listening: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 selects a free port. Raises `bad_settings`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except (OSError, OverflowError, UnicodeError) as error:
        listening.close()
        raise OncewardError(
            f"cannot listen on {host}:{port}: {error}. Choose another port, or stop the "
            "process that uses it",
            code="bad_settings",
        ) from error
    return listening
