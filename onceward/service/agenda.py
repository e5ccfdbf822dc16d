"""What a slot has to do next: the near future of its due entries, kept in memory.

A cache of the front of the partition: up to a bound it is complete as of the last scan,
and this node's own commits keep it so. It is filled again by a scan from the front, every
so often and whenever something may have landed in it unseen.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from onceward import limits
from onceward.parts.schedule import due_ms_of


class Agenda:
    """The due entries of one slot, in the order of their times."""

    def __init__(self) -> None:
        self.stale = True
        """Whether it must be filled before it can be relied upon."""
        self._heap: list[str] = []
        self._known: set[str] = set()
        self._bound = ""
        self._cut = False
        self._meanwhile: list[str] | None = None

    def begin(self) -> None:
        """A scan begins: what is added from now on, it may have missed."""
        self.stale = False
        self._meanwhile = []

    def fill(self, sorts: Iterable[str], bound: str, *, cut: bool) -> None:
        """Take over the entries before `bound`, as just scanned; `cut` if more come behind."""
        meanwhile = [sort for sort in self._meanwhile or () if sort < bound]
        self._meanwhile = None
        self._known = {*sorts, *meanwhile}
        self._heap = list(self._known)
        heapify(self._heap)
        self._bound, self._cut = bound, cut

    def clear(self) -> None:
        """Know nothing any more."""
        self.fill((), "", cut=False)
        self.stale = True

    def add(self, sort: str) -> bool:
        """Note an entry that was just committed; says whether it is now the first."""
        if self._meanwhile is not None:
            self._meanwhile.append(sort)
        if sort >= self._bound or sort in self._known:
            return False
        self._known.add(sort)
        heappush(self._heap, sort)
        return self.next == sort

    def remove(self, sort: str) -> None:
        """Note that an entry was just removed."""
        if sort in self._known:
            self._forget(sort)

    def take(self) -> str:
        """Remove and return the first."""
        sort = self.next
        assert sort is not None
        self._forget(sort)
        return sort

    def _forget(self, sort: str) -> None:
        self._known.remove(sort)  # it leaves the heap when its turn comes
        if self._cut and not self._known:
            self.stale = True

    @property
    def next(self) -> str | None:
        """The first entry, if there is one."""
        heap = self._heap
        while heap and heap[0] not in self._known:
            heappop(heap)
        return heap[0] if heap else None

    @property
    def next_ms(self) -> int | None:
        """When the first is due."""
        sort = self.next
        return None if sort is None else due_ms_of(sort)

    def __len__(self) -> int:
        return len(self._known)


class Troubles:
    """Entries that could not be acted on: each is left alone for a while, then tried again."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        """What happened the last time, by sort key."""
        self._rests: dict[str, tuple[int, int]] = {}

    def add(self, sort: str, error: Exception, now_ms: int) -> None:
        """Let an entry rest; longer each time."""
        _, pause_ms = self._rests.get(sort, (0, limits.TROUBLE_PAUSE_MS_MIN // 2))
        pause_ms = min(2 * pause_ms, limits.TROUBLE_PAUSE_MS_MAX)
        self._rests[sort] = (now_ms + pause_ms, pause_ms)
        self.errors[sort] = error

    def rests(self, sort: str, now_ms: int) -> bool:
        """Whether the entry is left alone for now."""
        return sort in self._rests and self._rests[sort][0] > now_ms

    def settle(self, sorts: Iterable[str]) -> None:
        """These were acted on, or are gone."""
        for sort in sorts:
            self._rests.pop(sort, None)
            self.errors.pop(sort, None)

    def __bool__(self) -> bool:
        return bool(self.errors)
