"""Negative filters: prove that a key is absent from the table without a query.

Most idempotency keys are new and random, so looking them up in the table would usually find
nothing. A partition with such misses gets a Bloom filter of its keys in the table, with two bytes
per key. Keys that leave the table stay in the filter, which costs only an occasional lookup.
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
# The size of an empty filter.
_EMPTY_BYTES = 256
# A partition gets a filter after this many misses between two folds.
_MISSES = 2


class Filter:
    """A Bloom filter that grows: `lacks` is right, but may miss some absent texts.

    A full filter adds a larger level, so that existing keys need not be read again.
    """

    __slots__ = ("_levels", "_room", "size_bytes")

    def __init__(self) -> None:
        self._levels: list[tuple[bytearray, int]] = []
        self._room = 0
        self.size_bytes = _EMPTY_BYTES

    @property
    def full(self) -> bool:
        """Whether it has exceeded its maximum size."""
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
        """Whether the text was certainly never added."""
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
    """The filters of the partitions that need one, within a memory limit."""

    def __init__(self, table: Table, size_bytes_max: int) -> None:
        self._table = table
        self._size_bytes_max = size_bytes_max
        self._ready: dict[str, Filter] = {}
        self._misses: dict[str, int] = {}
        self._wanted: dict[str, None] = {}
        self._making: tuple[str, Filter] | None = None
        self._too_large: set[str] = set()

    def lacks(self, partition: str, sort: str) -> bool:
        """Whether the key is certainly absent from the table, apart from records that are also in
        memory.
        """
        found = self._ready.get(partition)
        return found is not None and found.lacks(sort)

    def missed(self, partition: str) -> None:
        """Count a lookup that found nothing."""
        if partition in self._ready or partition in self._too_large:
            return
        if len(self._misses) >= limits.GAPS_MAX:  # there was no fold for a long time
            self._misses.clear()
            self._wanted.clear()
            self._keep_small()
        misses = self._misses[partition] = self._misses.get(partition, 0) + 1
        if misses == _MISSES:
            if self._table.seek((partition, "")) is None:
                self._ready[partition] = Filter()  # the table has no keys of it yet
            else:
                self._wanted[partition] = None

    def add(self, partition: str, sorts: Iterable[str]) -> None:
        """Add keys that are now in the table."""
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
        """Build the requested filters. Yields at intervals, so that other tasks can run.

        Exhaust the iterator, or call it again: an interrupted filter is built from the start.
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
        """Remove the largest filters if they use too much memory; return the free memory.

        They are not built again, which could repeat without end.
        """
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
