"""Pages of an application: files that browsers get as they are, and that load nothing else."""

from collections.abc import Mapping
from importlib.resources.abc import Traversable
from typing import Any

from onceward.web.http import Request, Response
from onceward.web.routes import Route

_KINDS = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
}
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]


def pages(folder: Traversable, files: Mapping[str, str], summary: str) -> list[Route]:
    """Routes to files of a folder, by their paths, for everyone. Scripts and styles run only from
    this server, none of them within a page."""

    async def page(site: Any, request: Request) -> Response:
        name = files[request.route]
        kind = _KINDS[name.rpartition(".")[2]]
        return Response(200, folder.joinpath(name).read_bytes(), kind, _HEADERS)

    return [Route("GET", path, page, summary, public=True) for path in files]
