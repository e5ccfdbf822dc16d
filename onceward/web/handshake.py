"""The WebSocket handshake: validation, limits and authentication.

Credentials are in the header Authorization, in a subprotocol (browsers cannot set the header) or in
the first frame. They are never in the URL, which is logged. Pages of other sites are rejected
unless the settings allow them.
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
"""The authorization scheme of other nodes."""
USER = "Onceward-User"
"""The header with the user on whose behalf another node calls."""
_TOKEN = "token."  # noqa: S105 - what stands before one


class Admission(NamedTuple):
    """An accepted request."""

    caller: Access | None
    """None if the first frame has the credentials."""
    subprotocol: str | None
    relayed: bool = False
    """Whether it comes from another node, which has authenticated the caller."""


def admit(server: "Server", request: Request) -> Admission:
    """Check a request. Raises `BadInput`, including `no_credentials` and `origin_refused`."""
    if server.routes.find(request).path != PATH:
        raise BadInput(f"this path does not support WebSocket; use {PATH}", code="not_found")
    if request.scope["query_string"]:
        raise BadInput(
            "the URL of a connection has no parameters; send the token in a header, a subprotocol "
            "or the first frame",
            code="bad_parameter",
        )
    if server.draining.is_set():
        raise Unavailable("the server is stopping; connect again", code="node_stopped")
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
    """Whether a request claims to come from another node."""
    return (request.header(b"authorization") or "").startswith(f"{NODE} ")


def behind(server: "Server", request: Request) -> Access:
    """The caller on whose behalf another node calls. Raises `no_credentials` if it is not a
    node."""
    secret = (request.header(b"authorization") or "").partition(" ")[2]
    user = unquote(request.header(USER.lower().encode()) or "")
    if not server.app.hub.owners.is_node(secret) or not user:
        raise BadInput(
            "invalid credentials of a node; all nodes need the same server key",
            code="no_credentials",
        )
    return Access(Caller.of_user(user), EVERYTHING)


def _caller(server: "Server", authorization: str | None, offered: list[str]) -> Access | None:
    tokens = [word.removeprefix(_TOKEN) for word in offered if word.startswith(_TOKEN)]
    if authorization is not None:
        return server.visitor(authorization.partition(" ")[2].strip())
    return server.visitor(tokens[0]) if tokens else None


def admit_origin(origin: str | None, host: str | None, allowed: Collection[str]) -> None:
    """Raise `origin_refused` for a page of another site that is not allowed."""
    if origin is None or origin in allowed or "*" in allowed:
        return
    try:
        its_host = urlsplit(origin).netloc
    except ValueError:
        its_host = ""
    if not its_host or its_host.lower() != (host or "").lower():
        raise OncewardError(
            f"pages of {origin[:100]!a} may not connect; add the origin to the setting `origins`",
            code="origin_refused",
        )
