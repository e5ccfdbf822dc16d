"""State transitions of rooms, as functions of a transaction.

All members of the room receive the changes after the commit. Several calls in one transaction are
several steps; `change` makes one step of several operations.
"""

import builtins
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

import msgspec

from onceward import keys, limits
from onceward.api import room_changes as op
from onceward.api.room_changes import RoomOperation
from onceward.api.rooms import Item, Schemas
from onceward.errors import BadInput, Conflict, HistoryGone, NoSuchRoom, OncewardError
from onceward.ids import Ids
from onceward.json_values import decode
from onceward.keys import Key
from onceward.rooms.log import (
    add_records,
    damaged,
    entries_of,
    load,
    newest,
    snapshot,
    write,
)
from onceward.rooms.names import admit_name, admit_number, admit_step, admit_text
from onceward.rooms.records import (
    PURGE_RECORDS,
    ROOM_DUE,
    ROOMS,
    Head,
    Info,
    Listed,
    admit_info,
    head_key,
    info_key,
    listed_key,
    log_partition,
    snapshot_partition,
)
from onceward.rooms.room import Entry, Room, Taken, replayed
from onceward.rooms.schemas import Shapes
from onceward.rooms.state import State, same
from onceward.schedule import due_partition
from onceward.store.transaction import Transaction
from onceward.store.user_records import joins

T = TypeVar("T")

_LISTED_MAX = 10_000
_read_ops = msgspec.json.Decoder(list[RoomOperation]).decode
_write_ops = msgspec.json.Encoder().encode


class Edit(TypedDict, total=False):
    """The options of functions that change a room, as keyword arguments."""

    by: str
    """The user who makes the change."""
    create: bool
    """Whether to create the room if it does not exist."""


class Found(NamedTuple):
    """A room in a list."""

    id: str
    listed: Listed


class Rooms:
    """The rooms of one database."""

    def __init__(self, ids: Ids, slots: int) -> None:
        self._ids = ids
        self._slots = slots
        self._kept: OrderedDict[str, Room] = OrderedDict()

    # Whole rooms.

    @joins
    async def create(
        self,
        tx: Transaction,
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
        """Create a room and return its id and settings; without an id it gets a new one.

        The creator `by` is a member immediately, or with `reserve=False` when it joins. Raises
        `BadInput`, with the code `room_exists` if the id is in use.
        """
        id_ = id_ or self._ids.new()
        admit_text(by, "a user's name", limits.ROOM_USER_BYTES_MAX, empty=True)
        info = Info(self._ids.new(), tx.now_ms, by, meta or {}, schemas or Schemas())
        info.capacity, info.per_user, info.keep = capacity, per_user, keep
        info.reserved = reserve and by != ""
        admit_info(info)
        Shapes(info.schemas)
        if await tx.get(info_key(id_), Info) is not None:
            raise BadInput(
                f"the room {id_!r} exists already; choose another id, or join it",
                code="room_exists",
                id=id_,
            )
        if await tx.get(head_key(id_), Head) is not None:
            raise damaged(id_, "it has a head but no settings")
        self._put_info(tx, id_, info)
        tx.put(head_key(id_), Head(info.epoch))
        return id_, info

    @joins
    async def info(self, tx: Transaction, id_: str, known: Info | None = None) -> Info:
        """The settings of a room; returns `known` itself if it is unchanged. Raises
        `NoSuchRoom`.
        """
        info = await tx.get(info_key(id_), Info, cached=True)
        if info is None:
            if await tx.get(head_key(id_), Head) is not None:
                raise damaged(id_, "it has a head but no settings")
            raise NoSuchRoom(f"room {id_!r} not found; check its id, or create it", id=id_)
        return known if known is not None and known == info else info

    @joins
    async def head(self, tx: Transaction, id_: str) -> Head:
        """The head of a room: its epoch and sequence number. Raises `NoSuchRoom`."""
        head = await tx.get(head_key(id_), Head, cached=True)
        if head is None:
            if await tx.get(info_key(id_), Info) is not None:
                raise damaged(id_, "it has settings but no head")
            raise NoSuchRoom(f"room {id_!r} not found; check its id, or create it", id=id_)
        return head

    @joins
    async def configure(
        self,
        tx: Transaction,
        id_: str,
        *,
        meta: dict[str, Any] | None = None,
        schemas: Schemas | None = None,
        capacity: int | None = None,
        per_user: int | None = None,
        keep: int | None = None,
    ) -> Info:
        """Change the given settings. Schemas apply only to later changes. Raises `BadInput`,
        `NoSuchRoom`.
        """
        info = msgspec.structs.replace(await self.info(tx, id_))
        info.meta = info.meta if meta is None else meta
        info.schemas = info.schemas if schemas is None else schemas
        info.capacity = info.capacity if capacity is None else capacity
        info.per_user = info.per_user if per_user is None else per_user
        info.keep = info.keep if keep is None else keep
        admit_info(info)
        Shapes(info.schemas)
        await self._change_info(tx, id_, info)
        return info

    @joins
    async def creator_joined(self, tx: Transaction, id_: str, epoch: str) -> None:
        """End the reservation of the creator, which then counts as a member only while connected.

        Idempotent. Raises `NoSuchRoom`.
        """
        info = await self.info(tx, id_)
        if info.reserved and info.epoch == epoch:
            await self._change_info(tx, id_, msgspec.structs.replace(info, reserved=False))

    @joins
    async def remove(self, tx: Transaction, id_: str) -> Info:
        """Delete a room and its content, with immediate effect for all members.

        A due entry removes its records in the background. Raises `NoSuchRoom`.
        """
        info = await self.info(tx, id_)
        head = await self.head(tx, id_)
        for key in (listed_key(id_), info_key(id_), head_key(id_)):
            tx.delete(key)
        if head.seq:
            tx.put(self._purge_entry(tx.now_ms, id_, info.epoch), ROOM_DUE)
        return info

    @joins
    async def find(
        self,
        tx: Transaction,
        *,
        prefix: str = "",
        meta: Mapping[str, Any] | None = None,
        after: str = "",
        limit: int = limits.LIST_MAX,
    ) -> tuple[builtins.list[Found], str]:
        """Up to `limit` rooms whose ids begin with `prefix` and whose metadata have these members.

        They are in the order of ids and start after the id `after`. Returns the rooms and the next
        `after`, or an empty string at the end.
        """
        if type(limit) is not int or not 0 < limit <= limits.LIST_MAX:
            raise BadInput(f"a page must have 1 to {limits.LIST_MAX} rooms, not {limit}")
        if not isinstance(meta, Mapping | None):
            raise BadInput(
                f"`meta` must be a mapping, not {type(meta).__name__}", code="wrong_type"
            )
        start = keys.join(prefix) if prefix else ""
        end = start + "\U0010ffff" if prefix else None
        if after:
            start = max(start, keys.after(keys.join(after)))
        found: list[Found] = []
        scanned = _LISTED_MAX if meta else limit + 1
        rows = await tx.scan(ROOMS, Listed, start=start, end=end, limit=scanned, skip_damaged=True)
        for row in rows:
            id_, listed = keys.split(row.key[1])[0], row.value
            if all(
                name in listed.meta and same(listed.meta[name], value)
                for name, value in (meta or {}).items()
            ):
                found.append(Found(id_, listed))
                if len(found) == limit:
                    more = row is not rows[-1] or len(rows) == scanned
                    return found, id_ if more else ""
        return found, keys.split(rows[-1].key[1])[0] if len(rows) == scanned else ""

    # Steps.

    @joins
    async def change(
        self,
        tx: Transaction,
        id_: str,
        ops: Sequence[RoomOperation],
        *,
        by: str = "",
        create: bool = False,
        client: str = "",
        n: int = 0,
    ) -> Entry | None:
        """Apply operations as one step of a room; all members receive it.

        With `create`, the room is created if it does not exist. With `client` and `n` it is
        idempotent: returns None if that step was applied before. Raises `NoSuchRoom`, and
        `BadInput` if the room rejects the step.
        """
        admit_text(by, "a user's name", limits.ROOM_USER_BYTES_MAX, empty=True)
        # Connections send these types; a Python caller may pass any.
        admit_text(client, "a client's name", limits.ROOM_CLIENT_CHARS_MAX, empty=True)
        admit_number(n, least=0)
        if not isinstance(ops, list | tuple):
            raise BadInput(
                f"a step must be a list of operations, not {type(ops).__name__}", code="wrong_type"
            )
        # Decoded from JSON as from the log, so that no object is shared with the caller.
        try:
            ops = _read_ops(admit_step(ops))
        except msgspec.ValidationError as error:
            raise BadInput(
                f"invalid step: {error}; see the operations of rooms", code="wrong_type"
            ) from error
        if create:
            await self._ensure(tx, id_, by)
        info, head = await self.info(tx, id_), await self.head(tx, id_)
        room, own = await self._current(tx, id_, info, head)
        with _ahead(room, own):
            step = room.take(ops, by=by, client=client, n=n, at_ms=tx.now_ms, text=_write_ops(ops))
            if step is None:
                return None
            pieces = snapshot(tx, room, head, [step.entry])
            room.give_back(step)
        await write(tx, id_, info, head, [step.entry], pieces)
        return step.entry

    @joins
    async def peek(self, tx: Transaction, id_: str, look: Callable[[State], T]) -> T:
        """Call `look` with the state of a room, including the changes of this transaction.

        The function must not change the state. Raises `NoSuchRoom`.
        """
        if not callable(look):
            raise BadInput(f"`look` must be a function, not {type(look).__name__}")
        info, head = await self.info(tx, id_), await self.head(tx, id_)
        room, own = await self._current(tx, id_, info, head)
        with _ahead(room, own):
            return look(room.state)

    @joins
    async def append(
        self,
        tx: Transaction,
        id_: str,
        room: Room,
        entries: Sequence[Entry],
        *,
        read: tuple[Info, Head] | None = None,
    ) -> Head:
        """Write the last steps of a room in memory to the log.

        `read` are the settings and the head if this transaction has read them already. Raises
        `NoSuchRoom` if the room was deleted, even if there is a new one with its name. Raises
        `Conflict` if the log has other new entries: roll the steps back, follow the log, and apply
        them again.
        """
        info, head = read or (await self.info(tx, id_), await self.head(tx, id_))
        if head.epoch != room.epoch:
            raise NoSuchRoom(
                f"the room {id_!r} was deleted and created again; read it again", id=id_
            )
        if not entries or head.seq != entries[0].seq - 1 or room.seq != entries[-1].seq:
            raise Conflict(f"the room {id_!r} has new steps up to {head.seq}; read it again")
        if read is None and not entries[0].follows(head.digest):
            raise Conflict(f"the room {id_!r} has another history up to {head.seq}; read it again")
        pieces = snapshot(tx, room, head, entries)
        return await write(tx, id_, info, head, entries, pieces)

    def append_few(
        self, tx: Transaction, id_: str, head: Head, entries: Sequence[Entry]
    ) -> tuple[Head, bytes]:
        """Append without reads, for rooms where `log.writes_little` is true.

        `head` must be the head that this transaction has read. Returns the new head, also as JSON.
        """
        total = add_records(tx, id_, head.epoch, entries)
        head = Head(
            head.epoch,
            entries[-1].seq,
            head.snapshots,
            head.log_bytes + total,
            head.swept,
            head.settings,
            entries[-1].digest,
        )
        return head, tx.put(head_key(id_), head)

    @joins
    async def log(
        self,
        tx: Transaction,
        id_: str,
        since: int,
        limit: int = limits.ROOM_KEEP_STEPS_MAX,
        *,
        digest: str | None = None,
    ) -> builtins.list[Entry]:
        """Up to `limit` steps after a sequence number.

        Raises `NoSuchRoom`. Raises `HistoryGone` if the log does not contain `since`, or has
        another digest there than the given one, as after a restore.
        """
        if type(since) is not int or type(limit) is not int:
            raise BadInput(
                f"`since` and `limit` must be integers, not {since!r} and {limit!r}"[:200],
                code="wrong_type",
            )
        head = await self.head(tx, id_)
        if not head.floor <= since <= head.seq:
            raise HistoryGone(
                f"the log of the room {id_!r} has {head.floor + 1} to {head.seq}; take a snapshot",
                floor=head.floor,
                seq=head.seq,
            )
        if digest is not None and digest != await self._digest_at(tx, id_, head, since):
            raise HistoryGone(
                f"the log of the room {id_!r} has another digest at {since}: the database was "
                "restored; start again from the state of the room",
                floor=head.floor,
                seq=head.seq,
            )
        return await entries_of(tx, id_, head.epoch, since, min(head.seq, since + limit))

    async def _digest_at(self, tx: Transaction, id_: str, head: Head, seq: int) -> str:
        """The digest of the log at a sequence number that it still contains."""
        if seq == head.floor:
            return head.snapshots[0][2]
        [entry] = await entries_of(tx, id_, head.epoch, seq - 1, seq)
        return entry.digest

    @joins
    async def newest(
        self, tx: Transaction, id_: str, steps_max: int, bytes_max: int
    ) -> builtins.list[Entry]:
        """The last steps in order, limited by approximate numbers of steps and bytes. Raises
        `NoSuchRoom`.
        """
        return await newest(tx, id_, await self.head(tx, id_), steps_max, bytes_max)

    @joins
    async def load(self, tx: Transaction, id_: str, at: int | None = None) -> Room:
        """Load a room, now or at a sequence number. The caller may change it.

        Raises `NoSuchRoom`, `HistoryGone`.
        """
        if at is not None and type(at) is not int:
            raise BadInput(
                f"a sequence number must be an integer, not {at!r:.100}", code="wrong_type"
            )
        info, head = await self.info(tx, id_), await self.head(tx, id_)
        seq = head.seq if at is None else at
        if not head.floor <= seq <= head.seq:
            raise HistoryGone(
                f"the room {id_!r} can be loaded at {head.floor} to {head.seq}; use one of these",
                floor=head.floor,
                seq=head.seq,
            )
        return await load(tx, id_, info, head, seq)

    # Deleted rooms.

    async def purge(self, tx: Transaction, entry: Key) -> None:
        """Remove some records of a deleted room, and schedule another run if there are more."""
        _, id_, epoch, _ = keys.split(entry[1])
        tx.delete(entry)
        more = False
        for partition in (log_partition(id_, epoch), snapshot_partition(id_, epoch)):
            rows = await tx.scan(partition, msgspec.Raw, limit=PURGE_RECORDS)
            for row in rows:
                tx.delete(row.key)
            more = more or len(rows) == PURGE_RECORDS
        if more:
            tx.put(self._purge_entry(tx.now_ms + 1, id_, epoch), ROOM_DUE)

    def _purge_entry(self, due_ms: int, id_: str, epoch: str) -> Key:
        slot = sum(epoch.encode()) % self._slots
        return due_partition(slot), keys.join(due_ms, id_, epoch, ROOM_DUE)

    # Internals.

    async def _ensure(self, tx: Transaction, id_: str, by: str) -> None:
        """Create a room unless it exists."""
        if await tx.get(info_key(id_), Info, cached=True) is None:
            await self.create(tx, id_, by=by, reserve=False)

    async def _change_info(self, tx: Transaction, id_: str, info: Info) -> None:
        self._put_info(tx, id_, info)
        head = await self.head(tx, id_)
        tx.put(head_key(id_), msgspec.structs.replace(head, settings=head.settings + 1))

    def _put_info(self, tx: Transaction, id_: str, info: Info) -> None:
        tx.put(info_key(id_), info)
        tx.put(listed_key(id_), Listed(info.epoch, info.created_ms, info.by, info.meta))

    async def _current(
        self, tx: Transaction, id_: str, info: Info, head: Head
    ) -> tuple[Room, builtins.list[Entry]]:
        """The room as committed, and the entries that this transaction has added.

        The room is current until the next `await`.
        """
        seen = tx.seen.get(head_key(id_))
        base: Head | None = None
        if seen is not None:
            base = decode(seen.value, Head, seen.key)
        if base is None or base.epoch != head.epoch:  # it was created in this transaction
            shapes = Shapes(info.schemas)
            made = Room(head.epoch, shapes=shapes)
            return made, await entries_of(tx, id_, head.epoch, 0, head.seq)
        own: list[Entry] = []
        if head.seq > base.seq:
            own = await entries_of(tx, id_, head.epoch, base.seq, head.seq)
        kept = self._kept.get(id_)
        if kept is None or kept.epoch != base.epoch or kept.seq < base.floor:
            kept = await load(tx, id_, info, base, base.seq)
            self._keep(id_, kept)
        elif kept.seq < base.seq:
            entries = await entries_of(tx, id_, base.epoch, kept.seq, base.seq)
            with suppress(OncewardError):  # if they are of another history
                replayed(kept, entries)  # another task may have been faster
        if kept.seq != base.seq or kept.digest != base.digest:
            # Another task was faster, or the database was restored.
            self._kept.pop(id_, None)
            raise Conflict(
                f"the room {id_!r} has changed from {kept.seq} to {base.seq}; read it again"
            )
        self._kept.move_to_end(id_)
        if kept.shapes.schemas != info.schemas:
            kept.shapes = Shapes(info.schemas)
        kept.forget(base.floor, tx.now_ms)
        return kept, own

    def _keep(self, id_: str, room: Room) -> None:
        """Cache a room, and drop the least recently used ones above the limits."""
        self._kept[id_] = room
        self._kept.move_to_end(id_)
        total = sum(kept.state.bytes for kept in self._kept.values())
        while len(self._kept) > 1 and (
            len(self._kept) > limits.ROOMS_KEPT_MAX or total > limits.ROOMS_KEPT_BYTES_MAX
        ):
            _, gone = self._kept.popitem(last=False)
            total -= gone.state.bytes

    # Maps. Each raises `NoSuchRoom` without `create=True`, and `BadInput` if the room rejects the
    # step.

    @joins
    async def map(self, tx: Transaction, room: str, name: str) -> dict[str, Any] | None:
        """All keys and values of a map, or None."""
        admit_name(name, "a map's name")

        def look(state: State) -> dict[str, Any] | None:
            found = state.maps.get(name)
            return None if found is None else {key: cell.value for key, cell in found.items()}

        return _copy(await self.peek(tx, room, look))

    @joins
    async def map_get(self, tx: Transaction, room: str, name: str, key: str) -> Any:
        """The value of a key, or None."""
        admit_name(name, "a map's name")
        admit_text(key, "a map's key", limits.ROOM_KEY_BYTES_MAX, empty=True)
        cell = await self.peek(tx, room, lambda state: state.get("map", name, key))
        return None if cell is None else _copy(cell.value)

    @joins
    async def map_set(
        self, tx: Transaction, room: str, name: str, key: str, value: Any, **how: Unpack[Edit]
    ) -> None:
        """Set the value of a key."""
        await self.change(tx, room, [op.MapSet(name, key, value)], **how)

    @joins
    async def map_delete(
        self, tx: Transaction, room: str, name: str, key: str, **how: Unpack[Edit]
    ) -> None:
        """Delete a key if it exists."""
        await self.change(tx, room, [op.MapDelete(name, key)], **how)

    @joins
    async def map_add(
        self,
        tx: Transaction,
        room: str,
        name: str,
        key: str,
        amount: float = 1,
        **how: Unpack[Edit],
    ) -> Any:
        """Add to a number and return the sum. A missing key counts as 0."""
        await self.change(tx, room, [op.MapAdd(name, key, amount)], **how)
        return await self.map_get(tx, room, name, key)

    @joins
    async def map_compare(
        self,
        tx: Transaction,
        room: str,
        name: str,
        key: str,
        value: Any,
        *,
        expect: Any = msgspec.UNSET,
        **how: Unpack[Edit],
    ) -> bool:
        """Set the value of a key if its value is `expect`, or if it is missing and `expect` is not
        given.

        Returns whether the value was set.
        """
        try:
            compare = op.MapCompare(name, key, value, expect)
            await self.change(tx, room, [compare], **how)
        except BadInput as error:
            if error.code != "not_expected":
                raise
            return False
        return True

    @joins
    async def map_make(self, tx: Transaction, room: str, name: str, **how: Unpack[Edit]) -> None:
        """Create an empty map unless it exists."""
        await self.change(tx, room, [op.MapMake(name)], **how)

    @joins
    async def map_drop(self, tx: Transaction, room: str, name: str, **how: Unpack[Edit]) -> None:
        """Delete a map with its content."""
        await self.change(tx, room, [op.MapDrop(name)], **how)

    # Lists.

    @joins
    async def list(self, tx: Transaction, room: str, name: str) -> builtins.list[Item] | None:
        """All items of a list, or None."""
        admit_name(name, "a list's name")

        def look(state: State) -> Any:
            found = state.lists.get(name)
            return None if found is None else [(id_, c.value) for id_, c in found.in_order()]

        found = _copy(await self.peek(tx, room, look))
        return None if found is None else [Item(*item) for item in found]

    @joins
    async def list_push(
        self, tx: Transaction, room: str, name: str, value: Any, **how: Unpack[Edit]
    ) -> str:
        """Append an item and return its id."""
        id_ = self._ids.new()
        await self.change(tx, room, [op.ListInsert(name, id_, value)], **how)
        return id_

    @joins
    async def list_insert(
        self, tx: Transaction, room: str, name: str, index: int, value: Any, **how: Unpack[Edit]
    ) -> str:
        """Insert an item before the given index and return its id."""
        admit_name(name, "a list's name")
        if how.get("create"):
            await self._ensure(tx, room, how.get("by", ""))
        after = await self.peek(tx, room, lambda state: _before(state, name, index))
        return await self.list_insert_after(tx, room, name, after, value, **how)

    @joins
    async def list_insert_after(
        self, tx: Transaction, room: str, name: str, after: str, value: Any, **how: Unpack[Edit]
    ) -> str:
        """Insert an item after another one and return its id.

        An empty `after` means the start. If the other item was deleted, the new one is appended.
        """
        id_ = self._ids.new()
        await self.change(tx, room, [op.ListInsert(name, id_, value, after)], **how)
        return id_

    @joins
    async def list_set(
        self, tx: Transaction, room: str, name: str, item: str, value: Any, **how: Unpack[Edit]
    ) -> None:
        """Set the value of an item if it exists."""
        await self.change(tx, room, [op.ListSet(name, item, value)], **how)

    @joins
    async def list_move(
        self, tx: Transaction, room: str, name: str, item: str, after: str, **how: Unpack[Edit]
    ) -> None:
        """Move an item after another one; an empty `after` means the start."""
        await self.change(tx, room, [op.ListMove(name, item, after)], **how)

    @joins
    async def list_delete(
        self, tx: Transaction, room: str, name: str, item: str, **how: Unpack[Edit]
    ) -> None:
        """Delete an item if it exists."""
        await self.change(tx, room, [op.ListDelete(name, item)], **how)

    @joins
    async def list_make(self, tx: Transaction, room: str, name: str, **how: Unpack[Edit]) -> None:
        """Create an empty list unless it exists."""
        await self.change(tx, room, [op.ListMake(name)], **how)

    @joins
    async def list_drop(self, tx: Transaction, room: str, name: str, **how: Unpack[Edit]) -> None:
        """Delete a list with its content."""
        await self.change(tx, room, [op.ListDrop(name)], **how)


@contextmanager
def _ahead(room: Room, own: Sequence[Entry]) -> Iterator[None]:
    """Apply entries to a shared room for the duration of the block, which must not `await`."""
    taken: list[Taken] = []
    try:
        for entry in own:
            before, digest = room.clients.get((entry.by, entry.client)), room.digest
            taken.append(Taken(entry, room.follow(entry), before, digest))
        yield
    finally:
        for one in reversed(taken):
            room.give_back(one)


def _before(state: State, name: str, index: int) -> str:
    """The id of the item before an index, or an empty string for the first; raises `BadInput`."""
    items = state.lists.get(name)
    count = 0 if items is None else len(items.order)
    if type(index) is not int or not 0 <= index <= count:
        raise BadInput(f"an index in {name!r} must be 0 to {count}, not {index!r}")
    return "" if items is None or index == 0 else items.ids[items.order[index - 1]]


def _copy(value: T) -> T:
    """A copy that the caller may change without changing the room."""
    return msgspec.json.decode(msgspec.json.encode(value)) if value is not None else value
