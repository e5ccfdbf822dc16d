"""What is in a room, over HTTP: steps, and whole maps, lists and presences."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.errors import BadInput
from onceward.rooms.changes import Operation
from onceward.rooms.edits import Item
from onceward.rooms.frames import Said
from onceward.rooms.live import admit_said
from onceward.rooms.names import admit_name
from onceward.rooms.part import Rooms
from onceward.rooms.schemas import Schemas
from onceward.store.transaction import Transaction
from onceward.web.api.rooms import known
from onceward.web.bodies import parse
from onceward.web.forwarding import elsewhere
from onceward.web.http import Request, Response
from onceward.web.routes import Route

if TYPE_CHECKING:
    from onceward.web.server import Server


class NewStep(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Operations that take effect as one."""

    ops: list[Operation]
    client: str = ""
    """Who numbers its steps, so that one that is sent again is taken once."""
    n: Annotated[int, Meta(ge=0, le=limits.ROOM_NUMBER_MAX)] = 0


class TakenStep(msgspec.Struct):
    """A step that is durable."""

    seq: int | None
    """None: it was taken before."""
    duplicate: bool


class Event(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is said to those who are in a room now; it is not kept."""

    event: str
    value: Any = None
    to: str = ""
    """The id of one member; empty: to all."""


class Spoken(msgspec.Struct):
    """To how many members it was said."""

    members: int


class Shape(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What all values are to be like."""

    schema: dict[str, Any] | None = None


class MapView(msgspec.Struct):
    """A whole map."""

    name: str
    values: dict[str, Any]


class ListView(msgspec.Struct):
    """A whole list."""

    name: str
    items: list[Item]


class PresenceView(msgspec.Struct):
    """A whole presence: the entries by user."""

    name: str
    values: dict[str, Any]


class Dropped(msgspec.Struct):
    """Whether it was there until now."""

    dropped: bool


async def step(server: "Server", request: Request) -> Response:
    id_ = known(server, request, "write")
    by = server.caller(request).name
    asked = parse(await request.body(), NewStep)

    async def fn(tx: Transaction) -> TakenStep:
        taken = await server.app.rooms.change(
            tx, id_, asked.ops, by=by, client=asked.client, n=asked.n
        )
        return TakenStep(None if taken is None else taken.seq, taken is None)

    return Response.of(await server.app.store.run(fn, line=f"room:{id_}"))


async def say(server: "Server", request: Request) -> Response:
    id_ = known(server, request, "write")
    by = server.caller(request).name
    raw = await request.body()
    asked = parse(raw, Event)
    admit_said(asked.event, asked.value)
    await server.app.store.run(lambda tx: server.app.rooms.info(tx, id_))
    answer = await elsewhere(server, request, id_, "say", body=raw)
    if answer is not None:
        return answer
    said = Said(id_, asked.event, asked.value, "", by, direct=bool(asked.to))
    return Response.of(Spoken(server.app.hub.say(said, asked.to)))


class Kept(NamedTuple):
    """What rooms keep by name: maps, or lists."""

    kind: Literal["maps", "lists"]
    view: Callable[[str, Any], Any]
    """Of a name and all that is there."""
    whole: Callable[[Rooms, Transaction, str, str], Awaitable[Any]]
    make: Callable[..., Awaitable[None]]
    drop: Callable[..., Awaitable[None]]

    async def get(self, server: "Server", request: Request) -> Response:
        id_, name = known(server, request, "read"), _name(request)
        found = await self._found(server, id_, name)
        if found is None:
            raise _none(self.kind.removesuffix("s"), name)
        return Response.of(self.view(name, found))

    async def put(self, server: "Server", request: Request) -> Response:
        async def make(tx: Transaction, id_: str, name: str, by: str) -> None:
            await self.make(server.app.rooms, tx, id_, name, by=by)

        id_, name = await _make(server, request, self.kind, make)
        found = await self._found(server, id_, name)
        return Response.of(self.view(name, found or ({} if self.kind == "maps" else [])))

    async def delete(self, server: "Server", request: Request) -> Response:
        id_, name = known(server, request, "write"), _name(request)
        rooms, by = server.app.rooms, server.caller(request).name

        async def fn(tx: Transaction) -> bool:
            if await self.whole(rooms, tx, id_, name) is None:
                return False
            await self.drop(rooms, tx, id_, name, by=by)
            return True

        return Response.of(Dropped(await server.app.store.run(fn)))

    async def _found(self, server: "Server", id_: str, name: str) -> Any:
        return await server.app.store.run(lambda tx: self.whole(server.app.rooms, tx, id_, name))


async def get_presence(server: "Server", request: Request) -> Response:
    id_, name = known(server, request, "read"), _name(request)
    await server.app.store.run(lambda tx: server.app.rooms.info(tx, id_))
    return await _presence(server, request, id_, name)


async def make_presence(server: "Server", request: Request) -> Response:
    async def make(tx: Transaction, id_: str, name: str, by: str) -> None:
        await server.app.rooms.info(tx, id_)  # there is nothing to make but its shape

    id_, name = await _make(server, request, "presences", make)
    return await _presence(server, request, id_, name)


async def _presence(server: "Server", request: Request, id_: str, name: str) -> Response:
    answer = await elsewhere(server, request, id_, "presences", name)
    values = server.app.hub.presences(id_).get(name, {})
    return answer or Response.of(PresenceView(name, values))


async def drop_presence(server: "Server", request: Request) -> Response:
    id_, name = known(server, request, "room"), _name(request)
    await server.app.store.run(lambda tx: server.app.rooms.info(tx, id_))
    answer = await elsewhere(server, request, id_, "presences", name)
    return answer or Response.of(Dropped(server.app.hub.drop_presence(id_, name)))


async def _make(
    server: "Server",
    request: Request,
    kind: Literal["maps", "lists", "presences"],
    make: Callable[[Transaction, str, str, str], Awaitable[None]],
) -> tuple[str, str]:
    """Let there be a map, a list or a presence, with a shape if one is given."""
    raw = await request.body()
    shape = parse(raw, Shape).schema if raw else None
    id_ = known(server, request, "write" if shape is None else "room")
    name, by = _name(request), server.caller(request).name

    async def fn(tx: Transaction) -> None:
        if shape is not None:
            info = await server.app.rooms.info(tx, id_)
            shapes = {**getattr(info.schemas, kind), name: shape}
            schemas: Schemas = msgspec.structs.replace(info.schemas, **{kind: shapes})
            await server.app.rooms.configure(tx, id_, schemas=schemas)
        await make(tx, id_, name, by)

    await server.app.store.run(fn)
    return id_, name


def _name(request: Request) -> str:
    name = request.parameters["name"]
    admit_name(name, "a name")
    return name


def _none(what: str, name: str) -> BadInput:
    return BadInput(f"there is no {what} {name[:100]!a} in the room", code="not_found")


_ROOM = ("no_such_room", "bad_name", "room_moved")
_STEP = (
    *(*_ROOM, "bad_shape", "room_too_large", "value_too_large"),
    *("not_expected", "not_countable", "bad_value"),
)


def _whole(kind: str, views: Any, get: Any, make: Any, drop: Any) -> list[Route]:
    path, one = f"/v1/rooms/{{id}}/{kind}/{{name}}", kind.removesuffix("s")
    return [
        Route("GET", path, get, f"A whole {one}", gives=views, problems=(*_ROOM, "not_found")),
        Route(
            "PUT",
            path,
            make,
            f"Let there be a {one}, with a shape for its values if one is given",
            takes=Shape,
            gives=views,
            problems=(*_STEP, "bad_schema"),
        ),
        Route("DELETE", path, drop, f"Remove a whole {one}", gives=Dropped, problems=_STEP),
    ]


_MAPS = Kept("maps", MapView, Rooms.map, Rooms.map_make, Rooms.map_drop)
_LISTS = Kept("lists", ListView, Rooms.list, Rooms.list_make, Rooms.list_drop)

ROUTES = [
    Route(
        "POST",
        "/v1/rooms/{id}/ops",
        step,
        "Change a room by a step",
        takes=NewStep,
        gives=TakenStep,
        problems=(*_STEP, "commit_too_large"),
    ),
    Route(
        "POST",
        "/v1/rooms/{id}/say",
        say,
        "Say something to those who are in a room",
        takes=Event,
        gives=Spoken,
        problems=(*_ROOM, "no_such_member", "value_too_large", "bad_value"),
    ),
    *_whole("maps", MapView, _MAPS.get, _MAPS.put, _MAPS.delete),
    *_whole("lists", ListView, _LISTS.get, _LISTS.put, _LISTS.delete),
    *_whole("presences", PresenceView, get_presence, make_presence, drop_presence),
]
