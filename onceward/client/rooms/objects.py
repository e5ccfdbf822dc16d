"""Maps, lists and presences of a room as objects with subscriptions and optimistic updates.

What they return is a copy: to change it changes no room. Each change returns a `Saved`, which can
be awaited: it has come when the change is durable, and raises if the room refused it.
"""

import asyncio
from collections.abc import Callable, Generator, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from onceward import limits
from onceward.api import room_changes as op
from onceward.client.rooms.replica import Who
from onceward.client.rooms.steps import Step
from onceward.client.rooms.values import plain
from onceward.errors import BadInput, TooLarge
from onceward.quantities import milliseconds
from onceward.rooms.frames import RemovePresence, SetPresence
from onceward.rooms.names import admit_name, admit_text, encoded
from onceward.rooms.state import Cell, Items

if TYPE_CHECKING:
    from onceward.client.rooms.room import Room

Subscriber = Callable[[Any, Who], object]
"""Gets the new value, and who has changed it."""
Unsubscribe = Callable[[], None]


class Saved:
    """A change on its way. Await it to know that it is durable, if you need to know."""

    def __init__(self, step: Step, id_: str = "") -> None:
        self._step = step
        self.id = id_
        """Of the item, for an insertion into a list."""

    @property
    def done(self) -> bool:
        """Whether the server has answered."""
        return self._step.answered

    def __await__(self) -> Generator[Any, None, int | None]:
        """The sequence number of the step; None if it is durable and that is not known. Raises
        what the room refused it with, or `outcome_unknown`."""
        if not self._step.answered:
            answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def came(_: Step) -> None:
                if not answered.done():
                    answered.set_result(None)

            self._step.on_answer(came)
            yield from answered
        if self._step.error is not None:
            raise self._step.error
        return self._step.seq


class Undone(NamedTuple):
    """What undo or redo has come to."""

    step: Saved | None
    """The step that it was, if anything was to be done."""
    kept: list[str]
    """What could not be restored, and why: one sentence each."""


class Item(NamedTuple):
    """An item of a list: its id stays when it is moved or set."""

    id: str
    value: Any


class Named:
    """What maps, lists and presences have in common."""

    def __init__(self, room: "Room", name: str) -> None:
        admit_name(name, "a name in a room")
        self._room = room
        self.name = name
        self._subscribers: list[tuple[Subscriber, str | None]] = []

    def _subscribe(self, subscriber: Subscriber, key: str | None) -> Unsubscribe:
        if not callable(subscriber):
            raise BadInput(f"a subscriber is a function, not {type(subscriber).__name__}")
        entry = subscriber, key
        self._subscribers.append(entry)
        return lambda: self._subscribers.remove(entry) if entry in self._subscribers else None


class RoomMap(Named):
    """Values by key. Of several who set the same key, the last one counts."""

    def subscribe(self, subscriber: Subscriber, key: str | None = None) -> Unsubscribe:
        """Call `subscriber(value, who)` with the whole map when something in it has changed, or
        with the value of one key (None if it is gone). Returns what ends that. Raises
        `BadInput`."""
        if key is not None:
            admit_text(key, "a map's key", limits.ROOM_KEY_BYTES_MAX, empty=True)
        return self._subscribe(subscriber, key)

    def get(self, key: str, default: Any = None) -> Any:
        cell = self._cells().get(key)
        return default if cell is None else _copy(cell.value)

    def __getitem__(self, key: str) -> Any:
        return _copy(self._cells()[key].value)

    def __contains__(self, key: object) -> bool:
        return key in self._cells()

    def __len__(self) -> int:
        return len(self._cells())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        return list(self._cells())

    def whole(self) -> dict[str, Any]:
        return {key: _copy(cell.value) for key, cell in self._cells().items()}

    def set(self, key: str, value: Any) -> Saved:
        """Put a whole value under a key. Raises `BadInput` for what is no JSON, or too large."""
        return self._change(op.MapSet(self.name, key, plain(value)))

    def delete(self, key: str) -> Saved:
        """Remove a key, if it is there."""
        return self._change(op.MapDelete(self.name, key))

    def add(self, key: str, by: float = 1) -> Saved:
        """Add to a number, which is 0 if it is not there. Raises `BadInput` where something else
        is."""
        return self._change(op.MapAdd(self.name, key, plain(by)))

    def compare(self, key: str, value: Any, *, expect: Any = msgspec.UNSET) -> Saved:
        """Put a value under a key if `expect` is there, or nothing if that is not given. Raises
        `BadInput` if it is not so here, and the `Saved` does if it is not so at the server."""
        if expect is not msgspec.UNSET:
            expect = plain(expect)
        return self._change(op.MapCompare(self.name, key, plain(value), expect))

    def clear(self) -> Saved:
        """Remove the map with all that is in it."""
        return self._change(op.MapDrop(self.name))

    def _cells(self) -> dict[str, Cell]:
        return self._room.replica.state.maps.get(self.name, {})

    def _change(self, does: op.RoomOperation) -> Saved:
        return Saved(self._room.change([does]))

    def tell(self, keys: AbstractSet[str | None], who: Who) -> None:
        """Tell subscribers that keys have changed."""
        for subscriber, key in list(self._subscribers):
            if key is None:
                self._room.call(subscriber, self.whole(), who)
            elif key in keys:
                self._room.call(subscriber, self.get(key), who)


class RoomList(Named):
    """Items in order. What several insert at one place is all there, in one order for all."""

    def subscribe(self, subscriber: Subscriber) -> Unsubscribe:
        """Call `subscriber(values, who)` with all values in order when something has changed.
        Returns what ends that."""
        return self._subscribe(subscriber, None)

    def __len__(self) -> int:
        return len(self._items().order)

    def __getitem__(self, index: int) -> Any:
        items = self._items()
        return _copy(items.cells[items.ids[items.order[index]]].value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __contains__(self, item: object) -> bool:
        """Whether there is an item of that id here."""
        return item in self._items().cells

    def get(self, item: str, default: Any = None) -> Any:
        """The value of an item, by its id."""
        cell = self._items().cells.get(item)
        return default if cell is None else _copy(cell.value)

    def items(self) -> list[Item]:
        """All items in order, with their ids."""
        return [Item(id_, _copy(cell.value)) for id_, cell in self._items().in_order()]

    def values(self) -> list[Any]:
        return [_copy(cell.value) for _, cell in self._items().in_order()]

    def id_at(self, index: int) -> str:
        """The id of the item at an index; raises `IndexError`."""
        items = self._items()
        return items.ids[items.order[index]]

    def push(self, value: Any) -> Saved:
        """Put an item at the end."""
        return self._insert(value, None)

    def insert(self, index: int, value: Any) -> Saved:
        """Put an item before the one that has this index here. Raises `BadInput`."""
        return self._insert(value, self._before(index))

    def insert_after(self, item: str, value: Any) -> Saved:
        """Put an item right behind another one; in front, if that is empty. Raises `BadInput` if
        there is none of that id here."""
        self._known(item, empty=True)
        return self._insert(value, item)

    def set(self, item: str, value: Any) -> Saved:
        """Give an item another value. Raises `BadInput` if there is none of that id here."""
        self._known(item)
        return Saved(self._room.change([op.ListSet(self.name, item, plain(value))]), item)

    def move(self, item: str, index: int) -> Saved:
        """Put an item elsewhere: so that it has this index here. Raises `BadInput`."""
        self._known(item)
        items = self._items()
        order = [id_ for id_ in map(items.ids.__getitem__, items.order) if id_ != item]
        if type(index) is not int or not 0 <= index <= len(order):
            raise BadInput(f"an index in {self.name!r} is 0 to {len(order)}, not {index!r}")
        return self.move_after(item, order[index - 1] if index else "")

    def move_after(self, item: str, other: str) -> Saved:
        """Put an item right behind another one; in front, if that is empty."""
        self._known(item)
        self._known(other, empty=True)
        move = op.ListMove(self.name, item, other, self._position(other))
        return Saved(self._room.change([move]), item)

    def delete(self, item: str) -> Saved:
        """Remove an item, if it is there."""
        return Saved(self._room.change([op.ListDelete(self.name, item)]), item)

    def clear(self) -> Saved:
        """Remove the list with all that is in it."""
        return Saved(self._room.change([op.ListDrop(self.name)]))

    def _insert(self, value: Any, after: str | None) -> Saved:
        id_ = self._room.new_item()
        at = None if after is None else self._position(after)
        insert = op.ListInsert(self.name, id_, plain(value), after, at)
        return Saved(self._room.change([insert]), id_)

    def _items(self) -> Items:
        return self._room.replica.state.lists.get(self.name) or Items()

    def _before(self, index: int) -> str:
        order = self._items().order
        if type(index) is not int or not 0 <= index <= len(order):
            raise BadInput(f"an index in {self.name!r} is 0 to {len(order)}, not {index!r}")
        return self.id_at(index - 1) if index else ""

    def _known(self, item: str, *, empty: bool = False) -> None:
        if empty and item == "":
            return
        if type(item) is not str or item not in self._items().cells:
            raise BadInput(f"{self.name!r} has no item {str(item)[:100]!r}", code="bad_key")

    def _position(self, item: str) -> str | None:
        """Where to go if the item is gone by then."""
        return self._items().cells[item].position if item else None

    def tell(self, who: Who) -> None:
        """Tell subscribers that something has changed."""
        for subscriber, _ in list(self._subscribers):
            self._room.call(subscriber, self.values(), who)


class Presence(Named):
    """A value of each user who is there. One sets one's own only, and it ends by itself."""

    def subscribe(self, subscriber: Subscriber) -> Unsubscribe:
        """Call `subscriber(values, who)` with the values of all users when one has changed.
        Returns what ends that."""
        return self._subscribe(subscriber, None)

    def all(self) -> dict[str, Any]:
        """The values by user, one's own included."""
        values: dict[str, Any] = _copy(self._room.presences.get(self.name, {}))
        return values

    @property
    def mine(self) -> Any:
        return _copy(self._room.presences.get(self.name, {}).get(self._room.user))

    def set(self, value: Any, ttl_s: float = limits.PRESENCE_MS / 1000) -> None:
        """Set one's own value, whole. It goes after `ttl_s` seconds if it is not set again, or
        with one's last connection. Raises `BadInput`."""
        value = plain(value)
        ttl_ms = milliseconds(ttl_s, "the time of a presence", limits.PRESENCE_MS_MAX / 1000)
        if ttl_ms < 1:
            raise BadInput("a presence lasts for a millisecond or longer")
        size = len(encoded(value))
        if size > limits.PRESENCE_BYTES_MAX:
            raise TooLarge(
                f"a presence has at most {limits.PRESENCE_BYTES_MAX} bytes, not {size}",
                code="value_too_large",
            )
        self._room.set_presence(SetPresence(self._room.id, self.name, value, ttl_ms))

    def remove(self) -> None:
        """Remove one's own value; twice is once."""
        self._room.remove_presence(RemovePresence(self._room.id, self.name))

    def tell(self, who: Who) -> None:
        """Tell subscribers that a value has changed."""
        for subscriber, _ in list(self._subscribers):
            self._room.call(subscriber, self.all(), who)


def _copy(value: Any) -> Any:
    if isinstance(value, dict | list):
        return msgspec.json.decode(msgspec.json.encode(value))
    return value
