"""State transitions of locks, as functions of a transaction."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from onceward import keys, limits
from onceward.errors import BadInput, LockLost, TooManyWaiters
from onceward.ids import Ids
from onceward.keys import Key
from onceward.locks.records import (
    LOCK_DUE,
    UNUSED_DUE,
    WAITING,
    Head,
    Renewed,
    Request,
    Stand,
    Status,
    admit_names,
    admit_owner,
    admit_token,
    fence_key,
    gate_key,
    head_key,
    hold_key,
    name_slot,
    partition_of,
    renewed_key,
    request_key,
    slot_of,
    stands,
)
from onceward.locks.waiters import REST_WRITES, Waiters, lease_entry, opened
from onceward.schedule import due_partition
from onceward.store.transaction import Transaction

# How many writes, including checked reads, a release in a caller's transaction may use to grant
# waiters; further ones are granted in the next commit.
GRANT_ROOM: Final = 32
# To check for use: the entry is removed or moved; the head and the slot's fence.
UNUSED_WRITES: Final = 4
_FULL_ROOM: Final = limits.COMMIT_WRITES_MAX - REST_WRITES


def release_writes(names: int, room: int = GRANT_ROOM) -> int:
    """The maximum number of writes of a release.

    These are the head and hold of each name, the request, its due entry, the granted waiters, and
    the entry for the other waiters.
    """
    return 2 * names + 2 + room + REST_WRITES


class LockTable:
    """The locks of one database. `slots` was chosen when the database was created."""

    def __init__(
        self,
        ids: Ids,
        slots: int = limits.SLOTS_DEFAULT,
        *,
        unused_ms: int = limits.LOCK_UNUSED_MS,
    ) -> None:
        self.slots = slots
        self.lines = Waiters(ids, slots)
        self._ids = ids
        self._unused_ms = unused_ms

    def new_id(self, names: Iterable[str]) -> str:
        """A new id for a request for these names; it contains the slot where its lease ends."""
        return f"{self._ids.new()}{name_slot(min(names), self.slots):03x}"

    async def acquire(
        self,
        tx: Transaction,
        capacities: Mapping[str, int],
        *,
        lease_ms: int = limits.LOCK_LEASE_MS,
        owner: str = "",
        id_: str | None = None,
    ) -> Request | None:
        """Acquire all these names, or none; return None if one of them is held or has waiters.

        `capacities` is the number of concurrent holders per name: {"printer": 1}. With an `id_`
        from `new_id` the call is idempotent: it returns the existing request, held or waiting.
        Raises `BadInput`, for example if a name is in use with another capacity.
        """
        return await self._ask(tx, capacities, lease_ms, owner, id_, wait=False)

    async def join(
        self,
        tx: Transaction,
        capacities: Mapping[str, int],
        *,
        lease_ms: int = limits.LOCK_LEASE_MS,
        owner: str = "",
        id_: str | None = None,
    ) -> Request:
        """Acquire all these names, or join the queues of all of them; see `Request.held`.

        Like `acquire`, and raises `TooManyWaiters`. A waiting request must be renewed like a lease.
        """
        request = await self._ask(tx, capacities, lease_ms, owner, id_, wait=True)
        assert request is not None
        return request

    async def _ask(
        self,
        tx: Transaction,
        capacities: Mapping[str, int],
        lease_ms: int,
        owner: str,
        id_: str | None,
        *,
        wait: bool,
    ) -> Request | None:
        admit_names(capacities)
        admit_owner(owner)
        _admit_lease(lease_ms)
        await tx.fetch_unknown(self._read_to_ask(capacities, id_))
        if id_ is not None and (known := await self._known(tx, id_, capacities)) is not None:
            return known
        heads, new = await self._heads_for(tx, capacities)
        grant = all(head.free for head in heads.values())
        if not grant and not wait:
            return None
        if not grant:
            _refuse_full(heads)
        for name in new:
            self._look_for_use(tx, name, tx.now_ms + self._unused_ms)
        id_ = id_ or self.new_id(capacities)
        request = Request(id_, owner, WAITING, lease_ms, tx.now_ms, 0, {}, {})
        if grant:
            self.lines.grant(tx, request, heads)
        else:
            self.lines.stand(tx, request, heads)
        return request

    def _read_to_ask(self, capacities: Mapping[str, int], id_: str | None) -> list[Key]:
        heads = [head_key(name, self.slots) for name in capacities]
        return [*heads, *([] if id_ is None else [request_key(id_)])]

    async def _known(
        self, tx: Transaction, id_: str, capacities: Mapping[str, int]
    ) -> Request | None:
        if slot_of(id_) != name_slot(min(capacities), self.slots):
            raise BadInput(f"the request id {id_} belongs to other names; use a new id")
        known = await self.get(tx, id_)
        if known is not None and set(known.names) != set(capacities):
            raise BadInput(
                f"the request {id_} is for other names: {', '.join(known.names)}; use a new id"
            )
        return known

    async def _heads_for(
        self, tx: Transaction, capacities: Mapping[str, int]
    ) -> tuple[dict[str, Head], list[str]]:
        """The heads of these names; new ones are not written yet."""
        known = {name: await tx.get(head_key(name, self.slots), Head) for name in capacities}
        new = [name for name, head in known.items() if head is None]
        if new:
            await tx.fetch(list({fence_key(name_slot(name, self.slots)): None for name in new}))
        heads: dict[str, Head] = {}
        for name, capacity in capacities.items():
            head = known[name]
            if head is None:
                fence = await tx.get(fence_key(name_slot(name, self.slots)), int)
                head = Head(capacity, fence or 0)
            elif head.capacity != capacity and (head.held or head.waiting):
                raise BadInput(
                    f"the lock {name!r} is in use with a capacity of {head.capacity}, not "
                    f"{capacity}; all its users must give the same capacity",
                    code="lock_capacity",
                    name=name,
                    capacity=head.capacity,
                )
            head.capacity = capacity
            heads[name] = head
        return heads, new

    async def get(self, tx: Transaction, id_: str) -> Request | None:
        """The request, or None if it has ended: released, cancelled or expired."""
        return await tx.get(request_key(id_), Request)

    async def renew(self, tx: Transaction, id_: str, lease_ms: int | None = None) -> int:
        """Renew a lease or a waiting request from now on; return its end in ms.

        It is never shortened. It conflicts only with the grant and the end of the request. Raises
        `LockLost`.
        """
        await tx.fetch(self.read_to_renew(id_))
        request = await self._live(tx, id_)
        if lease_ms is None:
            lease_ms = request.lease_ms
        _admit_lease(lease_ms)
        now_until_ms = await self.lines.until_ms(tx, request)
        until_ms = max(now_until_ms, tx.now_ms + lease_ms)
        if until_ms > now_until_ms:
            renewed = Renewed(request.state, until_ms)
            tx.put(renewed_key(id_), renewed, expires_at_ms=until_ms)
        return until_ms

    def read_to_renew(self, id_: str) -> list[Key]:
        return [request_key(id_), renewed_key(id_)]

    async def release(self, tx: Transaction, id_: str, *, room: int = GRANT_ROOM) -> None:
        """Release the names of a request, or leave their queues, and grant the next waiters.

        Uses at most `release_writes` of the commit; `room` is the part for grants. Raises
        `LockLost` if the request has ended already.
        """
        request = await self._live(tx, id_)
        heads = await self.lines.remove(tx, request)
        await self.lines.settle(tx, due_partition(slot_of(id_)), opened(heads), room)

    def read_to_release(self, id_: str, names: Iterable[str]) -> list[Key]:
        return [request_key(id_), *[head_key(name, self.slots) for name in names]]

    async def withdraw(self, tx: Transaction, id_: str) -> Request | None:
        """Leave the queues. Returns None if the request has ended.

        If it was granted in the meantime it stays held, and the request is returned.
        """
        request = await self.get(tx, id_)
        if request is None or request.held:
            return request
        await self.release(tx, id_)
        return None

    async def guard(self, tx: Transaction, name: str, token: int) -> None:
        """Make this transaction commit only while the token holds the lock.

        Raises `LockLost` if it was released or expired; another request may hold it then. It never
        conflicts with renewals or with other requests.
        """
        keys.admit_name(name, "a lock's name", limits.LOCK_NAME_BYTES_MAX)
        admit_token(token)
        if await tx.get(hold_key(name, token, self.slots)) is None:
            raise LockLost(
                f"token {token} does not hold the lock {name!r}; acquire it again",
                name=name,
                token=token,
            )

    async def gate(self, tx: Transaction, resource: str, token: int) -> None:
        """Admit a token to an external resource unless a newer token was admitted.

        For resources that cannot be written in the same commit, and for locks of capacity 1. The
        highest token is stored permanently under the name of the resource. Raises `LockLost` for an
        older token.
        """
        keys.admit_name(resource, "a resource's name", limits.LOCK_NAME_BYTES_MAX)
        admit_token(token)
        key = gate_key(resource)
        highest = await tx.get(key, int) or 0
        if token < highest:
            raise LockLost(
                f"{resource!r} was used with the newer token {highest}; token {token} is stale; "
                "acquire the lock again",
                resource=resource,
                token=token,
            )
        if token > highest:
            tx.put(key, token)

    async def status(
        self, tx: Transaction, name: str, *, limit: int = limits.SCAN_RECORDS_DEFAULT
    ) -> Status | None:
        """The holders and waiters of a lock; None if it does not exist or was not used recently."""
        keys.admit_name(name, "a lock's name", limits.LOCK_NAME_BYTES_MAX)
        head = await tx.get(head_key(name, self.slots), Head)
        if head is None:
            return None
        found: list[list[Stand]] = []
        for what in ("hold", "wait"):
            partition, start, end = stands(name, what, self.slots)
            rows = await tx.scan(
                partition, Stand, start=start, end=end, limit=limit, skip_damaged=True
            )
            found.append([row.value for row in rows])
        return Status(name, head.capacity, head.token, head.held, head.waiting, *found)

    async def find(
        self, tx: Transaction, *, prefix: str = "", after: str = "", most: int
    ) -> list[tuple[str, Head]]:
        """Recently used locks whose names begin with `prefix`, in the order of names, after
        `after`.

        Raises `BadInput`.
        """
        if type(most) is not int or not 0 < most <= limits.LIST_MAX:
            raise BadInput(f"a page must have 1 to {limits.LIST_MAX} locks, not {most!r}")
        start = keys.join(prefix) if prefix else ""
        end = start + "\U0010ffff" if prefix else None
        if after:
            start = max(start, keys.below(after)[1])
        found: list[tuple[str, Head]] = []
        for slot in range(self.slots):
            found += await self._heads_in(tx, partition_of(slot), start, end, most)
        return sorted(found, key=lambda one: one[0])[:most]

    async def _heads_in(
        self, tx: Transaction, partition: str, start: str, end: str | None, most: int
    ) -> list[tuple[str, Head]]:
        found: list[tuple[str, Head]] = []
        more = True
        while more and len(found) < most:
            # Records of holders and waiters are between the heads.
            rows = await tx.scan(partition, start=start, end=end, skip_damaged=True)
            for row in rows:
                words = keys.split(row.key[1])
                if words[1:] == ("head",):
                    found.append((words[0], msgspec.convert(row.value, Head)))
            more = len(rows) == limits.SCAN_RECORDS_DEFAULT
            start = keys.after(rows[-1].key[1]) if rows else start
        return found

    async def expire(self, tx: Transaction, entry: Key) -> None:
        """End a request whose lease has expired, or move the entry to the new end of the lease."""
        _, id_, state, _ = entry[1].split("#")
        request = await self.get(tx, id_)
        tx.delete(entry)
        if request is None or request.state != state:
            return  # an obsolete entry
        until_ms = await self.lines.until_ms(tx, request)
        if until_ms > tx.now_ms:
            tx.put(lease_entry(request, until_ms), LOCK_DUE)
            return
        heads = await self.lines.remove(tx, request)
        room = _FULL_ROOM - release_writes(len(request.names), 0)
        await self.lines.settle(tx, entry[0], opened(heads), room)

    def read_to_expire(self, entry: Key) -> list[Key]:
        return self.read_to_renew(entry[1].split("#")[1])

    async def grant_rest(self, tx: Transaction, entry: Key) -> None:
        """Grant waiters that did not fit into the commit that freed their names."""
        names = await tx.get(entry, list[str])
        tx.delete(entry)
        await self.lines.settle(tx, entry[0], names or [], _FULL_ROOM - 1)

    def read_to_grant(self, entry: Key) -> list[Key]:
        return [entry]

    async def forget(self, tx: Transaction, entry: Key) -> None:
        """Remove the head of a name that was unused for long, or check again later."""
        name = keys.split(entry[1])[1]
        key, fence = self.read_to_forget(entry)
        head = await tx.get(key, Head)
        tx.delete(entry)
        if head is None:
            return
        used_ms = tx.now_ms if head.held or head.waiting else head.used_ms
        if used_ms + self._unused_ms > tx.now_ms:
            self._look_for_use(tx, name, used_ms + self._unused_ms)
            return
        tx.delete(key)
        if head.token > (await tx.get(fence, int) or 0):
            tx.put(fence, head.token)

    def read_to_forget(self, entry: Key) -> list[Key]:
        name = keys.split(entry[1])[1]
        return [head_key(name, self.slots), fence_key(name_slot(name, self.slots))]

    async def _live(self, tx: Transaction, id_: str) -> Request:
        request = await self.get(tx, id_)
        if request is None:
            raise LockLost(
                f"the request {id_} has ended (released or expired); acquire the locks again",
                id=id_,
            )
        return request

    def _look_for_use(self, tx: Transaction, name: str, at_ms: int) -> None:
        slot = name_slot(name, self.slots)
        tx.put((due_partition(slot), keys.join(at_ms, name, UNUSED_DUE)), UNUSED_DUE)


def _refuse_full(heads: Mapping[str, Head]) -> None:
    for name, head in heads.items():
        if head.waiting >= limits.LOCK_WAITERS_MAX:
            raise TooManyWaiters(
                f"the lock {name!r} has {head.waiting} waiters, the maximum; try again later",
                name=name,
            )


def _admit_lease(lease_ms: int) -> None:
    if type(lease_ms) is not int or not 0 < lease_ms <= limits.LEASE_MS_MAX:
        raise BadInput(f"a lease must have 1 to {limits.LEASE_MS_MAX} ms, not {lease_ms!r}")
