"""Waitlist positions, found without reading the whole list.

Every entry of a lane has an ascending number. Its position is its number minus the count of removed
numbers before it. A block has one bit for each of 128 numbers, a group has a count for each of 128
blocks, and the head of the table has the sum of each group. So a removal writes two records and the
head, and a position reads two records, for any length. Blocks and groups without remaining entries
are deleted.
"""

from typing import Final

from onceward import keys, limits
from onceward.api.tables import Waiter
from onceward.errors import BadInput, OncewardError
from onceward.store.transaction import Row, Transaction
from onceward.tables.records import (
    Front,
    Lane,
    Wait,
    block_key,
    group_key,
    lane_partition,
    wait_key,
)

BLOCK: Final = limits.SEATS_BLOCK
GROUP: Final = BLOCK * BLOCK


class Waitlist:
    """The lanes of one table in one transaction. Every change of a lane writes the head."""

    def __init__(self, tx: Transaction, id_: str, epoch: str) -> None:
        self._tx = tx
        self._at = id_, epoch

    def stand(self, key: str, lane: Lane, wait: Wait) -> int:
        """Add an entry to the back of a lane; returns its number."""
        number = lane.next
        lane.next += 1
        lane.waiting += 1
        if lane.front is None:
            lane.front = Front(number, wait.order, wait.since_ms)
        self._tx.add(wait_key(*self._at, key, number), wait)
        return number

    async def get(self, key: str, number: int) -> Wait:
        """Return the entry with this number."""
        wait = await self._tx.get(wait_key(*self._at, key, number), Wait)
        if wait is None:
            raise OncewardError(
                f"number {number} of lane {key!r} of table {self._at[0]!r} was removed. Check "
                "the database, or restore a backup",
                code="damaged",
            )
        return wait

    async def first(self, key: str, lane: Lane, most: int, start: int = 0) -> list[Row[Wait]]:
        """Return the first entries of a lane, starting at a number. Only the head is checked for
        conflicts."""
        if lane.front is None:
            return []
        start_key = wait_key(*self._at, key, max(start, lane.front.number))[1]
        _, end = keys.below(key, "wait")
        partition = lane_partition(*self._at)
        return await self._tx.scan(partition, Wait, start=start_key, end=end, limit=most)

    async def remove(self, key: str, lane: Lane, number: int) -> None:
        """Remove an entry."""
        self._tx.delete(wait_key(*self._at, key, number))
        lane.waiting -= 1
        if not lane.waiting:
            self._forget(key, lane, number)
            return
        await self._count(key, lane, number)
        if lane.front is not None and lane.front.number == number:
            [row] = await self.first(key, lane, 1, number + 1)
            lane.front = Front(number_of(row), row.value.order, row.value.since_ms)

    async def position(self, key: str, lane: Lane, number: int) -> int:
        """Return the position of an entry, from 1."""
        if lane.front is not None and lane.front.number == number:
            return 1
        group, block = number // GROUP, number // BLOCK
        gone = lane.base * GROUP + sum(lane.gone[: max(group - lane.base, 0)])
        if any(lane.gone[group - lane.base : group - lane.base + 1]):
            places = [group_key(*self._at, key, group), block_key(*self._at, key, block)]
            await self._tx.fetch(places)
            counts = await self._tx.get(places[0], list[int]) or []
            gone += sum(counts[: block - group * BLOCK])
            bits = int(await self._tx.get(places[1], str) or "0", 16)
            gone += (bits & ((1 << number % BLOCK) - 1)).bit_count()
        return number - gone + 1

    async def _count(self, key: str, lane: Lane, number: int) -> None:
        tx = self._tx
        group, block = number // GROUP, number // BLOCK
        groups, blocks = group_key(*self._at, key, group), block_key(*self._at, key, block)
        await tx.fetch([groups, blocks])
        bits = int(await tx.get(blocks, str) or "0", 16) | 1 << number % BLOCK
        if bits == (1 << BLOCK) - 1:
            tx.delete(blocks)
        else:
            tx.put(blocks, f"{bits:x}")
        counts = await tx.get(groups, list[int]) or []
        within = block - group * BLOCK
        counts += [0] * (within + 1 - len(counts))
        counts[within] += 1
        lane.gone = lane.gone + [0] * (group - lane.base + 1 - len(lane.gone))
        lane.gone[group - lane.base] += 1
        if lane.gone[group - lane.base] == GROUP:
            tx.delete(groups)
        else:
            tx.put(groups, counts)
        while lane.gone and lane.gone[0] == GROUP:
            del lane.gone[0]
            lane.base += 1

    def _forget(self, key: str, lane: Lane, number: int) -> None:
        """Reset an empty lane: it continues with a new group."""
        last = lane.next - 1
        if any(lane.gone):
            # All other blocks and groups were already deleted when they became empty.
            for block in {number // BLOCK, last // BLOCK}:
                self._tx.delete(block_key(*self._at, key, block))
            for group in {number // GROUP, last // GROUP}:
                self._tx.delete(group_key(*self._at, key, group))
        lane.base = last // GROUP + 1
        lane.next = lane.base * GROUP
        lane.gone = []
        lane.front = None


def number_of(row: Row[Wait]) -> int:
    """The number of a place in a lane."""
    return int(keys.split(row.key[1])[-1])


def waiter_key(waiter: Waiter) -> str:
    """The cursor of a list after this entry of the waitlist."""
    return keys.join(waiter.lane, waiter.number)


def read_waiter_key(key: str) -> tuple[str, int]:
    """The lane and number where the next page starts; an empty lane without a cursor."""
    if key == "":
        return "", 0
    try:
        lane, number = keys.split(key)
        return lane, int(number) + 1
    except (TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"{key!r:.100} is no key of the waitlist; use the cursor of the last page",
            code="bad_value",
        ) from error
