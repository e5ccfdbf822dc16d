"""Relay to rooms on other nodes: forwards frames in both directions.

Each client connection has one connection to each of those nodes. This node has authenticated and
authorized the client; the other node handles its frames like those of any connection. If the
connection to the other node is lost, its rooms have moved, and clients join them again.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from onceward import limits
from onceward.errors import TABLE
from onceward.rooms import frames
from onceward.rooms.frames import encode
from onceward.rooms.owners import Address
from onceward.rooms.wire import frame

if TYPE_CHECKING:
    from onceward.rooms.session import Session

_QUIET = (b'{"t":"welcome"', b'{"t":"pong"')
_ANSWERS = (b'{"t":"ack"', b'{"t":"refused"')
_LEFT = b'{"t":"left"'


class Pipe(Protocol):
    """A connection to another node."""

    def send(self, message: bytes, sent: Callable[[], None]) -> None:
        """Send a message as soon as possible; call `sent` when it is sent or has failed."""

    def close(self) -> None:
        """Close the connection. Idempotent."""


Dial = Callable[
    [Address, str, Callable[[bytes], None], Callable[[], None], Callable[[], Awaitable[None]]],
    Awaitable[Pipe],
]
"""Connects to a node for a user. The callbacks receive each message and the end; the last argument
is awaited before each message is read. Raises `Unavailable`.
"""


class Relay:
    """All rooms of one client connection that one other node serves."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._rooms: dict[str, Remote] = {}
        self._pipe: Pipe | None = None
        self.over = False

    async def open(self, dial: Dial, address: Address) -> None:
        """Connect. Raises `Unavailable`."""
        session = self._session
        self._pipe = await dial(address, session.user, self._take, self.end, session.drained)
        if self.over:  # the connection was lost in the meantime
            self._pipe.close()
        self.send(frames.Hello())

    def join(self, asked: frames.Join) -> "Remote":
        """Ask to join a room; the client receives the response."""
        remote = self._rooms[asked.room] = Remote(self, asked.room)
        self.send(asked)
        return remote

    def send(self, asked: frames.ClientFrame) -> None:
        if self._pipe is not None and not self.over:
            # Backpressure: if the other node reads nothing, this connection is not read.
            self._session.expects_answer()
            self._pipe.send(encode(asked), self._session.answered)

    def leave(self, remote: "Remote") -> None:
        if self._rooms.pop(remote.id, None) is not None:
            self.answered(remote, remote.unanswered)
            self.send(frames.Leave(remote.id))
            if not self._rooms:
                self.end()

    def asks(self, remote: "Remote") -> None:
        """Count a step that expects a response."""
        remote.unanswered += 1
        self._session.expects_answer()

    def answered(self, remote: "Remote", count: int = 1) -> None:
        count = min(count, remote.unanswered)
        if count:
            remote.unanswered -= count
            self._session.answered(count)

    def end(self) -> None:
        """Close the connection to the other node, or handle its loss. Idempotent."""
        if self.over:
            return
        self.over = True
        if self._pipe is not None:
            self._pipe.close()
        rooms, self._rooms = list(self._rooms.values()), {}
        for remote in rooms:
            self.answered(remote, remote.unanswered)
            self._session.dismissed(remote.id, "room_moved", TABLE["room_moved"].title)
        self._session.relay_over(self)

    def _take(self, message: bytes) -> None:
        if self.over or message.startswith(_QUIET):
            return
        if message.startswith(_LEFT):
            told = frames.read_server(message)
            assert isinstance(told, frames.Left)
            remote = self._rooms.pop(told.room, None)
            if remote is not None:
                self.answered(remote, remote.unanswered)
                self._session.dismissed(told.room, told.code, told.detail)
            return
        if message.startswith(_ANSWERS):
            answer: Any = frames.read_server(message)
            remote = self._rooms.get(answer.room)
            if remote is not None:
                self._session.put(frame(message))
                self.answered(remote)
            return
        self._session.put(frame(message))


class Remote:
    """The membership of a connection in a room of another node, with the interface of `Member`."""

    def __init__(self, relay: Relay, id_: str) -> None:
        self._relay = relay
        self.id = id_
        self.unanswered = 0

    @property
    def over(self) -> bool:
        return self._relay.over

    def submit(self, *steps: frames.Step) -> None:
        for step in steps:
            self._relay.asks(self)
            self._relay.send(frames.Ops(self.id, step.n, step.ops))

    def say(self, event: str, value: Any) -> None:
        self._relay.send(frames.Say(self.id, event, value))

    def tell(self, to: str, event: str, value: Any) -> None:
        self._relay.send(frames.Tell(self.id, to, event, value))

    def set_presence(self, name: str, value: Any, ttl_ms: int = limits.PRESENCE_MS) -> None:
        self._relay.send(frames.SetPresence(self.id, name, value, ttl_ms))

    def remove_presence(self, name: str) -> None:
        self._relay.send(frames.RemovePresence(self.id, name))

    def settle(self) -> None:
        """Frames of the other node are forwarded as they arrive."""

    def leave(self, *, lost: bool = False) -> None:
        # Ending the relay makes the other node see a lost connection as well.
        if lost:
            self._relay.end()
        else:
            self._relay.leave(self)
