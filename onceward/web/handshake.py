"""The WebSocket handshake: validation, limits and authentication.

Credentials come in the header Authorization, or, from browsers, which cannot set that, as a
subprotocol beside ours, or in the first frame; never in the address, which ends up in logs. Pages
of other sites are refused unless the settings allow them.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from onceward.api.rooms import CONNECT
from onceward.callers import Caller
from onceward.errors import BadInput, OncewardError, Unavailable
from onceward.rooms.frames import PROTOCOL
from onceward.web.auth import Access
from onceward.web.grants import EVERYTHING
from onceward.web.http import Request

if TYPE_CHECKING:
    from onceward.web.server import Server

PATH = CONNECT.path
NODE = "Node"
"""The scheme by which another node shows its credentials."""
USER = "Onceward-User"
"""The header in which it says for whom."""
_TOKEN = "token."  # noqa: S105 - what stands before one


class Admission(NamedTuple):
    """A request that is taken."""

    caller: Access | None
    """None: the first frame says who it is."""
    subprotocol: str | None
    relayed: bool = False
    """Whether it comes from another node, which has told callers apart."""


def admit(server: "Server", request: Request) -> Admission:
    """Judge a request. Raises `BadInput`, also `no_credentials` and `origin_refused`."""
    if server.routes.find(request).path != PATH:
        raise BadInput("this address does not speak WebSocket", code="not_found")
    if request.scope["query_string"]:
        raise BadInput(
            "the address takes no parameters: a token goes in a header, a subprotocol or the "
            "first frame",
            code="bad_parameter",
        )
    if server.draining.is_set():
        raise Unavailable("the server is stopping", code="node_stopped")
    offered: list[str] = request.scope.get("subprotocols") or []
    chosen = PROTOCOL if PROTOCOL in offered else None
    if is_from_node(request):
        return Admission(behind(server, request), chosen, relayed=True)
    if server.auth.dev:
        caller: Access | None = server.caller(request)
    else:
        admit_origin(request.header(b"origin"), request.header(b"host"), server.origins)
        caller = _caller(server, request.header(b"authorization"), offered)
    return Admission(caller, chosen)


def is_from_node(request: Request) -> bool:
    """Whether a request says that another node makes it."""
    return (request.header(b"authorization") or "").startswith(f"{NODE} ")


def behind(server: "Server", request: Request) -> Access:
    """For whom another node asks. Raises `no_credentials` if it is none."""
    secret = (request.header(b"authorization") or "").partition(" ")[2]
    user = unquote(request.header(USER.lower().encode()) or "")
    if not server.app.hub.owners.is_node(secret) or not user:
        raise BadInput("this is no node of this database", code="no_credentials")
    return Access(Caller.of_user(user), EVERYTHING)


def _caller(server: "Server", authorization: str | None, offered: list[str]) -> Access | None:
    tokens = [word.removeprefix(_TOKEN) for word in offered if word.startswith(_TOKEN)]
    if authorization is not None:
        return server.visitor(authorization.partition(" ")[2].strip())
    return server.visitor(tokens[0]) if tokens else None


def admit_origin(origin: str | None, host: str | None, allowed: Collection[str]) -> None:
    """Raise `origin_refused` for a page of another site, unless it is allowed."""
    if origin is None or origin in allowed or "*" in allowed:
        return
    try:
        its_host = urlsplit(origin).netloc
    except ValueError:
        its_host = ""
    if not its_host or its_host.lower() != (host or "").lower():
        raise OncewardError(
            f"pages of {origin[:100]!a} may not connect: the setting `origins` allows some",
            code="origin_refused",
        )
