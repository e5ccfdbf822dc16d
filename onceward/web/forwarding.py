"""Forwarding of requests to the node that owns a room."""

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from onceward import limits
from onceward.errors import Unavailable
from onceward.rooms.owners import Address
from onceward.web.handshake import NODE, USER, is_from_node
from onceward.web.http import PROBLEM, Request, Response

if TYPE_CHECKING:
    from onceward.web.server import Server


async def elsewhere(
    server: "Server", request: Request, id_: str, *path: str, body: bytes = b""
) -> Response | None:
    """Forward a request to the node that serves a room; returns its response, or None if it is this
    node.

    Raises `Unavailable` if the room has no node at the moment.
    """
    owners = server.app.hub.owners
    if owners.own(id_):
        return None
    if is_from_node(request):
        raise Unavailable(f"another node serves the room {id_[:100]!r}; retry", code="room_moved")
    address = await owners.find(id_)
    words = "/".join(quote(word, safe="") for word in ("v1", "rooms", id_, *path))
    try:
        async with asyncio.timeout(limits.DIAL_S):
            return await _ask(address, request.method, words, server.caller(request).user, body)
    except (OSError, EOFError, ValueError, TimeoutError) as error:
        raise Unavailable(
            f"the node that serves the room {id_[:100]!r} is unavailable; retry later",
            code="room_moved",
        ) from error


async def _ask(address: Address, method: str, path: str, user: str, body: bytes) -> Response:
    parts = urlsplit(address.url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(host, port, ssl=secure or None)
    try:
        head = (
            f"{method} {parts.path.rstrip('/')}/{path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Authorization: {NODE} {address.secret}\r\n{USER}: {quote(user, safe='')}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict([one.lower().split(": ", 1) for one in lines if ": " in one])
        answer = await reader.readexactly(int(headers["content-length"]))
    finally:
        writer.close()
    status = int(line.split()[1])
    return Response(status, answer) if status < 400 else Response(status, answer, PROBLEM)
