"""Cursors: the position of the next page, encrypted by the server.

A position is the name of a record, which may belong to another caller. So it is encrypted with the
server key, bound to one list and one caller.
"""

from typing import TYPE_CHECKING

from onceward.errors import BadInput, SecretUnreadable
from onceward.web.http import Request

if TYPE_CHECKING:
    from onceward.web.server import Server

_CHARS_MAX = 4_096


def seal(server: "Server", request: Request, position: str | None) -> str | None:
    """The cursor of a position; None if there is no next page."""
    if position is None:
        return None
    return server.app.store.server_keys.encrypt(position, *_place(server, request))


def unseal(server: "Server", request: Request, name: str, cursor: str | None) -> str:
    """Decrypt the position from a cursor parameter; empty without one. Raises `bad_parameter`."""
    if not cursor:
        return ""
    try:
        if len(cursor) > _CHARS_MAX:
            raise SecretUnreadable("longer than any cursor")
        return server.app.store.server_keys.decrypt(cursor, *_place(server, request))
    except SecretUnreadable as error:
        raise BadInput(
            f"{name} is not a cursor of this list; use the member `next` of the last page",
            code="bad_parameter",
        ) from error


def _place(server: "Server", request: Request) -> tuple[str, str, str]:
    return "cursor", request.route, server.caller(request).id
