"""Ready jobs of one queue in the slots of this node, cached in memory.

After a look into a slot the node's own commits tell what has changed since, so that it need
not look again before something may have changed unseen. A shelf may have what is gone
already: who claims it finds that out.
"""

from bisect import bisect_left, insort

from onceward import limits
from onceward.errors import NoSuchJob, OncewardError
from onceward.keys import Key
from onceward.schedule import job_key, ready_partition
from onceward.store.transaction import Transaction


class ReadyEntries:
    """The sort keys of ready entries, in order, by slot; only of slots where all are known."""

    def __init__(self, queue: str) -> None:
        self.count = 0
        """How many entries it has."""
        self._queue = queue
        self._known: dict[int, list[str]] = {}
        self._damaged: set[Key] = set()
        self.unread: dict[Key, OncewardError] = {}
        """Entries that were set aside and are to be put into quarantine."""

    def put(self, slot: int, sort: str) -> None:
        """An own commit has made an entry."""
        known = self._known.get(slot)
        if known is None:
            return
        if len(known) >= limits.SHELF_ENTRIES_MAX:
            self.forget(slot)
        elif not _has(known, sort):
            insort(known, sort)
            self.count += 1

    def take(self, slot: int, sort: str) -> None:
        """An own commit has removed an entry, or it was found to be gone."""
        known = self._known.get(slot)
        if known and _has(known, sort):
            del known[bisect_left(known, sort)]
            self.count -= 1

    def forget(self, slot: int) -> None:
        """Something may have changed unseen."""
        self.count -= len(self._known.pop(slot, ()))

    def knows(self, slot: int) -> bool:
        """Whether it has all entries of a slot."""
        return slot in self._known

    def set_aside(self, entry: Key, error: OncewardError) -> None:
        """Leave an entry alone from now on: it is damaged, or its job is."""
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
                    self.set_aside(entry, error)  # it names no job
        return found, len(sorts) == most

    async def _look(self, tx: Transaction, slot: int, partition: str, most: int) -> list[str]:
        # From now on own commits are noted, since the look may miss them.
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
