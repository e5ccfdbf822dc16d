"""Filters: what the table surely does not have, known without asking it.

Most keys that senders make up are new, and come in no order: each of them would be looked for
in vain. A partition in which that happens gets a filter of the keys that the table has there,
two bytes for each, which answers "no" for all but a few of the others. What leaves the
table stays in the filter; that costs a look now and then and does no harm.
"""

from collections.abc import Iterable, Iterator

from onceward import limits
from onceward.engine.memtable import ROWS_AT_ONCE
from onceward.engine.sqlite.table import Table

_BITS_PER_KEY = 16
_FIRST_KEYS = 256
_GROWTH = 4
_LAST_KEYS = _FIRST_KEYS * _GROWTH**5
# From so many looks in vain on, between two folds, a partition gets a filter.
_MISSES = 4


class Filter:
    """Says of a text that was never added that it was not, most of the time.

    When it has as many texts as it was made for it goes on in a larger level, so that nothing
    has to be read again.
    """

    __slots__ = ("_levels", "_room", "size_bytes")

    def __init__(self) -> None:
        self._levels: list[tuple[bytearray, int]] = []
        self._room = 0
        self.size_bytes = 0

    @property
    def full(self) -> bool:
        """Whether it has grown as large as it may."""
        return self._room == 0 and len(self._levels) > 5

    def add(self, text: str) -> None:
        if self._room == 0:
            self._room = min(_FIRST_KEYS * _GROWTH ** len(self._levels), _LAST_KEYS)
            bits = self._room * _BITS_PER_KEY
            self._levels.append((bytearray(bits // 8), bits - 1))
            self.size_bytes += bits // 8
        self._room -= 1
        value = hash(text)
        bits_of, mask = self._levels[-1]
        for place in (value & mask, value >> 21 & mask, value >> 42 & mask):
            bits_of[place >> 3] |= 1 << (place & 7)

    def lacks(self, text: str) -> bool:
        """Whether it was surely never added."""
        value = hash(text)
        for bits_of, mask in self._levels:
            place = value & mask
            if not bits_of[place >> 3] >> (place & 7) & 1:
                continue
            place = value >> 21 & mask
            if not bits_of[place >> 3] >> (place & 7) & 1:
                continue
            place = value >> 42 & mask
            if bits_of[place >> 3] >> (place & 7) & 1:
                return False
        return True


class Filters:
    """The filters of the partitions that need one, as far as memory allows."""

    def __init__(self, table: Table, size_bytes_max: int) -> None:
        self._table = table
        self._size_bytes_max = size_bytes_max
        self._ready: dict[str, Filter] = {}
        self._misses: dict[str, int] = {}
        self._wanted: dict[str, None] = {}
        self._making: tuple[str, Filter] | None = None
        self._too_large: set[str] = set()

    def lacks(self, partition: str, sort: str) -> bool:
        """Whether the table surely has no such key, unless it is still in memory, too."""
        found = self._ready.get(partition)
        return found is not None and found.lacks(sort)

    def missed(self, partition: str) -> None:
        """Note that a key was looked for in vain."""
        if partition in self._ready or partition in self._too_large:
            return
        misses = self._misses[partition] = self._misses.get(partition, 0) + 1
        if misses == _MISSES:
            if self._table.seek((partition, "")) is None:
                self._ready[partition] = Filter()  # it has nothing yet
            else:
                self._wanted[partition] = None

    def add(self, partition: str, sorts: Iterable[str]) -> None:
        """Note what the table has now."""
        found = self._ready.get(partition)
        if found is None:
            if self._making is None or self._making[0] != partition:
                return
            found = self._making[1]
        for sort in sorts:
            found.add(sort)
        if found.full:
            self._too_large.add(partition)
            self._ready.pop(partition, None)

    def make(self) -> Iterator[None]:
        """Make those that are wanted, with a stop now and then, where others may have their turn.

        To be used up, or called again: what was cut off is begun anew.
        """
        self._misses.clear()
        self._keep_small()
        for partition in list(self._wanted):
            filter_ = Filter()
            self._making = partition, filter_
            start = ""
            while not filter_.full:
                sorts = self._table.sorts(partition, start, ROWS_AT_ONCE)
                for sort in sorts:
                    filter_.add(sort)
                if len(sorts) < ROWS_AT_ONCE:
                    break
                start = sorts[-1]
                yield
            self._making = None
            del self._wanted[partition]
            if filter_.full:
                self._too_large.add(partition)
            else:
                self._ready[partition] = filter_

    def _keep_small(self) -> None:
        size_bytes = sum(filter_.size_bytes for filter_ in self._ready.values())
        if size_bytes > self._size_bytes_max or len(self._too_large) > limits.GAPS_MAX:
            self._ready.clear()
            self._too_large.clear()
