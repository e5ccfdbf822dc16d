"""A cache of hot records; every commit validates the versions it read."""

from onceward import limits
from onceward.engine.base import Record
from onceward.keys import Key


class Heads:
    """Cached records. The oldest are dropped when there are too many or they use too much
    memory."""

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self._values_bytes = 0

    def put(self, record: Record) -> None:
        self.drop(record.key)
        self.records[record.key] = record
        self._values_bytes += len(record.value)
        while len(self.records) > limits.HEADS_MAX or self._values_bytes > limits.HEADS_BYTES_MAX:
            self.drop(next(iter(self.records)))

    def clear(self) -> None:
        """Remove all records."""
        self.records.clear()
        self._values_bytes = 0

    def drop(self, key: Key) -> None:
        """Remove the record if it is cached."""
        record = self.records.pop(key, None)
        if record is not None:
            self._values_bytes -= len(record.value)
