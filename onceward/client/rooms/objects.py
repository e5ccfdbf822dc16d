"""Maps, lists and presences of a room as objects with subscriptions and optimistic updates.

They return copies; changing a copy does not change the room. Each change returns a `Saved`.
Awaiting it returns when the change is durable, and raises if the room rejected it.
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
"""Called with the new value and its author."""
Unsubscribe = Callable[[], None]


class Saved:
    """A pending change. Await it to wait until it is durable."""

    def __init__(self, step: Step, id_: str = "") -> None:
        self._step = step
        self.id = id_
        """The id of the inserted item, for an insertion into a list."""

    @property
    def done(self) -> bool:
        """Whether the server has responded."""
        return self._step.answered

    def __await__(self) -> Generator[Any, None, int | None]:
        """The sequence number of the step; None if it is durable but the number is unknown.

        Raises the error with which the room rejected it, or `outcome_unknown`.
        """
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
    """The result of undo or redo."""

    step: Saved | None
    """The new step, or None if there was nothing to change."""
    kept: list[str]
    """Values that were not restored, with the reason: one sentence each."""


class Item(NamedTuple):
    """An item of a list; its id stays the same when it is moved or set."""

    id: str
    value: Any


class Named:
    """The base of maps, lists and presences."""

    def __init__(self, room: "Room", name: str) -> None:
        admit_name(name, "a name in a room")
        self._room = room
        self.name = name
        self._subscribers: list[tuple[Subscriber, str | None]] = []

    def _subscribe(self, subscriber: Subscriber, key: str | None) -> Unsubscribe:
        if not callable(subscriber):
            raise BadInput(f"a subscriber must be a function, not {type(subscriber).__name__}")
        entry = subscriber, key
        self._subscribers.append(entry)
        return lambda: self._subscribers.remove(entry) if entry in self._subscribers else None


class RoomMap(Named):
    """Values by key. The last write of a key wins."""

    def subscribe(self, subscriber: Subscriber, key: str | None = None) -> Unsubscribe:
        """Call `subscriber(value, who)` with the whole map after each change.

        With `key`, only changes of that key count, and the value is that of the key (None if it was
        deleted). Returns a function that ends the subscription. Raises `BadInput`.
        """
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
        """Set the value of a key. Raises `BadInput` if it is not JSON or too large."""
        return self._change(op.MapSet(self.name, key, plain(value)))

    def delete(self, key: str) -> Saved:
        """Delete a key if it exists."""
        return self._change(op.MapDelete(self.name, key))

    def add(self, key: str, by: float = 1) -> Saved:
        """Add to a number; a missing key counts as 0. Raises `BadInput` if the value is not a
        number.
        """
        return self._change(op.MapAdd(self.name, key, plain(by)))

    def compare(self, key: str, value: Any, *, expect: Any = msgspec.UNSET) -> Saved:
        """Set the value of a key if its value is `expect`, or if it is missing and `expect` is not
        given.

        Raises `BadInput` if the local value differs; the `Saved` raises if the server's value
        differs.
        """
        if expect is not msgspec.UNSET:
            expect = plain(expect)
        return self._change(op.MapCompare(self.name, key, plain(value), expect))

    def clear(self) -> Saved:
        """Delete the map with its content."""
        return self._change(op.MapDrop(self.name))

    def _cells(self) -> dict[str, Cell]:
        return self._room.replica.state.maps.get(self.name, {})

    def _change(self, does: op.RoomOperation) -> Saved:
        return Saved(self._room.change([does]))

    def tell(self, keys: AbstractSet[str | None], who: Who) -> None:
        """Notify subscribers of changed keys."""
        for subscriber, key in list(self._subscribers):
            if key is None:
                self._room.call(subscriber, self.whole(), who)
            elif key in keys:
                self._room.call(subscriber, self.get(key), who)


class RoomList(Named):
    """Items in order. Concurrent insertions at one place are all kept, in the same order for
    all.
    """

    def subscribe(self, subscriber: Subscriber) -> Unsubscribe:
        """Call `subscriber(values, who)` with all values in order after each change.

        Returns a function that ends the subscription.
        """
        return self._subscribe(subscriber, None)

    def __len__(self) -> int:
        return len(self._items().order)

    def __getitem__(self, index: int) -> Any:
        items = self._items()
        return _copy(items.cells[items.ids[items.order[index]]].value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __contains__(self, item: object) -> bool:
        """Whether the list has an item with that id."""
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
        """Append an item."""
        return self._insert(value, None)

    def insert(self, index: int, value: Any) -> Saved:
        """Insert an item before the given index. Raises `BadInput`."""
        return self._insert(value, self._before(index))

    def insert_after(self, item: str, value: Any) -> Saved:
        """Insert an item after another one; an empty id means the start.

        Raises `BadInput` if the other item does not exist.
        """
        self._known(item, empty=True)
        return self._insert(value, item)

    def set(self, item: str, value: Any) -> Saved:
        """Set the value of an item. Raises `BadInput` if it does not exist."""
        self._known(item)
        return Saved(self._room.change([op.ListSet(self.name, item, plain(value))]), item)

    def move(self, item: str, index: int) -> Saved:
        """Move an item to an index. Raises `BadInput`."""
        self._known(item)
        items = self._items()
        order = [id_ for id_ in map(items.ids.__getitem__, items.order) if id_ != item]
        if type(index) is not int or not 0 <= index <= len(order):
            raise BadInput(f"an index in {self.name!r} must be 0 to {len(order)}, not {index!r}")
        return self.move_after(item, order[index - 1] if index else "")

    def move_after(self, item: str, other: str) -> Saved:
        """Move an item after another one; an empty id means the start."""
        self._known(item)
        self._known(other, empty=True)
        move = op.ListMove(self.name, item, other, self._position(other))
        return Saved(self._room.change([move]), item)

    def delete(self, item: str) -> Saved:
        """Delete an item if it exists."""
        return Saved(self._room.change([op.ListDelete(self.name, item)]), item)

    def clear(self) -> Saved:
        """Delete the list with its content."""
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
            raise BadInput(f"an index in {self.name!r} must be 0 to {len(order)}, not {index!r}")
        return self.id_at(index - 1) if index else ""

    def _known(self, item: str, *, empty: bool = False) -> None:
        if empty and item == "":
            return
        if type(item) is not str or item not in self._items().cells:
            raise BadInput(
                f"{self.name!r} has no item {str(item)[:100]!r}; read the list again",
                code="bad_key",
            )

    def _position(self, item: str) -> str | None:
        """The position to use if the item is deleted before the step arrives."""
        return self._items().cells[item].position if item else None

    def tell(self, who: Who) -> None:
        """Notify subscribers of a change."""
        for subscriber, _ in list(self._subscribers):
            self._room.call(subscriber, self.values(), who)


class Presence(Named):
    """A value for each connected user. A client sets only its own, which expires."""

    def subscribe(self, subscriber: Subscriber) -> Unsubscribe:
        """Call `subscriber(values, who)` with the values of all users after each change.

        Returns a function that ends the subscription.
        """
        return self._subscribe(subscriber, None)

    def all(self) -> dict[str, Any]:
        """The values by user, including this client's."""
        values: dict[str, Any] = _copy(self._room.presences.get(self.name, {}))
        return values

    @property
    def mine(self) -> Any:
        return _copy(self._room.presences.get(self.name, {}).get(self._room.user))

    def set(self, value: Any, ttl_s: float = limits.PRESENCE_MS / 1000) -> None:
        """Set this client's value. It ends after `ttl_s` seconds unless set again, or with the
        user's last connection. Raises `BadInput`.
        """
        value = plain(value)
        ttl_ms = milliseconds(ttl_s, "the time of a presence", limits.PRESENCE_MS_MAX / 1000)
        if ttl_ms < 1:
            raise BadInput(f"a presence must last at least 0.001 s, not {ttl_s!r} s")
        size = len(encoded(value))
        if size > limits.PRESENCE_BYTES_MAX:
            raise TooLarge(
                f"a presence must have at most {limits.PRESENCE_BYTES_MAX} bytes, not {size}",
                code="value_too_large",
            )
        self._room.set_presence(SetPresence(self._room.id, self.name, value, ttl_ms))

    def remove(self) -> None:
        """Remove this client's value. Idempotent."""
        self._room.remove_presence(RemovePresence(self._room.id, self.name))

    def tell(self, who: Who) -> None:
        """Notify subscribers of a change."""
        for subscriber, _ in list(self._subscribers):
            self._room.call(subscriber, self.all(), who)


def _copy(value: Any) -> Any:
    if isinstance(value, dict | list):
        return msgspec.json.decode(msgspec.json.encode(value))
    return value
