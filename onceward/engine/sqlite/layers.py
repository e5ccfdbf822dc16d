"""The layers of a read: memtable, frozen memtable, cache and table.

The first layer that has a key decides; a row with an empty value is a deletion. A key that was
created and is deleted before it was folded leaves no row.

The layers cache *gaps*: key ranges of a partition in which memory covers every row of the table by
a newer row or a deletion. A gap ends when a fold moves a row into the table; folded deletions are
in neither layer. Each partition has two gaps. New keys usually sort after all others, and one gap
answers for them without a query. Queues are drained from the front, and the other gap makes a scan
start where the last one found a row, instead of visiting deletions that are not folded yet. For
keys in random order, *filters* have this function.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby, islice

from onceward import limits
from onceward.engine.base import ABSENT, ANY, DAMAGED, Delete, Put, Record, Write, judge
from onceward.engine.memtable import ROWS_AT_ONCE, Memtable
from onceward.engine.sqlite.cache import Cache
from onceward.engine.sqlite.filters import Filters
from onceward.engine.sqlite.table import Table
from onceward.keys import Key


class Layers:
    """The records of a database, in memory and in the table."""

    def __init__(self, table: Table, cache_bytes: int) -> None:
        self.active = Memtable()
        self.frozen = Memtable()
        self._table = table
        self._cache = Cache(cache_bytes)
        self._gaps: dict[str, tuple[str, str | None]] = {}
        self._fronts: dict[str, tuple[str, str]] = {}
        self.filters = Filters(table, limits.FILTERS_BYTES)
        self.swept: Record | None = None
        """The last record that `expired` has visited; None makes the next call start at the
        beginning.
        """

    @property
    def size_bytes(self) -> int:
        """The size of the records that are not yet in the table."""
        return self.active.size_bytes + self.frozen.size_bytes

    def current(self, key: Key, now_ms: int) -> Record | None:
        """The record of a key at that time."""
        # `Memtable.get`, inlined: most reads end here.
        partition = self.active.partitions.get(key[0])
        row = None if partition is None else partition.rows.get(key[1])
        if row is None:
            row = self._under(key)
            if row is None:
                return None
        if not row.value:
            return None
        expires_at_ms = row.expires_at_ms
        return row if expires_at_ms is None or expires_at_ms > now_ms else None

    def in_memory(self, key: Key) -> Record | None:
        """The row of a key in memory, expired or not, including deletions."""
        return self.active.get(key) or self.frozen.get(key)

    def _under(self, key: Key) -> Record | None:
        """The row of a key in the layers below the memtable, including deletions."""
        partition, sort = key
        if self.frozen.count:
            row = self.frozen.get(key)
            if row is not None:
                return row
        gap = self._gaps.get(partition)
        if gap is not None and gap[0] <= sort and (gap[1] is None or sort < gap[1]):
            return None
        return None if self.filters.lacks(partition, sort) else self._beneath(key)

    def range(
        self,
        partition: str,
        start: str,
        end: str | None,
        reverse: bool,
        now_ms: int,
        limit: int,
        skip_damaged: bool = False,
    ) -> list[Record]:
        """The first `limit` records in [start, end), in order."""
        sources = [self.active.range(partition, start, end, reverse)]
        if partition in self.frozen.partitions:
            newer = _rows(self.active, partition)
            sources.append(self.frozen.range(partition, start, end, reverse, newer))
        if not self._in_gap(partition, start, end):
            sources.append(self._range_beneath(partition, start, end, reverse, skip_damaged))
        rows = sources[0]
        if len(sources) > 1:
            rows = merge(*sources, key=lambda row: row.key[1], reverse=reverse)
        found = list(islice((r for r in rows if r.value and not r.absent_at(now_ms)), limit))
        for source in sources:
            _close(source)
        return found

    def _range_beneath(
        self, partition: str, start: str, end: str | None, reverse: bool, skip_damaged: bool
    ) -> Iterator[Record]:
        """The table's rows in [start, end). Rows that memory covers are returned without their
        value.

        Covered rows at the start of the range are cached as a gap.
        """
        first, begin = start, start
        front = self._fronts.get(partition)
        if front is not None and front[0] <= start < front[1]:
            first, begin = front
            if end is not None and end <= begin:
                return
        newer, older = _rows(self.active, partition), _rows(self.frozen, partition)
        rows = self._table.range(partition, begin, end, reverse, skip_damaged)
        skipped = self._table.skipped
        covered_to: str | None = begin
        """Memory covers all rows from `first` to here."""
        alone = False
        try:
            for row in rows:
                sort = row.key[1]
                if sort in newer or sort in older:
                    if not alone and not reverse:
                        covered_to = sort
                    yield Record(row.key, b"", 0)
                else:
                    alone = True
                    yield row
            if not alone:
                covered_to = end
        finally:
            _close(rows)
            if self._table.skipped > skipped:
                pass  # a skipped row may belong anywhere
            elif covered_to is None:
                self._learn_gap(partition, first, None)
            elif covered_to > begin:
                self._learn_front(partition, first, covered_to)

    def judge(self, writes: Sequence[Write], now_ms: int) -> list[Key]:
        """Raise `Conflict` if an expectation fails; return the keys that exist in no layer."""
        nowhere: list[Key] = []
        partitions = self.active.partitions
        for write in writes:
            expect = write.expect
            if expect is ANY:
                continue
            key = write.key
            partition = partitions.get(key[0])
            row = None if partition is None else partition.rows.get(key[1])
            if row is None:
                row = self._under(key)
                if row is None:
                    nowhere.append(key)
            # `Record.absent_at`, inlined: every write passes here.
            if (
                row is None
                or not row.value
                or (row.expires_at_ms is not None and row.expires_at_ms <= now_ms)
            ):
                if expect is ABSENT:
                    continue
            elif row.version == expect:
                continue
            judge(writes, lambda key: self.current(key, now_ms))
        return nowhere

    def apply(self, writes: Sequence[Write], seq: int, nowhere: Sequence[Key]) -> list[Record]:
        """Make a validated commit visible; return its rows for the journal."""
        rows: list[Record] = []
        active = self.active
        for write in writes:
            if type(write) is Put:
                row = Record(write.key, write.value, seq, write.expires_at_ms)
                active.put(row)
            elif type(write) is Delete:
                row = Record(write.key, b"", seq)
                if not active.drop_fresh(write.key):
                    active.put(row)
            else:
                continue
            rows.append(row)
        for name, sort in nowhere:
            partition = active.partitions.get(name)
            if partition is not None and sort in partition.rows:
                partition.fresh.add(sort)
        return rows

    def freeze(self, upto_seq: int, last_seq: int) -> Iterator[None]:
        """Move records last changed up to `upto_seq` to the frozen memtable, where they stay
        readable.

        Exhaust the iterator. It yields at intervals, so that other tasks can read and commit.
        """
        assert self.frozen.count == 0
        if upto_seq == last_seq:
            self.frozen, self.active = self.active, Memtable()
        else:
            yield from self.active.move_older(upto_seq, self.frozen)

    def release(self, rows: Sequence[Record]) -> None:
        """Drop frozen rows that are now in the table; they are sorted by key."""
        for name, group in groupby(rows, key=_partition_of):
            folded = list(group)
            self.frozen.drop_all(name, folded)
            self._cache.take(folded)
            sorts = [row.key[1] for row in folded if row.value]
            self._end_gaps(name, sorts)
            self.filters.add(name, sorts)

    def expired(self, now_ms: int, limit: int) -> list[Key] | None:
        """Keys of up to `limit` expired records in the table that memory does not cover.

        It continues after the last call. None marks the end of the table; the next call starts
        again.
        """
        records = self._table.expired(now_ms, self.swept, ROWS_AT_ONCE)
        if not records:
            self.swept = None
            return None
        found: list[Key] = []
        for record in records:
            self.swept = record
            if self.in_memory(record.key) is None:
                found.append(record.key)
                if len(found) == limit:
                    break
        return found

    def copies(self) -> Iterator[list[Record]]:
        """The rows in memory, some at a time; they may change in between."""
        for table in (self.active, self.frozen):
            for name in list(table.partitions):
                if (partition := table.partitions.get(name)) is not None:
                    rows = list(partition.rows.values())
                    for start in range(0, len(rows), ROWS_AT_ONCE):
                        yield rows[start : start + ROWS_AT_ONCE]

    def _beneath(self, key: Key) -> Record | None:
        record = self._cache.get(key)
        if record is not None:
            return record
        record = self._table.seek(key)
        if record is not None and record.key == key:
            if record.value is not DAMAGED:
                self._cache.put(record)
            return record
        self._learn_gap(*key, None if record is None else record.key[1])
        self.filters.missed(key[0])
        return None

    def _learn_gap(self, partition: str, start: str, end: str | None) -> None:
        """Cache that memory covers all rows of the table in [start, end)."""
        gap = self._gaps.get(partition)
        if gap is not None and gap[1] == end and gap[0] < start:
            start = gap[0]
        if len(self._gaps) >= limits.GAPS_MAX:
            self._gaps.clear()
        self._gaps[partition] = (start, end)

    def _learn_front(self, partition: str, start: str, end: str) -> None:
        if len(self._fronts) >= limits.GAPS_MAX:
            self._fronts.clear()
        self._fronts[partition] = (start, end)

    def _end_gaps(self, partition: str, sorts: Sequence[str]) -> None:
        """Remove gaps that contain one of these sorted keys, which are now in the table."""
        gap = self._gaps.get(partition)
        if gap is not None and _any_within(sorts, *gap):
            del self._gaps[partition]
        front = self._fronts.get(partition)
        if front is not None and _any_within(sorts, *front):
            del self._fronts[partition]

    def _in_gap(self, partition: str, start: str, end: str | None) -> bool:
        gap = self._gaps.get(partition)
        if gap is None or start < gap[0]:
            return False
        return gap[1] is None or (end is not None and end <= gap[1])


def _partition_of(row: Record) -> str:
    return row.key[0]


def _any_within(sorts: Sequence[str], start: str, end: str | None) -> bool:
    """Whether one of the sorted keys is in [start, end)."""
    index = bisect_left(sorts, start)
    return index < len(sorts) and (end is None or sorts[index] < end)


def _rows(table: Memtable, partition: str) -> Mapping[str, Record]:
    found = table.partitions.get(partition)
    return {} if found is None else found.rows


def _close(rows: Iterator[Record]) -> None:
    close = getattr(rows, "close", None)
    if close is not None:
        close()
