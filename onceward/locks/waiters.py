"""The queue of a lock: waiters join, leave, and are granted the lock."""

from collections.abc import Iterable, Mapping
from typing import Final

from onceward import keys, limits
from onceward.errors import OncewardError
from onceward.ids import Ids
from onceward.json_values import decode
from onceward.keys import Key
from onceward.locks.records import (
    GRANT_DUE,
    HELD,
    LOCK_DUE,
    Head,
    Renewed,
    Request,
    Stand,
    head_key,
    hold_key,
    renewed_key,
    request_key,
    slot_of,
    stands,
    wait_key,
)
from onceward.schedule import due_partition
from onceward.store.transaction import Row, Transaction

REST_WRITES: Final = 2
"""The entry for waiters that do not fit into a commit, and the check of the first one."""
# Fits into a value with names of any length.
_REST_NAMES: Final = 1_000


def grant_writes(names: int) -> int:
    """The maximum number of writes to grant a waiter.

    These are the head, waiter and hold of each name, the request, its lease, and its due entries.
    """
    return 3 * names + 4


class Waiters:
    """The heads of the names, with their holders and waiters."""

    def __init__(self, ids: Ids, slots: int) -> None:
        self._ids = ids
        self._slots = slots

    async def until_ms(self, tx: Transaction, request: Request) -> int:
        """The end of the lease of a request, held or waiting."""
        renewed = await tx.get(renewed_key(request.id), Renewed)
        if renewed is not None and renewed.state == request.state:
            return renewed.until_ms
        return request.until_ms

    async def head(self, tx: Transaction, name: str) -> Head:
        """The head of a name that is in use."""
        key = head_key(name, self._slots)
        head = await tx.get(key, Head)
        if head is None:
            raise OncewardError(
                f"the lock {name!r} is in use, but its record {key} is missing. Check the "
                "database, or restore a backup",
                code="damaged",
            )
        return head

    def grant(self, tx: Transaction, request: Request, heads: dict[str, Head]) -> None:
        """Grant all names of a request."""
        request.state, request.places = HELD, {}
        request.until_ms = tx.now_ms + request.lease_ms
        # After a failover or a restore, greater than all tokens whose grants were lost.
        floor = tx.incarnation.since_ms * limits.LOCK_TOKENS_PER_MS
        for name, head in heads.items():
            head.token = max(head.token, floor) + 1
            head.held += 1
            self._use(tx, name, head)
            stand = Stand(request.id, request.owner, tx.now_ms, head.token)
            tx.add(hold_key(name, head.token, self._slots), stand)
            request.tokens[name] = head.token
        self._write(tx, request)

    def stand(self, tx: Transaction, request: Request, heads: dict[str, Head]) -> None:
        """Add a request to the end of the queues of all its names."""
        request.until_ms = tx.now_ms + request.lease_ms
        for name, head in heads.items():
            stand = Stand(request.id, request.owner, tx.now_ms, head.next)
            tx.add(wait_key(name, head.next, self._slots), stand)
            request.places[name] = head.next
            head.next += 1
            head.waiting += 1
            self._use(tx, name, head)
        self._write(tx, request)

    def _write(self, tx: Transaction, request: Request) -> None:
        tx.put(request_key(request.id), request)
        tx.keep(request_key(request.id))
        tx.put(lease_entry(request, request.until_ms), LOCK_DUE)

    async def leave(self, tx: Transaction, request: Request) -> dict[str, Head]:
        """Remove a request from its queues; return the heads, which the caller writes."""
        heads: dict[str, Head] = {}
        for name, place in request.places.items():
            heads[name] = await self.head(tx, name)
            heads[name].waiting -= 1
            tx.delete(wait_key(name, place, self._slots))
        # A renewal may have moved the due entry. The moved entry finds the request gone or in
        # another state.
        tx.delete(lease_entry(request, request.until_ms))
        return heads

    async def remove(self, tx: Transaction, request: Request) -> dict[str, Head]:
        """End a request; return the heads of its names."""
        await tx.fetch([head_key(name, self._slots) for name in request.names])
        heads = await self.leave(tx, request)
        for name, token in request.tokens.items():
            heads[name] = await self.head(tx, name)
            heads[name].held -= 1
            tx.delete(hold_key(name, token, self._slots))
        for name, head in heads.items():
            self._use(tx, name, head)
        tx.delete(request_key(request.id))
        return heads

    def _use(self, tx: Transaction, name: str, head: Head) -> None:
        head.used_ms = tx.now_ms
        tx.put(head_key(name, self._slots), head)
        tx.keep(head_key(name, self._slots))

    async def settle(self, tx: Transaction, due: str, names: Iterable[str], room: int) -> None:
        """Grant waiters after a change of these names; further ones in another commit.

        A waiter can only become grantable if it is first in the queue of a changed name, so these
        names are checked, and those of requests granted on the way.
        """
        left = dict.fromkeys(names)
        while left and room > 0:
            name = next(iter(left))
            request = await self._first(tx, name)
            room -= 1
            if request is not None and grant_writes(len(request.places)) > room:
                break
            del left[name]
            if request is None:
                continue
            if await self._is_blocked(tx, request, name):
                room -= len(request.places) + 1
                continue
            room -= grant_writes(len(request.places))
            if await self._is_gone(tx, request):
                heads = await self.remove(tx, request)
            else:
                heads = await self.leave(tx, request)
                self.grant(tx, request, heads)
            left.update(dict.fromkeys(opened(heads)))
        rest = list(left)
        for start in range(0, len(rest), _REST_NAMES):
            entry = keys.join(tx.now_ms, self._ids.new(), GRANT_DUE)
            tx.add((due, entry), rest[start : start + _REST_NAMES])

    async def _first(self, tx: Transaction, name: str) -> Request | None:
        """The first waiter, if the name has capacity for it.

        Every change of holders or waiters writes the head, which the commit checks.
        """
        head = await tx.get(head_key(name, self._slots), Head)
        if head is None or not head.waiting or not head.open:
            return None
        while (front := await self._front(tx, name)) is not None:
            id_ = front.value.id
            await tx.fetch_unknown([request_key(id_)])
            [request] = await tx.get_many([request_key(id_)], Request, skip_damaged=True)
            if request is not None:
                return request
            # An unreadable request cannot be granted, so the next waiter follows.
            tx.delete(front.key)
            head.waiting -= 1
            self._use(tx, name, head)
        return None

    async def _front(self, tx: Transaction, name: str) -> Row[Stand] | None:
        partition, start, end = stands(name, "wait", self._slots)
        rows = await tx.scan(partition, Stand, start=start, end=end, limit=1, skip_damaged=True)
        return rows[0] if rows else None

    async def _is_blocked(self, tx: Transaction, request: Request, first_of: str) -> bool:
        """Whether the first waiter of one name must wait for another of its names.

        This commit checks the head that decides it. Otherwise two transactions that each free one
        of its names at the same time could each leave the grant to the other.
        """
        others = {name: place for name, place in request.places.items() if name != first_of}
        await tx.fetch([head_key(name, self._slots) for name in others])
        for name, place in others.items():
            head = await self.head(tx, name)
            front = await self._front(tx, name)
            if not head.open or front is None or front.value.number != place:
                return True
        return False

    async def _is_gone(self, tx: Transaction, request: Request) -> bool:
        """Whether the lease of a waiting request has expired, but its entry was not processed
        yet.
        """
        # First without a check: a grant must not conflict with renewals, which may be more frequent
        # than commits succeed.
        if request.until_ms > tx.now_ms:
            return False
        await tx.fetch([renewed_key(request.id)])
        seen = tx.seen.get(renewed_key(request.id))
        if seen is not None and decode(seen.value, Renewed, seen.key).until_ms > tx.now_ms:
            return False
        return await self.until_ms(tx, request) <= tx.now_ms


def opened(heads: Mapping[str, Head]) -> list[str]:
    """The names with capacity and waiters."""
    return [name for name, head in heads.items() if head.waiting and head.open]


def lease_entry(request: Request, until_ms: int) -> Key:
    # With the state, so that an obsolete entry of a waiting request does not end a hold.
    sort = f"{keys.number(until_ms)}#{request.id}#{request.state}#{LOCK_DUE}"
    return due_partition(slot_of(request.id)), sort
