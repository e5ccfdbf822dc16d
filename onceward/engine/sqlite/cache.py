"""A bounded read cache with two generations."""

from collections.abc import Iterable

from onceward.engine.base import Record
from onceward.engine.memtable import ROW_OVERHEAD_BYTES, row_bytes
from onceward.keys import Key


class Cache:
    """Records as stored in the table. A used record moves to the young generation.

    A full young generation becomes the old one, and the records left in the old one are dropped.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._generation_bytes_max = size_bytes_max // 2
        self._young: dict[Key, Record] = {}
        self._old: dict[Key, Record] = {}
        self._young_bytes = 0

    def get(self, key: Key) -> Record | None:
        record = self._young.get(key)
        if record is None:
            record = self._old.pop(key, None)
            if record is not None:
                self.put(record)
        return record

    def put(self, record: Record) -> None:
        key = record.key
        self.drop(key)
        self._young[key] = record
        self._young_bytes += row_bytes(record)
        self._turn()

    def take(self, rows: Iterable[Record]) -> None:
        """Put records of one partition, or drop those without a value."""
        young, old = self._young, self._old
        added_bytes = 0
        for row in rows:
            key = row.key
            if key in old:
                del old[key]
            if key in young:
                added_bytes -= row_bytes(young.pop(key))
            if row.value:
                young[key] = row
                # `row_bytes`, inlined: every folded record passes here.
                added_bytes += len(key[0]) + len(key[1]) + len(row.value) + ROW_OVERHEAD_BYTES
        self._young_bytes += added_bytes
        self._turn()

    def _turn(self) -> None:
        if self._young_bytes > self._generation_bytes_max:
            self._old, self._young, self._young_bytes = self._young, {}, 0

    def drop(self, key: Key) -> None:
        self._old.pop(key, None)
        record = self._young.pop(key, None)
        if record is not None:
            self._young_bytes -= row_bytes(record)
