"""The client for browsers, as the server gives it to pages: `/client.js` and what goes with it.

The modules are kept in `clients/js` of the repository, as npm has them; in an installed copy of the
package they are in `js`, beside this file. A page gets each as one file without comments, so that
it needs few requests and few bytes.
"""

import gzip
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


def scripts(modules: dict[str, str]) -> dict[str, Script]:
    """The scripts of a folder by name: one for each module at its top."""
    found: dict[str, Script] = {}
    for name in sorted(path for path in modules if "/" not in path):
        text = pack(modules, name, outside_of(name)).encode()
        found[name] = Script(
            text, gzip.compress(text, 9, mtime=0), f'"{sha256(text).hexdigest()[:20]}"'
        )
    return found


def outside_of(name: str) -> dict[str, str]:
    """What a script leaves to another one."""
    return {} if name == "client.js" else {"client.js": "./client.js", **_SHARED}


def modules() -> dict[str, str]:
    """All modules, by path."""
    top = folder()
    return {path.relative_to(top).as_posix(): path.read_text() for path in top.rglob("*.js")}


SCRIPTS = scripts(modules())


async def script(server: Any, request: Request) -> Response:
    """A script; a browser that has it already is told so."""
    found = SCRIPTS[request.route.removeprefix("/")]
    headers = [
        (b"etag", found.tag.encode()),
        # It is asked each time whether it has changed, since it belongs to this server's version.
        (b"cache-control", b"no-cache"),
        (b"vary", b"accept-encoding"),
        # Pages of other sites may load it, too; whether they may connect is another question.
        (b"access-control-allow-origin", b"*"),
        (b"x-content-type-options", b"nosniff"),
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
    for name in SCRIPTS
]
