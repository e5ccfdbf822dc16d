"""Running of a server on a port until it is stopped."""

import asyncio
import gc
import logging
import resource
import socket
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn
import uvloop

from onceward import limits
from onceward.app import App
from onceward.errors import BadInput, OncewardError
from onceward.maintenance.key_source import FILE_VARIABLE, VARIABLE, given_keys
from onceward.server_key import parse_keys
from onceward.web import logs
from onceward.web.application import load_app
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
) -> None:
    """Serve until SIGTERM or SIGINT: then answer what is at hand, hand over, and close.

    `announce` hears where, once it listens; before that `welcome` hears the address of the console,
    in dev mode with what signs in there, once. `found` is what the console shows of the settings.
    Raises `bad_settings`, what `App.start` raises, and what has ended the node, if that was no
    signal.
    """
    if settings.dev and not is_loopback(settings.host):
        raise OncewardError(
            f"without keys anybody could use the server at {settings.host}. Set up keys "
            "(`onceward token` makes one), or listen at 127.0.0.1.",
            code="bad_settings",
        )
    auth = Auth(settings.keys, settings.jwt, dev=settings.dev)
    app = _application(settings)
    if app.outward is None:
        app.outward = outward_of(settings)
    if not app.server_key:
        app.server_key = server_keys_of(settings)
    logs.set_up(settings.log, settings.log_level)
    for warning in exposed(found):
        logger.warning("%s", warning)
    most = allow_files(settings.webhook_calls if settings.webhooks else 0, settings.connections)
    connections = Connections(most, settings.connections_per_address, settings.proxies)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, app, auth, announce, welcome, found, connections))


def _application(settings: Settings) -> App:
    """What is served. Raises `bad_settings`, also for what would be set in vain."""
    if not settings.app:
        return App(settings.database, name=settings.name)
    app = load_app(settings.app)
    for name, own in (("database", app.url), ("name", app.name)):
        if getattr(settings, name) not in (getattr(Settings(), name), own):
            raise OncewardError(
                f"the application {settings.app} has a {name} of its own, which it says where it "
                f"is made: leave --{name} out, and {name} in other settings",
                code="bad_settings",
            )
    return app


def server_keys_of(settings: Settings) -> list[str]:
    """The server keys that the settings give, as text. Raises `bad_settings`."""
    given = {VARIABLE: ",".join(settings.server_key), FILE_VARIABLE: settings.server_key_file}
    texts = given_keys((), given)
    parse_keys(texts)
    return texts


def allow_files(calls: int, connections: int = limits.CONNECTIONS_MAX) -> int:
    """Let the process have as many open files as the system grants it: each connection is one,
    and each outward call. Logs if that is not enough for the calls and some connections. Returns
    how many connections there may be: at least half of the files, even if calls need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < calls + _FILES_BESIDE_CALLS:
        logger.warning(
            "this process may have %d files open, too few for %d outward calls at once and for "
            "connections: raise the limit (ulimit -Hn), or lower webhook_calls",
            *(hard, calls),
        )
    if hard == resource.RLIM_INFINITY:
        return connections
    return min(connections, max(hard - calls - _FILES_BESIDE_CALLS, hard // 2))


def outward_of(settings: Settings) -> Outward | None:
    """How timers call URLs, by the settings. Raises `bad_settings`."""
    if not settings.webhooks:
        return None
    # In dev mode whoever can call the server is on this machine, and can call it, too.
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
            f"the settings are wrong: webhook_allow: {error.message}", code="bad_settings"
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
            host, port = listening.getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            app.hub.owners.announce(settings.advertise or url)

            def tell() -> None:
                welcome(url + (server.console_link() if auth.dev else "/console"))
                announce(url)

            listener = _Listener(config, server, tell)
            app.node.on_end(listener.leave)
            gc.collect()
            gc.freeze()  # what is there now stays: no need to look through it again and again
            gc.set_threshold(_GARBAGE_OBJECTS, 5, 200)
            await listener.serve(sockets=[listening])
    finally:
        listening.close()


# Connections, and what the engine and the interpreter have open.
_FILES_BESIDE_CALLS = 500
# Hardly anything here is garbage that only a search finds: one every so many new objects will do.
_GARBAGE_OBJECTS = 20_000


class _Listener(uvicorn.Server):
    """Lets those who wait go first when it stops: else it would wait for them."""

    def __init__(
        self, config: uvicorn.Config, server: Server, announce: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._answering = server
        self._announce = announce
        self._signalled = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal ends it well, so it does not go on to end the process. A second one lets it
        wait for nothing more."""
        self.force_exit, self._signalled = self._signalled, True
        self.should_exit = True

    def leave(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # Not before: whoever hears of it may send a signal at once.
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._answering.drain()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; 0 takes any port that is free. Raises `bad_settings`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(1024)
    except (OSError, OverflowError, UnicodeError) as error:
        listening.close()
        raise OncewardError(
            f"cannot listen at {host}:{port}: {error}", code="bad_settings"
        ) from error
    return listening
