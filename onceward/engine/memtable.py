"""An in-memory table of records by partition, sorted on demand.

The memory engine uses it as its store. The SQLite engine uses it for records that are not yet in
its table; there, a record with an empty value is a deletion.
"""

from collections.abc import Container, Iterable, Iterator

from sortedcontainers import SortedList

from onceward.engine.base import Record
from onceward.keys import Key

# The memory that a record uses besides its text: objects, dictionary slots, the index.
ROW_OVERHEAD_BYTES = 350
# How many removed keys an index may hold in addition to one per row.
STALE_KEYS_MAX = 1_000
# If more than one key in this many was removed, the index is rebuilt instead of cleaned.
_REBUILD_PART = 8
# How many rows a loop visits before it yields to other tasks.
ROWS_AT_ONCE = 2_000


def row_bytes(record: Record) -> int:
    partition, sort = record.key
    return len(partition) + len(sort) + len(record.value) + ROW_OVERHEAD_BYTES


class Partition:
    """The rows of one partition with an index of the keys that a scan shows.

    The index excludes deletions. It is built by the first scan and updated lazily: new keys wait in
    `added`, removed keys stay until a scan finds them. `fresh` holds the keys that exist in no
    other layer.
    """

    __slots__ = ("added", "fresh", "index", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, Record] = {}
        self.fresh: set[str] = set()
        self.index: SortedList[str] | None = None
        self.added: list[str] = []

    def range(
        self, start: str, end: str | None, reverse: bool, replaced: Container[str] = ()
    ) -> Iterator[Record]:
        """The rows in [start, end) in order, without deletions and keys in `replaced`.

        Keys in `replaced` must stay replaced. The partition must not change during the iteration.
        """
        index = self.index
        if index is None:
            index = self.index = SortedList(
                [sort for sort, row in self.rows.items() if row.value and sort not in replaced]
            )
        elif self.added:
            index.update(self.added)
            self.added.clear()
        gone: list[str] = []
        last = None
        try:
            for sort in index.irange(start, end, (True, False), reverse):
                row = self.rows.get(sort)
                # Removed, or removed and added again.
                if row is None or not row.value or sort == last or sort in replaced:
                    gone.append(sort)
                    continue
                last = sort
                yield row
        finally:
            if len(gone) * _REBUILD_PART > len(index) + STALE_KEYS_MAX:
                # Probably moved by a fold. Rebuilding the index is faster than cleaning it.
                self.index = None
            else:
                for sort in gone:
                    index.discard(sort)

    def bound_index(self) -> None:
        """Drop the index if most of its keys were removed in ranges that no scan visits."""
        index_len = 0 if self.index is None else len(self.index)
        if index_len + len(self.added) > 2 * len(self.rows) + STALE_KEYS_MAX:
            self.index = None
            self.added.clear()


class Memtable:
    """Partitions of records, with their memory use."""

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
        rows = partition.rows
        old = rows.get(sort)
        rows[sort] = record
        if old is None:
            self.count += 1
            self.size_bytes += len(record.value) + len(sort) + len(name) + ROW_OVERHEAD_BYTES
        else:
            self.size_bytes += len(record.value) - len(old.value)
            if old.value:
                return
        if record.value and partition.index is not None:
            partition.added.append(sort)
            partition.bound_index()

    def drop(self, key: Key) -> None:
        """Remove the row if it exists."""
        name, sort = key
        partition = self.partitions.get(name)
        if partition is None:
            return
        old = partition.rows.pop(sort, None)
        if old is not None:
            self.count -= 1
            self.size_bytes -= len(old.value) + len(sort) + len(name) + ROW_OVERHEAD_BYTES
            if not partition.rows:
                del self.partitions[name]

    def drop_all(self, name: str, rows: Iterable[Record]) -> None:
        """Remove the rows of one partition that have the keys of these rows, in any version."""
        partition = self.partitions.get(name)
        if partition is None:
            return
        pop, count, size_bytes = partition.rows.pop, 0, 0
        for row in rows:
            sort = row.key[1]
            old = pop(sort, None)
            if old is not None:
                count += 1
                size_bytes += len(old.value) + len(sort)
        self.count -= count
        self.size_bytes -= size_bytes + count * (len(name) + ROW_OVERHEAD_BYTES)
        if not partition.rows:
            del self.partitions[name]

    def drop_fresh(self, key: Key) -> bool:
        """Remove the row if it exists in no other layer; return whether it did."""
        partition = self.partitions.get(key[0])
        if partition is None or key[1] not in partition.fresh:
            return False
        partition.fresh.discard(key[1])
        self.drop(key)
        return True

    def move_older(self, upto_seq: int, older: "Memtable") -> Iterator[None]:
        """Move the rows of versions up to `upto_seq` to another table.

        Yields after every few thousand rows; rows may be read and changed at that point. For
        engines whose versions are sequence numbers.
        """
        visited = 0
        for name in list(self.partitions):
            partition = self.partitions.get(name)
            if partition is None:
                continue
            for sort in list(partition.rows):
                row = partition.rows.get(sort)
                if row is not None and row.version <= upto_seq:  # type: ignore[operator]
                    partition.fresh.discard(sort)
                    # Put before drop, so that an interruption never loses the row.
                    older.put(row)
                    self.drop(row.key)
                visited += 1
                if visited % ROWS_AT_ONCE == 0:
                    yield

    def range(
        self,
        partition: str,
        start: str,
        end: str | None,
        reverse: bool,
        replaced: Container[str] = (),
    ) -> Iterator[Record]:
        """The rows of a partition, as `Partition.range`."""
        rows = self.partitions.get(partition)
        return iter(()) if rows is None else rows.range(start, end, reverse, replaced)
