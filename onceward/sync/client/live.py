"""Synchronous classes. Written by `make generate` from `onceward.client.rooms.live`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from onceward import limits
from onceward.api.room_changes import RoomOperation
from onceward.api.rooms import RoomMember
from onceward.client.rooms.acts import ActMembers
from onceward.client.rooms.live import Live as AsyncLive
from onceward.client.rooms.live import State
from onceward.client.rooms.objects import Item, Subscriber, Unsubscribe
from onceward.client.rooms.objects import Presence as AsyncPresence
from onceward.client.rooms.objects import RoomList as AsyncRoomList
from onceward.client.rooms.objects import RoomMap as AsyncRoomMap
from onceward.client.rooms.objects import Saved as AsyncSaved
from onceward.client.rooms.objects import Undone as AsyncUndone
from onceward.client.rooms.room import Room as AsyncRoom
from onceward.client.rooms.room import Status
from onceward.errors import OncewardError
from onceward.rooms.frames import Said
from onceward.sync.bridge import Facade, Root


class Saved(Facade[AsyncSaved]):
    """A pending change. `wait` waits until it is durable."""

    @property
    def id(self) -> str:
        """The id of the inserted item, for an insertion into a list."""
        return self._target.id

    @property
    def done(self) -> bool:
        """Whether the server has responded."""
        return self._portal.enter(lambda: self._target.done)

    def wait(self) -> int | None:
        """Wait until it is durable.

        Returns the sequence number of the step; None if it is durable but the number is unknown.

        Raises the error with which the room rejected it, or `outcome_unknown`.
        """
        return self._portal.run(self._target)


class Undone(Facade[AsyncUndone]):
    """The result of undo or redo."""

    @property
    def step(self) -> Saved | None:
        """The new step, or None if there was nothing to change."""
        return None if (found := self._target.step) is None else Saved(self._portal, found)

    @property
    def kept(self) -> list[str]:
        """Values that were not restored, with the reason: one sentence each."""
        return self._target.kept


class RoomMap(Facade[AsyncRoomMap]):
    """Values by key. The last write of a key wins."""

    def subscribe(self, subscriber: Subscriber, key: str | None = None) -> Unsubscribe:
        """Call `subscriber(value, who)` with the whole map after each change."""
        return self._portal.function(
            self._portal.enter(self._target.subscribe, self._portal.hook(subscriber), key)
        )

    def get(self, key: str, default: Any = None) -> Any:
        return self._portal.enter(self._target.get, key, default)

    def __getitem__(self, key: str) -> Any:
        return self._portal.enter(self._target.__getitem__, key)

    def __contains__(self, key: object) -> bool:
        return self._portal.enter(self._target.__contains__, key)

    def __len__(self) -> int:
        return self._portal.enter(self._target.__len__)

    def __iter__(self) -> Iterator[str]:
        return iter(self._portal.enter(lambda: list(self._target)))

    def keys(self) -> list[str]:
        return self._portal.enter(self._target.keys)

    def whole(self) -> dict[str, Any]:
        return self._portal.enter(self._target.whole)

    def set(self, key: str, value: Any) -> Saved:
        """Set the value of a key. Raises `BadInput` if it is not JSON or too large."""
        return Saved(self._portal, self._portal.enter(self._target.set, key, value))

    def delete(self, key: str) -> Saved:
        """Delete a key if it exists."""
        return Saved(self._portal, self._portal.enter(self._target.delete, key))

    def add(self, key: str, by: float = 1) -> Saved:
        """Add to a number; a missing key counts as 0. Raises `BadInput` if the value is not a
        number."""
        return Saved(self._portal, self._portal.enter(self._target.add, key, by))

    def compare(self, key: str, value: Any, *, expect: Any = msgspec.UNSET) -> Saved:
        """Set the value of a key if its value is `expect`, or if it is missing and `expect` is not
        given."""
        return Saved(
            self._portal, self._portal.enter(self._target.compare, key, value, expect=expect)
        )

    def clear(self) -> Saved:
        """Delete the map with its content."""
        return Saved(self._portal, self._portal.enter(self._target.clear))


class RoomList(Facade[AsyncRoomList]):
    """Items in order. Concurrent insertions at one place are all kept, in the same order for
    all."""

    def subscribe(self, subscriber: Subscriber) -> Unsubscribe:
        """Call `subscriber(values, who)` with all values in order after each change."""
        return self._portal.function(
            self._portal.enter(self._target.subscribe, self._portal.hook(subscriber))
        )

    def __len__(self) -> int:
        return self._portal.enter(self._target.__len__)

    def __getitem__(self, index: int) -> Any:
        return self._portal.enter(self._target.__getitem__, index)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._portal.enter(lambda: list(self._target)))

    def __contains__(self, item: object) -> bool:
        """Whether the list has an item with that id."""
        return self._portal.enter(self._target.__contains__, item)

    def get(self, item: str, default: Any = None) -> Any:
        """The value of an item, by its id."""
        return self._portal.enter(self._target.get, item, default)

    def items(self) -> list[Item]:
        """All items in order, with their ids."""
        return self._portal.enter(self._target.items)

    def values(self) -> list[Any]:
        return self._portal.enter(self._target.values)

    def id_at(self, index: int) -> str:
        """The id of the item at an index; raises `IndexError`."""
        return self._portal.enter(self._target.id_at, index)

    def push(self, value: Any) -> Saved:
        """Append an item."""
        return Saved(self._portal, self._portal.enter(self._target.push, value))

    def insert(self, index: int, value: Any) -> Saved:
        """Insert an item before the given index. Raises `BadInput`."""
        return Saved(self._portal, self._portal.enter(self._target.insert, index, value))

    def insert_after(self, item: str, value: Any) -> Saved:
        """Insert an item after another one; an empty id means the start."""
        return Saved(self._portal, self._portal.enter(self._target.insert_after, item, value))

    def set(self, item: str, value: Any) -> Saved:
        """Set the value of an item. Raises `BadInput` if it does not exist."""
        return Saved(self._portal, self._portal.enter(self._target.set, item, value))

    def move(self, item: str, index: int) -> Saved:
        """Move an item to an index. Raises `BadInput`."""
        return Saved(self._portal, self._portal.enter(self._target.move, item, index))

    def move_after(self, item: str, other: str) -> Saved:
        """Move an item after another one; an empty id means the start."""
        return Saved(self._portal, self._portal.enter(self._target.move_after, item, other))

    def delete(self, item: str) -> Saved:
        """Delete an item if it exists."""
        return Saved(self._portal, self._portal.enter(self._target.delete, item))

    def clear(self) -> Saved:
        """Delete the list with its content."""
        return Saved(self._portal, self._portal.enter(self._target.clear))


class Presence(Facade[AsyncPresence]):
    """A value for each connected user. A client sets only its own, which expires."""

    def subscribe(self, subscriber: Subscriber) -> Unsubscribe:
        """Call `subscriber(values, who)` with the values of all users after each change."""
        return self._portal.function(
            self._portal.enter(self._target.subscribe, self._portal.hook(subscriber))
        )

    def all(self) -> dict[str, Any]:
        """The values by user, including this client's."""
        return self._portal.enter(self._target.all)

    @property
    def mine(self) -> Any:
        return self._portal.enter(lambda: self._target.mine)

    def set(self, value: Any, ttl_s: float = limits.PRESENCE_MS / 1000) -> None:
        """Set this client's value. It ends after `ttl_s` seconds unless set again, or with the
        user's last connection. Raises `BadInput`."""
        return self._portal.enter(self._target.set, value, ttl_s)

    def remove(self) -> None:
        """Remove this client's value. Idempotent."""
        return self._portal.enter(self._target.remove)


class Room(Facade[AsyncRoom]):
    """One room. Changes are visible locally at once, sent when connected, and take effect
    once."""

    @property
    def id(self) -> str:
        return self._target.id

    @property
    def status(self) -> Status:
        """`live` while the room is up to date; `away` while disconnected and changes wait; `closed`
        permanently, with the reason in `error` unless this client left."""
        return self._target.status

    @property
    def error(self) -> OncewardError | None:
        return self._target.error

    @property
    def user(self) -> str:
        return self._target.user

    @property
    def me(self) -> str:
        """This client's member id on this connection."""
        return self._target.me

    @property
    def members(self) -> dict[str, RoomMember]:
        """All members by id, including this client; incomplete in a very large room, see
        `count`."""
        return self._portal.enter(lambda: dict(self._target.members))

    @property
    def presences(self) -> dict[str, dict[str, Any]]:
        return self._portal.enter(lambda: dict(self._target.presences))

    def map(self, name: str) -> RoomMap:
        """A map, which need not exist yet."""
        return RoomMap(self._portal, self._portal.enter(self._target.map, name))

    def list(self, name: str) -> RoomList:
        """A list, which need not exist yet."""
        return RoomList(self._portal, self._portal.enter(self._target.list, name))

    def presence(self, name: str) -> Presence:
        return Presence(self._portal, self._portal.enter(self._target.presence, name))

    @property
    def position(self) -> tuple[str, int, str]:
        """The epoch, the last sequence number, and the digest of the log up to there."""
        return self._portal.enter(lambda: self._target.position)

    @property
    def waiting(self) -> int:
        """The number of unanswered steps."""
        return self._portal.enter(lambda: self._target.waiting)

    def batch(self) -> AbstractContextManager[Saved]:
        """Make all changes in the `with` block one atomic step. If it raises, they are reverted."""
        return self._portal.inside(self._target.batch(), Saved)

    def undo(self) -> Undone:
        """Undo this client's last step where its change is still the latest."""
        return Undone(self._portal, self._portal.enter(self._target.undo))

    def redo(self) -> Undone:
        """Redo the last undone step. Raises `BadInput` if there is nothing to redo."""
        return Undone(self._portal, self._portal.enter(self._target.redo))

    @property
    def can_undo(self) -> bool:
        return self._portal.enter(lambda: self._target.can_undo)

    @property
    def can_redo(self) -> bool:
        return self._portal.enter(lambda: self._target.can_redo)

    def say(self, event: str, value: Any = None) -> None:
        """Send an event to all other connected members; it is not stored."""
        return self._portal.enter(self._target.say, event, value)

    def tell(self, member: str, event: str, value: Any = None) -> None:
        """Send an event to one member, by its id. Raises the errors of `say`; delivery is not
        confirmed."""
        return self._portal.enter(self._target.tell, member, event, value)

    def on(self, event: str, hook: Callable[[Any, Said], object]) -> Unsubscribe:
        """Call `hook(value, said)` for events of others; `said` has the sender, and whether it is
        direct."""
        return self._portal.function(
            self._portal.enter(self._target.on, event, self._portal.hook(hook))
        )

    @property
    def count(self) -> int:
        """The number of members."""
        return self._portal.enter(lambda: self._target.count)

    def on_members(self, hook: Callable[[dict[str, RoomMember]], object]) -> Unsubscribe:
        """Call `hook(members)` after a join or leave."""
        return self._portal.function(
            self._portal.enter(self._target.on_members, self._portal.hook(hook))
        )

    def on_status(self, hook: Callable[[Status], object]) -> Unsubscribe:
        """Call `hook(status)` when the connection to the room is lost or restored."""
        return self._portal.function(
            self._portal.enter(self._target.on_status, self._portal.hook(hook))
        )

    def on_refused(
        self, hook: Callable[[OncewardError, Sequence[RoomOperation]], object]
    ) -> Unsubscribe:
        """Call `hook(error, operations)` when the room rejected a step, or its outcome is
        unknown."""
        return self._portal.function(
            self._portal.enter(self._target.on_refused, self._portal.hook(hook))
        )

    def leave(self) -> None:
        """Leave the room. Idempotent. Unanswered steps are dropped, and may have been applied."""
        return self._portal.enter(self._target.leave)


class Live(Root[AsyncLive]):
    """A connection and its rooms. Use it with `with`."""

    @property
    def state(self) -> State:
        return self._target.state

    @property
    def error(self) -> OncewardError | None:
        """The error that closed the connection; None if the caller closed it."""
        return self._target.error

    @property
    def user(self) -> str:
        """The user name of this client, from the server."""
        return self._target.user

    def on_state(self, hook: Callable[[State], object]) -> Callable[[], None]:
        """Call `hook(state)` when the connection is lost, restored or closed permanently."""
        return self._portal.function(
            self._portal.enter(self._target.on_state, self._portal.hook(hook))
        )

    def room(self, id_: str, *, create: bool = False) -> Room:
        """A room for immediate use; changes wait until it is joined. The same object for the same
        id."""
        return Room(self._portal, self._portal.enter(self._target.room, id_, create=create))

    def join(self, id_: str, *, create: bool = False) -> Room:
        """Join a room and wait until its state is complete. Raises the reason if it cannot be
        joined."""
        return Room(self._portal, self._portal.run(self._target.join(id_, create=create)))

    def act(self, do: str, table: str = "", **body: Unpack[ActMembers]) -> Any:
        """Act at a table: `join`, `leave`, `move`, `ready` and the other operations of the HTTP
        API."""
        return self._portal.run(self._target.act(do, table, **body))

    def open(self) -> Self:
        """Open the connection. It returns immediately."""
        self._open(self._target.open, self._target.close)
        return self

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._close(self._target.close)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()
