"""The client for browsers, as the server gives it to pages: `/client.js` and what goes with it.

The modules are kept in `clients/js` of the repository, as npm has them; in an installed copy of the
package they are in `js`, beside this file. A page gets each as one file without comments, so that
it needs few requests and few bytes. Such a file is made when it is first asked for: most servers
that start are never asked.
"""

import asyncio
import gzip
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from onceward.web.http import Request, Response
from onceward.web.packing import pack
from onceward.web.routes import Route

_KIND = b"text/javascript; charset=utf-8"
# What another script of the folder has, and exports: no page shall have it twice.
_SHARED = {"client/errors.js": "./client.js", "client/live.js": "./client.js"}


class Script(NamedTuple):
    """A script as it is served."""

    text: bytes
    small: bytes
    """The same by gzip."""
    tag: str


def folder() -> Path:
    """Where the modules are."""
    installed = Path(__file__).parent / "js"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "clients" / "js"


@cache
def packed(name: str) -> Script:
    """A script by its name."""
    text = pack(_MODULES, name, outside_of(name)).encode()
    return Script(text, gzip.compress(text, 9, mtime=0), f'"{sha256(text).hexdigest()[:20]}"')


def outside_of(name: str) -> dict[str, str]:
    """What a script leaves to another one."""
    return {} if name == "client.js" else {"client.js": "./client.js", **_SHARED}


def modules() -> dict[str, str]:
    """All modules, by path."""
    top = folder()
    return {path.relative_to(top).as_posix(): path.read_text() for path in top.rglob("*.js")}


# Read when the server starts, whose version they belong to. Each at the top is a script.
_MODULES = modules()
NAMES = sorted(path for path in _MODULES if "/" not in path)


async def script(server: Any, request: Request) -> Response:
    """A script; a browser that has it already is told so."""
    # Beside the loop: the first time it takes a while.
    found = await asyncio.to_thread(packed, request.route.removeprefix("/"))
    headers = [
        (b"etag", found.tag.encode()),
        # It is asked each time whether it has changed, since it belongs to this server's version.
        (b"cache-control", b"no-cache"),
        (b"vary", b"accept-encoding"),
        # Pages of other sites may load it, too; whether they may connect is another question.
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


ROUTES = [
    Route("GET", f"/{name}", script, f"The client for browsers: {name}", public=True)
    for name in NAMES
]
