"""Client methods for rooms over HTTP, without joining the room."""

from collections.abc import Mapping, Sequence
from typing import Any

from onceward.client.rooms.views import (
    Dropped,
    Items,
    ListedRoom,
    ListedRooms,
    RoomHistory,
    RoomInfo,
    RoomMember,
    RoomMembers,
    RoomState,
    RoomStep,
    Spoken,
    TakenStep,
    Values,
)
from onceward.client.transport import Course, Transport
from onceward.errors import BadInput, NoSuchRoom, OncewardError
from onceward.rooms.names import encoded


class RoomCalls(Transport):
    """Rooms of a server. Each raises `NoSuchRoom` if there is no such room."""

    async def create_room(
        self,
        id_: str | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        schemas: Mapping[str, Any] | None = None,
        capacity: int | None = None,
        per_user: int | None = None,
        keep: int | None = None,
    ) -> RoomInfo:
        """Make a room; without an id one is made up. Raises `BadInput`, with the code
        `room_exists` if there is one of that id."""
        asked = {
            "id": id_ or self.ids.new(),
            "meta": meta,
            "schemas": schemas,
            "capacity": capacity,
            "per_user": per_user,
            "keep": keep,
        }
        course = Course()
        try:
            return await self.call(
                "POST", "v1", "rooms", type=RoomInfo, body=_given(asked), course=course
            )
        except OncewardError as error:
            if error.code != "room_exists" or not course.lost:
                raise
            return await self.room_info(str(asked["id"]))  # this call has made it before

    async def room_info(self, id_: str) -> RoomInfo:
        """A room's settings, and where it is."""
        return await self.call("GET", "v1", "rooms", id_, type=RoomInfo)

    async def rooms(
        self,
        *,
        prefix: str | None = None,
        meta: Mapping[str, Any] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> tuple[list[ListedRoom], str | None]:
        """Rooms in the order of their ids, and after which one the next ones come. A page may
        be short although there are more."""
        if not isinstance(meta, Mapping | None):
            raise BadInput(f"metadata are an object, not {type(meta).__name__}")
        text = None if meta is None else encoded(dict(meta)).decode()
        query = _given({"prefix": prefix, "meta": text, "after": after, "limit": limit})
        found = await self.call("GET", "v1", "rooms", type=ListedRooms, query=query)
        return found.rooms, found.next

    async def configure_room(
        self,
        id_: str,
        *,
        meta: Mapping[str, Any] | None = None,
        schemas: Mapping[str, Any] | None = None,
        capacity: int | None = None,
        per_user: int | None = None,
        keep: int | None = None,
    ) -> RoomInfo:
        """Change what is given. Schemas count for later changes only."""
        asked = {"meta": meta, "schemas": schemas, "capacity": capacity, "keep": keep}
        asked["per_user"] = per_user
        return await self.call("PATCH", "v1", "rooms", id_, type=RoomInfo, body=_given(asked))

    async def delete_room(self, id_: str) -> None:
        """Delete a room with all that is in it; its members are told."""
        await self.room_info(id_)
        try:
            await self.call("DELETE", "v1", "rooms", id_, type=dict[str, Any])
        except NoSuchRoom:
            pass  # it was there before, and is not now: by this call, as a rule

    async def room_members(self, id_: str) -> list[RoomMember]:
        """The connections in a room. A creator that has not joined yet comes first, with an empty
        id."""
        found = await self.call("GET", "v1", "rooms", id_, "members", type=RoomMembers)
        return found.members

    async def room_state(self, id_: str, at: int | None = None) -> RoomState:
        """All that is in a room, or was at a sequence number. Raises `HistoryGone`."""
        query = _given({"at": at})
        return await self.call("GET", "v1", "rooms", id_, "snapshot", type=RoomState, query=query)

    async def room_history(
        self,
        id_: str,
        *,
        since: int | None = None,
        digest: str | None = None,
        limit: int = 100,
    ) -> tuple[list[RoomStep], int | None]:
        """Steps behind a sequence number, and since which one the next ones are. With the digest
        of the step at `since`, the steps are surely of the same history. Raises `HistoryGone`,
        also if they are not: then start again from `room_state`."""
        query = _given({"since": since, "digest": digest, "limit": limit})
        found = await self.call("GET", "v1", "rooms", id_, "history", type=RoomHistory, query=query)
        return found.entries, found.next

    async def change_room(self, id_: str, ops: Sequence[Mapping[str, Any]]) -> int | None:
        """Change a room by operations, as on the wire, which take effect as one; returns the
        sequence number, or None if that was not heard. Raises `BadInput` if it is refused."""
        if not isinstance(ops, list | tuple):
            raise BadInput(f"a step is a list of operations, not {type(ops).__name__}")
        # With a name of its own the step can be sent again, and is taken once.
        asked = {"ops": list(ops), "client": f"call-{self.ids.new()}", "n": 1}
        return (await self.call("POST", "v1", "rooms", id_, "ops", type=TakenStep, body=asked)).seq

    async def say_in_room(self, id_: str, event: str, value: Any = None, *, to: str = "") -> int:
        """Say something to all who are in a room, or to one member; says to how many. If the
        answer is lost it may be said twice: it is not kept."""
        asked = {"event": event, "value": value, **({"to": to} if to else {})}
        return (
            await self.call("POST", "v1", "rooms", id_, "broadcast", type=Spoken, body=asked)
        ).members

    # Whole maps, lists and presences.

    async def room_map(self, id_: str, name: str) -> dict[str, Any]:
        """A whole map. Raises `not_found` if there is none."""
        return (await self.call("GET", "v1", "rooms", id_, "maps", name, type=Values)).values

    async def room_list(self, id_: str, name: str) -> list[tuple[str, Any]]:
        """A whole list, as ids and values. Raises `not_found` if there is none."""
        return (await self.call("GET", "v1", "rooms", id_, "lists", name, type=Items)).items

    async def room_presence(self, id_: str, name: str) -> dict[str, Any]:
        """The entries of a presence, by user."""
        return (await self.call("GET", "v1", "rooms", id_, "presences", name, type=Values)).values

    async def make_in_room(
        self, id_: str, kind: str, name: str, *, schema: Mapping[str, Any] | None = None
    ) -> None:
        """Let there be one of the "maps", "lists" or "presences", with a shape for its values if
        one is given."""
        body = _given({"schema": schema})
        await self.call("PUT", "v1", "rooms", id_, kind, name, type=dict[str, Any], body=body)

    async def drop_in_room(self, id_: str, kind: str, name: str) -> bool:
        """Remove a whole one of the "maps", "lists" or "presences"; says whether it was there."""
        found = await self.call("DELETE", "v1", "rooms", id_, kind, name, type=Dropped)
        return found.dropped


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
