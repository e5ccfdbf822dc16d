"""Static pages from a folder, with a strict content security policy."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath
from typing import Any

from onceward.errors import BadInput
from onceward.web.http import Request, Response
from onceward.web.routes import Route

Headers = Sequence[tuple[bytes, bytes]]

_KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PLAIN = [(b"referrer-policy", b"no-referrer")]
GUARDED: Headers = [(b"content-security-policy", _POLICY), *_PLAIN]
"""Headers that allow only scripts and styles from this server, none of them inline."""
ISOLATED: Headers = [
    (
        b"content-security-policy",
        _POLICY + b"; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    *_PLAIN,
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""Stricter headers for privileged pages: also no markup from text in scripts, and isolation from
windows and requests of other sites."""


class Pages:
    """Public files of a folder, read once at the start."""

    def __init__(self, folder: Traversable, headers: Headers = GUARDED) -> None:
        self._folder = folder
        self._headers = headers

    def answer(self, name: str) -> Response:
        """Return a file. Raises `BadInput` for an unknown name."""
        body = self._files.get(name)
        if body is None:
            raise BadInput(f"there is no page {name[:100]!a}; check the path", code="not_found")
        return Response(200, body, _KINDS[PurePosixPath(name).suffix], self._headers)

    def routes(self, files: Mapping[str, str], summary: str) -> list[Route]:
        """Routes to files by path. `{"/{file}": "{file}"}` includes all files."""

        async def page(site: Any, request: Request) -> Response:
            return self.answer(files[request.route].format_map(request.parameters))

        return [Route("GET", path, page, summary, public=True) for path in files]

    @cached_property
    def _files(self) -> dict[str, bytes]:
        return {
            one.name: one.read_bytes()
            for one in self._folder.iterdir()
            if PurePosixPath(one.name).suffix in _KINDS
        }
