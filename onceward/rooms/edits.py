"""Changes to maps and lists by name, for handlers and other code of a server.

Each takes the transaction that it is to be part of: it happens with that commit, or not at all,
and everyone in the room is told. Several in one transaction are several steps; `change` makes
one of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from onceward import limits
from onceward.api import room_changes as op
from onceward.api.room_changes import RoomOperation
from onceward.api.rooms import Item
from onceward.errors import BadInput
from onceward.ids import Ids
from onceward.rooms.names import admit_name, admit_text
from onceward.rooms.room import Entry
from onceward.rooms.state import State
from onceward.store.transaction import Transaction
from onceward.store.user_records import joins

T = TypeVar("T")


class Edits(ABC):
    """What can be done to maps and lists."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    @abstractmethod
    @joins
    async def change(
        self,
        tx: Transaction,
        id_: str,
        ops: Sequence[RoomOperation],
        *,
        by: str = "",
        client: str = "",
        n: int = 0,
    ) -> Entry | None: ...

    @abstractmethod
    @joins
    async def peek(self, tx: Transaction, id_: str, look: Callable[[State], T]) -> T: ...

    # Maps. Each raises `NoSuchRoom`, and `BadInput` for what the room refuses.

    @joins
    async def map(self, tx: Transaction, room: str, name: str) -> dict[str, Any] | None:
        """A whole map, or None."""
        admit_name(name, "a map's name")

        def look(state: State) -> dict[str, Any] | None:
            found = state.maps.get(name)
            return None if found is None else {key: cell.value for key, cell in found.items()}

        return _copy(await self.peek(tx, room, look))

    @joins
    async def map_get(self, tx: Transaction, room: str, name: str, key: str) -> Any:
        """The value under a key, or None."""
        admit_name(name, "a map's name")
        admit_text(key, "a map's key", limits.ROOM_KEY_BYTES_MAX, empty=True)
        cell = await self.peek(tx, room, lambda state: state.get("map", name, key))
        return None if cell is None else _copy(cell.value)

    @joins
    async def map_set(
        self, tx: Transaction, room: str, name: str, key: str, value: Any, *, by: str = ""
    ) -> None:
        """Put a whole value under a key."""
        await self.change(tx, room, [op.MapSet(name, key, value)], by=by)

    @joins
    async def map_delete(
        self, tx: Transaction, room: str, name: str, key: str, *, by: str = ""
    ) -> None:
        """Remove a key, if it is there."""
        await self.change(tx, room, [op.MapDelete(name, key)], by=by)

    @joins
    async def map_add(
        self, tx: Transaction, room: str, name: str, key: str, amount: float = 1, *, by: str = ""
    ) -> Any:
        """Add to a number, which is 0 if it is not there; returns the sum."""
        await self.change(tx, room, [op.MapAdd(name, key, amount)], by=by)
        return await self.map_get(tx, room, name, key)

    @joins
    async def map_compare(
        self,
        tx: Transaction,
        room: str,
        name: str,
        key: str,
        value: Any,
        *,
        expect: Any = msgspec.UNSET,
        by: str = "",
    ) -> bool:
        """Put a value under a key if `expect` is there, or nothing if that is not given; says
        whether it was so."""
        try:
            compare = op.MapCompare(name, key, value, expect)
            await self.change(tx, room, [compare], by=by)
        except BadInput as error:
            if error.code != "not_expected":
                raise
            return False
        return True

    @joins
    async def map_make(self, tx: Transaction, room: str, name: str, *, by: str = "") -> None:
        """Let there be a map, empty if it is new."""
        await self.change(tx, room, [op.MapMake(name)], by=by)

    @joins
    async def map_drop(self, tx: Transaction, room: str, name: str, *, by: str = "") -> None:
        """Remove a map with all that is in it."""
        await self.change(tx, room, [op.MapDrop(name)], by=by)

    # Lists.

    @joins
    async def list(self, tx: Transaction, room: str, name: str) -> list[Item] | None:
        """A whole list, or None."""
        admit_name(name, "a list's name")

        def look(state: State) -> Any:
            found = state.lists.get(name)
            return None if found is None else [(id_, c.value) for id_, c in found.in_order()]

        found = _copy(await self.peek(tx, room, look))
        return None if found is None else [Item(*item) for item in found]

    @joins
    async def list_push(
        self, tx: Transaction, room: str, name: str, value: Any, *, by: str = ""
    ) -> str:
        """Put an item at the end; returns its id."""
        id_ = self._ids.new()
        await self.change(tx, room, [op.ListInsert(name, id_, value)], by=by)
        return id_

    @joins
    async def list_insert(
        self, tx: Transaction, room: str, name: str, index: int, value: Any, *, by: str = ""
    ) -> str:
        """Put an item before the one that has this index now; returns its id."""
        admit_name(name, "a list's name")
        after = await self.peek(tx, room, lambda state: _before(state, name, index))
        return await self.list_insert_after(tx, room, name, after, value, by=by)

    @joins
    async def list_insert_after(
        self, tx: Transaction, room: str, name: str, after: str, value: Any, *, by: str = ""
    ) -> str:
        """Put an item behind another, in front if that is empty, and at the end if the other one
        is gone; returns its id."""
        id_ = self._ids.new()
        await self.change(tx, room, [op.ListInsert(name, id_, value, after)], by=by)
        return id_

    @joins
    async def list_set(
        self, tx: Transaction, room: str, name: str, item: str, value: Any, *, by: str = ""
    ) -> None:
        """Give an item another value, if it is there."""
        await self.change(tx, room, [op.ListSet(name, item, value)], by=by)

    @joins
    async def list_move(
        self, tx: Transaction, room: str, name: str, item: str, after: str, *, by: str = ""
    ) -> None:
        """Put an item behind another, in front if that is empty."""
        await self.change(tx, room, [op.ListMove(name, item, after)], by=by)

    @joins
    async def list_delete(
        self, tx: Transaction, room: str, name: str, item: str, *, by: str = ""
    ) -> None:
        """Remove an item, if it is there."""
        await self.change(tx, room, [op.ListDelete(name, item)], by=by)

    @joins
    async def list_make(self, tx: Transaction, room: str, name: str, *, by: str = "") -> None:
        """Let there be a list, empty if it is new."""
        await self.change(tx, room, [op.ListMake(name)], by=by)

    @joins
    async def list_drop(self, tx: Transaction, room: str, name: str, *, by: str = "") -> None:
        """Remove a list with all that is in it."""
        await self.change(tx, room, [op.ListDrop(name)], by=by)


def _before(state: State, name: str, index: int) -> str:
    """The id of the item before an index, empty for the first; raises `BadInput`."""
    items = state.lists.get(name)
    count = 0 if items is None else len(items.order)
    if type(index) is not int or not 0 <= index <= count:
        raise BadInput(f"an index in {name!r} is 0 to {count}, not {index!r}")
    return "" if items is None or index == 0 else items.ids[items.order[index - 1]]


def _copy(value: T) -> T:
    """Nobody else's object: who changes it changes no room."""
    return msgspec.json.decode(msgspec.json.encode(value)) if value is not None else value
