"""Operations on rooms: settings, contents, members and history.

The scope `room` includes `write`, and `write` includes `read`. The room of a table is read-only;
the scopes `play` and `table` of the table include `read`.
"""

from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onceward import limits
from onceward.api.operation import Body, JsonText, Operation, Query
from onceward.api.room_changes import RoomOperation

Capacity = Annotated[int, Meta(ge=1, le=limits.ROOM_MEMBERS_MAX)]
Keep = Annotated[int, Meta(ge=1, le=limits.ROOM_KEEP_STEPS_MAX)]
SequenceNumber = Annotated[int, Meta(ge=0, le=limits.ROOM_NUMBER_MAX)]

R = TypeVar("R")


class SchemasView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The schemas of a room, as responses have them."""

    maps: dict[str, dict[str, Any]] = {}
    lists: dict[str, dict[str, Any]] = {}
    presences: dict[str, dict[str, Any]] = {}


class Schemas(SchemasView, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The schemas of a room for the values of maps, lists and presences, by name."""


class CreateRoom(Body):
    """A room to create."""

    id: str = ""
    """The id of the room; by default, the server generates a UUID (version 7)."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    """Metadata, to search rooms by."""
    schemas: Schemas = Schemas()
    """The schemas of maps, lists and presences."""
    capacity: Capacity = limits.ROOM_MEMBERS_MAX
    """The maximum number of users in the room."""
    per_user: Capacity = limits.ROOM_PER_USER
    """The maximum number of connections of each user."""
    keep: Keep = limits.ROOM_KEEP_STEPS
    """The number of steps that the log keeps, for history and for clients that reconnect."""


class UpdateRoom(Body):
    """The settings to change."""

    meta: dict[str, Any] | None = None
    """Metadata, to search rooms by."""
    schemas: Schemas | None = None
    """They apply to later changes only."""
    capacity: Capacity | None = None
    """The maximum number of users in the room."""
    per_user: Capacity | None = None
    """The maximum number of connections of each user."""
    keep: Keep | None = None
    """The number of steps that the log keeps."""


class Room(msgspec.Struct):
    """A room: its settings, and its position in its log."""

    id: str
    epoch: str
    """The incarnation: a room that is created again under the same id has another one."""
    seq: int
    """The sequence number of the last step."""
    digest: str
    """The digest of the log up to that step. Rooms of one epoch with the same digest have the same
    state."""
    floor: int
    """The sequence number where the history begins."""
    created_ms: int
    by: str
    meta: dict[str, Any]
    schemas: SchemasView
    capacity: int
    per_user: int
    keep: int


class ListedRoom(msgspec.Struct):
    """A room in a list."""

    id: str
    epoch: str
    created_ms: int
    by: str
    meta: dict[str, Any]
    members: int
    """The number of connections, if this node serves the room, or else 0."""


class RoomPage(msgspec.Struct):
    """Rooms in the order of their ids."""

    rooms: list[ListedRoom]
    next: str | None
    """The cursor of the next page (`after`); None on the last page."""


class RoomsQuery(Query):
    """Which rooms to list."""

    prefix: str = ""
    """The beginning of the ids."""
    meta: JsonText = "{}"
    """Metadata that the rooms have, as a JSON object."""
    after: str = ""
    """The member `next` of the last page."""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 100
    """The maximum number of entries in the response."""


class DeletedRoom(msgspec.Struct):
    """A deleted room."""

    id: str
    epoch: str = ""
    """Empty: unknown, because the response to the first request was lost."""


class RoomMember(msgspec.Struct, frozen=True, omit_defaults=True):
    """A connection in a room."""

    id: str
    user: str


class RoomMembers(msgspec.Struct):
    """The members of a room."""

    members: list[RoomMember]
    """The connections. A creator who has not joined yet comes first, with an empty id."""


class SnapshotQuery(Query):
    """Which snapshot to show."""

    at: SequenceNumber | UnsetType = UNSET
    """The sequence number; default: the current one."""


class RoomSnapshot(msgspec.Struct):
    """The state of a room at a sequence number."""

    id: str
    epoch: str
    seq: int
    digest: str
    """The digest of the log up to `seq`."""
    maps: dict[str, dict[str, Any]]
    lists: dict[str, list[list[Any]]]
    """The id, position and value of each item, in order."""


class HistoryQuery(Query):
    """Which steps to list."""

    since: SequenceNumber | UnsetType = UNSET
    """List the steps after this sequence number; default: all."""
    digest: str | UnsetType = UNSET
    """The digest of the step `since`. If it is of another history, the request fails with
    `history_gone`."""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 100
    """The maximum number of entries in the response."""


class RoomEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step in the log of a room."""

    seq: int
    ops: list[dict[str, Any]]
    """The operations, as they were sent: the kind is the member `op`."""
    by: str = ""
    """The caller."""
    client: str = ""
    """The client of the user that sent the step; empty: a server."""
    n: int = 0
    """The number that the client gave to the step."""
    at_ms: int = 0
    digest: str = ""
    """The digest of the log up to this step. Logs that differ have different digests from the first
    difference on, as after a restore: it proves that a position belongs to this history."""


class RoomHistory(msgspec.Struct):
    """Steps of a room, in order."""

    entries: list[RoomEntry]
    next: int | None
    """The value of `since` for the next page; None on the last page."""


class ApplyStep(Body):
    """A step: operations that take effect together or not at all."""

    ops: list[RoomOperation]
    """Operations, as in {"op": "map.set", "map": "m", "key": "k", "value": 1}."""
    client: str = ""
    """The name of a client that numbers its steps, or a new id for each step. A repeated step of
    a client is applied once."""
    n: SequenceNumber = 1
    """The number of the step. It increases with each step of the client."""
    create: bool = False
    """Whether to create the room if it does not exist."""


class AppliedStep(msgspec.Struct):
    """A durable step."""

    seq: int | None
    """None: the step was applied before."""
    duplicate: bool


class Broadcast(Body):
    """An event for the connections in a room. It is not stored."""

    event: str
    """The name of the event."""
    value: Any = None
    """The value of the event."""
    to: str = ""
    """The id of one member; empty: all members."""


class BroadcastReceipt(msgspec.Struct):
    """The number of members that an event was sent to."""

    members: int


class ValueSchema(Body):
    """A schema for the values of a map, a list or a presence."""

    schema: dict[str, Any] | None = None
    """None: the current one stays. To change it takes the scope `room`."""


class MapContents(msgspec.Struct):
    """A map with its values."""

    name: str
    values: dict[str, Any]


class Item(NamedTuple):
    """An item of a list."""

    id: str
    value: Any


class ListContents(msgspec.Struct):
    """A list with its items."""

    name: str
    items: list[Item]


class PresenceContents(msgspec.Struct):
    """A presence with its entries, by user."""

    name: str
    values: dict[str, Any]


class DroppedContents(msgspec.Struct):
    """Whether the map, list or presence existed."""

    dropped: bool


_ROOM = ("no_such_room", "bad_name")
_SETTINGS = ("bad_schema", "value_too_large", "bad_value")
_CONTENTS = (*_ROOM, "room_moved")
_STEP = (
    *(*_CONTENTS, "bad_shape", "room_too_large", "value_too_large"),
    *("not_expected", "not_countable", "bad_value"),
)

CREATE = Operation(
    name="rooms.create",
    method="POST",
    path="/v1/rooms",
    summary="Create a room",
    scope="write:{id of the room}",
    body=CreateRoom,
    response=Room,
    errors=("bad_name", "room_exists", *_SETTINGS),
    done_errors=("room_exists",),
    fills=("id",),
)

LIST = Operation(
    name="rooms.list",
    method="GET",
    path="/v1/rooms",
    summary="List rooms",
    scope="read:{each room}",
    query=RoomsQuery,
    response=RoomPage,
    errors=("bad_name", "not_json", "wrong_type", "duplicate_member", "too_deep"),
)

GET = Operation(
    name="rooms.get",
    method="GET",
    path="/v1/rooms/{id}",
    summary="Show a room",
    scope="read:{id}",
    response=Room,
    errors=_ROOM,
)

UPDATE = Operation(
    name="rooms.update",
    method="PATCH",
    path="/v1/rooms/{id}",
    summary="Change some settings of a room",
    scope="room:{id}",
    body=UpdateRoom,
    response=Room,
    errors=(*_ROOM, *_SETTINGS),
)

DELETE = Operation(
    name="rooms.delete",
    method="DELETE",
    path="/v1/rooms/{id}",
    summary="Delete a room",
    scope="room:{id}",
    response=DeletedRoom,
    errors=_ROOM,
    done_errors=("no_such_room",),
)

MEMBERS = Operation(
    name="rooms.members",
    method="GET",
    path="/v1/rooms/{id}/members",
    summary="List the members of a room",
    scope="read:{id}",
    response=RoomMembers,
    errors=_CONTENTS,
    returns="members",
)

SNAPSHOT = Operation(
    name="rooms.snapshot",
    method="GET",
    path="/v1/rooms/{id}/snapshot",
    summary="Show the state of a room, current or past",
    scope="read:{id}",
    query=SnapshotQuery,
    response=RoomSnapshot,
    errors=(*_ROOM, "history_gone"),
)

HISTORY = Operation(
    name="rooms.history",
    method="GET",
    path="/v1/rooms/{id}/history",
    summary="List the steps of a room",
    scope="read:{id}",
    query=HistoryQuery,
    response=RoomHistory,
    errors=(*_ROOM, "history_gone"),
)

APPLY = Operation(
    name="rooms.apply",
    method="POST",
    path="/v1/rooms/{id}/ops",
    summary="Apply operations to a room",
    scope="write:{id}",
    body=ApplyStep,
    response=AppliedStep,
    errors=(*_STEP, "commit_too_large"),
    fills=("client",),
)

BROADCAST = Operation(
    name="rooms.broadcast",
    method="POST",
    path="/v1/rooms/{id}/broadcast",
    summary="Send an event to the members of a room",
    description="The event is not stored. A repeated request sends it again.",
    scope="write:{id}",
    body=Broadcast,
    response=BroadcastReceipt,
    errors=(*_CONTENTS, "no_such_member", "value_too_large", "bad_value"),
    returns="members",
)


def _contents(
    what: str, response: type[R], put: str, delete: str, *, stored: bool = True
) -> tuple[Operation[R], Operation[R], Operation[DroppedContents]]:
    """The operations that show, create and delete a map, a list or a presence. A presence is not
    stored: it always exists, and only its schema is created."""
    path = f"/v1/rooms/{{id}}/{what}s/{{name}}"
    errors = _STEP if stored else _CONTENTS
    return (
        Operation(
            name=f"rooms.get_{what}",
            method="GET",
            path=path,
            summary=f"Show a {what}",
            scope="read:{id}",
            response=response,
            errors=(*_CONTENTS, "not_found") if stored else _CONTENTS,
            returns="items" if what == "list" else "values",
        ),
        Operation(
            name=f"rooms.put_{what}",
            method="PUT",
            path=path,
            summary=put,
            scope="write:{id}",
            body=ValueSchema,
            body_optional=True,
            response=response,
            errors=(*errors, "bad_schema"),
            returns="items" if what == "list" else "values",
        ),
        Operation(
            name=f"rooms.delete_{what}",
            method="DELETE",
            path=path,
            summary=delete,
            scope="write:{id}" if stored else "room:{id}",
            response=DroppedContents,
            errors=errors,
            returns="dropped",
            done_member="dropped",
        ),
    )


GET_MAP, PUT_MAP, DELETE_MAP = _contents(
    "map", MapContents, "Create a map, or set its schema", "Delete a map"
)
GET_LIST, PUT_LIST, DELETE_LIST = _contents(
    "list", ListContents, "Create a list, or set its schema", "Delete a list"
)
GET_PRESENCE, PUT_PRESENCE, DELETE_PRESENCE = _contents(
    "presence",
    PresenceContents,
    "Set the schema of a presence",
    "Delete the entries of a presence",
    stored=False,
)

CONNECT: Operation[None] = Operation(
    name="rooms.connect",
    method="GET",
    path="/v1/ws",
    summary="Open a WebSocket connection to join rooms",
    errors=("upgrade_required", "origin_refused"),
    kind="stream",
)
