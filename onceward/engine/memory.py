"""The in-memory engine: the reference implementation, for tests and temporary data.

Commits are as durable as the process. One `Memory` is one database. Several engines can share it,
as several nodes share a PostgreSQL database.
"""

import heapq
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Self

from onceward import forks, limits
from onceward.engine.base import (
    Delete,
    Engine,
    Put,
    Record,
    Version,
    Watch,
    Watchers,
    Write,
    admit,
    admit_scan,
    judge,
    too_many_keys,
)
from onceward.engine.memtable import Memtable
from onceward.ids import random_bytes
from onceward.keys import Key

_KEY_BYTES = 32
# How many stale expiries (of records that were replaced or removed) are kept in addition to one per
# record.
_STALE_EXPIRIES_MAX = 1_000


class Memory:
    """The state that the engines of one database share."""

    def __init__(self) -> None:
        self.table = Memtable()
        self.watchers = Watchers()
        self.expiries: list[tuple[int, Key, int]] = []
        self.version = 0

        self.server_key = random_bytes(_KEY_BYTES)

    def note_expiry(self, key: Key, expires_at_ms: int) -> None:
        """Store the expiry of the record that was put last."""
        heapq.heappush(self.expiries, (expires_at_ms, key, self.version))
        if len(self.expiries) > 2 * self.table.count + _STALE_EXPIRIES_MAX:
            self.expiries = [expiry for expiry in self.expiries if self.holds(expiry[1], expiry[2])]
            heapq.heapify(self.expiries)

    def holds(self, key: Key, version: int) -> bool:
        """Whether the record is stored in that version."""
        record = self.table.get(key)
        return record is not None and record.version == version


class MemoryEngine(Engine):
    """Records in this process. Commits take effect immediately, so their outcome is always
    known."""

    def __init__(self, memory: Memory | None = None, *, shared: bool = True) -> None:
        """`shared`: whether several engines may use the memory."""
        self.memory = memory or Memory()
        self.shared = shared
        self._open = False

    async def open(self) -> Self:
        if self.inherited:
            raise self.closed_error("the memory engine")
        self._open = True
        forks.watch(self)
        return self

    def forked(self) -> None:
        if self._open:
            self._open = False
            super().forked()

    async def close(self) -> None:
        self._open = False

    def own_key(self) -> bytes | None:
        return self.memory.server_key

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        self._must_be_open()
        if len(keys) > limits.GET_KEYS_MAX:
            raise too_many_keys(len(keys))
        return [self._current(key, now_ms) for key in keys]

    async def scan(
        self,
        partition: str,
        now_ms: int,
        *,
        start: str = "",
        end: str | None = None,
        limit: int = limits.SCAN_RECORDS_DEFAULT,
        reverse: bool = False,
        skip_damaged: bool = False,
    ) -> list[Record]:
        self._must_be_open()
        admit_scan(limit)
        rows = self.memory.table.range(partition, start, end, reverse)
        return list(islice((row for row in rows if not row.absent_at(now_ms)), limit))

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        self._must_be_open()
        admit(writes)
        judge(writes, lambda key: self._current(key, now_ms))
        memory = self.memory
        memory.version += 1
        for write in writes:
            if type(write) is Put:
                expires_at_ms = write.expires_at_ms
                memory.table.put(Record(write.key, write.value, memory.version, expires_at_ms))
                if expires_at_ms is not None:
                    memory.note_expiry(write.key, expires_at_ms)
            elif type(write) is Delete:
                memory.table.drop(write.key)
        memory.watchers.hint(writes)
        if visible:
            visible(memory.version)
        return memory.version

    def watch(self, partition: str) -> Watch:
        return self.memory.watchers.add(partition)

    async def sweep(self, now_ms: int, limit: int = limits.SWEEP_RECORDS_MAX) -> int:
        self._must_be_open()
        swept = 0
        expiries = self.memory.expiries
        while expiries and expiries[0][0] <= now_ms and swept < limit:
            _, key, version = heapq.heappop(expiries)
            if self.memory.holds(key, version):
                self.memory.table.drop(key)
                swept += 1
        return swept

    def _current(self, key: Key, now_ms: int) -> Record | None:
        record = self.memory.table.get(key)
        return None if record is None or record.absent_at(now_ms) else record

    def _must_be_open(self) -> None:
        if not self._open:
            raise self.closed_error("the memory engine")
