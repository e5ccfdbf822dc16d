"""Responses about rooms as values of the client."""

from typing import Any

import msgspec


class RoomInfo(msgspec.Struct):
    """A room as it is."""

    id: str
    epoch: str
    """Its incarnation: one of the same id that is made later has another."""
    seq: int
    digest: str
    """Of its log up to `seq`."""
    floor: int
    """From here on it can be seen as it was."""
    created_ms: int
    by: str
    meta: dict[str, Any]
    schemas: dict[str, Any]
    capacity: int
    """How many users may be in it at a time."""
    per_user: int
    """How many connections each of them may have."""
    keep: int


class ListedRoom(msgspec.Struct):
    """A room in a list."""

    id: str
    epoch: str
    created_ms: int
    by: str
    meta: dict[str, Any]


class ListedRooms(msgspec.Struct):
    rooms: list[ListedRoom]
    next: str | None


class RoomMember(msgspec.Struct):
    """A member of a room: a connection, or with an empty id a creator that has not joined yet."""

    id: str
    user: str


class RoomMembers(msgspec.Struct):
    members: list[RoomMember]


class RoomState(msgspec.Struct):
    """All that is in a room, at a sequence number."""

    id: str
    epoch: str
    seq: int
    digest: str
    """Of its log up to `seq`."""
    maps: dict[str, dict[str, Any]]
    lists: dict[str, list[tuple[str, str, Any]]]
    """Of each item its id, position and value, in order."""


class RoomStep(msgspec.Struct):
    """A step in the history of a room."""

    seq: int
    ops: list[dict[str, Any]]
    by: str = ""
    client: str = ""
    n: int = 0
    at_ms: int = 0
    digest: str = ""
    """Of the log up to here."""


class RoomHistory(msgspec.Struct):
    entries: list[RoomStep]
    next: int | None


class TakenStep(msgspec.Struct):
    seq: int | None
    duplicate: bool


class Spoken(msgspec.Struct):
    members: int


class Values(msgspec.Struct):
    values: dict[str, Any]


class Items(msgspec.Struct):
    items: list[tuple[str, Any]]


class Dropped(msgspec.Struct):
    dropped: bool
