"""The next due entries of a slot, cached in memory.

A cache of the front of the partition: up to a bound it is complete as of the last scan,
and this node's own commits keep it so. It is filled again by a scan from the front, every
so often and whenever something may have landed in it unseen.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from onceward import keys, limits
from onceward.schedule import due_ms_of


class DueEntries:
    """The due entries of one slot, in the order of their times."""

    def __init__(self) -> None:
        self.stale = True
        """Whether it must be filled before it can be relied upon."""
        self._heap: list[str] = []
        self._known: set[str] = set()
        self._bound = ""
        self._cut = False
        self._meanwhile: list[str] | None = None
        # Those that are being acted on; and those of them, at their end, that a scan under way
        # may still have seen.
        self._taken: set[str] = set()
        self._ended: list[str] = []

    def begin(self) -> None:
        """A scan begins: what is added from now on, it may have missed."""
        self.stale = False
        self._meanwhile = []

    def fill(self, sorts: Iterable[str], bound: str, *, cut: bool, start: str = "") -> None:
        """Take over the entries from `start` to `bound`, as just scanned; `cut` if more come
        behind. What is known of those before `start` stays."""
        meanwhile = [sort for sort in self._meanwhile or () if sort < bound]
        if start:
            meanwhile += [sort for sort in self._known if sort < start]
        self._meanwhile = None
        self._known = {*sorts, *meanwhile} - self._taken
        self._taken.difference_update(self._ended)
        self._ended.clear()
        self._heap = list(self._known)
        heapify(self._heap)
        self._bound, self._cut = bound, cut

    def clear(self) -> None:
        """Know nothing any more."""
        self.fill((), "", cut=False)
        self.stale = True

    def add(self, sort: str) -> bool:
        """Note an entry that was just committed; says whether it is now the first."""
        self._taken.discard(sort)
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
        """Remove and return the first. Until it is said that this has ended, no scan brings it
        back."""
        sort = self.next
        assert sort is not None
        self._forget(sort)
        self._taken.add(sort)
        return sort

    def ended(self, sort: str) -> None:
        """What was taken is gone, or may come back."""
        if self._meanwhile is None:
            self._taken.discard(sort)
        else:
            self._ended.append(sort)

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


class Trouble(NamedTuple):
    """What happened to an entry the last time, and until when it rests."""

    error: Exception
    until_ms: int
    pause_ms: int


class Troubles:
    """Entries that could not be acted on: each is left alone for a while, then tried again.

    Of a kind that nobody knows, one entry stands for all. Of others so many are noted. What
    stands at the front and rests, or was tried and could not be noted, may be a lot: looks
    pass over it, and come back to the front after a while.
    """

    def __init__(self) -> None:
        self.passed = ""
        """Where looks begin."""
        self._passed_until_ms = 0
        self._entries: dict[str, Trouble] = {}
        self._unknown: dict[str, str] = {}

    @property
    def errors(self) -> dict[str, Exception]:
        """What happened the last time, by sort key."""
        return {sort: trouble.error for sort, trouble in self._entries.items()}

    def add(self, sort: str, error: Exception, now_ms: int) -> None:
        """Let an entry rest; longer each time."""
        before = self._entries.get(sort)
        pause_ms = limits.TROUBLE_PAUSE_MS_MIN if before is None else 2 * before.pause_ms
        pause_ms = min(pause_ms, limits.TROUBLE_PAUSE_MS_MAX)
        self._note(sort, Trouble(error, now_ms + pause_ms, pause_ms), now_ms)

    def add_unknown(self, sort: str, error: Exception, now_ms: int) -> None:
        """Let all entries of its kind rest, as long as this one is there."""
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
        """Whether the entry is left alone for now."""
        trouble = self._entries.get(sort)
        return (trouble is not None and trouble.until_ms > now_ms) or kind_of(sort) in self._unknown

    def settle(self, sorts: Iterable[str]) -> None:
        """These were acted on, or are gone."""
        for sort in sorts:
            self._entries.pop(sort, None)
            if self._unknown.get(kind_of(sort)) == sort:
                del self._unknown[kind_of(sort)]

    def pass_over(self, sort: str, now_ms: int) -> None:
        """Let looks begin at `sort`. Not in the future, where others may yet add something."""
        if due_ms_of(sort) <= now_ms and sort > self.passed:
            if not self.passed:
                self._passed_until_ms = now_ms + limits.TROUBLE_PAUSE_MS_MAX
            self.passed = sort

    def reached_end(self, now_ms: int) -> None:
        """A look has seen all: after a while, the next one begins at the front again."""
        if now_ms >= self._passed_until_ms:
            self.passed = ""

    def __contains__(self, sort: str) -> bool:
        return sort in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries)


def kind_of(sort: str) -> str:
    """What kind of due entry it is, by its sort key."""
    return sort.rpartition("#")[2]
