"""What a slot has to do next: the near future of its due entries, kept in memory.

A cache of the front of the partition: up to `bound` it is complete as of the last scan,
and local commits keep it so. It is refreshed by a scan from the front whenever something
may have landed in it unseen.
"""

from heapq import heappop, heappush

from onceward.engine.base import Record


class Agenda:
    """The due entries of one slot, in the order of their times."""

    def __init__(self) -> None:
        self.stale = True
        """Whether it must be refreshed before it can be relied upon."""
        self._heap: list[str] = []
        self._known: set[str] = set()
        self._bound: str | None = ""

    def refresh(self, front: list[Record], limit: int) -> None:
        """Take over the front of the partition, as just scanned with that limit."""
        self._heap = [record.key[1] for record in front]  # in order, so a heap already
        self._known = set(self._heap)
        self._bound = self._heap[-1] if len(front) >= limit else None
        self.stale = False

    def add(self, sort: str) -> bool:
        """Note an entry that was just committed; says whether it is now the first."""
        if sort in self._known or (self._bound is not None and sort > self._bound):
            return False
        self._known.add(sort)
        heappush(self._heap, sort)
        return self._heap[0] == sort

    def take(self, now_ms: int, most: int) -> list[str]:
        """Remove and return what is due, in order."""
        taken: list[str] = []
        while self._heap and len(taken) < most and due_ms_of(self._heap[0]) <= now_ms:
            sort = heappop(self._heap)
            self._known.discard(sort)
            taken.append(sort)
        if not self._heap and self._bound is not None:
            self.stale = True
        return taken

    @property
    def next_ms(self) -> int | None:
        """When something is due next; None if nothing is."""
        return due_ms_of(self._heap[0]) if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)


def due_ms_of(sort: str) -> int:
    return int(sort[:16])
