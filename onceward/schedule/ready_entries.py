"""Ready jobs of one queue in the slots of this node, cached in memory.

After a scan of a slot, local commits keep its entries up to date. The slot is scanned again only
after a change that this node did not see. An entry may be gone already; the claim detects that.
"""

from bisect import bisect_left, insort

from onceward import limits
from onceward.errors import NoSuchJob, OncewardError
from onceward.keys import Key
from onceward.schedule import job_key, ready_partition
from onceward.store.transaction import Transaction


class ReadyEntries:
    """The sort keys of ready entries, in order, for slots whose entries are completely known."""

    def __init__(self, queue: str) -> None:
        self.count = 0
        """The number of cached entries."""
        self._queue = queue
        self._known: dict[int, list[str]] = {}
        self._damaged: set[Key] = set()
        self.unread: dict[Key, OncewardError] = {}
        """Damaged entries that must be quarantined."""

    def put(self, slot: int, sort: str) -> None:
        """A local commit has added an entry."""
        known = self._known.get(slot)
        if known is None:
            return
        if len(known) >= limits.SHELF_ENTRIES_MAX:
            self.forget(slot)
        elif not _has(known, sort):
            insort(known, sort)
            self.count += 1

    def take(self, slot: int, sort: str) -> None:
        """A local commit has removed an entry, or a claim found it missing."""
        known = self._known.get(slot)
        if known and _has(known, sort):
            del known[bisect_left(known, sort)]
            self.count -= 1

    def forget(self, slot: int) -> None:
        """Drop the entries of a slot that may have changed unseen."""
        self.count -= len(self._known.pop(slot, ()))

    def knows(self, slot: int) -> bool:
        """Whether all entries of a slot are cached."""
        return slot in self._known

    def set_aside(self, entry: Key, error: OncewardError) -> None:
        """Skip an entry from now on: it, or the record of its job, is damaged."""
        if entry not in self._damaged:
            self._damaged.add(entry)
            self.unread[entry] = error

    async def first(self, tx: Transaction, slot: int, most: int) -> tuple[dict[Key, Key], bool]:
        """The first entries of a slot with the keys of their jobs, and whether there may be
        more."""
        most = min(most + len(self._damaged), limits.SCAN_RECORDS_MAX)
        partition = ready_partition(slot, self._queue)
        known = self._known.get(slot)
        if known is None:
            sorts = await self._look(tx, slot, partition, most)
        else:
            sorts = known[:most]
        found: dict[Key, Key] = {}
        for sort in sorts:
            entry = partition, sort
            if entry not in self._damaged:
                try:
                    found[entry] = job_key(sort.rpartition("#")[2])
                except NoSuchJob as error:
                    self.set_aside(entry, error)  # the entry contains no job id
        return found, len(sorts) == most

    async def _look(self, tx: Transaction, slot: int, partition: str, most: int) -> list[str]:
        # Local commits are noted from now on, since the scan may miss them.
        self.forget(slot)
        known = self._known[slot] = []
        try:
            sorts = await tx.sorts(partition, most)
        except BaseException:
            self.forget(slot)
            raise
        if self._known.get(slot) is known:
            if len(sorts) == most:
                self.forget(slot)  # there may be more
            else:
                self.count -= len(known)
                self._known[slot] = sorted({*known, *sorts})
                self.count += len(self._known[slot])
        return sorts


def _has(known: list[str], sort: str) -> bool:
    index = bisect_left(known, sort)
    return index < len(known) and known[index] == sort
