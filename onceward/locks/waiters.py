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
"""The entry for those who do not fit into a commit, and the look at the first of them."""
# As many as fit into a value, however long they are.
_REST_NAMES: Final = 1_000


def grant_writes(names: int) -> int:
    """How many writes granting one who waits takes at the most: for each name its head, the
    place and the hold; the request, its lease, and its entries in due."""
    return 3 * names + 4


class Waiters:
    """The heads of the names, with those who hold them and those who wait."""

    def __init__(self, ids: Ids, slots: int) -> None:
        self._ids = ids
        self._slots = slots

    async def until_ms(self, tx: Transaction, request: Request) -> int:
        """When the lease of a request ends, or its place in line."""
        renewed = await tx.get(renewed_key(request.id), Renewed)
        if renewed is not None and renewed.state == request.state:
            return renewed.until_ms
        return request.until_ms

    async def head(self, tx: Transaction, name: str) -> Head:
        """The head of a name that is in use."""
        key = head_key(name, self._slots)
        head = await tx.get(key, Head)
        if head is None:
            raise OncewardError(f"the lock {name!r} is in use, but {key} is gone", code="damaged")
        return head

    def grant(self, tx: Transaction, request: Request, heads: dict[str, Head]) -> None:
        """Let a request hold all its names."""
        request.state, request.places = HELD, {}
        request.until_ms = tx.now_ms + request.lease_ms
        # After a failover or a restore, larger than all tokens whose grants were lost.
        floor = tx.incarnation.since_ms * limits.LOCK_TOKENS_PER_MS
        for name, head in heads.items():
            head.token = max(head.token, floor) + 1
            head.held += 1
            self._use(tx, name, head)
            stand = Stand(request.id, request.owner, tx.now_ms, head.token)
            tx.add(hold_key(name, head.token, self._slots), stand)
            request.tokens[name] = head.token
        tx.put(request_key(request.id), request)
        tx.put(lease_entry(request, request.until_ms), LOCK_DUE)

    def stand(self, tx: Transaction, request: Request, heads: dict[str, Head]) -> None:
        """Let a request stand last in the lines of all its names."""
        request.until_ms = tx.now_ms + request.lease_ms
        for name, head in heads.items():
            stand = Stand(request.id, request.owner, tx.now_ms, head.next)
            tx.add(wait_key(name, head.next, self._slots), stand)
            request.places[name] = head.next
            head.next += 1
            head.waiting += 1
            self._use(tx, name, head)
        tx.put(request_key(request.id), request)
        tx.put(lease_entry(request, request.until_ms), LOCK_DUE)

    async def leave(self, tx: Transaction, request: Request) -> dict[str, Head]:
        """Give up the places of a request; returns the heads, to be written."""
        heads: dict[str, Head] = {}
        for name, place in request.places.items():
            heads[name] = await self.head(tx, name)
            heads[name].waiting -= 1
            tx.delete(wait_key(name, place, self._slots))
        # If it was renewed, its entry in due may have moved on; that one finds it gone, or in
        # another state, when its time comes.
        tx.delete(lease_entry(request, request.until_ms))
        return heads

    async def remove(self, tx: Transaction, request: Request) -> dict[str, Head]:
        """End a request; returns the heads of its names."""
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

    async def settle(self, tx: Transaction, due: str, names: Iterable[str], room: int) -> None:
        """Grant whoever can be, now that these names have changed; the rest just after.

        Whoever can be granted is first in the line of one of the names that changed last: so
        these are looked at, and those of the requests granted on the way.
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
        """The first in line, if there is one and room for it.

        Whoever changes a line or its holders writes the head, which is checked.
        """
        head = await tx.get(head_key(name, self._slots), Head)
        if head is None or not head.waiting or not head.open:
            return None
        while (front := await self._front(tx, name)) is not None:
            id_ = front.value.id
            await tx.fetch([request_key(id_), renewed_key(id_)])
            [request] = await tx.get_many([request_key(id_)], Request, skip_damaged=True)
            if request is not None:
                return request
            # It cannot be read: nobody can be granted by it, so the next one in line follows.
            tx.delete(front.key)
            head.waiting -= 1
            self._use(tx, name, head)
        return None

    async def _front(self, tx: Transaction, name: str) -> Row[Stand] | None:
        partition, start, end = stands(name, "wait", self._slots)
        rows = await tx.scan(partition, Stand, start=start, end=end, limit=1, skip_damaged=True)
        return rows[0] if rows else None

    async def _is_blocked(self, tx: Transaction, request: Request, first_of: str) -> bool:
        """Whether the first of one line has to wait for another of its names.

        The head that says so is checked by this commit. If it were not, two who each free one
        of its names at the same time could each leave it to the other.
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
        """Whether the place in line of a request is over, and nobody has noticed yet."""
        # Looked at without a check at first: to grant it must not conflict with its renewals,
        # which may come faster than commits get through.
        seen = tx.seen.get(renewed_key(request.id))
        renewed = None if seen is None else decode(seen.value, Renewed, seen.key)
        if max(request.until_ms, renewed.until_ms if renewed else 0) > tx.now_ms:
            return False
        return await self.until_ms(tx, request) <= tx.now_ms


def opened(heads: Mapping[str, Head]) -> list[str]:
    """Where there is room, and somebody waits."""
    return [name for name, head in heads.items() if head.waiting and head.open]


def lease_entry(request: Request, until_ms: int) -> Key:
    # With the state, so that what is left over from waiting does not end a hold.
    sort = f"{keys.number(until_ms)}#{request.id}#{request.state}#{LOCK_DUE}"
    return due_partition(slot_of(request.id)), sort
