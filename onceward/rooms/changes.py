"""What can be done to the state of a room, as it goes over the wire and into the log.

A map's keys and a list's items are changed one by one; a step of several operations takes effect
as a whole or not at all. An operation says what is meant, and means the same in Python and in a
browser: whoever applies the same steps in the same order has the same state.
"""

from typing import Any

import msgspec


class Op(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The base of all operations."""


class MapOp(Op, frozen=True, tag_field="op"):
    map: str


class MapSet(MapOp, frozen=True, tag="map.set"):
    """Put a whole value under a key."""

    key: str
    value: Any


class MapDelete(MapOp, frozen=True, tag="map.delete"):
    """Remove a key; if it is not there, nothing happens."""

    key: str


class MapCompare(MapOp, frozen=True, tag="map.compare"):
    """Put a value under a key if `expect` is there now, or if nothing is and `expect` is not
    given; else the whole step is refused."""

    key: str
    value: Any
    expect: Any = msgspec.UNSET


class MapAdd(MapOp, frozen=True, tag="map.add"):
    """Add to a number; what is not there counts as 0. Refused where something else is."""

    key: str
    by: int | float


class MapMake(MapOp, frozen=True, tag="map.make"):
    """Let there be a map, empty if it is new."""


class MapDrop(MapOp, frozen=True, tag="map.drop"):
    """Remove a map with all that is in it."""


class ListOp(Op, frozen=True, tag_field="op"):
    list: str


class ListInsert(ListOp, frozen=True, tag="list.insert"):
    """Put a new item right behind the item `after`, in front of all if that is empty. If there
    is no such item (any more), or `after` is not given, it goes to the position `at`, and if
    that is not given to the end. Nothing happens if an item has this id."""

    id: str
    value: Any
    after: str | None = None
    at: str | None = None


class ListSet(ListOp, frozen=True, tag="list.set"):
    """Give an item another value; if it is gone, nothing happens."""

    id: str
    value: Any


class ListMove(ListOp, frozen=True, tag="list.move"):
    """Put an item elsewhere, as with `ListInsert`; if it is gone, nothing happens."""

    id: str
    after: str | None = None
    at: str | None = None


class ListDelete(ListOp, frozen=True, tag="list.delete"):
    """Remove an item; if it is gone, nothing happens."""

    id: str


class ListMake(ListOp, frozen=True, tag="list.make"):
    """Let there be a list, empty if it is new."""


class ListDrop(ListOp, frozen=True, tag="list.drop"):
    """Remove a list with all that is in it."""


Operation = (
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
