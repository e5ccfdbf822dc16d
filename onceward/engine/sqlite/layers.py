"""The layers of a read: memtable, frozen memtable, cache and table.

The first that knows a key decides; a row with an empty value says "deleted". A key that was
put where nothing was, and is deleted before it was ever folded, leaves no trace.

The layers remember *gaps*: stretches of a partition in which the table has nothing that
memory does not cover, with something newer or a deletion. So a gap ends only when a row
moves from memory into the table; what is folded as a removal is in neither. There are two
for each partition. New keys mostly come behind all others: one gap answers for them without
asking the table. And queues are drained from the front: the other one lets a scan begin where
the last one found something, not with all that is deleted and not yet folded. Where keys come
in no order, *filters* take the place of gaps.
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
    """The records of a database, in memory and in the table, as one."""

    def __init__(self, table: Table, cache_bytes: int) -> None:
        self.active = Memtable()
        self.frozen = Memtable()
        self._table = table
        self._cache = Cache(cache_bytes)
        self._gaps: dict[str, tuple[str, str | None]] = {}
        self._fronts: dict[str, tuple[str, str]] = {}
        self.filters = Filters(table, limits.FILTERS_BYTES)
        self.swept: Record | None = None
        """Up to which one `expired` has looked; None: the next call begins at the start."""

    @property
    def size_bytes(self) -> int:
        """What is not yet in the table."""
        return self.active.size_bytes + self.frozen.size_bytes

    def current(self, key: Key, now_ms: int) -> Record | None:
        """What stands under the key at that time."""
        # The memtable's lookup, written out: most reads end here.
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
        """What is not yet in the table of the key, expired or not; deletions included."""
        return self.active.get(key) or self.frozen.get(key)

    def _under(self, key: Key) -> Record | None:
        """What the layers under the memtable have for a key, deletions included."""
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
        """The table's rows in [start, end). Those that memory covers come without their value, so
        that a scan passes only as many of them as it must; what it passes is remembered."""
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
        """Memory covers all from `first` up to here."""
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
                pass  # what was left out may belong anywhere
            elif covered_to is None:
                self._learn_gap(partition, first, None)
            elif covered_to > begin:
                self._learn_front(partition, first, covered_to)

    def judge(self, writes: Sequence[Write], now_ms: int) -> list[Key]:
        """Raise `Conflict` if an expectation fails; returns the keys known to be nowhere."""
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
            # As `Record.absent_at`, written out: every write comes by here.
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
        """Make a judged commit visible; returns its rows for the journal."""
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
        """Set aside what was last changed up to `upto_seq`, readable while it is folded. Use
        it up: it stops now and then so that others can read and commit."""
        assert self.frozen.count == 0
        if upto_seq == last_seq:
            self.frozen, self.active = self.active, Memtable()
        else:
            yield from self.active.move_older(upto_seq, self.frozen)

    def release(self, rows: Sequence[Record]) -> None:
        """Let go of frozen rows that the table now shows; they come in the order of their keys."""
        for name, group in groupby(rows, key=_partition_of):
            folded = list(group)
            self.frozen.drop_all(name, folded)
            self._cache.take(folded)
            sorts = [row.key[1] for row in folded if row.value]
            self._end_gaps(name, sorts)
            self.filters.add(name, sorts)

    def expired(self, now_ms: int, limit: int) -> list[Key] | None:
        """Keys of up to `limit` expired records in the table that nothing newer covers, of the next
        few behind those of the last call. None at the end: the next call begins at the start."""
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
        """What is in memory, a few rows at a time; it may change in between."""
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
        """Note that memory covers what the table has in [start, end)."""
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
        """The table has something under these keys now, which are in order, that memory does not
        cover."""
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
    """Whether one of the keys, which are in order, is in [start, end)."""
    index = bisect_left(sorts, start)
    return index < len(sorts) and (end is None or sorts[index] < end)


def _rows(table: Memtable, partition: str) -> Mapping[str, Record]:
    found = table.partitions.get(partition)
    return {} if found is None else found.rows


def _close(rows: Iterator[Record]) -> None:
    close = getattr(rows, "close", None)
    if close is not None:
        close()
