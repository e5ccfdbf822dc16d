"""The landing page. It forwards requests to the stage, for pages of this server on this machine
only."""

from importlib.resources import files
from typing import Any

import aiohttp

from onceward import Unavailable
from onceward.web import (
    ISOLATED,
    Pages,
    Request,
    Response,
    Route,
    Server,
    Site,
    insist_dev,
    insist_own_page,
    problem,
)

TOKEN = "onceward-demo"  # noqa: S105
"""The header in which the page repeats a token from the state. Other sites cannot read or send
it."""
_PAGES = Pages(files("apps.demo").joinpath("page"), ISOLATED)
_ORDER_BYTES_MAX = 1_000
_ANSWER_S = 10.0


class Landing:
    """The page and its connection to the stage."""

    def __init__(self, control: str) -> None:
        """`control` is the URL of the stage, which is not exposed to pages."""
        self._control = control

    def front(self) -> Site:
        """The front page of the server."""
        return Site(_PAGES.routes({"/": "demo.html"}, "The landing page"))

    def site(self) -> Site:
        """The files and API of the page, below a prefix."""
        return Site(
            [
                Route("GET", "/state", self._state, "Get the state", public=True),
                Route("POST", "/do", self._do, "Run a command", public=True),
                Route("POST", "/console", self._console, "Get a link to the console", public=True),
                *_PAGES.routes({"/{file}": "{file}"}, "A file of the page"),
            ]
        )

    async def _state(self, site: Any, request: Request) -> Response:
        _insist_ours(request)
        return await self._ask("GET", "/state")

    async def _do(self, site: Any, request: Request) -> Response:
        _insist_ours(request)
        token = request.header(TOKEN.encode()) or ""
        body = await request.body(_ORDER_BYTES_MAX)
        return await self._ask("POST", "/do", body, {TOKEN: token})

    async def _console(self, site: Any, request: Request) -> Response:
        """Create a one-time sign-in link, which grants full access to the console."""
        _insist_ours(request)
        await request.body(_ORDER_BYTES_MAX)
        server: Server = request.scope["onceward"]
        return Response.of({"address": server.console_link()})

    async def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Response:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        sent = {**(headers or {}), **({"content-type": "application/json"} if body else {})}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(method, self._control + path, data=body, headers=sent) as said,
            ):
                answer = Response(said.status, await said.read(), said.content_type.encode())
        except (aiohttp.ClientError, TimeoutError):
            away = "the demonstration does not respond; is it stopping?"
            return problem(Unavailable(away, code="node_stopped"))
        answer.headers.append(ISOLATED[-1])
        return answer


def _insist_ours(request: Request) -> None:
    """Raise `BadInput` unless the request is from a page of this server or a program on this
    machine."""
    insist_dev(request)
    insist_own_page(request)
