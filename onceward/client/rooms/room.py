"""The `Room` class of the client: maps, lists, presences, members and broadcasts."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import msgspec

from onceward import limits
from onceward.api.room_changes import RoomOperation
from onceward.api.rooms import RoomMember
from onceward.client.rooms.objects import (
    Presence,
    RoomList,
    RoomMap,
    Saved,
    Undone,
    Unsubscribe,
)
from onceward.client.rooms.replica import Replica, Who
from onceward.client.rooms.steps import Step, error_of
from onceward.client.rooms.undo import Turned, Undo
from onceward.client.rooms.values import plain
from onceward.errors import BadInput, OncewardError, TooLarge
from onceward.rooms.frames import (
    Came,
    ClientFrame,
    Crowd,
    Error,
    Joined,
    Left,
    PresenceChanged,
    PresenceGone,
    RemovePresence,
    Said,
    Say,
    ServerFrame,
    SetPresence,
    Tell,
    Went,
)
from onceward.rooms.names import admit_name, encoded

Status = Literal["joining", "live", "away", "closed"]

_log = logging.getLogger("onceward.client")
# How many sent values of a presence are kept, since the server may reject each of them.
_SENT_KEPT = 16


class Line(Protocol):
    """The connection, as used by a room."""

    def stir(self) -> None:
        """Wake the writer: there are frames to send."""

    def now_ms(self) -> int: ...

    def restart(self) -> None:
        """Reconnect after an invalid frame."""

    def rejoin(self, room: "Room") -> None:
        """Join the room again after a pause."""

    def forget(self, room: "Room") -> None:
        """Remove a closed room."""


class Room:
    """One room. Changes are visible locally at once, sent when connected, and take effect once."""

    def __init__(self, line: Line, replica: Replica) -> None:
        self.id = replica.room
        self.replica = replica
        self.status: Status = "joining"
        """`live` while the room is up to date; `away` while disconnected and changes wait; `closed`
        permanently, with the reason in `error` unless this client left.
        """
        self.error: OncewardError | None = None
        self.user = ""
        self.me = ""
        """This client's member id on this connection."""
        self.members: dict[str, RoomMember] = {}
        """All members by id, including this client; incomplete in a very large room, see
        `count`.
        """
        self._count = 0
        self.tries = 0
        """Attempts to rejoin since the last join."""
        self.presences: dict[str, dict[str, Any]] = {}
        self._line = line
        self._undo = Undo(replica)
        self._maps: dict[str, RoomMap] = {}
        self._lists: dict[str, RoomList] = {}
        self._presences: dict[str, Presence] = {}
        self._own: dict[str, tuple[Any, int]] = {}
        """This client's presences, with their expiry."""
        self._sent: dict[str, list[tuple[Any, int]]] = {}
        """The last sent values, which the server may still reject."""
        self._removed: dict[str, Any] = {}
        """Removed values, whose removal the server may not have received."""
        self._out: list[ClientFrame] = []
        self._events: dict[str, list[Callable[[Any, Said], object]]] = {}
        self._on_members: list[Callable[[dict[str, RoomMember]], object]] = []
        self._on_status: list[Callable[[Status], object]] = []
        self._on_refused: list[Callable[[OncewardError, Sequence[RoomOperation]], object]] = []
        self._items = 0

    # Content.

    def map(self, name: str) -> RoomMap:
        """A map, which need not exist yet."""
        admit_name(name, "a map's name")
        if name not in self._maps:
            self._maps[name] = RoomMap(self, name)
        return self._maps[name]

    def list(self, name: str) -> RoomList:
        """A list, which need not exist yet."""
        admit_name(name, "a list's name")
        if name not in self._lists:
            self._lists[name] = RoomList(self, name)
        return self._lists[name]

    def presence(self, name: str) -> Presence:
        admit_name(name, "a presence's name")
        if name not in self._presences:
            self._presences[name] = Presence(self, name)
        return self._presences[name]

    @property
    def position(self) -> tuple[str, int, str]:
        """The epoch, the last sequence number, and the digest of the log up to there.

        Clients with equal positions have equal state.
        """
        return self.replica.epoch, self.replica.seq, self.replica.digest

    @property
    def waiting(self) -> int:
        """The number of unanswered steps."""
        return len(self.replica.waiting)

    @contextmanager
    def batch(self) -> Iterator[Saved]:
        """Make all changes in the `with` block one atomic step. If it raises, they are reverted."""
        step = self.replica.begin()
        try:
            yield Saved(step)
        except BaseException:
            if self.replica.open is step:
                self.replica.abort()
            self.settle()
            raise
        try:
            self.replica.commit()
            self._made(step)
        finally:
            self.settle()

    def undo(self) -> Undone:
        """Undo this client's last step where its change is still the latest.

        The result lists values that were not restored. Raises `BadInput` if there is nothing to
        undo.
        """
        return self._turned(self._undo.undo)

    def redo(self) -> Undone:
        """Redo the last undone step. Raises `BadInput` if there is nothing to redo."""
        return self._turned(self._undo.redo)

    @property
    def can_undo(self) -> bool:
        return self._undo.can_undo

    @property
    def can_redo(self) -> bool:
        return self._undo.can_redo

    # Events.

    def say(self, event: str, value: Any = None) -> None:
        """Send an event to all other connected members; it is not stored.

        Raises `BadInput`, and `not_joined` while there is no connection.
        """
        self._speak(Say(self.id, event, plain(value)))

    def tell(self, member: str, event: str, value: Any = None) -> None:
        """Send an event to one member, by its id. Raises the errors of `say`; delivery is not
        confirmed.
        """
        self._speak(Tell(self.id, member, event, plain(value)))

    def on(self, event: str, hook: Callable[[Any, Said], object]) -> Unsubscribe:
        """Call `hook(value, said)` for events of others; `said` has the sender, and whether it is
        direct.
        """
        admit_name(event, "an event's name")
        return _added(self._events.setdefault(event, []), hook)

    @property
    def count(self) -> int:
        """The number of members."""
        return self._count or len(self.members)

    def on_members(self, hook: Callable[[dict[str, RoomMember]], object]) -> Unsubscribe:
        """Call `hook(members)` after a join or leave."""
        return _added(self._on_members, hook)

    def on_status(self, hook: Callable[[Status], object]) -> Unsubscribe:
        """Call `hook(status)` when the connection to the room is lost or restored."""
        return _added(self._on_status, hook)

    def on_refused(
        self, hook: Callable[[OncewardError, Sequence[RoomOperation]], object]
    ) -> Unsubscribe:
        """Call `hook(error, operations)` when the room rejected a step, or its outcome is unknown.

        Without operations, a presence value was rejected.
        """
        return _added(self._on_refused, hook)

    def leave(self) -> None:
        """Leave the room. Idempotent. Unanswered steps are dropped, and may have been applied."""
        self.close(None)

    # For maps, lists and presences.

    def change(self, ops: Sequence[RoomOperation]) -> Step:
        self._must_be_open()
        batched = self.replica.open is not None
        step = self.replica.change(ops)
        if not batched:
            self._made(step)
        self.settle()
        return step

    def new_item(self) -> str:
        self._items += 1
        return f"{self.replica.client}.{self._items}"

    def set_presence(self, frame: SetPresence) -> None:
        self._must_be_open()
        self._own[frame.name] = frame.value, self._line.now_ms() + frame.ttl_ms
        self._removed.pop(frame.name, None)
        self._put_presence(frame.name, self.user, frame.value, Who(self.user, True))
        self._say_presence(frame.name, frame)

    def remove_presence(self, frame: RemovePresence) -> None:
        self._must_be_open()
        own = self._own.pop(frame.name, None)
        if own is not None:
            self._removed[frame.name] = own[0]
            self._drop_presence(frame.name, self.user, Who(self.user, True))
            self._say_presence(frame.name, frame)

    def call(self, hook: Callable[..., object], *args: Any) -> None:
        """Call a subscriber, and log its exceptions."""
        try:
            hook(*args)
        except Exception:
            _log.exception("a subscriber of the room %r failed", self.id)

    # For the connection.

    def take_out(self) -> Sequence[ClientFrame]:
        """Take the frames to send."""
        out = [*self.replica.out, *self._out]
        for frame in self._out:
            if isinstance(frame, SetPresence):
                sent = (frame.value, self._line.now_ms() + frame.ttl_ms)
                self._sent[frame.name] = [*self._sent.get(frame.name, ()), sent][-_SENT_KEPT:]
            elif isinstance(frame, RemovePresence):
                self._sent.pop(frame.name, None)
        self.replica.out.clear()
        self._out.clear()
        return out

    def lost(self) -> None:
        """Handle a lost connection or a temporary dismissal."""
        self.replica.lost()
        self._out.clear()
        if self.status != "closed":
            self._set_status("away" if self.replica.epoch else "joining")

    def close(self, error: OncewardError | None) -> None:
        """Close the room permanently. Unanswered steps fail with the error."""
        if self.status == "closed":
            return
        self.error = error
        self.replica.lost()
        self._out.clear()
        self.replica.drop(
            error
            or OncewardError(
                f"the room {self.id!r} was left; join it again", code="outcome_unknown"
            )
        )
        self._line.forget(self)
        self._set_status("closed")
        self.settle()

    def receive(self, frame: ServerFrame) -> None:
        """Process a frame of this room; call `settle` after the last one for now."""
        if isinstance(frame, PresenceChanged):
            who = Who(frame.user, frame.user == self.user)
            self._put_presence(frame.name, frame.user, frame.value, who)
        elif isinstance(frame, PresenceGone):
            if frame.user == self.user:
                self._own.pop(frame.name, None)
            self._drop_presence(frame.name, frame.user, Who(frame.user, frame.user == self.user))
        elif isinstance(frame, Came):
            self.members[frame.id] = RoomMember(frame.id, frame.user)
            self._members_changed()
        elif isinstance(frame, Went):
            self.members.pop(frame.id, None)
            self._members_changed()
        elif isinstance(frame, Crowd):
            self._count = frame.count
            self._members_changed()
        elif isinstance(frame, Said):
            for hook in list(self._events.get(frame.event, ())):
                self.call(hook, frame.value, frame)
        elif isinstance(frame, Left):
            error = error_of(
                frame.code, frame.detail or f"this client is not in the room {self.id!r}"
            )
            # A previous member waits until there is a place; a new one gets the error.
            new_to_full = error.code == "room_full" and not self.replica.epoch
            if error.kind.retry and not new_to_full:
                self.lost()
                self._line.rejoin(self)
            else:
                self.close(error)
        else:
            self._follow(frame)

    def presence_refused(self, frame: Error) -> None:
        """Restore the previous value of this client's presence after a rejection.

        All other members still see the previous value.
        """
        sent = self._sent.get(frame.name, [])
        refused = next((one for one in reversed(sent) if one[0] == frame.value), None)
        if refused is None:
            return
        sent.remove(refused)
        own = self._own.get(frame.name)
        if own is not None and own[0] == frame.value:  # otherwise there is a later one
            who = Who(self.user, True)
            if sent and sent[-1][1] > self._line.now_ms():
                self._own[frame.name] = sent[-1]
                self._put_presence(frame.name, self.user, sent[-1][0], who)
            else:
                del self._own[frame.name]
                self._drop_presence(frame.name, self.user, who)
        error = error_of(frame.code, frame.detail or f"the presence {frame.name!r} was rejected")
        for hook in list(self._on_refused):
            self.call(hook, error, ())

    def renew(self, error: OncewardError) -> None:
        """Load the room again after an invalid or unreadable frame."""
        _log.warning("loading the room %r again: %s", self.id, error)
        self.replica.heal()
        self._line.restart()

    def settle(self) -> None:
        """Apply received changes and notify subscribers."""
        self.replica.settle()
        changed, self.replica.changed = self.replica.changed, []
        for places, who in changed:
            maps: dict[str, set[str | None]] = {}
            for kind, name, key in places:
                if kind == "map":
                    maps.setdefault(name, set()).add(key)
            for name, keys in maps.items():
                if name in self._maps:
                    self._maps[name].tell(keys, who)
            for name in sorted({name for kind, name, _ in places if kind == "list"}):
                if name in self._lists:
                    self._lists[name].tell(who)
        if self.replica.live and self.status in ("joining", "away"):
            self._set_status("live")
            self._renew_presences()
        if self.replica.out or self._out:
            self._line.stir()

    def _follow(self, frame: Any) -> None:
        try:
            self.replica.receive(frame)
        except OncewardError as error:
            self.renew(error)
            return
        if isinstance(frame, Joined):
            self.me = frame.me
            self.members = {member.id: member for member in frame.members}
            self._count = frame.count
            before, self.presences = self.presences, frame.presences
            for name, (value, until_ms) in self._own.items():
                if until_ms > self._line.now_ms():
                    self.presences.setdefault(name, {})[self.user] = value
            # A removed value that is still there was not set by another tab, so it is removed
            # again.
            self._removed = {
                name: value
                for name, value in self._removed.items()
                if self.presences.get(name, {}).get(self.user, msgspec.UNSET) == value
            }
            for name in self._removed:
                del self.presences[name][self.user]
            for name in before.keys() | self.presences.keys():
                if name in self._presences and before.get(name) != self.presences.get(name):
                    self._presences[name].tell(Who(""))
            self._members_changed()

    def _renew_presences(self) -> None:
        now_ms = self._line.now_ms()
        self._own = {name: own for name, own in self._own.items() if own[1] > now_ms}
        for name, (value, until_ms) in self._own.items():
            self._say_presence(name, SetPresence(self.id, name, value, until_ms - now_ms))
        for name in self._removed:
            self._say_presence(name, RemovePresence(self.id, name))

    def _say_presence(self, name: str, frame: SetPresence | RemovePresence) -> None:
        """Send a presence if connected, replacing an unsent one. It is sent again on a new
        connection.
        """
        if self.replica.live:
            self._out = [
                one
                for one in self._out
                if not (isinstance(one, SetPresence | RemovePresence) and one.name == name)
            ]
            self._out.append(frame)
            self._line.stir()

    def _put_presence(self, name: str, user: str, value: Any, who: Who) -> None:
        self.presences.setdefault(name, {})[user] = value
        if name in self._presences:
            self._presences[name].tell(who)

    def _drop_presence(self, name: str, user: str, who: Who) -> None:
        values = self.presences.get(name, {})
        if user in values:
            del values[user]
            if name in self._presences:
                self._presences[name].tell(who)

    def _members_changed(self) -> None:
        for hook in list(self._on_members):
            self.call(hook, dict(self.members))

    def _set_status(self, status: Status) -> None:
        if status != self.status:
            self.status = status
            for hook in list(self._on_status):
                self.call(hook, status)

    def _made(self, step: Step) -> None:
        self._undo.record(step)
        step.on_answer(self._answered)

    def _turned(self, turn: Callable[[], Turned]) -> Undone:
        self._must_be_open()
        step, kept = turn()
        if step is not None:
            step.on_answer(self._answered)
        self.settle()
        return Undone(None if step is None else Saved(step), kept)

    def _answered(self, step: Step) -> None:
        if step.error is not None:
            for hook in list(self._on_refused):
                self.call(hook, step.error, step.ops)

    def _speak(self, frame: Say | Tell) -> None:
        self._must_be_open()
        admit_name(frame.event, "an event's name")
        if isinstance(frame, Tell):
            admit_name(frame.to, "a member's id")
        size = len(encoded(frame.value))
        if size > limits.SAID_BYTES_MAX:
            raise TooLarge(
                f"the value of an event must have at most {limits.SAID_BYTES_MAX} bytes, not "
                f"{size}",
                code="value_too_large",
            )
        if not self.replica.live:
            raise OncewardError(
                f"the room {self.id!r} is not connected; wait until its status is `live`",
                code="not_joined",
            )
        self._out.append(frame)
        self._line.stir()

    def _must_be_open(self) -> None:
        if self.status == "closed":
            raise self.error or BadInput(
                f"the room {self.id!r} was left; join it again", code="not_joined"
            )


def _added(hooks: list[Any], hook: Any) -> Unsubscribe:
    hooks.append(hook)
    return lambda: hooks.remove(hook) if hook in hooks else None
