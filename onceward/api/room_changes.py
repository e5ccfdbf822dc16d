"""Structs of changes to the maps and lists of a room, as sent and logged.

An operation changes one key of a map or one item of a list. The operations of a step take effect
together or not at all. Python and browsers apply them alike: the same steps in the same order give
the same state.
"""

from typing import Any

import msgspec


class Op(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The base of all operations."""


class MapOp(Op, frozen=True, tag_field="op"):
    """The base of operations on maps."""

    map: str


class MapSet(MapOp, frozen=True, tag="map.set"):
    """Set the value of a key."""

    key: str
    value: Any


class MapDelete(MapOp, frozen=True, tag="map.delete"):
    """Delete a key. No effect if it does not exist."""

    key: str


class MapCompare(MapOp, frozen=True, tag="map.compare"):
    """Set the value of a key if its current value is `expect`. Without `expect`, the key must not
    exist. Otherwise the whole step is rejected."""

    key: str
    value: Any
    expect: Any = msgspec.UNSET


class MapAdd(MapOp, frozen=True, tag="map.add"):
    """Add to a number. A key that does not exist counts as 0; other values reject the step."""

    key: str
    by: int | float


class MapMake(MapOp, frozen=True, tag="map.make"):
    """Create a map. No effect if it exists."""


class MapDrop(MapOp, frozen=True, tag="map.drop"):
    """Delete a map with all its keys."""


class ListOp(Op, frozen=True, tag_field="op"):
    """The base of operations on lists."""

    list: str


class ListInsert(ListOp, frozen=True, tag="list.insert"):
    """Insert an item after the item `after`; an empty `after` is the beginning of the list.
    If that item does not exist or `after` is not given, insert at the position `at`, or else at
    the end. No effect if the id exists."""

    id: str
    value: Any
    after: str | None = None
    at: str | None = None


class ListSet(ListOp, frozen=True, tag="list.set"):
    """Set the value of an item. No effect if it does not exist."""

    id: str
    value: Any


class ListMove(ListOp, frozen=True, tag="list.move"):
    """Move an item; `after` and `at` as in `ListInsert`. No effect if it does not exist."""

    id: str
    after: str | None = None
    at: str | None = None


class ListDelete(ListOp, frozen=True, tag="list.delete"):
    """Delete an item. No effect if it does not exist."""

    id: str


class ListMake(ListOp, frozen=True, tag="list.make"):
    """Create a list. No effect if it exists."""


class ListDrop(ListOp, frozen=True, tag="list.drop"):
    """Delete a list with all its items."""


RoomOperation = (
    MapSet
    | MapDelete
    | MapCompare
    | MapAdd
    | MapMake
    | MapDrop
    | ListInsert
    | ListSet
    | ListMove
    | ListDelete
    | ListMake
    | ListDrop
)
