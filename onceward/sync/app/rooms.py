"""Synchronous classes. Written by `make generate` from `onceward.rooms.part`."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import msgspec

from onceward import limits
from onceward.api.room_changes import RoomOperation
from onceward.api.rooms import Item, Schemas
from onceward.rooms.part import Edit, Found
from onceward.rooms.part import Rooms as AsyncRooms
from onceward.rooms.records import Info
from onceward.rooms.room import Entry
from onceward.store.user_records import SyncTransaction
from onceward.sync.app.transaction import Transaction
from onceward.sync.bridge import Facade, target


class Rooms(Facade[AsyncRooms]):
    """The rooms of one database."""

    def create(
        self,
        tx: Transaction | SyncTransaction,
        id_: str = "",
        *,
        by: str = "",
        meta: dict[str, Any] | None = None,
        schemas: Schemas | None = None,
        capacity: int = limits.ROOM_MEMBERS_MAX,
        per_user: int = limits.ROOM_PER_USER,
        keep: int = limits.ROOM_KEEP_STEPS,
        reserve: bool = True,
    ) -> tuple[str, Info]:
        """Create a room and return its id and settings; without an id it gets a new one."""
        return self._portal.run(
            self._target.create(
                target(tx),
                id_,
                by=by,
                meta=meta,
                schemas=schemas,
                capacity=capacity,
                per_user=per_user,
                keep=keep,
                reserve=reserve,
            )
        )

    def info(self, tx: Transaction | SyncTransaction, id_: str, known: Info | None = None) -> Info:
        """The settings of a room; returns `known` itself if it is unchanged. Raises
        `NoSuchRoom`."""
        return self._portal.run(self._target.info(target(tx), id_, known))

    def configure(
        self,
        tx: Transaction | SyncTransaction,
        id_: str,
        *,
        meta: dict[str, Any] | None = None,
        schemas: Schemas | None = None,
        capacity: int | None = None,
        per_user: int | None = None,
        keep: int | None = None,
    ) -> Info:
        """Change the given settings. Schemas apply only to later changes. Raises `BadInput`,
        `NoSuchRoom`."""
        return self._portal.run(
            self._target.configure(
                target(tx),
                id_,
                meta=meta,
                schemas=schemas,
                capacity=capacity,
                per_user=per_user,
                keep=keep,
            )
        )

    def remove(self, tx: Transaction | SyncTransaction, id_: str) -> Info:
        """Delete a room and its content, with immediate effect for all members."""
        return self._portal.run(self._target.remove(target(tx), id_))

    def find(
        self,
        tx: Transaction | SyncTransaction,
        *,
        prefix: str = "",
        meta: Mapping[str, Any] | None = None,
        after: str = "",
        limit: int = limits.LIST_MAX,
    ) -> tuple[builtins.list[Found], str]:
        """Up to `limit` rooms whose ids begin with `prefix` and whose metadata have these
        members."""
        return self._portal.run(
            self._target.find(target(tx), prefix=prefix, meta=meta, after=after, limit=limit)
        )

    def change(
        self,
        tx: Transaction | SyncTransaction,
        id_: str,
        ops: Sequence[RoomOperation],
        *,
        by: str = "",
        create: bool = False,
        client: str = "",
        n: int = 0,
    ) -> Entry | None:
        """Apply operations as one step of a room; all members receive it."""
        return self._portal.run(
            self._target.change(target(tx), id_, ops, by=by, create=create, client=client, n=n)
        )

    def log(
        self,
        tx: Transaction | SyncTransaction,
        id_: str,
        since: int,
        limit: int = limits.ROOM_KEEP_STEPS_MAX,
        *,
        digest: str | None = None,
    ) -> builtins.list[Entry]:
        """Up to `limit` steps after a sequence number."""
        return self._portal.run(self._target.log(target(tx), id_, since, limit, digest=digest))

    def newest(
        self, tx: Transaction | SyncTransaction, id_: str, steps_max: int, bytes_max: int
    ) -> builtins.list[Entry]:
        """The last steps in order, limited by approximate numbers of steps and bytes. Raises
        `NoSuchRoom`."""
        return self._portal.run(self._target.newest(target(tx), id_, steps_max, bytes_max))

    def map(self, tx: Transaction | SyncTransaction, room: str, name: str) -> dict[str, Any] | None:
        """All keys and values of a map, or None."""
        return self._portal.run(self._target.map(target(tx), room, name))

    def map_get(self, tx: Transaction | SyncTransaction, room: str, name: str, key: str) -> Any:
        """The value of a key, or None."""
        return self._portal.run(self._target.map_get(target(tx), room, name, key))

    def map_set(
        self,
        tx: Transaction | SyncTransaction,
        room: str,
        name: str,
        key: str,
        value: Any,
        **how: Unpack[Edit],
    ) -> None:
        """Set the value of a key."""
        return self._portal.run(self._target.map_set(target(tx), room, name, key, value, **how))

    def map_delete(
        self, tx: Transaction | SyncTransaction, room: str, name: str, key: str, **how: Unpack[Edit]
    ) -> None:
        """Delete a key if it exists."""
        return self._portal.run(self._target.map_delete(target(tx), room, name, key, **how))

    def map_add(
        self,
        tx: Transaction | SyncTransaction,
        room: str,
        name: str,
        key: str,
        amount: float = 1,
        **how: Unpack[Edit],
    ) -> Any:
        """Add to a number and return the sum. A missing key counts as 0."""
        return self._portal.run(self._target.map_add(target(tx), room, name, key, amount, **how))

    def map_compare(
        self,
        tx: Transaction | SyncTransaction,
        room: str,
        name: str,
        key: str,
        value: Any,
        *,
        expect: Any = msgspec.UNSET,
        **how: Unpack[Edit],
    ) -> bool:
        """Set the value of a key if its value is `expect`, or if it is missing and `expect` is not
        given."""
        return self._portal.run(
            self._target.map_compare(target(tx), room, name, key, value, expect=expect, **how)
        )

    def map_make(
        self, tx: Transaction | SyncTransaction, room: str, name: str, **how: Unpack[Edit]
    ) -> None:
        """Create an empty map unless it exists."""
        return self._portal.run(self._target.map_make(target(tx), room, name, **how))

    def map_drop(
        self, tx: Transaction | SyncTransaction, room: str, name: str, **how: Unpack[Edit]
    ) -> None:
        """Delete a map with its content."""
        return self._portal.run(self._target.map_drop(target(tx), room, name, **how))

    def list(
        self, tx: Transaction | SyncTransaction, room: str, name: str
    ) -> builtins.list[Item] | None:
        """All items of a list, or None."""
        return self._portal.run(self._target.list(target(tx), room, name))

    def list_push(
        self,
        tx: Transaction | SyncTransaction,
        room: str,
        name: str,
        value: Any,
        **how: Unpack[Edit],
    ) -> str:
        """Append an item and return its id."""
        return self._portal.run(self._target.list_push(target(tx), room, name, value, **how))

    def list_insert(
        self,
        tx: Transaction | SyncTransaction,
        room: str,
        name: str,
        index: int,
        value: Any,
        **how: Unpack[Edit],
    ) -> str:
        """Insert an item before the given index and return its id."""
        return self._portal.run(
            self._target.list_insert(target(tx), room, name, index, value, **how)
        )

    def list_insert_after(
        self,
        tx: Transaction | SyncTransaction,
        room: str,
        name: str,
        after: str,
        value: Any,
        **how: Unpack[Edit],
    ) -> str:
        """Insert an item after another one and return its id."""
        return self._portal.run(
            self._target.list_insert_after(target(tx), room, name, after, value, **how)
        )

    def list_set(
        self,
        tx: Transaction | SyncTransaction,
        room: str,
        name: str,
        item: str,
        value: Any,
        **how: Unpack[Edit],
    ) -> None:
        """Set the value of an item if it exists."""
        return self._portal.run(self._target.list_set(target(tx), room, name, item, value, **how))

    def list_move(
        self,
        tx: Transaction | SyncTransaction,
        room: str,
        name: str,
        item: str,
        after: str,
        **how: Unpack[Edit],
    ) -> None:
        """Move an item after another one; an empty `after` means the start."""
        return self._portal.run(self._target.list_move(target(tx), room, name, item, after, **how))

    def list_delete(
        self,
        tx: Transaction | SyncTransaction,
        room: str,
        name: str,
        item: str,
        **how: Unpack[Edit],
    ) -> None:
        """Delete an item if it exists."""
        return self._portal.run(self._target.list_delete(target(tx), room, name, item, **how))

    def list_make(
        self, tx: Transaction | SyncTransaction, room: str, name: str, **how: Unpack[Edit]
    ) -> None:
        """Create an empty list unless it exists."""
        return self._portal.run(self._target.list_make(target(tx), room, name, **how))

    def list_drop(
        self, tx: Transaction | SyncTransaction, room: str, name: str, **how: Unpack[Edit]
    ) -> None:
        """Delete a list with its content."""
        return self._portal.run(self._target.list_drop(target(tx), room, name, **how))
