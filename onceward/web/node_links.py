"""WebSocket connections to other nodes, for the rooms that they own."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from urllib.parse import quote, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from onceward import limits
from onceward.errors import Unavailable
from onceward.rooms.frames import PROTOCOL
from onceward.rooms.owners import Address
from onceward.web.handshake import NODE, PATH, USER

logger = logging.getLogger("onceward.rooms")


class Line:
    """A connection to another node."""

    def __init__(
        self,
        socket: ClientConnection,
        on_message: Callable[[bytes], None],
        on_end: Callable[[], None],
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        self._socket = socket
        self._on_message = on_message
        self._on_end = on_end
        self._ready = ready
        self._out: deque[tuple[bytes, Callable[[], None]]] = deque()
        self._news = asyncio.Event()
        self._closed = False
        self._task = asyncio.create_task(self._run(), name="onceward-relay")

    def send(self, message: bytes, sent: Callable[[], None]) -> None:
        self._out.append((message, sent))
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    async def _run(self) -> None:
        reading = asyncio.create_task(self._read(), name="onceward-relay-reads")
        writing = asyncio.create_task(self._write(), name="onceward-relay-writes")
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.wait([reading, writing])
            await self._socket.close()
            for task in (reading, writing):
                if not task.cancelled() and (error := task.exception()) is not None:
                    logger.error("a connection to another node failed", exc_info=error)
            for _, sent in self._out:
                sent()
            self._out.clear()
            self._on_end()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                await self._ready()
                self._on_message(message.encode() if isinstance(message, str) else message)
        except ConnectionClosed:
            pass

    async def _write(self) -> None:
        try:
            while not self._closed or self._out:
                await self._news.wait()
                self._news.clear()
                while self._out:
                    message, sent = self._out.popleft()
                    try:
                        await self._socket.send(message, text=True)
                    finally:
                        sent()
        except ConnectionClosed:
            pass


async def dial(
    address: Address,
    user: str,
    on_message: Callable[[bytes], None],
    on_end: Callable[[], None],
    ready: Callable[[], Awaitable[None]],
) -> Line:
    """Connect to a node on behalf of a user. Raises `Unavailable`."""
    parts = urlsplit(address.url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    url = f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}{PATH}"
    headers = {"Authorization": f"{NODE} {address.secret}", USER: quote(user, safe="")}
    try:
        socket = await connect(
            url,
            additional_headers=headers,
            subprotocols=[PROTOCOL],  # type: ignore[list-item]
            compression=None,
            max_size=None,
            open_timeout=limits.DIAL_S,
            ping_interval=limits.PING_S,
            proxy=None,
        )
    except (OSError, WebSocketException, TimeoutError, ValueError) as error:
        logger.warning("cannot connect to the node at %s: %s", address.url, error)
        raise Unavailable(
            f"the node that serves the room is unavailable at {address.url}; join again",
            code="room_moved",
        ) from error
    return Line(socket, on_message, on_end, ready)
