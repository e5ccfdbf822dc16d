"""ASGI adapter: serves requests when the server is mounted in FastAPI or Starlette.

`onceward serve` has its own protocols (`protocol`, `websocket`). Both use the same methods of
`Server`: `answer` gets a complete request, `admit` and `hear` a connection.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from onceward import limits
from onceward.errors import OncewardError
from onceward.web.asgi_wire import AsgiWire
from onceward.web.http import Receive, Request, Response, Scope, Send, body_too_large, problem

if TYPE_CHECKING:
    from onceward.web.server import Server


async def call(server: "Server", scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a scope: a request, a WebSocket connection, or the lifespan of the server."""
    if scope["type"] == "http":
        await _http(server, scope, receive, send)
    elif scope["type"] == "lifespan":
        await _lifespan(server, receive, send)
    else:
        await _websocket(server, scope, receive, send)


async def read(
    scope: Scope, receive: Receive, vouch: Callable[[Request], bool] = lambda request: True
) -> Request | None:
    """Read a complete request; None if the caller disconnects before its end.

    `vouch` returns whether the caller of a body in several pieces has valid credentials; without
    them the size limit is small. Raises `body_too_large`, and errors of `vouch`.
    """
    pieces: list[bytes] = []
    size_bytes, most_bytes = 0, limits.MESSAGES_BYTES_MAX
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        more = message.get("more_body", False)
        if more and not pieces and not vouch(Request(scope)):
            most_bytes = limits.ANONYMOUS_BODY_BYTES_MAX
        pieces.append(message.get("body", b""))
        size_bytes += len(pieces[-1])
        if size_bytes > most_bytes:
            raise body_too_large(most_bytes)

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return Request(scope, b"".join(pieces), gone)


async def respond(response: Response, send: Send, kind: str = "http.response") -> None:
    """Send a response."""
    start = {"type": f"{kind}.start", "status": response.status, "headers": response.headers}
    await send(start)
    await send({"type": f"{kind}.body", "body": response.body})


async def _http(server: "Server", scope: Scope, receive: Receive, send: Send) -> None:
    try:
        request = await read(scope, receive, server.vouch)
    except OncewardError as error:
        await respond(server.refusal(scope, error), send)
        return
    if request is not None:
        await respond(await server.answer(request), send)


async def _lifespan(server: "Server", receive: Receive, send: Send) -> None:
    await receive()
    try:
        await server.start()
    except Exception as error:
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        raise
    await send({"type": "lifespan.startup.complete"})
    await receive()
    try:
        await server.stop()
    except Exception as error:
        await send({"type": "lifespan.shutdown.failed", "message": str(error)})
        raise
    await send({"type": "lifespan.shutdown.complete"})


async def _websocket(server: "Server", scope: Scope, receive: Receive, send: Send) -> None:
    await receive()  # the message that opens the connection
    try:
        admission = await server.admit(Request({"method": "GET", **scope}))
    except OncewardError as error:
        if "websocket.http.response" in (scope.get("extensions") or {}):
            await respond(problem(error), send, "websocket.http.response")
        else:
            await send({"type": "websocket.close", "code": 1008})
        return
    await send({"type": "websocket.accept", "subprotocol": admission.subprotocol})
    await server.hear(AsgiWire(receive, send), admission)
