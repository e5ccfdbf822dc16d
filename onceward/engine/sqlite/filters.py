"""Negative filters: prove that a key is absent from the table without a query.

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
_LEVELS = 6
_LAST_KEYS = _FIRST_KEYS * _GROWTH ** (_LEVELS - 1)
# What a filter takes without its keys.
_EMPTY_BYTES = 256
# From so many looks in vain on, between two folds, a partition gets a filter.
_MISSES = 2


class Filter:
    """Says of a text that was never added that it was not, most of the time.

    When it has as many texts as it was made for it goes on in a larger level, so that nothing
    has to be read again.
    """

    __slots__ = ("_levels", "_room", "size_bytes")

    def __init__(self) -> None:
        self._levels: list[tuple[bytearray, int]] = []
        self._room = 0
        self.size_bytes = _EMPTY_BYTES

    @property
    def full(self) -> bool:
        """Whether it has grown larger than it may."""
        return len(self._levels) > _LEVELS

    def add(self, text: str) -> None:
        if self._room == 0:
            self._room = min(_FIRST_KEYS * _GROWTH ** len(self._levels), _LAST_KEYS)
            bits = self._room * _BITS_PER_KEY
            self._levels.append((bytearray(bits // 8), bits - 1))
            self.size_bytes += bits // 8
        self._room -= 1
        value = hash(text)
        bits_of, mask = self._levels[-1]
        place = value & mask
        bits_of[place >> 3] |= 1 << (place & 7)
        place = value >> 21 & mask
        bits_of[place >> 3] |= 1 << (place & 7)
        place = value >> 42 & mask
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
        if len(self._misses) >= limits.GAPS_MAX:  # there was no fold for long
            self._misses.clear()
            self._wanted.clear()
            self._keep_small()
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
        left_bytes = self._keep_small()
        for partition in list(self._wanted):
            filter_ = Filter()
            self._making = partition, filter_
            start: str | None = ""
            while start is not None and not filter_.full and filter_.size_bytes <= left_bytes:
                sorts = self._table.sorts(partition, start, ROWS_AT_ONCE)
                for sort in sorts:
                    filter_.add(sort)
                start = sorts[-1] if len(sorts) == ROWS_AT_ONCE else None
                yield
            self._making = None
            self._wanted.pop(partition, None)
            if filter_.full or filter_.size_bytes > left_bytes:
                self._too_large.add(partition)
            else:
                self._ready[partition] = filter_
                left_bytes -= filter_.size_bytes

    def _keep_small(self) -> int:
        """Do without the largest ones, if they take too much; returns how much is left. They are
        not made again: that would have no end."""
        sizes_bytes = {name: filter_.size_bytes for name, filter_ in self._ready.items()}
        left_bytes = self._size_bytes_max - sum(sizes_bytes.values())
        if left_bytes < 0:
            for partition in sorted(sizes_bytes, key=sizes_bytes.__getitem__, reverse=True):
                del self._ready[partition]
                self._too_large.add(partition)
                left_bytes += sizes_bytes[partition]
                if left_bytes >= 0:
                    break
        if len(self._ready) + len(self._too_large) > limits.GAPS_MAX:
            self._ready.clear()
            self._too_large.clear()
            return self._size_bytes_max
        return left_bytes
