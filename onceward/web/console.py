"""The console: pages to watch and look after a server, as static files. Their scripts call the
API, as any other caller does; who they are is a matter of sessions."""

from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from onceward.errors import BadInput
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.web.site import Site

_FOLDER = files("onceward.web").joinpath("page")
_PAGE = "console.html"
_KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


async def page(site: Any, request: Request) -> Response:
    return _answer(_PAGE)


async def file(site: Any, request: Request) -> Response:
    return _answer(request.parameters["file"])


def _answer(name: str) -> Response:
    body = _files().get(name)
    if body is None:
        raise BadInput("there is nothing at this address", code="not_found")
    return Response(200, body, _KINDS[PurePosixPath(name).suffix], _HEADERS)


@cache
def _files() -> dict[str, bytes]:
    """All files by name: no other one can be asked for."""
    return {
        one.name: one.read_bytes()
        for one in _FOLDER.iterdir()
        if PurePosixPath(one.name).suffix in _KINDS
    }


MOUNTED = {
    "/": Site([Route("GET", "/", page, "The console", public=True)]),
    "/console": Site(
        [
            Route("GET", "", page, "The console", public=True),
            Route("GET", "/{file}", file, "A file of the console", public=True),
        ]
    ),
}
"""Where it is. An application may have a front page of its own in place of the first."""
