"""The browser client: serves `/client.js` and its modules.

`make bundle` builds the files in `js`, next to this module, from `clients/js`. They are committed,
and a test rebuilds and compares them.
"""

import gzip
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from onceward.api.operation import Operation
from onceward.web.http import Request, Response
from onceward.web.routes import Route

FOLDER = Path(__file__).parent / "js"
# Read at import, since the files belong to the running version: an upgrade may replace them.
_TEXTS = {path.name: path.read_bytes() for path in FOLDER.glob("*.js")}
NAMES = sorted(_TEXTS)
_KIND = b"text/javascript; charset=utf-8"


class Script(NamedTuple):
    """A script in its served forms."""

    text: bytes
    small: bytes
    """The script, compressed with gzip."""
    tag: str


@cache
def bundled(name: str) -> Script:
    """A script by its name."""
    text = _TEXTS[name]
    return Script(text, gzip.compress(text, 9, mtime=0), f'"{sha256(text).hexdigest()[:20]}"')


async def script(server: Any, request: Request) -> Response:
    """Respond with a script, or 304 if the browser has this version."""
    found = bundled(request.route.removeprefix("/"))
    headers = [
        (b"etag", found.tag.encode()),
        # Browsers revalidate it on every load, since it belongs to this server's version.
        (b"cache-control", b"no-cache"),
        (b"vary", b"accept-encoding"),
        # Pages of other sites may load it; whether they may connect is checked elsewhere.
        (b"access-control-allow-origin", b"*"),
    ]
    if found.tag in (request.header(b"if-none-match") or ""):
        response = Response(304)
    elif "gzip" in (request.header(b"accept-encoding") or ""):
        response = Response(200, found.small, _KIND)
        headers.append((b"content-encoding", b"gzip"))
    else:
        response = Response(200, found.text, _KIND)
    kept = [header for header in response.headers if header[0] != b"cache-control"]
    response.headers = [*kept, *headers]
    return response


def _operation(name: str) -> Operation[Any]:
    return Operation(
        name=f"scripts.{name.partition('.')[0]}",
        method="GET",
        path=f"/{name}",
        summary=f"Load {name}, a module of the client for browsers",
        media_type="text/javascript",
        kind="page",
        public=True,
    )


ROUTES = [Route.of(_operation(name), script) for name in NAMES]
