"""HTTP functions for rooms: settings, current contents and history."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

import msgspec

from onceward import limits
from onceward.api import rooms as api
from onceward.errors import BadInput
from onceward.rooms.frames import Said
from onceward.rooms.live import admit_said
from onceward.rooms.names import admit_name, admit_room
from onceward.rooms.part import Found, Rooms
from onceward.rooms.records import Head, Info
from onceward.rooms.room import Entry
from onceward.rooms.session import allowed, insist
from onceward.store.transaction import Transaction
from onceward.strict_json import parse
from onceward.web.calls import Call, binder
from onceward.web.forwarding import elsewhere
from onceward.web.http import Request, Response
from onceward.web.routes import Route

ROUTES: list[Route] = []
answers = binder(ROUTES)


@answers(api.CREATE)
async def create(call: Call, asked: api.CreateRoom) -> api.Room:
    id_ = asked.id or call.app.store.ids.uuid()
    _admit_id(id_)
    insist(call.caller, "write", id_)

    async def fn(tx: Transaction) -> api.Room:
        _, info = await call.app.rooms.create(
            tx,
            id_,
            by=call.caller.user,
            meta=asked.meta,
            schemas=asked.schemas,
            capacity=asked.capacity,
            per_user=asked.per_user,
            keep=asked.keep,
        )
        return _view(id_, info, Head(info.epoch))

    return await call.app.store.run(fn)


@answers(api.LIST)
async def list_(call: Call, asked: api.RoomsQuery) -> api.RoomPage:
    meta = parse(asked.meta.encode(), dict[str, Any])
    after = call.unseal("after", asked.after)
    if asked.prefix:
        _admit_id(asked.prefix)
    if not call.caller.grants.for_any("read", "write", "room", "play", "table"):
        return api.RoomPage([], None)

    rooms, more = await _readable(call, asked.prefix, meta, after, asked.limit)
    listed = [
        api.ListedRoom(id_, room.epoch, room.created_ms, room.by, room.meta, _members(call, id_))
        for id_, room in rooms
    ]
    return api.RoomPage(listed, call.seal(listed[-1].id) if more else None)


async def _readable(
    call: Call, prefix: str, meta: dict[str, Any], after: str, limit: int
) -> tuple[list[Found], bool]:
    """Return the next rooms that the caller can read, at most `limit`, and whether there may be
    more.

    Other rooms are skipped until the time limit of a request, but at least one room is returned if
    there may be more.
    """
    found: list[Found] = []
    clock = call.app.store.clock
    until_ns = clock.elapsed_ns() + limits.PAGE_MS * 1_000_000
    while True:

        async def fn(tx: Transaction, after: str = after) -> tuple[list[Found], str]:
            return await call.app.rooms.find(
                tx, prefix=prefix, meta=meta, after=after, limit=limits.LIST_MAX
            )

        rooms, after = await call.app.store.run(fn)
        found += [room for room in rooms if allowed(call.caller, "read", room.id)]
        if len(found) > limit:
            return found[:limit], True
        if not after:
            return found, False
        if len(found) == limit or (found and clock.elapsed_ns() > until_ns):
            return found, True


@answers(api.GET)
async def get(call: Call, id_: str) -> api.Room:
    rooms = call.app.rooms

    async def fn(tx: Transaction) -> api.Room:
        return _view(id_, await rooms.info(tx, id_), await rooms.head(tx, id_))

    return await call.app.store.run(fn)


@answers(api.UPDATE)
async def update(call: Call, id_: str, asked: api.UpdateRoom) -> api.Room:
    rooms = call.app.rooms

    async def fn(tx: Transaction) -> api.Room:
        info = await rooms.configure(
            tx,
            id_,
            meta=asked.meta,
            schemas=asked.schemas,
            capacity=asked.capacity,
            per_user=asked.per_user,
            keep=asked.keep,
        )
        return _view(id_, info, await rooms.head(tx, id_))

    return await call.app.store.run(fn)


@answers(api.DELETE)
async def delete(call: Call, id_: str) -> api.DeletedRoom:
    info = await call.app.store.run(lambda tx: call.app.rooms.remove(tx, id_))
    return api.DeletedRoom(id_, info.epoch)


@answers(api.MEMBERS)
async def members(call: Call, id_: str) -> api.RoomMembers | Response:
    info = await _info(call, id_)
    answer = await elsewhere(call.server, call.request, id_, "members")
    if answer is not None:
        return answer
    found = call.app.hub.members(id_)
    if info.reserved and all(member.user != info.by for member in found):
        found.insert(0, api.RoomMember("", info.by))
    return api.RoomMembers(found)


@answers(api.SNAPSHOT)
async def snapshot(call: Call, id_: str, asked: api.SnapshotQuery) -> api.RoomSnapshot:
    at = None if asked.at is msgspec.UNSET else asked.at
    room = await call.app.store.run(lambda tx: call.app.rooms.load(tx, id_, at))
    plain = room.state.plain()
    return api.RoomSnapshot(id_, room.epoch, room.seq, room.digest, plain["maps"], plain["lists"])


@answers(api.HISTORY)
async def history(call: Call, id_: str, asked: api.HistoryQuery) -> api.RoomHistory:
    digest = None if asked.digest is msgspec.UNSET else asked.digest

    async def fn(tx: Transaction) -> api.RoomHistory:
        head = await call.app.rooms.head(tx, id_)
        since = head.floor if asked.since is msgspec.UNSET else asked.since
        entries = _page(await call.app.rooms.log(tx, id_, since, asked.limit, digest=digest))
        last = since + len(entries)
        return api.RoomHistory(entries, last if last < head.seq else None)

    return await call.app.store.run(fn)


def _page(entries: list[Entry]) -> list[api.RoomEntry]:
    """The entries that fit into a response, at least one."""
    size, fit = 0, 0
    for entry in entries:
        size += len(msgspec.json.encode(entry))
        if fit and size > limits.PAGE_BYTES_MAX:
            break
        fit += 1
    return list(entries[:fit])


@answers(api.APPLY)
async def apply(call: Call, id_: str, asked: api.ApplyStep) -> api.AppliedStep:
    if asked.create:
        _admit_id(id_)

    async def fn(tx: Transaction) -> api.AppliedStep:
        taken = await call.app.rooms.change(
            tx,
            id_,
            asked.ops,
            by=call.caller.name,
            create=asked.create,
            client=asked.client,
            n=asked.n if asked.client else 0,
        )
        return api.AppliedStep(None if taken is None else taken.seq, taken is None)

    return await call.app.store.run(fn, line=f"room:{id_}")


@answers(api.BROADCAST)
async def broadcast(call: Call, id_: str, asked: api.Broadcast) -> api.BroadcastReceipt | Response:
    admit_said(asked.event, asked.value)
    await _info(call, id_)
    answer = await elsewhere(call.server, call.request, id_, "broadcast", body=call.raw)
    if answer is not None:
        return answer
    by, direct = call.caller.name, bool(asked.to)
    said = Said(id_, asked.event, asked.value, "", by, direct=direct)
    return api.BroadcastReceipt(call.app.hub.say(said, asked.to))


# Maps, lists and presences.


class _Stored(NamedTuple):
    """Maps or lists: the named contents of a room."""

    kind: Literal["maps", "lists"]
    contents: Callable[[str, Any], Any]
    """Builds a response from a name and the values or items."""
    read: Callable[[Rooms, Transaction, str, str], Awaitable[Any]]
    make: Callable[..., Awaitable[None]]
    drop: Callable[..., Awaitable[None]]

    async def get(self, call: Call, id_: str, name: str) -> Any:
        admit_name(name, "a name")
        found = await self._found(call, id_, name)
        if found is None:
            what = self.kind.removesuffix("s")
            raise BadInput(
                f"{what} {name[:100]!a} not found in the room; see its snapshot", code="not_found"
            )
        return self.contents(name, found)

    async def put(self, call: Call, id_: str, name: str, asked: api.ValueSchema) -> Any:
        async def make(tx: Transaction) -> None:
            await self.make(call.app.rooms, tx, id_, name, by=call.caller.name)

        await _put(call, id_, self.kind, name, asked.schema, make)
        found = await self._found(call, id_, name)
        return self.contents(name, found or ({} if self.kind == "maps" else []))

    async def delete(self, call: Call, id_: str, name: str) -> api.DroppedContents:
        admit_name(name, "a name")
        rooms = call.app.rooms

        async def fn(tx: Transaction) -> bool:
            if await self.read(rooms, tx, id_, name) is None:
                return False
            await self.drop(rooms, tx, id_, name, by=call.caller.name)
            return True

        return api.DroppedContents(await call.app.store.run(fn))

    async def _found(self, call: Call, id_: str, name: str) -> Any:
        return await call.app.store.run(lambda tx: self.read(call.app.rooms, tx, id_, name))


_MAPS = _Stored("maps", api.MapContents, Rooms.map, Rooms.map_make, Rooms.map_drop)
_LISTS = _Stored("lists", api.ListContents, Rooms.list, Rooms.list_make, Rooms.list_drop)
answers(api.GET_MAP)(_MAPS.get)
answers(api.PUT_MAP)(_MAPS.put)
answers(api.DELETE_MAP)(_MAPS.delete)
answers(api.GET_LIST)(_LISTS.get)
answers(api.PUT_LIST)(_LISTS.put)
answers(api.DELETE_LIST)(_LISTS.delete)


@answers(api.GET_PRESENCE)
async def get_presence(call: Call, id_: str, name: str) -> api.PresenceContents | Response:
    admit_name(name, "a name")
    await _info(call, id_)
    answer = await elsewhere(call.server, call.request, id_, "presences", name)
    values = call.app.hub.presences(id_).get(name, {})
    return answer or api.PresenceContents(name, values)


@answers(api.PUT_PRESENCE)
async def put_presence(
    call: Call, id_: str, name: str, asked: api.ValueSchema
) -> api.PresenceContents | Response:
    async def make(tx: Transaction) -> None:
        await call.app.rooms.info(tx, id_)  # only the schema of a presence is stored

    await _put(call, id_, "presences", name, asked.schema, make)
    return await get_presence(call, id_, name)


@answers(api.DELETE_PRESENCE)
async def delete_presence(call: Call, id_: str, name: str) -> api.DroppedContents | Response:
    admit_name(name, "a name")
    await _info(call, id_)
    answer = await elsewhere(call.server, call.request, id_, "presences", name)
    return answer or api.DroppedContents(call.app.hub.drop_presence(id_, name))


async def _put(
    call: Call,
    id_: str,
    kind: Literal["maps", "lists", "presences"],
    name: str,
    schema: dict[str, Any] | None,
    make: Callable[[Transaction], Awaitable[None]],
) -> None:
    """Create a map, a list or a presence, and set its schema if one is given."""
    admit_name(name, "a name")
    if schema is not None:
        insist(call.caller, "room", id_)
    rooms = call.app.rooms

    async def fn(tx: Transaction) -> None:
        if schema is not None:
            info = await rooms.info(tx, id_)
            named = {**getattr(info.schemas, kind), name: schema}
            schemas: api.Schemas = msgspec.structs.replace(info.schemas, **{kind: named})
            await rooms.configure(tx, id_, schemas=schemas)
        await make(tx)

    await call.app.store.run(fn)


async def _websocket(server: Any, request: Request) -> Response:
    raise BadInput(
        "this path is for WebSocket only; see the protocol of rooms", code="upgrade_required"
    )


ROUTES.append(Route.of(api.CONNECT, _websocket))


async def _info(call: Call, id_: str) -> Info:
    return await call.app.store.run(lambda tx: call.app.rooms.info(tx, id_))


def _admit_id(id_: str) -> None:
    admit_room(id_)
    if "\x00" in id_:
        raise BadInput(f"the id {id_[:100]!a} of a room contains NUL; remove it", code="bad_name")


def _members(call: Call, id_: str) -> int:
    room = call.app.hub.rooms.get(id_)
    return 0 if room is None else len(room.members)


def _view(id_: str, info: Info, head: Head) -> api.Room:
    return api.Room(
        id_,
        info.epoch,
        head.seq,
        head.digest,
        head.floor,
        info.created_ms,
        info.by,
        info.meta,
        info.schemas,
        info.capacity,
        info.per_user,
        info.keep,
    )
