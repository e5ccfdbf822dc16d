"""Rooms over HTTP: make, find, see and delete them, now and as they were."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.errors import BadInput
from onceward.rooms.frames import Member
from onceward.rooms.names import admit_room
from onceward.rooms.part import Found
from onceward.rooms.records import Head, Info
from onceward.rooms.room import Entry, Room
from onceward.rooms.schemas import Schemas
from onceward.rooms.session import RoomAction, allowed, insist
from onceward.store.transaction import Transaction
from onceward.web.auth import Access
from onceward.web.bodies import parse
from onceward.web.cursors import seal, unseal
from onceward.web.forwarding import elsewhere
from onceward.web.handshake import PATH
from onceward.web.http import Request, Response, whole
from onceward.web.routes import Route

if TYPE_CHECKING:
    from onceward.web.server import Server

Capacity = Annotated[int, Meta(ge=1, le=limits.ROOM_MEMBERS_MAX)]
Keep = Annotated[int, Meta(ge=1, le=limits.ROOM_KEEP_STEPS_MAX)]


class NewRoom(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A room to be made."""

    id: str = ""
    """Empty: the server makes a UUID of version 7."""
    meta: dict[str, Any] = {}
    """What it can be found by."""
    schemas: Schemas = Schemas()
    capacity: Capacity = limits.ROOM_MEMBERS_MAX
    """How many users may be in it at a time."""
    per_user: Capacity = limits.ROOM_PER_USER
    """How many connections each user may have to it."""
    keep: Keep = limits.ROOM_KEEP_STEPS
    """How many steps back it can be seen, and clients can catch up."""


class RoomChange(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Settings to be changed: those that are given."""

    meta: dict[str, Any] | None = None
    schemas: Schemas | None = None
    capacity: Capacity | None = None
    per_user: Capacity | None = None
    keep: Keep | None = None


class RoomView(msgspec.Struct):
    """A room as it is."""

    id: str
    epoch: str
    """Its incarnation: one of the same id that is made later has another."""
    seq: int
    """The number of its last step."""
    digest: str
    """Of its log up to that step: two rooms of one epoch with the same digest are the same."""
    floor: int
    """From here on it can be seen as it was."""
    made_ms: int
    by: str
    meta: dict[str, Any]
    schemas: Schemas
    capacity: int
    per_user: int
    keep: int


class ListedRoom(msgspec.Struct):
    """A room in a list."""

    id: str
    epoch: str
    made_ms: int
    by: str
    meta: dict[str, Any]
    members: int
    """How many connections are in it, as far as this node serves it."""


class RoomPage(msgspec.Struct):
    """Rooms by id."""

    rooms: list[ListedRoom]
    next: str | None
    """What to give as `after` for the next page; None: there is none."""


class RemovedRoom(msgspec.Struct):
    """A room that is no more."""

    id: str
    epoch: str


class MemberList(msgspec.Struct):
    """The members of a room."""

    members: list[Member]
    """Its connections. A creator that has not joined yet comes first, with an empty id."""


class Whole(msgspec.Struct):
    """All that is in a room, at a sequence number."""

    id: str
    epoch: str
    seq: int
    digest: str
    """Of its log up to `seq`; see the history."""
    maps: dict[str, dict[str, Any]]
    lists: dict[str, list[list[Any]]]
    """Of each item its id, position and value, in order."""


class History(msgspec.Struct):
    """Steps of a room, in order."""

    entries: list[Entry]
    next: int | None
    """What to give as `since` for those behind them; None: there are none."""


async def create(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    asked = parse(await request.body(), NewRoom)
    id_ = asked.id or server.app.store.ids.uuid()
    admit_id(id_)
    insist(caller, "write", id_)

    async def fn(tx: Transaction) -> RoomView:
        _, info = await server.app.rooms.create(
            tx,
            id_,
            by=caller.user,
            meta=asked.meta,
            schemas=asked.schemas,
            capacity=asked.capacity,
            per_user=asked.per_user,
            keep=asked.keep,
        )
        return _view(id_, info, Head(info.epoch))

    return Response.of(await server.app.store.run(fn))


async def list_(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    query = request.query(["prefix", "meta", "after", "limit"])
    limit = whole("limit", query.get("limit", "100"), 1, limits.LIST_MAX)
    meta = parse(query["meta"].encode(), dict[str, Any]) if "meta" in query else {}
    prefix, after = query.get("prefix", ""), unseal(server, request, "after", query.get("after"))
    if prefix:
        admit_id(prefix)
    if not caller.grants.for_any("read", "write", "room", "play", "table"):
        return Response.of(RoomPage([], None))

    rooms, more = await _readable(server, caller, prefix, meta, after, limit)
    listed = [
        ListedRoom(id_, room.epoch, room.made_ms, room.by, room.meta, _members(server, id_))
        for id_, room in rooms
    ]
    next_ = seal(server, request, listed[-1].id) if more else None
    return Response.of(RoomPage(listed, next_))


async def _readable(
    server: "Server", caller: Access, prefix: str, meta: dict[str, Any], after: str, limit: int
) -> tuple[list[Found], bool]:
    """The next rooms that someone may read, `limit` at the most, and whether there may be more:
    if so, there is one at the least. Looks on among those that it may not read, for as long as a
    request may take and until there is one."""
    found: list[Found] = []
    clock = server.app.store.clock
    until_ns = clock.elapsed_ns() + limits.PAGE_MS * 1_000_000
    while True:

        async def fn(tx: Transaction, after: str = after) -> tuple[list[Found], str]:
            return await server.app.rooms.find(
                tx, prefix=prefix, meta=meta, after=after, most=limits.LIST_MAX
            )

        rooms, after = await server.app.store.run(fn)
        found += [room for room in rooms if allowed(caller, "read", room.id)]
        if len(found) > limit:
            return found[:limit], True
        if not after:
            return found, False
        if len(found) == limit or (found and clock.elapsed_ns() > until_ns):
            return found, True


async def get(server: "Server", request: Request) -> Response:
    id_ = known(server, request, "read")

    async def fn(tx: Transaction) -> RoomView:
        return _view(
            id_, await server.app.rooms.info(tx, id_), await server.app.rooms.head(tx, id_)
        )

    return Response.of(await server.app.store.run(fn))


async def change(server: "Server", request: Request) -> Response:
    id_ = known(server, request, "room")
    asked = parse(await request.body(), RoomChange)

    async def fn(tx: Transaction) -> RoomView:
        info = await server.app.rooms.configure(
            tx,
            id_,
            meta=asked.meta,
            schemas=asked.schemas,
            capacity=asked.capacity,
            per_user=asked.per_user,
            keep=asked.keep,
        )
        return _view(id_, info, await server.app.rooms.head(tx, id_))

    return Response.of(await server.app.store.run(fn))


async def remove(server: "Server", request: Request) -> Response:
    id_ = known(server, request, "room")
    info = await server.app.store.run(lambda tx: server.app.rooms.remove(tx, id_))
    return Response.of(RemovedRoom(id_, info.epoch))


async def members(server: "Server", request: Request) -> Response:
    id_ = known(server, request, "read")
    info = await server.app.store.run(lambda tx: server.app.rooms.info(tx, id_))
    answer = await elsewhere(server, request, id_, "members")
    if answer is not None:
        return answer
    found = server.app.hub.members(id_)
    if info.reserved and all(member.user != info.by for member in found):
        found.insert(0, Member("", info.by))
    return Response.of(MemberList(found))


async def snapshot(server: "Server", request: Request) -> Response:
    id_ = known(server, request, "read")
    text = request.query(["at"]).get("at")
    at = None if text is None else whole("at", text, 0, limits.ROOM_NUMBER_MAX)

    async def fn(tx: Transaction) -> Room:
        return await server.app.rooms.load(tx, id_, at)

    room = await server.app.store.run(fn)
    plain = room.state.plain()
    return Response.of(Whole(id_, room.epoch, room.seq, room.digest, plain["maps"], plain["lists"]))


async def history(server: "Server", request: Request) -> Response:
    id_ = known(server, request, "read")
    query = request.query(["since", "digest", "limit"])
    limit = whole("limit", query.get("limit", "100"), 1, limits.LIST_MAX)

    async def fn(tx: Transaction) -> History:
        head = await server.app.rooms.head(tx, id_)
        since = head.floor
        if "since" in query:
            since = whole("since", query["since"], 0, limits.ROOM_NUMBER_MAX)
        digest = query.get("digest")
        entries = _page(await server.app.rooms.log(tx, id_, since, limit, digest=digest))
        last = since + len(entries)
        return History(entries, last if last < head.seq else None)

    return Response.of(await server.app.store.run(fn))


async def websocket(server: "Server", request: Request) -> Response:
    raise BadInput("this address speaks WebSocket: see the protocol", code="upgrade_required")


def _page(entries: list[Entry]) -> list[Entry]:
    """As many as one answer has, one at the least."""
    size, fit = 0, 0
    for entry in entries:
        size += len(msgspec.json.encode(entry))
        if fit and size > limits.PAGE_BYTES_MAX:
            break
        fit += 1
    return entries[:fit]


def known(server: "Server", request: Request, deed: RoomAction) -> str:
    """The id of the room in the path, if the caller may do that with it. Raises `BadInput`."""
    id_ = request.parameters["id"]
    caller: Access = server.caller(request)
    admit_id(id_)
    insist(caller, deed, id_)
    return id_


def admit_id(id_: str) -> None:
    admit_room(id_)
    if "\x00" in id_:
        raise BadInput("a room's id has no NUL in it", code="bad_name")


def _members(server: "Server", id_: str) -> int:
    room = server.app.hub.rooms.get(id_)
    return 0 if room is None else len(room.members)


def _view(id_: str, info: Info, head: Head) -> RoomView:
    return RoomView(
        id_,
        info.epoch,
        head.seq,
        head.digest,
        head.floor,
        info.made_ms,
        info.by,
        info.meta,
        info.schemas,
        info.capacity,
        info.per_user,
        info.keep,
    )


_ROOM = ("no_such_room", "bad_name")

ROUTES = [
    Route(
        "POST",
        "/v1/rooms",
        create,
        "Make a room",
        takes=NewRoom,
        gives=RoomView,
        problems=("bad_name", "room_exists", "bad_schema", "value_too_large", "bad_value"),
    ),
    Route(
        "GET",
        "/v1/rooms",
        list_,
        "Rooms by the beginning of their ids, and by metadata",
        gives=RoomPage,
        problems=("bad_name", "not_json", "wrong_type", "duplicate_member", "too_deep"),
        query=("prefix", "meta", "after", "limit"),
    ),
    Route("GET", "/v1/rooms/{id}", get, "A room", gives=RoomView, problems=_ROOM),
    Route(
        "PATCH",
        "/v1/rooms/{id}",
        change,
        "Change some settings of a room",
        takes=RoomChange,
        gives=RoomView,
        problems=(*_ROOM, "bad_schema", "value_too_large", "bad_value"),
    ),
    Route(
        "DELETE",
        "/v1/rooms/{id}",
        remove,
        "Delete a room with all that is in it",
        gives=RemovedRoom,
        problems=_ROOM,
    ),
    Route(
        "GET",
        "/v1/rooms/{id}/members",
        members,
        "Who is in a room",
        gives=MemberList,
        problems=(*_ROOM, "room_moved"),
    ),
    Route(
        "GET",
        "/v1/rooms/{id}/snapshot",
        snapshot,
        "All that is in a room, or was at a sequence number",
        gives=Whole,
        problems=(*_ROOM, "history_gone"),
        query=("at",),
    ),
    Route(
        "GET",
        "/v1/rooms/{id}/history",
        history,
        "The steps of a room behind a sequence number",
        gives=History,
        problems=(*_ROOM, "history_gone"),
        query=("since", "limit"),
    ),
    Route(
        "GET",
        PATH,
        websocket,
        "Join rooms, over WebSocket",
        problems=("upgrade_required", "origin_refused"),
    ),
]
