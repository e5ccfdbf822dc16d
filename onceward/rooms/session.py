"""One WebSocket connection: its caller, its rooms, and the frames it sends.

Frames are processed in order. An invalid frame closes the connection with an error code. A valid
frame that is rejected affects only its room. While a room is loaded from the store, the connection
is not read.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, Protocol

from onceward import limits
from onceward.errors import TABLE, BadInput, OncewardError, Unavailable
from onceward.rooms import frames
from onceward.rooms.frames import encode
from onceward.rooms.names import TABLE_ROOMS, admit_client, admit_number, admit_room
from onceward.rooms.owners import Address
from onceward.rooms.relay import Relay, Remote
from onceward.rooms.wire import Wire, frame

if TYPE_CHECKING:
    from onceward.rooms.hub import Hub
    from onceward.rooms.live import Member

logger = logging.getLogger("onceward.rooms")

RoomAction = Literal["read", "write", "room", "play", "lane", "table"]


class Visitor(Protocol):
    """The authenticated client of a connection."""

    @property
    def name(self) -> str: ...

    @property
    def user(self) -> str:
        """The user name in rooms."""

    @property
    def until_ms(self) -> int | None:
        """When its credentials expire."""

    def may(self, action: RoomAction, name: str) -> bool:
        """Whether it has the scope, or one that includes it."""


def allowed(visitor: Visitor, deed: RoomAction, id_: str) -> bool:
    """Whether a caller may read, write or manage a room. The rooms of tables are read-only, and
    readable with the scope `play` of the table."""
    may = visitor.may
    if id_.startswith(TABLE_ROOMS):
        return deed == "read" and (may("read", id_) or may("play", id_.removeprefix(TABLE_ROOMS)))
    return may(deed, id_)


def insist(visitor: Visitor, deed: RoomAction, id_: str) -> None:
    """Raise `not_allowed` unless the visitor has the scope."""
    if not allowed(visitor, deed, id_):
        raise OncewardError(
            f"{visitor.name!r} lacks the scope {deed}:{id_[:100]}; use a token with that scope",
            code="not_allowed",
        )


class Session:
    """The listener of one connection."""

    # Slots, since many sessions are written to in each turn and should be compact in memory.
    __slots__ = (
        *("relayed", "relays", "_busy", "_draining", "_greeted", "_hub", "_members", "_more"),
        *("_out", "_over", "_paused", "_timer", "_unanswered", "_visitor", "_waiting", "_wire"),
        *("_several", "_writes"),
    )

    def __init__(
        self, hub: "Hub", wire: Wire, visitor: Visitor | None = None, *, relayed: bool = False
    ) -> None:
        """Without a visitor the first frame must contain credentials.

        With `relayed` it comes from another node and is not relayed again.
        """
        self.relayed = relayed
        self.relays: dict[Address, Relay] = {}
        """By the node that they connect to."""
        self._hub = hub
        self._wire = wire
        self._visitor = visitor
        self._greeted = False
        self._over = False
        self._draining = False
        self._members: dict[str, Member | Remote] = {}
        """The joined rooms, by id."""
        self._several = False
        """Whether it has joined more than one room."""
        self._writes: set[str] = set()
        """The rooms that it may write to, cached."""
        self._waiting: deque[frames.ClientFrame] = deque()
        """Frames that arrived while a room was loaded."""
        self._busy: asyncio.Task[None] | None = None
        self._unanswered = 0
        self._paused = False
        self._out = b""
        """The first data to send at the end of the turn."""
        self._more: list[bytes] = []
        """Further data after `_out`."""
        self._timer: asyncio.TimerHandle | None = hub.later(limits.HELLO_S, self._look)
        if visitor is not None:
            wire.authenticate()

    @property
    def user(self) -> str:
        assert self._visitor is not None
        return self._visitor.user

    def is_of(self, visitor: Visitor) -> bool:
        """Whether it uses exactly these credentials."""
        return self._visitor is visitor

    # Input.

    def receive(self, message: bytes) -> None:
        if self._over or self._draining:
            return
        try:
            asked = frames.read_client(message)
        except OncewardError as error:
            self.end(error.code)
            return
        if self._busy is not None:
            self._waiting.append(asked)
        else:
            self._take(asked)

    def drain(self) -> None:
        self._draining = True
        self._wire.pause()
        if not self._unanswered:
            self.end("node_stopped")

    def cut_off(self) -> None:
        self._hub.cut_off(self)

    def lost(self) -> None:
        self._leave_all(lost=True)

    # Output.

    def put(self, data: bytes) -> None:
        """Send these frames at the end of the turn."""
        if self._out:
            self._more.append(data)
        elif not self._over:
            self._out = data
            self._hub.will_flush(self)

    def put_last(self, data: bytes) -> None:
        """Send frames at the end of the turn: directly, unless another room may have more data."""
        if self._out or self._several:
            self.put(data)
        elif not self._over:
            self._wire.send(data)

    def say(self, said: frames.ServerFrame) -> None:
        self.put(frame(encode(said)))

    def flush(self) -> None:
        """Send the data of the turn. For use by the hub."""
        out = self._out
        if out:
            self._out = b""
            if self._more:
                out = b"".join([out, *self._more])
                self._more.clear()
            if not self._over:
                self._wire.send(out)

    def end(self, code: str) -> None:
        """Close the connection with an error code. Idempotent."""
        for member in self._members.values():
            member.settle()
        self.flush()
        if not self._over:  # otherwise it was closed as a slow reader
            self._hub.store.meters.count("room_closes", code=code)
            self._wire.close(TABLE[code].close, code)
            self._leave_all(lost=True)

    # Unanswered steps.

    def expects_answer(self, count: int = 1) -> None:
        self._unanswered += count
        if self._unanswered >= limits.STEPS_AHEAD_MAX and not self._paused:
            self._paused = True
            self._wire.pause()

    def answered(self, count: int = 1) -> None:
        self._unanswered -= count
        if self._draining:
            if not self._unanswered:
                self.end("node_stopped")
        elif self._paused and self._unanswered <= limits.STEPS_AHEAD_MAX // 2:
            self._paused = False
            if self._busy is None:
                self._wire.resume()

    # Frames.

    def _take(self, asked: frames.ClientFrame) -> None:
        try:
            if not self._greeted and type(asked) is not frames.Hello:
                raise BadInput(
                    "the first frame must be `hello` with the token; send it before others",
                    code="no_credentials",
                )
            _TAKE[type(asked)](self, asked)
        except OncewardError as error:
            self._refuse(asked, error)
        except Exception:
            logger.exception("processing a frame of type %s failed", type(asked).__name__)
            self.end("internal")

    def _refuse(self, asked: frames.ClientFrame, error: OncewardError) -> None:
        room = getattr(asked, "room", "")
        if error.code in ("no_credentials", "token_expired", "slow_reader"):
            self.end(error.code)
        elif isinstance(asked, frames.Ops):
            self.say(frames.Refused(room, asked.n, error.code, error.message))
        elif isinstance(asked, frames.Act):
            self.say(frames.Failed(asked.n, error.code, error.message))
        elif isinstance(asked, frames.Join):
            self.say(frames.Left(room, error.code, error.message))
        elif isinstance(asked, frames.SetPresence):
            self.say(frames.Error(error.code, error.message, room, asked.name, asked.value))
        else:
            self.say(frames.Error(error.code, error.message, room))

    def _hello(self, asked: frames.Hello) -> None:
        if self._greeted:
            raise BadInput("`hello` may be sent only once; use `token` for a new token")
        if asked.token or self._visitor is None:
            self._visitor = self._hub.visitor(asked.token)
            self._wire.authenticate()
        self._greeted = True
        self._welcome()

    def _token(self, asked: frames.Token) -> None:
        visitor = self._hub.visitor(asked.token)
        if visitor.user != self.user:
            raise BadInput(
                "the token belongs to another user; open a new connection for it",
                code="not_allowed",
            )
        self._visitor = visitor
        self._writes.clear()
        self._welcome()
        for id_ in [id_ for id_ in self._members if not self._may("read", id_)]:
            self._members.pop(id_).leave()
            self.say(frames.Left(id_, "not_allowed", "the new token does not allow this room"))

    def _welcome(self) -> None:
        assert self._visitor is not None
        until_ms = self._visitor.until_ms
        self.say(frames.Welcome(self.user, until_ms, int(2_000 * limits.PING_S)))
        self._set_timer(until_ms)

    def _ping(self, asked: frames.Ping) -> None:
        self.say(frames.Pong())

    def _join(self, asked: frames.Join) -> None:
        admit_room(asked.room)
        admit_client(asked.client)
        admit_number(asked.seq, "a sequence number", 0)
        self._insist("read", asked.room)
        if asked.room in self._members:
            raise BadInput(
                f"the connection is in the room {asked.room[:100]!r} already; leave it first",
                code="bad_request",
            )
        if asked.create or asked.steps:
            self._insist("write", asked.room)
        if len(self._members) >= limits.ROOMS_PER_CONNECTION_MAX:
            raise BadInput(
                f"a connection must be in at most {limits.ROOMS_PER_CONNECTION_MAX} rooms; "
                f"leave one, or open another connection for {asked.room[:100]!r}",
                code="bad_request",
            )
        self._wire.pause()
        self._busy = self._hub.spawn(self._fetch(asked))

    async def drained(self) -> None:
        """Return when the client has received most of the sent data."""
        await self._wire.drained()

    async def _drained_in_time(self) -> None:
        try:
            async with asyncio.timeout(limits.READER_S):
                await self.drained()
        except TimeoutError:
            raise OncewardError(
                "the client does not read; read faster, and connect again", code="slow_reader"
            ) from None

    async def _fetch(self, asked: frames.Join) -> None:
        """Join a room, then continue with frames that have arrived since.

        A snapshot may exceed the buffer for slow readers, so it is sent only after earlier data was
        received.
        """
        try:
            await self._drained_in_time()
            member = await self._hub.join(self, asked)
            if self._over:
                member.leave(lost=True)
            elif member.over:  # it joined and left before this task continued
                raise Unavailable(
                    f"the room {asked.room[:100]!r} has moved to another node; join it again",
                    code="room_moved",
                )
            else:
                self._members[asked.room] = member
                self._several = self._several or len(self._members) > 1
        except OncewardError as error:
            if error.kind.status >= 500 and error.code != "room_moved":
                logger.error("cannot join the room %s: %s", asked.room, error)
                error = error.concealed()
            self._refuse(asked, error)
        except Exception:
            logger.exception("cannot join the room %s", asked.room)
            self.end("internal")
        self._busy = None
        self._go_on()

    def _act(self, asked: frames.Act) -> None:
        admit_number(asked.n, "the number of an act", 0)
        self._unanswered += 1
        self._wire.pause()
        self._busy = self._hub.spawn(self._do(asked))

    async def _do(self, asked: frames.Act) -> None:
        """Perform an act at a table, then continue with frames that have arrived since."""
        assert self._visitor is not None
        try:
            value = await self._hub.act(self._visitor, asked)
            self.say(frames.Done(asked.n, value))
        except OncewardError as error:
            if error.kind.status >= 500:
                logger.error("the act %s at the table %s failed: %s", asked.do, asked.table, error)
                error = error.concealed()
            self.say(frames.Failed(asked.n, error.code, error.message))
        except Exception:
            logger.exception("the act %s at the table %s failed", asked.do, asked.table)
            self.end("internal")
        self._busy = None
        self.answered()
        self._go_on()

    def _go_on(self) -> None:
        """Process waiting frames, up to the next one that loads a room."""
        while self._waiting and self._busy is None and not self._over:
            self._take(self._waiting.popleft())
        if self._busy is None and not self._paused and not self._over:
            self._wire.resume()

    def _leave(self, asked: frames.Leave) -> None:
        self._writes.discard(asked.room)
        member = self._members.pop(asked.room, None)
        if member is not None:
            member.leave()

    def _ops(self, asked: frames.Ops) -> None:
        self._writer(asked.room).submit(frames.Step(asked.n, asked.ops))

    def _set_presence(self, asked: frames.SetPresence) -> None:
        self._member(asked.room).set_presence(asked.name, asked.value, asked.ttl_ms)

    def _remove_presence(self, asked: frames.RemovePresence) -> None:
        self._member(asked.room).remove_presence(asked.name)

    def _say(self, asked: frames.Say) -> None:
        self._writer(asked.room).say(asked.event, asked.value)

    def _tell(self, asked: frames.Tell) -> None:
        self._writer(asked.room).tell(asked.to, asked.event, asked.value)

    def _member(self, id_: str) -> "Member | Remote":
        member = self._members.get(id_)
        if member is None:
            raise BadInput(
                f"the connection has not joined {id_[:100]!a}; join it first", code="not_joined"
            )
        return member

    def _writer(self, id_: str) -> "Member | Remote":
        member = self._member(id_)
        if id_ not in self._writes:
            self._insist("write", id_)
            self._writes.add(id_)
        return member

    def dismissed(self, id_: str, code: str, detail: str) -> None:
        """Handle a dismissal by the room. For use by rooms."""
        self._writes.discard(id_)
        if self._members.pop(id_, None) is not None:
            self.say(frames.Left(id_, code, detail))

    def relay_over(self, relay: Relay) -> None:
        """Remove a relay that has ended. For use by relays."""
        self.relays = {to: other for to, other in self.relays.items() if other is not relay}

    def _may(self, deed: RoomAction, id_: str) -> bool:
        assert self._visitor is not None
        return allowed(self._visitor, deed, id_)

    def _insist(self, deed: RoomAction, id_: str) -> None:
        assert self._visitor is not None
        insist(self._visitor, deed, id_)

    # Expiry and end.

    def _set_timer(self, until_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if until_ms is not None and not self._over:
            left_s = (until_ms - self._hub.now_ms()) / 1000
            self._timer = self._hub.later(min(left_s, limits.CLOCK_SLEEP_S_MAX), self._look)

    def _look(self) -> None:
        """Close the connection if its credentials have expired or it never sent `hello`."""
        if not self._greeted:
            self.end("too_slow")
            return
        assert self._visitor is not None
        until_ms = self._visitor.until_ms
        if until_ms is not None and until_ms <= self._hub.now_ms():
            self.end("token_expired")
        else:
            self._set_timer(until_ms)

    def _leave_all(self, *, lost: bool) -> None:
        if self._over:
            return
        self._over = True
        self._set_timer(None)
        self._waiting.clear()
        members, self._members = list(self._members.values()), {}
        for member in members:
            member.leave(lost=lost)
        for relay in list(self.relays.values()):
            relay.end()
        self._hub.forget(self)


_TAKE: dict[type[Any], Any] = {
    frames.Hello: Session._hello,
    frames.Token: Session._token,
    frames.Ping: Session._ping,
    frames.Join: Session._join,
    frames.Leave: Session._leave,
    frames.Ops: Session._ops,
    frames.SetPresence: Session._set_presence,
    frames.RemovePresence: Session._remove_presence,
    frames.Say: Session._say,
    frames.Tell: Session._tell,
    frames.Act: Session._act,
}
