"""Onceward in an application of Starlette, in one process and one event loop.

app = onceward.App()
web = Starlette(routes=[...])
install(web, app, path="/onceward", auth=Auth(dev=True))
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Unpack

try:
    from starlette.applications import Starlette
except ModuleNotFoundError as error:
    needs = "starlette: pip install 'onceward[fastapi]'"
    raise ModuleNotFoundError(f"{__name__} needs {needs}", name=error.name) from error

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from onceward import App, BadInput, OncewardError
from onceward.web import Auth, Server, ServerKeywords, problem

__all__ = ["current_app", "install", "lifespan", "respond"]

logger = logging.getLogger("onceward.http")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def install(
    web: Starlette,
    app: App,
    *,
    path: str = "",
    auth: Auth | None = None,
    work: bool = True,
    **options: Unpack[ServerKeywords],
) -> None:
    """Run an application with a web application: it starts and stops with the lifespan of `web`,
    and its errors become problem documents. Call it once, before `web` starts.

    Args:
        path: Where the HTTP API and the console are mounted, as in `/onceward`. Default: nowhere.
        auth: Who may use them. Needed with `path`: `Auth(dev=True)` accepts only this machine.
        work: Run the handlers in this process.
        options: Those of `onceward.web.Server`, such as `origins` and `telemetry`.

    Raises `BadInput`.
    """
    if (path and auth is None) or (not path and (auth is not None or options)):
        raise BadInput(
            "the HTTP API needs both a path and credentials, and has the path "
            f"{path!r:.100}; use install(web, app, path='/onceward', auth=Auth(dev=True))"
        )
    if path and (not path.startswith("/") or path.endswith("/")):
        raise BadInput(f"path must begin with a slash and not end with one, not {path!r}")
    if not isinstance(app, App):
        raise BadInput(f"install needs an `onceward.App`, not {type(app).__module__}.App")
    if hasattr(web.state, "onceward"):
        raise BadInput("Onceward is already installed in this web application; call `install` once")
    web.state.onceward = app
    server = None if auth is None else Server(app, auth, work=work, **options)
    web.router.lifespan_context = lifespan(server or app, web.router.lifespan_context, work=work)
    web.add_exception_handler(OncewardError, respond)
    if server is not None:
        web.mount(path, server)


def lifespan(
    running: App | Server, inner: Lifespan | None = None, *, work: bool = True
) -> Lifespan:
    """The lifespan of a web application that starts and stops an application, or a server of one.
    `inner` is your own lifespan, which can use the application. `work` is for an `App`."""

    @asynccontextmanager
    async def run(web: Any) -> AsyncIterator[Any]:
        if isinstance(running, App):
            await running.start(work=work)
        else:
            await running.start()
        try:
            if inner is None:
                yield
            else:
                async with inner(web) as state:
                    yield state
        finally:
            await running.stop()

    return run


def current_app(connection: HTTPConnection) -> App:
    """The application that is installed in the web application of a request or WebSocket. Raises
    `BadInput`."""
    app = getattr(connection.app.state, "onceward", None)
    if not isinstance(app, App):
        raise BadInput("Onceward is not installed in this web application; call install(web, app)")
    return app


async def respond(request: Request, error: Exception) -> Any:
    """The problem document of an error of Onceward, as an exception handler. It closes a WebSocket
    with the code of the error. The details of errors of the server are logged."""
    assert isinstance(error, OncewardError)
    if error.kind.status >= 500:
        method = request.scope.get("method", "WebSocket")
        logger.error("%s %s: %s", method, request.url.path, error)
    if isinstance(request, WebSocket):  # the type in Starlette is that of requests only
        await request.close(error.kind.close, error.code)
        return None
    if error.kind.status >= 500:
        error = error.concealed()
    found = problem(error)
    response = Response(found.body, found.status)
    response.raw_headers = found.headers
    return response
