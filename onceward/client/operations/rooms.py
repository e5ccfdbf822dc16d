"""Client methods for rooms, from `onceward.api.rooms`. Written by `make generate`."""

import builtins
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from onceward.api import rooms as api
from onceward.api.arguments import as_dict, as_json, as_list, as_struct
from onceward.api.room_changes import RoomOperation
from onceward.client.operations.base import Operations


class RoomsOperations(Operations):
    """Operations on rooms: settings, contents, members and history."""

    async def create(
        self,
        *,
        id: str = "",
        meta: Mapping[str, Any] | None = None,
        schemas: api.Schemas | Mapping[str, Any] | None = None,
        capacity: int = 10000,
        per_user: int = 100,
        keep: int = 1000,
    ) -> api.Room:
        """Create a room.

        - `id`: The id of the room; by default, the server generates a UUID (version 7).
        - `meta`: Metadata, to search rooms by.
        - `schemas`: The schemas of maps, lists and presences.
        - `capacity`: The maximum number of users in the room.
        - `per_user`: The maximum number of connections of each user.
        - `keep`: The number of steps that the log keeps, for history and for clients that
          reconnect.

        Raises `BadInput` (bad_name, room_exists, bad_schema, value_too_large, bad_value).
        """
        return await self._transport.run(
            api.CREATE,
            body=api.CreateRoom(
                id=id,
                meta=as_dict("meta", meta) or {},
                schemas=as_struct("schemas", schemas, api.Schemas) or api.Schemas(),
                capacity=capacity,
                per_user=per_user,
                keep=keep,
            ),
        )

    async def list(
        self,
        *,
        prefix: str = "",
        meta: Mapping[str, Any] | None = None,
        after: str = "",
        limit: int = 100,
    ) -> api.RoomPage:
        """List rooms.

        - `prefix`: The beginning of the ids.
        - `meta`: Metadata that the rooms have, as a JSON object.
        - `after`: The member `next` of the last page.
        - `limit`: The maximum number of entries in the response.

        Raises `BadInput` (bad_name, not_json, wrong_type, duplicate_member, too_deep).
        """
        return await self._transport.run(
            api.LIST,
            query=api.RoomsQuery(
                prefix=prefix,
                meta=as_json("meta", as_dict("meta", meta) or {}),
                after=after,
                limit=limit,
            ),
        )

    async def iterate(
        self,
        *,
        prefix: str = "",
        meta: Mapping[str, Any] | None = None,
        after: str = "",
        limit: int = 100,
    ) -> AsyncIterator[api.ListedRoom]:
        """Iterate over the entries of all pages of `list`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.list(prefix=prefix, meta=meta, after=after, limit=limit)
            for one in page.rooms:
                yield one
            if page.next is None:
                return
            after = page.next

    async def get(self, id: str) -> api.Room:
        """Show a room.

        - `id`: The id of the room.

        Raises `NoSuchRoom`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.GET, id)

    async def update(
        self,
        id: str,
        *,
        meta: Mapping[str, Any] | None = None,
        schemas: api.Schemas | Mapping[str, Any] | None = None,
        capacity: int | None = None,
        per_user: int | None = None,
        keep: int | None = None,
    ) -> api.Room:
        """Change some settings of a room.

        - `id`: The id of the room.
        - `meta`: Metadata, to search rooms by.
        - `schemas`: They apply to later changes only.
        - `capacity`: The maximum number of users in the room.
        - `per_user`: The maximum number of connections of each user.
        - `keep`: The number of steps that the log keeps.

        Raises `NoSuchRoom`, `BadInput` (bad_name, bad_schema, value_too_large, bad_value).
        """
        return await self._transport.run(
            api.UPDATE,
            id,
            body=api.UpdateRoom(
                meta=as_dict("meta", meta),
                schemas=as_struct("schemas", schemas, api.Schemas),
                capacity=capacity,
                per_user=per_user,
                keep=keep,
            ),
        )

    async def delete(self, id: str) -> api.DeletedRoom:
        """Delete a room.

        - `id`: The id of the room.

        Raises `NoSuchRoom`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.DELETE, id)

    async def members(self, id: str) -> builtins.list[api.RoomMember]:
        """List the members of a room.

        - `id`: The id of the room.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name).
        """
        return (await self._transport.run(api.MEMBERS, id)).members

    async def snapshot(self, id: str, *, at: int | UnsetType = UNSET) -> api.RoomSnapshot:
        """Show the state of a room, current or past.

        - `id`: The id of the room.
        - `at`: The sequence number; default: the current one.

        Raises `NoSuchRoom`, `HistoryGone`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.SNAPSHOT, id, query=api.SnapshotQuery(at=at))

    async def history(
        self,
        id: str,
        *,
        since: int | UnsetType = UNSET,
        digest: str | UnsetType = UNSET,
        limit: int = 100,
    ) -> api.RoomHistory:
        """List the steps of a room.

        - `id`: The id of the room.
        - `since`: List the steps after this sequence number; default: all.
        - `digest`: The digest of the step `since`. If it is of another history, the request fails
          with `history_gone`.
        - `limit`: The maximum number of entries in the response.

        Raises `NoSuchRoom`, `HistoryGone`, `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.HISTORY, id, query=api.HistoryQuery(since=since, digest=digest, limit=limit)
        )

    async def iterate_history(
        self,
        id: str,
        *,
        since: int | UnsetType = UNSET,
        digest: str | UnsetType = UNSET,
        limit: int = 100,
    ) -> AsyncIterator[api.RoomEntry]:
        """Iterate over the entries of all pages of `history`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.history(id, since=since, digest=digest, limit=limit)
            for one in page.entries:
                yield one
            if page.next is None:
                return
            since = page.next

    async def apply(
        self,
        id: str,
        ops: Sequence[RoomOperation | Mapping[str, Any]],
        *,
        client: str = "",
        n: int = 1,
        create: bool = False,
    ) -> api.AppliedStep:
        """Apply operations to a room.

        - `id`: The id of the room.
        - `ops`: Operations, as in {"op": "map.set", "map": "m", "key": "k", "value": 1}.
        - `client`: The name of a client that numbers its steps, or a new id for each step. A
          repeated step of a client is applied once.
        - `n`: The number of the step. It increases with each step of the client.
        - `create`: Whether to create the room if it does not exist.

        Raises `NoSuchRoom`, `Unavailable`, `TooLarge`, `BadInput` (bad_name, bad_shape,
        room_too_large, value_too_large, not_expected, not_countable, bad_value).
        """
        return await self._transport.run(
            api.APPLY,
            id,
            body=api.ApplyStep(ops=as_list("ops", ops), client=client, n=n, create=create),
        )

    async def broadcast(self, id: str, event: str, *, value: Any = None, to: str = "") -> int:
        """Send an event to the members of a room.

        The event is not stored. A repeated request sends it again.

        - `id`: The id of the room.
        - `event`: The name of the event.
        - `value`: The value of the event.
        - `to`: The id of one member; empty: all members.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name, no_such_member, value_too_large,
        bad_value).
        """
        return (
            await self._transport.run(
                api.BROADCAST, id, body=api.Broadcast(event=event, value=value, to=to)
            )
        ).members

    async def get_map(self, id: str, name: str) -> dict[str, Any]:
        """Show a map.

        - `id`: The id of the room.
        - `name`: The name of the map.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name, not_found).
        """
        return (await self._transport.run(api.GET_MAP, id, name)).values

    async def put_map(
        self, id: str, name: str, *, schema: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Create a map, or set its schema.

        - `id`: The id of the room.
        - `name`: The name of the map.
        - `schema`: None: the current one stays. To change it takes the scope `room`.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name, bad_shape, room_too_large,
        value_too_large, not_expected, not_countable, bad_value, bad_schema).
        """
        return (
            await self._transport.run(
                api.PUT_MAP, id, name, body=api.ValueSchema(schema=as_dict("schema", schema))
            )
        ).values

    async def delete_map(self, id: str, name: str) -> bool:
        """Delete a map.

        - `id`: The id of the room.
        - `name`: The name of the map.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name, bad_shape, room_too_large,
        value_too_large, not_expected, not_countable, bad_value).
        """
        return (await self._transport.run(api.DELETE_MAP, id, name)).dropped

    async def get_list(self, id: str, name: str) -> builtins.list[api.Item]:
        """Show a list.

        - `id`: The id of the room.
        - `name`: The name of the list.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name, not_found).
        """
        return (await self._transport.run(api.GET_LIST, id, name)).items

    async def put_list(
        self, id: str, name: str, *, schema: Mapping[str, Any] | None = None
    ) -> builtins.list[api.Item]:
        """Create a list, or set its schema.

        - `id`: The id of the room.
        - `name`: The name of the list.
        - `schema`: None: the current one stays. To change it takes the scope `room`.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name, bad_shape, room_too_large,
        value_too_large, not_expected, not_countable, bad_value, bad_schema).
        """
        return (
            await self._transport.run(
                api.PUT_LIST, id, name, body=api.ValueSchema(schema=as_dict("schema", schema))
            )
        ).items

    async def delete_list(self, id: str, name: str) -> bool:
        """Delete a list.

        - `id`: The id of the room.
        - `name`: The name of the list.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name, bad_shape, room_too_large,
        value_too_large, not_expected, not_countable, bad_value).
        """
        return (await self._transport.run(api.DELETE_LIST, id, name)).dropped

    async def get_presence(self, id: str, name: str) -> dict[str, Any]:
        """Show a presence.

        - `id`: The id of the room.
        - `name`: The name of the presence.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name).
        """
        return (await self._transport.run(api.GET_PRESENCE, id, name)).values

    async def put_presence(
        self, id: str, name: str, *, schema: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Set the schema of a presence.

        - `id`: The id of the room.
        - `name`: The name of the presence.
        - `schema`: None: the current one stays. To change it takes the scope `room`.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name, bad_schema).
        """
        return (
            await self._transport.run(
                api.PUT_PRESENCE, id, name, body=api.ValueSchema(schema=as_dict("schema", schema))
            )
        ).values

    async def delete_presence(self, id: str, name: str) -> bool:
        """Delete the entries of a presence.

        - `id`: The id of the room.
        - `name`: The name of the presence.

        Raises `NoSuchRoom`, `Unavailable`, `BadInput` (bad_name).
        """
        return (await self._transport.run(api.DELETE_PRESENCE, id, name)).dropped
