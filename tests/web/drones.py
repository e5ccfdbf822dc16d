"""Many small clients of rooms in one process: each changes its room, follows it, and comes back
with what has no answer whenever its connection is lost. They know the frames, and nothing else."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from onceward.api.room_changes import MapAdd, RoomOperation
from onceward.errors import TABLE
from onceward.rooms import frames
from onceward.rooms.room import load_piece
from onceward.rooms.state import State
from onceward.rooms.wire import frame

_HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_PAUSE_S = 0.1
_PRESENT_MS = 3_600_000  # no presence ends by itself


def masked(message: bytes) -> bytes:
    """A message as a frame of a client, masked by nothing."""
    made = bytearray(frame(message))
    made[1] |= 0x80
    return bytes(made[: -len(message)] + b"\0\0\0\0" + message)


class Line(asyncio.Protocol):
    """One connection: calls back with each message, and at its end."""

    def __init__(self, on_message: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._on_message = on_message
        self._on_end = on_end
        self._buffer = b""
        self._open = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(_HANDSHAKE)

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()

    def send(self, asked: frames.ClientFrame) -> None:
        self.transport.write(masked(frames.encode(asked)))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._open:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self._open, self._buffer = True, rest
        at, buffer = 0, self._buffer
        while len(buffer) - at >= 2:
            size, start = buffer[at + 1], at + 2
            if size >= 126:
                width = 2 if size == 126 else 8
                size = int.from_bytes(buffer[start : start + width])
                start += width
            if len(buffer) < start + size:
                break
            if buffer[at] == 0x89:
                self.transport.write(b"\x8a\x80\0\0\0\0")
            elif buffer[at] == 0x81:
                self._on_message(buffer[start : start + size])
            at = start + size
        self._buffer = buffer[at:]


class Drone:
    """A user with one client in one room."""

    def __init__(self, name: str, room: str) -> None:
        self.name = name
        self.room = room
        self.state = State()
        self.epoch, self.seq, self.n = "", 0, 0
        self.digest = self._digest = ""
        self.sent: dict[int, list[RoomOperation]] = {}
        """Steps without an answer."""
        self.acknowledged = 0
        self.joined = False
        self.resets: list[str] = []
        self.presences: set[str] = set()
        self.faults: list[str] = []
        """What a server said that it must not say: here, since nobody hears what is raised in a
        connection."""
        self.news = asyncio.Event()
        self._line: Line | None = None
        self._offered = 0
        """Up to this number, steps were sent with the join."""
        self._stopped = False
        self._ports: deque[int] = deque()
        self._coming: asyncio.Task[None] | None = None

    def start(self, *ports: int) -> None:
        """Connect to one of these, and stay connected: to another one when it is lost."""
        self._ports, self._stopped = deque(ports), False
        self._lost()

    def stop(self) -> None:
        """Go without a word."""
        self._stopped = True
        if self._coming is not None:
            self._coming.cancel()
        if self._line is not None:
            self._line.transport.abort()

    def add(self) -> None:
        """Add 1 to the drone's own counter: now, or once it is in its room again."""
        self.n += 1
        ops: list[RoomOperation] = [MapAdd("counts", self.name, 1)]
        self.sent[self.n] = ops
        if self.joined and self._line is not None:
            self._line.send(frames.Ops(self.room, self.n, ops))

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.news.clear()
            await self.news.wait()

    def _lost(self) -> None:
        self._line, self.joined = None, False
        if not self._stopped:
            self._coming = asyncio.ensure_future(self._come())
        self.news.set()

    async def _come(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._ports.rotate()
                made = lambda: Line(self._take, self._lost)  # noqa: E731
                _, self._line = await loop.create_connection(made, "127.0.0.1", self._ports[0])
                break
            except OSError:
                again = loop.create_future()
                loop.call_later(_PAUSE_S, again.set_result, None)
                await again
        self._line.send(frames.Hello(f"dev:{self.name}"))
        self._join()

    def _join(self) -> None:
        assert self._line is not None
        steps = [frames.Step(n, ops) for n, ops in sorted(self.sent.items())]
        if not self.epoch:
            steps = []
        self._offered = steps[-1].n if steps else 0
        position = self.epoch, self.seq
        asked = frames.Join(self.room, self.name, *position, steps, True, self.digest)
        self._line.send(asked)

    def _take(self, message: bytes) -> None:
        try:
            self._follow(message)
        except Exception as fault:
            self.faults.append(f"{self.name}: {fault!r}")
            raise

    def _follow(self, message: bytes) -> None:
        told = frames.read_server(message)
        if isinstance(told, frames.Change):
            assert told.seq == self.seq + 1, (self.name, told.seq, self.seq)
            self._apply(told, told.ops)
            if told.client == self.name:
                self._answered(told.n)
        elif isinstance(told, frames.Ack):
            assert told.seq == self.seq + 1, (self.name, told.seq, self.seq)
            self._apply(told, self.sent[told.n])
            self._answered(told.n)
        elif isinstance(told, frames.Joined):
            self._greet(told)
        elif isinstance(told, frames.Snapshot):
            load_piece(self.state, told.maps, told.lists)
            self.seq, self.digest = told.seq, self._digest
        elif isinstance(told, frames.PresenceChanged):
            self.presences.add(told.user)
        elif isinstance(told, frames.PresenceGone):
            self.presences.discard(told.user)
        elif isinstance(told, frames.Left):
            assert TABLE[told.code].retry, told
            assert self._line is not None
            self.joined = False
            asyncio.get_running_loop().call_later(_PAUSE_S, self._line.transport.abort)
        elif isinstance(told, frames.Refused | frames.Error) and told.code == "not_joined":
            assert not self.joined, told  # it crossed a `left`, and goes with the next join
        else:
            assert not isinstance(told, frames.Refused | frames.Error), told
        self.news.set()

    def _greet(self, told: frames.Joined) -> None:
        assert self._line is not None
        self.presences = {user for entries in told.presences.values() for user in entries}
        if told.reset:
            self.resets.append(told.reset)
            self._digest = told.digest
            # What was known stays true: who had a position never gets an older one.
            assert told.epoch != self.epoch or told.seq >= self.seq, (self.seq, told)
            self.state = State()
            for n in [n for n in self.sent if n <= told.n]:
                self._answered(n)
        self.epoch, self.joined = told.epoch, True
        for n, ops in sorted(self.sent.items()):
            if n > max(self._offered, told.n):
                self._line.send(frames.Ops(self.room, n, ops))
        self._line.send(frames.SetPresence(self.room, "here", True, _PRESENT_MS))

    def _apply(self, told: frames.Change | frames.Ack, ops: list[RoomOperation]) -> None:
        self.state.apply(ops)
        self.seq, self.digest = told.seq, told.digest

    def _answered(self, n: int) -> None:
        if self.sent.pop(n, None) is not None:
            self.acknowledged += 1

    @property
    def whole(self) -> bytes:
        """All it knows of its room, to be compared."""
        return msgspec.json.encode(self.state.plain(), order="sorted")
