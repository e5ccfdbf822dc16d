"""The state of a room: maps and lists, changed by pure operations.

Applying the same steps in the same order to the same state gives the same state, on servers and on
clients. Nothing here depends on time, randomness or the process. A step returns its changes as
effects, which can be reverted. This makes steps atomic, and allows clients to insert the steps of
others before their own.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from onceward import limits
from onceward.api import room_changes as op
from onceward.api.room_changes import RoomOperation
from onceward.errors import BadInput, TooLarge
from onceward.rooms import positions

_encode = msgspec.json.Encoder().encode
_CELL_BYTES = 16  # the overhead of a key or an item besides its name and value


class Cell(NamedTuple):
    """The value of a key of a map, or an item of a list."""

    value: Any
    bytes: int
    position: str = ""
    """The position of an item."""


class Effect(NamedTuple):
    """One change: of a key or an item or, if `key` is None, of the existence of the map or list."""

    kind: Literal["map", "list"]
    name: str
    key: str | None
    old: Cell | None
    new: Cell | None


Admit = Callable[[Literal["map", "list"], str, Any], None]
"""Raises `BadInput` for a value that a map or a list may not have."""

_THERE = Cell(None, 0)


class Items:
    """A list: its items by id, and their order. Positions are unique."""

    __slots__ = ("cells", "ids", "order")

    def __init__(self) -> None:
        self.cells: dict[str, Cell] = {}
        self.ids: dict[str, str] = {}
        """By position."""
        self.order: list[str] = []
        """All positions, sorted."""

    def in_order(self) -> list[tuple[str, Cell]]:
        return [(id_, self.cells[id_]) for id_ in map(self.ids.__getitem__, self.order)]

    def write(self, id_: str, new: Cell | None) -> None:
        old = self.cells.pop(id_, None)
        if old is not None and (new is None or new.position != old.position):
            del self.order[bisect_left(self.order, old.position)]
            del self.ids[old.position]
        if new is not None:
            self.cells[id_] = new
            if old is None or new.position != old.position:
                insort(self.order, new.position)
                self.ids[new.position] = id_

    def gap(self, after: str | None, at: str | None) -> tuple[str | None, str | None]:
        """The positions between which an item belongs; see `ListInsert`."""
        if after == "":
            return None, self.order[0] if self.order else None
        if after is not None and after in self.cells:
            low = self.cells[after].position
        elif at is None:
            return self.order[-1] if self.order else None, None
        elif at in self.ids:
            low = at
        else:
            return at, at
        place = bisect_left(self.order, low) + 1
        return low, self.order[place] if place < len(self.order) else None


class State:
    """Maps and lists by name."""

    def __init__(self) -> None:
        self.maps: dict[str, dict[str, Cell]] = {}
        self.lists: dict[str, Items] = {}
        self.bytes = 0
        """The approximate size."""
        self.cells = 0
        """The number of keys, items, maps and lists."""

    def apply(
        self, ops: Sequence[RoomOperation], admit: Admit | None = None, most: int | None = None
    ) -> list[Effect]:
        """Apply operations, all or none, and return the changes.

        Changed values are passed to `admit`, which may reject them. Raises `BadInput` if an
        operation is rejected, or if more than about `most` keys and items would change.
        """
        effects: list[Effect] = []
        try:
            for operation in ops:
                _APPLY[type(operation)](self, operation, effects)
                if most is not None and len(effects) > most:
                    raise TooLarge(
                        f"a step changes at most {most} keys and items, including renumbered "
                        "items; split it into several steps",
                        code="value_too_large",
                    )
            if admit is not None:
                _admit_all(effects, admit)
        except BaseException:
            self.revert(effects)
            raise
        return effects

    def revert(self, effects: Sequence[Effect]) -> None:
        """Undo the last `apply`."""
        for effect in reversed(effects):
            self._put(effect.kind, effect.name, effect.key, effect.old)

    def get(self, kind: str, name: str, key: str | None) -> Cell | None:
        """The cell of a key or item; without a key, a dummy cell if the map or list exists."""
        if kind == "map":
            entries = self.maps.get(name)
            if key is None or entries is None:
                return None if entries is None else _THERE
            return entries.get(key)
        items = self.lists.get(name)
        if key is None or items is None:
            return None if items is None else _THERE
        return items.cells.get(key)

    def load(self, kind: str, name: str, key: str | None, cell: Cell | None) -> None:
        """Load a part of a snapshot."""
        self._put(kind, name, key, cell)

    def plain(self) -> dict[str, Any]:
        """The state as JSON: maps, and lists of items with id, position and value."""
        return {
            "maps": {
                name: {key: cell.value for key, cell in entries.items()}
                for name, entries in self.maps.items()
            },
            "lists": {
                name: [[id_, cell.position, cell.value] for id_, cell in items.in_order()]
                for name, items in self.lists.items()
            },
        }

    def _put(self, kind: str, name: str, key: str | None, new: Cell | None) -> Cell | None:
        old: Cell | None
        if key is None:
            old = self._put_whole(kind, name, new)
            key = name
        elif kind == "map":
            entries = self.maps[name]
            old = entries.get(key)
            if new is not None:
                entries[key] = new
            elif old is not None:
                del entries[key]
        else:
            items = self.lists[name]
            old = items.cells.get(key)
            items.write(key, new)
        if old is not None and new is not None:
            self.bytes += new.bytes - old.bytes + len(new.position) - len(old.position)
        elif old is not None:
            self.cells -= 1
            self.bytes -= weight(key, old)
        elif new is not None:
            self.cells += 1
            self.bytes += weight(key, new)
        return old

    def _put_whole(self, kind: str, name: str, new: Cell | None) -> Cell | None:
        tables: dict[str, Any] = self.maps if kind == "map" else self.lists
        there = name in tables
        if new is None:
            tables.pop(name, None)
        elif not there:
            tables[name] = {} if kind == "map" else Items()
        return _THERE if there else None

    # Operations. Each writes through `_change`, which records the effect.

    def _change(
        self,
        effects: list[Effect],
        kind: Literal["map", "list"],
        name: str,
        key: str | None,
        new: Cell | None,
    ) -> None:
        if key is not None and name not in (self.maps if kind == "map" else self.lists):
            self._change(effects, kind, name, None, _THERE)
        effects.append(Effect(kind, name, key, self._put(kind, name, key, new), new))

    def _map_set(self, does: op.MapSet | op.MapCompare, effects: list[Effect]) -> None:
        self._change(effects, "map", does.map, does.key, cell_of(does.value))

    def _map_delete(self, does: op.MapDelete, effects: list[Effect]) -> None:
        if self.get("map", does.map, does.key) is not None:
            self._change(effects, "map", does.map, does.key, None)

    def _map_compare(self, does: op.MapCompare, effects: list[Effect]) -> None:
        found = self.get("map", does.map, does.key)
        expected = does.expect is not msgspec.UNSET
        if expected != (found is not None) or (found and not same(found.value, does.expect)):
            told = "it is missing" if found is None else f"it is {_told(found.value)}"
            raise BadInput(
                f"{does.key!r} in {does.map!r} is not as expected: {told}; read it again",
                code="not_expected",
            )
        self._map_set(does, effects)

    def _map_add(self, does: op.MapAdd, effects: list[Effect]) -> None:
        found = self.get("map", does.map, does.key)
        value = 0 if found is None else found.value
        if type(value) not in (int, float):
            raise BadInput(
                f"{does.key!r} in {does.map!r} is not a number: {_told(value)}; set a number first",
                code="not_countable",
            )
        if type(does.by) not in (int, float):
            raise BadInput(f"the amount must be a number, not {_told(does.by)}", code="wrong_type")
        # Within these bounds browsers compute the same results.
        if not (_countable(value) and _countable(does.by) and _countable(value + does.by)):
            raise BadInput(
                f"{does.key!r} in {does.map!r} would be too large; add a smaller amount",
                code="not_countable",
            )
        self._change(effects, "map", does.map, does.key, cell_of(value + does.by))

    def _make(self, does: op.MapMake | op.ListMake, effects: list[Effect]) -> None:
        kind, name = _named(does)
        if self.get(kind, name, None) is None:
            self._change(effects, kind, name, None, _THERE)

    def _drop(self, does: op.MapDrop | op.ListDrop, effects: list[Effect]) -> None:
        kind, name = _named(does)
        if self.get(kind, name, None) is not None:
            inside = self.maps[name] if kind == "map" else self.lists[name].cells
            for key in list(inside):
                self._change(effects, kind, name, key, None)
            self._change(effects, kind, name, None, None)

    def _list_insert(self, does: op.ListInsert, effects: list[Effect]) -> None:
        if self.get("list", does.list, does.id) is None:
            self._make(op.ListMake(does.list), effects)
            place = self._place(does, effects)
            self._change(effects, "list", does.list, does.id, cell_of(does.value, place))

    def _list_set(self, does: op.ListSet, effects: list[Effect]) -> None:
        found = self.get("list", does.list, does.id)
        if found is not None:
            cell = cell_of(does.value, found.position)
            self._change(effects, "list", does.list, does.id, cell)

    def _list_move(self, does: op.ListMove, effects: list[Effect]) -> None:
        found = self.get("list", does.list, does.id)
        if found is None or does.after == does.id:
            return
        # Removed first, so that it does not count as its own neighbour.
        self._change(effects, "list", does.list, does.id, None)
        moved = found._replace(position=self._place(does, effects))
        self._change(effects, "list", does.list, does.id, moved)

    def _list_delete(self, does: op.ListDelete, effects: list[Effect]) -> None:
        if self.get("list", does.list, does.id) is not None:
            self._change(effects, "list", does.list, does.id, None)

    def _place(self, does: op.ListInsert | op.ListMove, effects: list[Effect]) -> str:
        items = self.lists[does.list]
        low, high = items.gap(does.after, does.at)
        if low is not None and low == high:  # exactly this position is requested, and free
            return low
        place = positions.between(low, high)
        if place is not None:
            return place
        index = 0 if low is None else bisect_left(items.order, low) + 1
        in_order = items.in_order()
        # All items are removed before they are added, since positions are unique. Removal starts at
        # the end, where no items move up.
        for id_, _ in reversed(in_order):
            self._change(effects, "list", does.list, id_, None)
        for number, (id_, cell) in enumerate(in_order):
            number += number >= index
            moved = cell._replace(position=positions.nth(number))
            self._change(effects, "list", does.list, id_, moved)
        return positions.nth(index)


_APPLY: dict[type[Any], Callable[[State, Any, list[Effect]], None]] = {
    op.MapSet: State._map_set,
    op.MapDelete: State._map_delete,
    op.MapCompare: State._map_compare,
    op.MapAdd: State._map_add,
    op.MapMake: State._make,
    op.MapDrop: State._drop,
    op.ListInsert: State._list_insert,
    op.ListSet: State._list_set,
    op.ListMove: State._list_move,
    op.ListDelete: State._list_delete,
    op.ListMake: State._make,
    op.ListDrop: State._drop,
}


def cell_of(value: Any, position: str = "") -> Cell:
    return Cell(value, len(_encode(value)), position)


def weight(key: str, cell: Cell) -> int:
    """The maximum size of a key or an item in a snapshot, in bytes."""
    return _CELL_BYTES + len(_encode(key)) + cell.bytes + len(cell.position)


def _admit_all(effects: Sequence[Effect], admit: Admit) -> None:
    """Pass new values to `admit`, except those of items that only moved."""
    gone: dict[tuple[str, str], Any] = {}
    for kind, name, key, old, new in effects:
        if key is None:
            continue
        if new is None:
            gone[name, key] = None if old is None else old.value
        elif kind == "map" or (name, key) not in gone or gone[name, key] is not new.value:
            admit(kind, name, new.value)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: true is not 1, but 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _named(
    does: op.MapMake | op.MapDrop | op.ListMake | op.ListDrop,
) -> tuple[Literal["map", "list"], str]:
    return ("map", does.map) if isinstance(does, op.MapMake | op.MapDrop) else ("list", does.list)


def _countable(number: int | float) -> bool:
    return -limits.ROOM_NUMBER_MAX <= number <= limits.ROOM_NUMBER_MAX


def _told(value: Any) -> str:
    return _encode(value)[:100].decode(errors="replace")
