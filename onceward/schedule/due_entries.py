"""The next due entries of a slot, cached in memory.

This cache of the front of the partition is complete up to a bound, as of the last scan, and local
commits keep it up to date. It is refilled by a scan from the front at intervals, and when an entry
may have been added without notice.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from onceward import keys, limits
from onceward.schedule import due_ms_of


class DueEntries:
    """The due entries of one slot, ordered by time."""

    def __init__(self) -> None:
        self.stale = True
        """Whether it must be refilled before use."""
        self._heap: list[str] = []
        self._known: set[str] = set()
        self._bound = ""
        self._cut = False
        self._added: list[str] | None = None
        # Entries that are being processed; and entries that were processed during a scan, which may
        # still return them.
        self._taken: set[str] = set()
        self._ended: list[str] = []

    def begin(self) -> None:
        """Start a scan. Entries that are added from now on may be missing from its result."""
        self.stale = False
        self._added = []

    def fill(self, sorts: Iterable[str], bound: str, *, cut: bool, start: str = "") -> None:
        """Replace the entries from `start` to `bound` by the result of a scan. `cut`: more entries
        follow. Cached entries before `start` stay."""
        kept = [sort for sort in self._added or () if sort < bound]
        if start:
            kept += [sort for sort in self._known if sort < start]
        self._added = None
        self._known = {*sorts, *kept} - self._taken
        self._taken.difference_update(self._ended)
        self._ended.clear()
        self._heap = list(self._known)
        heapify(self._heap)
        self._bound, self._cut = bound, cut

    def clear(self) -> None:
        """Empty the cache."""
        self.fill((), "", cut=False)
        self.stale = True

    def add(self, sort: str) -> bool:
        """Add an entry that was just committed; returns whether it is now the first."""
        self._taken.discard(sort)
        if self._added is not None:
            self._added.append(sort)
        if sort >= self._bound or sort in self._known:
            return False
        self._known.add(sort)
        heappush(self._heap, sort)
        return self.next == sort

    def beyond(self, sort: str) -> bool:
        """Whether an entry is too far in the future to be cached."""
        return sort >= self._bound

    def remove(self, sort: str) -> None:
        """Remove an entry that was just deleted."""
        if sort in self._known:
            self._forget(sort)

    def take(self) -> str:
        """Remove and return the first entry. Scans ignore it until `ended` is called."""
        sort = self.next
        assert sort is not None
        self._forget(sort)
        self._taken.add(sort)
        return sort

    def ended(self, sort: str) -> None:
        """The processing of a taken entry has ended: it is deleted, or may return."""
        if self._added is None:
            self._taken.discard(sort)
        else:
            self._ended.append(sort)

    def _forget(self, sort: str) -> None:
        self._known.remove(sort)  # its element of the heap is removed lazily
        if self._cut and not self._known:
            self.stale = True

    @property
    def next(self) -> str | None:
        """The first entry, or None."""
        heap = self._heap
        while heap and heap[0] not in self._known:
            heappop(heap)
        return heap[0] if heap else None

    @property
    def next_ms(self) -> int | None:
        """The time of the first entry."""
        sort = self.next
        return None if sort is None else due_ms_of(sort)

    def __len__(self) -> int:
        return len(self._known)


class Trouble(NamedTuple):
    """The last error of an entry, and how long to wait before the next attempt."""

    error: Exception
    until_ms: int
    pause_ms: int


class Troubles:
    """Entries that could not be processed: each is retried after a pause.

    One entry represents all entries of an unknown kind, and the number of other noted entries is
    limited. Many failing entries may be at the front of a slot. Scans start behind them, and return
    to the front after a while.
    """

    def __init__(self) -> None:
        self.passed = ""
        """Where scans start."""
        self._passed_until_ms = 0
        self._entries: dict[str, Trouble] = {}
        self._unknown: dict[str, str] = {}

    @property
    def errors(self) -> dict[str, Exception]:
        """The last errors by sort key."""
        return {sort: trouble.error for sort, trouble in self._entries.items()}

    def add(self, sort: str, error: Exception, now_ms: int) -> None:
        """Pause an entry; the pause grows with each failure."""
        before = self._entries.get(sort)
        pause_ms = limits.TROUBLE_PAUSE_MS_MIN if before is None else 2 * before.pause_ms
        pause_ms = min(pause_ms, limits.TROUBLE_PAUSE_MS_MAX)
        self._note(sort, Trouble(error, now_ms + pause_ms, pause_ms), now_ms)

    def add_unknown(self, sort: str, error: Exception, now_ms: int) -> None:
        """Pause all entries of an unknown kind while this one exists."""
        kind = kind_of(sort)
        if kind not in self._unknown and self._note(sort, Trouble(error, 0, 0), now_ms):
            self._unknown[kind] = sort

    def _note(self, sort: str, trouble: Trouble, now_ms: int) -> bool:
        noted = sort in self._entries or len(self._entries) < limits.TROUBLES_MAX
        if noted:
            self._entries[sort] = trouble
        else:
            self.pass_over(keys.after(sort), now_ms)
        return noted

    def rests(self, sort: str, now_ms: int) -> bool:
        """Whether the entry is paused."""
        trouble = self._entries.get(sort)
        return (trouble is not None and trouble.until_ms > now_ms) or kind_of(sort) in self._unknown

    def settle(self, sorts: Iterable[str]) -> None:
        """Remove entries that were processed or deleted."""
        for sort in sorts:
            self._entries.pop(sort, None)
            if self._unknown.get(kind_of(sort)) == sort:
                del self._unknown[kind_of(sort)]

    def pass_over(self, sort: str, now_ms: int) -> None:
        """Start scans at `sort`, if it is in the past; in the future, other nodes may add
        entries."""
        if due_ms_of(sort) <= now_ms and sort > self.passed:
            if not self.passed:
                self._passed_until_ms = now_ms + limits.TROUBLE_PAUSE_MS_MAX
            self.passed = sort

    def reached_end(self, now_ms: int) -> None:
        """A scan has reached the end: after a while, the next one starts at the front again."""
        if now_ms >= self._passed_until_ms:
            self.passed = ""

    def __contains__(self, sort: str) -> bool:
        return sort in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries)


def kind_of(sort: str) -> str:
    """The kind of a due entry, by its sort key."""
    return sort.rpartition("#")[2]
