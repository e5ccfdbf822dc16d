"""Records in memory, by partition, with an order that is worked out when someone asks.

Used by the memory engine as its whole store, and by the SQLite engine for what is not
yet in its table; there a record with an empty value stands for a deletion.
"""

from collections.abc import Iterator

from sortedcontainers import SortedList

from onceward.engine.base import Record
from onceward.keys import Key

# What a record costs beyond its text: objects, dictionary slots, the index.
ROW_OVERHEAD_BYTES = 350


def row_bytes(record: Record) -> int:
    partition, sort = record.key
    return len(partition) + len(sort) + len(record.value) + ROW_OVERHEAD_BYTES


class Partition:
    """The rows of one partition. The index is built at the first scan, then kept lazily:
    new keys wait in `_added`, removed ones stay until a scan comes across them."""

    __slots__ = ("_added", "_index", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, Record] = {}
        self._index: SortedList[str] | None = None
        self._added: list[str] = []

    def put(self, sort: str, record: Record) -> None:
        if self._index is not None and sort not in self.rows:
            self._added.append(sort)
        self.rows[sort] = record

    def range(self, start: str, end: str | None, reverse: bool) -> Iterator[Record]:
        """The rows in [start, end), in order; the partition must not change meanwhile."""
        if self._index is None:
            self._index = SortedList(self.rows)
        elif self._added:
            self._index.update(self._added)
            self._added.clear()
        gone: list[str] = []
        last = None
        try:
            for sort in self._index.irange(start, end, (True, False), reverse):
                record = self.rows.get(sort)
                if record is None or sort == last:  # removed, or removed and added again
                    gone.append(sort)
                    continue
                last = sort
                yield record
        finally:
            for sort in gone:
                self._index.discard(sort)


class Memtable:
    """Partitions of records, and how much memory they take."""

    def __init__(self) -> None:
        self.partitions: dict[str, Partition] = {}
        self.size_bytes = 0
        self.count = 0

    def get(self, key: Key) -> Record | None:
        partition = self.partitions.get(key[0])
        return None if partition is None else partition.rows.get(key[1])

    def put(self, record: Record) -> None:
        name, sort = record.key
        partition = self.partitions.get(name)
        if partition is None:
            partition = self.partitions[name] = Partition()
        old = partition.rows.get(sort)
        if old is None:
            self.count += 1
            self.size_bytes += row_bytes(record)
        else:
            self.size_bytes += len(record.value) - len(old.value)
        partition.put(sort, record)

    def drop(self, key: Key) -> None:
        """Forget the row, if there is one."""
        name, sort = key
        partition = self.partitions.get(name)
        if partition is None:
            return
        old = partition.rows.pop(sort, None)
        if old is not None:
            self.count -= 1
            self.size_bytes -= row_bytes(old)
            if not partition.rows:
                del self.partitions[name]

    def range(self, partition: str, start: str, end: str | None, reverse: bool) -> Iterator[Record]:
        rows = self.partitions.get(partition)
        return iter(()) if rows is None else rows.range(start, end, reverse)
