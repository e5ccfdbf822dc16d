"""Synchronous classes. Written by `make generate` from `onceward.client.operations.rooms`."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from onceward.api import rooms as api
from onceward.api.room_changes import RoomOperation
from onceward.client.operations.rooms import RoomsOperations as AsyncRoomsOperations
from onceward.sync.bridge import Facade


class RoomsOperations(Facade[AsyncRoomsOperations]):
    """Operations on rooms: settings, contents, members and history."""

    def create(
        self,
        *,
        id: str = "",
        meta: Mapping[str, Any] | None = None,
        schemas: api.Schemas | Mapping[str, Any] | None = None,
        capacity: int = 10000,
        per_user: int = 100,
        keep: int = 1000,
    ) -> api.Room:
        """Create a room."""
        return self._portal.run(
            self._target.create(
                id=id, meta=meta, schemas=schemas, capacity=capacity, per_user=per_user, keep=keep
            )
        )

    def list(
        self,
        *,
        prefix: str = "",
        meta: Mapping[str, Any] | None = None,
        after: str = "",
        limit: int = 100,
    ) -> api.RoomPage:
        """List rooms."""
        return self._portal.run(
            self._target.list(prefix=prefix, meta=meta, after=after, limit=limit)
        )

    def iterate(
        self,
        *,
        prefix: str = "",
        meta: Mapping[str, Any] | None = None,
        after: str = "",
        limit: int = 100,
    ) -> Iterator[api.ListedRoom]:
        """Iterate over the entries of all pages of `list`."""
        return self._portal.iterate(
            self._target.iterate(prefix=prefix, meta=meta, after=after, limit=limit)
        )

    def get(self, id: str) -> api.Room:
        """Show a room."""
        return self._portal.run(self._target.get(id))

    def update(
        self,
        id: str,
        *,
        meta: Mapping[str, Any] | None = None,
        schemas: api.Schemas | Mapping[str, Any] | None = None,
        capacity: int | None = None,
        per_user: int | None = None,
        keep: int | None = None,
    ) -> api.Room:
        """Change some settings of a room."""
        return self._portal.run(
            self._target.update(
                id, meta=meta, schemas=schemas, capacity=capacity, per_user=per_user, keep=keep
            )
        )

    def delete(self, id: str) -> api.DeletedRoom:
        """Delete a room."""
        return self._portal.run(self._target.delete(id))

    def members(self, id: str) -> builtins.list[api.RoomMember]:
        """List the members of a room."""
        return self._portal.run(self._target.members(id))

    def snapshot(self, id: str, *, at: int | UnsetType = UNSET) -> api.RoomSnapshot:
        """Show the state of a room, current or past."""
        return self._portal.run(self._target.snapshot(id, at=at))

    def history(
        self,
        id: str,
        *,
        since: int | UnsetType = UNSET,
        digest: str | UnsetType = UNSET,
        limit: int = 100,
    ) -> api.RoomHistory:
        """List the steps of a room."""
        return self._portal.run(self._target.history(id, since=since, digest=digest, limit=limit))

    def iterate_history(
        self,
        id: str,
        *,
        since: int | UnsetType = UNSET,
        digest: str | UnsetType = UNSET,
        limit: int = 100,
    ) -> Iterator[api.RoomEntry]:
        """Iterate over the entries of all pages of `history`."""
        return self._portal.iterate(
            self._target.iterate_history(id, since=since, digest=digest, limit=limit)
        )

    def apply(
        self,
        id: str,
        ops: Sequence[RoomOperation | Mapping[str, Any]],
        *,
        client: str = "",
        n: int = 1,
        create: bool = False,
    ) -> api.AppliedStep:
        """Apply operations to a room."""
        return self._portal.run(self._target.apply(id, ops, client=client, n=n, create=create))

    def broadcast(self, id: str, event: str, *, value: Any = None, to: str = "") -> int:
        """Send an event to the members of a room."""
        return self._portal.run(self._target.broadcast(id, event, value=value, to=to))

    def get_map(self, id: str, name: str) -> dict[str, Any]:
        """Show a map."""
        return self._portal.run(self._target.get_map(id, name))

    def put_map(
        self, id: str, name: str, *, schema: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Create a map, or set its schema."""
        return self._portal.run(self._target.put_map(id, name, schema=schema))

    def delete_map(self, id: str, name: str) -> bool:
        """Delete a map."""
        return self._portal.run(self._target.delete_map(id, name))

    def get_list(self, id: str, name: str) -> builtins.list[api.Item]:
        """Show a list."""
        return self._portal.run(self._target.get_list(id, name))

    def put_list(
        self, id: str, name: str, *, schema: Mapping[str, Any] | None = None
    ) -> builtins.list[api.Item]:
        """Create a list, or set its schema."""
        return self._portal.run(self._target.put_list(id, name, schema=schema))

    def delete_list(self, id: str, name: str) -> bool:
        """Delete a list."""
        return self._portal.run(self._target.delete_list(id, name))

    def get_presence(self, id: str, name: str) -> dict[str, Any]:
        """Show a presence."""
        return self._portal.run(self._target.get_presence(id, name))

    def put_presence(
        self, id: str, name: str, *, schema: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Set the schema of a presence."""
        return self._portal.run(self._target.put_presence(id, name, schema=schema))

    def delete_presence(self, id: str, name: str) -> bool:
        """Delete the entries of a presence."""
        return self._portal.run(self._target.delete_presence(id, name))
