"""The simulated database, in two variants.

"shared" is like PostgreSQL: several nodes use it over a network, it never crashes, and responses
may be lost. "local" is like the SQLite engine: it runs in the process of its only node. A commit is
visible immediately and durable after a sync. A crash leaves the durable part, or a little more.
"""

import asyncio
import heapq
import json
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Self

from onceward import limits
from onceward.engine.base import Check, Delete, Engine, Put, Record, Version, Watch, Write
from onceward.engine.memory import Memory, MemoryEngine
from onceward.keys import Key
from onceward.testing.faults import FaultEngine, LocalFaultEngine
from onceward.testing.simulation.history import Applied, Stored


class Database(ABC):
    """The records of a world, independent of its nodes."""

    faults: type[FaultEngine]
    journal: list[Applied]

    @abstractmethod
    def connect(self) -> Engine:
        """An engine for a starting node."""

    @abstractmethod
    def crash(self) -> int:
        """A node has crashed; returns the number of commits that are lost."""

    @abstractmethod
    def settled(self) -> bool:
        """Whether all commits are durable."""

    def commits(self) -> list[Applied]:
        """The commits that would survive a crash of everything."""
        return self.journal

    @abstractmethod
    def calm(self) -> None:
        """Stop slow operations from now on."""

    @abstractmethod
    def memory(self) -> Memory:
        """The records as they would be after a crash of everything."""

    def final(self) -> dict[Key, Stored]:
        """The records, read without an engine."""
        rows = [
            record
            for partition in self.memory().table.partitions.values()
            for record in partition.rows.values()
        ]
        rows.sort(key=lambda record: record.key)
        return {r.key: Stored(json.loads(r.value), r.expires_at_ms) for r in rows}


class SharedDatabase(Database):
    """A separate server: commits that arrive are applied and durable."""

    faults = FaultEngine

    def __init__(self) -> None:
        self.journal = []
        self._memory = Memory()

    def connect(self) -> Engine:
        return SharedEngine(self._memory, self.journal)

    def crash(self) -> int:
        return 0

    def calm(self) -> None:
        pass

    def settled(self) -> bool:
        return True

    def memory(self) -> Memory:
        return self._memory


# The same in every run of a seed.
_SERVER_KEY = bytes(range(32))


class SharedEngine(MemoryEngine):
    """Records the commits that it has applied."""

    shares_reads = True

    def own_key(self) -> bytes | None:
        return _SERVER_KEY

    def __init__(self, memory: Memory, journal: list[Applied]) -> None:
        super().__init__(memory)
        self._journal = journal

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        version = await super().commit(writes, now_ms, visible)
        assert isinstance(version, int)
        if not all(type(write) is Check for write in writes):
            self._journal.append(Applied(_now_ns(), version, writes))
        return version


class LocalDatabase(Database):
    """A disk, and the engine of the process that has it open."""

    faults = LocalFaultEngine

    def __init__(self, random: random.Random, sync_s: float, slow_sync_s: float) -> None:
        self.journal = []
        self.durable = 0
        self.sync_s = sync_s
        self.slow_sync_s = slow_sync_s
        self._random = random
        self._version = 0
        self._engine: LocalEngine | None = None

    def connect(self) -> Engine:
        self._engine = LocalEngine(self, self.memory())
        return self._engine

    def append(self, version: int, writes: Sequence[Write]) -> int:
        self._version = max(version, self._version)
        self.journal.append(Applied(_now_ns(), version, writes))
        return len(self.journal)

    def sync_time_s(self) -> float:
        slow = self._random.random() < 0.1
        return self._random.random() * (self.slow_sync_s if slow else 2 * self.sync_s)

    def crash(self) -> int:
        """Keep the durable part of the journal, and a random part of the rest."""
        if self._engine is not None:
            self._engine.dead = True
            self._engine = None
        kept = self.durable
        if self._random.random() < 0.5:
            kept = self._random.randint(self.durable, len(self.journal))
        lost = len(self.journal) - kept
        del self.journal[kept:]
        self.durable = kept
        return lost

    def settled(self) -> bool:
        return self.durable == len(self.journal)

    def commits(self) -> list[Applied]:
        return self.journal[: self.durable]

    def calm(self) -> None:
        self.slow_sync_s = 0

    def memory(self) -> Memory:
        memory = Memory()
        for _, version, writes in self.commits():
            for write in writes:
                if type(write) is Put:
                    record = Record(write.key, write.value, version, write.expires_at_ms)
                    memory.table.put(record)
                    if write.expires_at_ms is not None:
                        expiry = (write.expires_at_ms, write.key, version)
                        heapq.heappush(memory.expiries, expiry)
                elif type(write) is Delete:
                    memory.table.drop(write.key)
        # Versions of commits that were lost in a crash are not reused either.
        memory.version = self._version
        return memory


class LocalEngine(Engine):
    """Shows a commit immediately, and returns from it when it is durable."""

    shared = False

    def __init__(self, disk: LocalDatabase, memory: Memory) -> None:
        self.dead = False
        self._disk = disk
        self._inner = MemoryEngine(memory)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._syncing = False
        self._context = copy_context()

    def own_key(self) -> bytes | None:
        return _SERVER_KEY

    async def open(self) -> Self:
        await self._inner.open()
        return self

    async def close(self) -> None:
        await self._durable(len(self._disk.journal))
        await self._inner.close()

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        return await self._inner.get(keys, now_ms)

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
        return await self._inner.scan(
            partition,
            now_ms,
            start=start,
            end=end,
            limit=limit,
            reverse=reverse,
            skip_damaged=skip_damaged,
        )

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        version = await self._inner.commit(writes, now_ms)
        assert isinstance(version, int)
        if all(type(write) is Check for write in writes):
            position = len(self._disk.journal)
        else:
            position = self._disk.append(version, writes)
        if visible is not None:
            visible(version)
        await self._durable(position)
        return version

    def watch(self, partition: str) -> Watch:
        return self._inner.watch(partition)

    async def sweep(self, now_ms: int, limit: int = limits.SWEEP_RECORDS_MAX) -> int:
        memory = self._inner.memory
        expired = [key for at_ms, key, _ in sorted(memory.expiries) if at_ms <= now_ms]
        there = [key for key in dict.fromkeys(expired) if memory.table.get(key) is not None]
        swept = await self._inner.sweep(now_ms, limit)
        gone = [Delete(key) for key in there if memory.table.get(key) is None]
        if gone:
            self._disk.append(memory.version, gone)
            self._sync()
        return swept

    async def _durable(self, position: int) -> None:
        if self._disk.durable >= position and not self.dead:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((position, future))
        self._sync()
        await future

    def _sync(self) -> None:
        if not self._syncing and not self.dead and not self._disk.settled():
            self._syncing = True
            # In the context in which the engine was created: a disk continues its operations when
            # the process is paused.
            asyncio.get_running_loop().call_later(
                self._disk.sync_time_s(),
                self._synced,
                len(self._disk.journal),
                context=self._context.copy(),
            )

    def _synced(self, position: int) -> None:
        if self.dead:
            return
        self._syncing = False
        self._disk.durable = position
        while self._waiting and self._waiting[0][0] <= position:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_result(None)
        self._sync()


def _now_ns() -> int:
    return round(asyncio.get_running_loop().time() * 1e9)
