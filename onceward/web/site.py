"""A site: routes of an application, mounted as an ASGI application.

    site = Site([Route("GET", "/stock/{item}", stock, "Stock of an item")])
    app.mount("/shop", site)

The function of a route gets the owner of the site and the request, and returns a `Response`. Errors
of Onceward become problem documents, as in the API.
"""

import logging
from collections.abc import Sequence
from inspect import isawaitable
from typing import Any

from onceward.errors import OncewardError
from onceward.functions import not_async
from onceward.web import asgi
from onceward.web.http import Receive, Request, Response, Scope, Send, problem
from onceward.web.routes import Route, Routes

logger = logging.getLogger("onceward.http")


class Site:
    """Serves requests with a table of routes."""

    def __init__(self, routes: Sequence[Route], owner: Any = None) -> None:
        self.owner = owner
        self.routes = Routes(list(routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"a site supports HTTP, not {scope['type']}")
        try:
            request = await asgi.read(scope, receive)
        except OncewardError as error:
            response = problem(error)
        else:
            if request is None:
                return  # the caller has disconnected
            response = await self._answer(request)
        await asgi.respond(response, send)

    async def _answer(self, request: Request) -> Response:
        try:
            route = self.routes.find(request)
            response = await self._handle(route, request)
        except OncewardError as error:
            response = self._problem(request, error)
        if request.method == "HEAD":
            response.body = b""
        return response

    async def _handle(self, route: Route, request: Request) -> Response:
        """Call the function of a route. Raises `TypeError` for one that is not async, or returns no
        `Response`."""
        answering: Any = route.handle(self.owner, request)
        what = f"the function of {route.method} {route.path or '/'}"
        if not isawaitable(answering):
            raise TypeError(not_async(route.handle, what))
        response = await answering
        if not isinstance(response, Response):
            raise TypeError(
                f"{what} must return a Response, not {type(response).__name__}; use "
                "Response.of(value) for JSON"
            )
        return response

    def _problem(self, request: Request, error: OncewardError) -> Response:
        if error.kind.status >= 500:
            logger.error("%s %s: %s", request.method, request.route, error)
            # Messages of the database are only for the log.
            error = error.concealed()
        headers = []
        if error.code == "method_not_allowed":
            headers.append((b"allow", str(error.details["allow"]).encode()))
        return problem(error, headers)
