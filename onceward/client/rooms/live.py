"""The WebSocket connection to the rooms of a server, with automatic reconnection.

    async with client.live() as live:
        room = await live.join("board", create=True)
        notes = room.map("notes")
        notes.subscribe(lambda value, who: print(who.user, value))
        await notes.set("milk", {"done": False})

Several rooms share one connection. While it is down, changes are applied locally and queued. They
are sent after the reconnection, and take effect once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Literal, Self, Unpack, get_args

import aiohttp
import msgspec

from onceward import limits
from onceward.client.rooms.acts import ActMembers, Acts
from onceward.client.rooms.replica import Replica
from onceward.client.rooms.room import Room
from onceward.client.rooms.steps import error_of
from onceward.client.transport import AWAY_S_MAX, PROXY_STATUSES
from onceward.clock import Clock, new_clock
from onceward.errors import BadInput, OncewardError, Unavailable, find_kind
from onceward.ids import Ids
from onceward.rooms.frames import (
    PROTOCOL,
    ClientFrame,
    Done,
    Error,
    Failed,
    Hello,
    Joined,
    Leave,
    Ping,
    Pong,
    ServerFrame,
    Token,
    Welcome,
    encode,
    read_server,
    reconnects,
)
from onceward.rooms.names import admit_room

Credentials = str | Callable[[], Awaitable[str]] | None
"""A token or an API key, or a function that returns a new one. It is called before each connection
and before the token expires.
"""
State = Literal["connecting", "connected", "closed"]

_log = logging.getLogger("onceward.client")
_WELCOME_S = 20.0
# A token is renewed after this part of its lifetime.
_RENEW_AT = 0.8
# A minimum in case clocks differ.
_RENEW_S_MIN = 30.0
# The pause after an unreadable frame is that after this many attempts.
_UNREADABLE_ATTEMPTS = 6
_MESSAGE_BYTES_MAX = 64 << 20


class Live:
    """A connection and its rooms. Use it with `async with`."""

    def __init__(
        self,
        url: str,
        *,
        token: Credentials = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        """`url` is the http or https URL of the server."""
        self.state: State = "connecting"
        self.error: OncewardError | None = None
        """The error that closed the connection; None if the caller closed it."""
        self.user = ""
        """The user name of this client, from the server."""
        self.clock = clock or new_clock()
        self.ids = ids or Ids(self.clock.now_ms)
        self.rooms: dict[str, Room] = {}
        self._address = url.rstrip("/") + "/v1/ws"
        self._credentials = token
        self._hooks: list[Callable[[State], object]] = []
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._running: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._out: list[ClientFrame] = []
        self._acts = Acts(self._send)
        self._awake = asyncio.Event()
        self._heard = False
        self._settling = False
        self._attempt = 0
        self._spoiled, self._spoiled_before = False, 0
        """Whether this connection sent an invalid frame of a room, and how many before it did in a
        row.
        """

    async def open(self) -> Self:
        """Start to connect and return immediately."""
        if self._running is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
            self._running = asyncio.create_task(self._run(), name="onceward-live")
        return self

    async def close(self) -> None:
        """Leave all rooms and close the connection. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.wait([running])
        self._end(None)
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    def on_state(self, hook: Callable[[State], object]) -> Callable[[], None]:
        """Call `hook(state)` when the connection is lost, restored or closed permanently."""
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook) if hook in self._hooks else None

    def room(self, id_: str, *, create: bool = False) -> Room:
        """A room for immediate use; changes wait until it is joined. The same object for the same
        id.

        With `create` the server creates it if it does not exist. Raises `BadInput`.
        """
        admit_room(id_)
        if self.state == "closed":
            raise self.error or BadInput(
                f"the connection to {self._address} is closed; open another one"
            )
        if id_ not in self.rooms:
            replica = Replica(id_, self.ids.new(), create=create)
            room = self.rooms[id_] = Room(self, replica)
            room.user = replica.user = self.user
            if self.state == "connected":
                self._send(replica.join())
        return self.rooms[id_]

    async def join(self, id_: str, *, create: bool = False) -> Room:
        """Join a room and wait until its state is complete. Raises the reason if it cannot be
        joined.
        """
        room = self.room(id_, create=create)
        if room.status != "live":
            came = asyncio.Event()
            end = room.on_status(lambda status: came.set() if status != "away" else None)
            try:
                while room.status not in ("live", "closed"):
                    came.clear()
                    await came.wait()
            finally:
                end()
        if room.status == "closed":
            raise room.error or BadInput(
                f"the room {id_!r} was left during the join; join it again", code="not_joined"
            )
        return room

    async def act(self, do: str, table: str = "", **body: Unpack[ActMembers]) -> Any:
        """Act at a table: `join`, `leave`, `move`, `ready` and the other operations of the HTTP
        API.

        Returns the response as plain data. Raises the error of the server, and `OutcomeUnknown` if
        the connection is lost before the response.
        """
        if self.state == "closed":
            raise self.error or BadInput(
                f"the connection to {self._address} is closed; open another one"
            )
        return await self._acts.ask(do, table, body, connected=self.state == "connected")

    # For rooms.

    def stir(self) -> None:
        self._awake.set()

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def restart(self) -> None:
        self._spoiled = True
        if self._socket is not None:
            self._spawn(_close(self._socket))

    def rejoin(self, room: Room) -> None:
        self._spawn(self._rejoin(room, self._socket))

    def forget(self, room: Room) -> None:
        if self.rooms.get(room.id) is room:
            del self.rooms[room.id]
            if self.state == "connected" and room.error is None:
                self._send(Leave(room.id))

    async def _rejoin(self, room: Room, socket: Any) -> None:
        # Separate counters, since many rooms may have moved at once.
        tries, room.tries = room.tries, room.tries + 1
        await self._pause(tries)
        if self._socket is socket and room.status != "closed" and not room.replica.live:
            self._send(room.replica.join())

    def _send(self, frame: ClientFrame) -> None:
        self._out.append(frame)
        self._awake.set()

    # Connection loop.

    async def _run(self) -> None:
        while True:
            error: OncewardError
            away, after_s = False, 0.0
            try:
                close, reason = await self._connection()
                error = _closed(close, reason)
                final = not reconnects(close, reason)
                # A client with a token function tries a new token.
                if error.code == "token_expired" and callable(self._credentials):
                    final = False
            except aiohttp.WSServerHandshakeError as refused:
                error, final = _refused(refused.status)
                after_s = _retry_after_s(refused)
                away = refused.status in PROXY_STATUSES and not after_s
            except (aiohttp.ClientError, OSError, TimeoutError) as lost:
                error, final = (
                    Unavailable(f"cannot connect to {self._address}: {lost}. Check the server"),
                    False,
                )
                away = isinstance(lost, aiohttp.ClientConnectorError)
            except OncewardError as raised:
                error, final = raised, not raised.kind.retry
            except Exception as raised:
                _log.exception("the connection to %s failed unexpectedly", self._address)
                error, final = OncewardError(str(raised), code="internal"), True
            self._lost()
            if final:
                self._end(error)
                return
            if away:
                _log.debug("%s", error)
                await self.clock.sleep(AWAY_S_MAX * self.ids.fraction())
                continue
            _log.info("the connection to %s is lost: %s", self._address, error)
            await self._pause(
                max(self._attempt, self._spoiled_before if self._spoiled else 0), after_s
            )
            self._attempt += 1
            self._spoiled_before = self._spoiled_before + 1 if self._spoiled else 0

    async def _pause(self, tries: int, after_s: float = 0.0) -> None:
        doubled = min(tries, 30)  # avoids an overflow of the power
        pause_s = min(limits.ROOM_PAUSE_S_MIN * 2**doubled, limits.ROOM_PAUSE_S_MAX)
        # Clients that lost the connection at the same time should not reconnect at the same time.
        pause_s *= 0.2 + 0.8 * self.ids.fraction()
        await self.clock.sleep(max(pause_s, min(after_s, limits.ROOM_PAUSE_S_MAX)))

    async def _connection(self) -> tuple[int, str]:
        """Run one connection from its start to its end; return the close code and reason."""
        assert self._session is not None
        self._spoiled = False
        token = await self._token()
        socket = await self._session.ws_connect(
            self._address,
            protocols=(PROTOCOL,),
            max_msg_size=_MESSAGE_BYTES_MAX,
            timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
        )
        try:
            await socket.send_str(encode(Hello(token)).decode())
            async with asyncio.timeout(_WELCOME_S):
                closed = await self._read(socket)
                if closed is not None:
                    return closed
            if self.state != "connected":
                raise Unavailable(
                    f"{self._address} does not support the rooms protocol; check the address"
                )
            self._socket = socket
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._write(socket))
                beating = group.create_task(self._beat(socket))
                while (closed := await self._read(socket)) is None:
                    pass
                writing.cancel()
                beating.cancel()
            return closed
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            self._socket = None
            await _close(socket)

    async def _token(self) -> str:
        if callable(self._credentials):
            return await self._credentials()
        return self._credentials or ""

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> tuple[int, str] | None:
        """Process one message; return the close code and reason if it was a close frame."""
        message = await socket.receive()
        if message.type is aiohttp.WSMsgType.TEXT:
            self._heard = True
            self._receive(message.data)
            return None
        if message.type is aiohttp.WSMsgType.CLOSE:
            return int(message.data or 1005), str(message.extra or "")
        if message.type is aiohttp.WSMsgType.ERROR:
            raise Unavailable(
                f"lost the connection to {self._address}: {message.data}. Check the network"
            )
        return socket.close_code or 1006, ""

    def _receive(self, text: str) -> None:
        try:
            frame = read_server(text)
        except BadInput as error:
            self._pass_over(text, error)
            return
        if isinstance(frame, Welcome):
            self._welcome(frame)
        elif isinstance(frame, Error):
            _log.warning("the server rejected a frame: %s [%s]", frame.detail, frame.code)
            if frame.name and frame.room in self.rooms:
                self.rooms[frame.room].presence_refused(frame)
        elif isinstance(frame, Done | Failed):
            self._acts.receive(frame)
        elif not isinstance(frame, Pong):
            room = self.rooms.get(frame.room)
            if room is not None:  # otherwise it was left while the frame was in flight
                room.receive(frame)
                if isinstance(frame, Joined):
                    self._attempt = room.tries = 0
                # Frames of one turn are shown together.
                if not self._settling:
                    self._settling = True
                    asyncio.get_running_loop().call_soon(self._settle)

    def _pass_over(self, text: str, error: OncewardError) -> None:
        """Handle an unreadable frame.

        Unknown types are for newer clients and are ignored. A room with an unreadable frame is
        loaded again. Raises `Unavailable` for anything else.
        """
        try:
            frame = msgspec.json.decode(text, type=_AnyFrame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            frame = _AnyFrame("")
        room = self.rooms.get(frame.room)
        if frame.t and frame.t not in _KINDS:
            _log.info("ignored a frame of the unknown type %r", frame.t[:50])
        elif room is not None:
            room.renew(error)
        else:
            self._attempt = _UNREADABLE_ATTEMPTS
            raise Unavailable(
                f"{self._address} sent a frame that cannot be read: {error.message}. Check that "
                "client and server have the same version"
            )

    def _settle(self) -> None:
        self._settling = False
        for room in list(self.rooms.values()):
            room.settle()

    def _welcome(self, frame: Welcome) -> None:
        self.user = frame.user
        self._attempt = 0
        if frame.until_ms is not None and callable(self._credentials):
            self._spawn(self._renew(frame.until_ms - self.clock.now_ms()))
        if self.state == "connected":
            return
        self._out.clear()
        for room in self.rooms.values():
            room.user = room.replica.user = frame.user
            self._send(room.replica.join())
        self._acts.send_waiting()
        self._set_state("connected")

    async def _renew(self, left_ms: int) -> None:
        """Send a new token before the old one expires."""
        socket = self._socket
        await self.clock.sleep(max(left_ms / 1000 * _RENEW_AT, _RENEW_S_MIN))
        try:
            token = await self._token()
        except Exception as error:
            _log.warning("could not get a new token: %s", error)
            return
        if socket is self._socket:
            self._send(Token(token))

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await self._awake.wait()
            self._awake.clear()
            out, self._out = self._out, []
            for room in self.rooms.values():
                out += room.take_out()
            for frame in out:
                await socket.send_str(encode(frame).decode())

    async def _beat(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Send heartbeats, and close the connection if there is no response."""
        while True:
            self._heard = False
            self._send(Ping())
            await self.clock.sleep(limits.ROOM_BEAT_S)
            if not self._heard:
                raise Unavailable(
                    f"{self._address} does not respond; check the server and the network"
                )
            self._spoiled_before = 0

    def _lost(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        self._out.clear()
        self._acts.lost()
        for room in list(self.rooms.values()):
            room.lost()
            room.settle()
        if self.state != "closed":
            self._set_state("connecting")

    def _end(self, error: OncewardError | None) -> None:
        """Close permanently. Idempotent."""
        if self.state == "closed":
            return
        self._lost()
        self.error = error
        self._acts.end(
            error or BadInput(f"the connection to {self._address} is closed; open another one")
        )
        for room in list(self.rooms.values()):
            room.close(error)
        self.rooms.clear()
        self._set_state("closed")

    def _set_state(self, state: State) -> None:
        if state != self.state:
            self.state = state
            for hook in list(self._hooks):
                try:
                    hook(state)
                except Exception:
                    _log.exception("a subscriber of the connection failed")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _AnyFrame(msgspec.Struct):
    """The common fields of unknown frames."""

    t: str
    room: str = ""


_KINDS = frozenset(kind.__struct_config__.tag for kind in get_args(ServerFrame))


async def _close(socket: aiohttp.ClientWebSocketResponse) -> None:
    await socket.close()


def _closed(close: int, reason: str) -> OncewardError:
    if (kind := find_kind(reason)) is not None:
        return error_of(reason, f"the server has closed the connection: {kind.title}")
    return Unavailable(
        f"the connection was closed with {close}: {reason or 'no reason'}. Connect again"
    )


def _retry_after_s(refused: aiohttp.WSServerHandshakeError) -> float:
    text = refused.headers.get("Retry-After", "") if refused.headers else ""
    return float(text) if text.isdecimal() else 0.0


def _refused(status: int) -> tuple[OncewardError, bool]:
    """The error for a response that is not a WebSocket handshake, and whether it is final."""
    text = f"the server responded {status} instead of opening a WebSocket"
    if status in (408, 425, 429) or status >= 500:
        return Unavailable(text), False
    code = {401: "no_credentials", 403: "not_allowed"}.get(status, "not_found")
    return BadInput(text, code=code), True
