"""Engines that break a guarantee only when calls overlap, are cancelled, or are cut off."""

import asyncio
import heapq
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from onceward.engine.base import ANY, Check, Delete, Put, Record, Version, Write, judge
from onceward.engine.memory import Memory, MemoryEngine
from onceward.errors import Conflict
from onceward.keys import Key
from tests.testing.broken_engines import Unlimited, caught_by


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# Overlapping calls.


@caught_by("no_update_is_lost")
class ForgetsWhatItJudged(Unlimited):
    """Judges, waits, then applies: what changed in between is overwritten."""

    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        judge(writes, lambda key: self._current(key, now_ms))
        await turns(2)
        blind = [write for write in writes if type(write) is Put]
        return await super().commit(
            [Put(put.key, put.value, put.expires_at_ms) for put in blind], now_ms, visible
        )


@caught_by("crossed_checks_exclude_each_other")
class ChecksBeforeItWaits(MemoryEngine):
    """Snapshot isolation: what is written is judged again, what is only checked is not."""

    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        judge(writes, lambda key: self._current(key, now_ms))
        await turns(2)
        written = [write for write in writes if type(write) is not Check]
        return await super().commit(written or writes, now_ms, visible)


@caught_by("a_get_is_of_one_moment")
class ShowsHalfACommit(Unlimited):
    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        half = len(writes) // 2
        judge(writes, lambda key: self._current(key, now_ms))
        self.apply(writes[:half], self.memory.version + 1)
        await turns(1)
        return await super().commit(writes, now_ms, visible)


@caught_by("a_get_is_of_one_moment")
class ReadsKeyByKey(MemoryEngine):
    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        found = []
        for key in keys:
            found += await super().get([key], now_ms)
            await turns(1)
        return found


@caught_by("opposite_orders_do_not_deadlock")
class LocksInTheOrderGiven(MemoryEngine):
    async def open(self) -> Any:
        self.locks: dict[Key, asyncio.Lock] = {}
        return await super().open()

    async def commit(self, writes: Sequence[Write], *rest: Any) -> Version:
        async with AsyncExitStack() as stack:
            for write in writes:
                lock = self.locks.setdefault(write.key, asyncio.Lock())
                await stack.enter_async_context(lock)
                await turns(1)
            return await super().commit(writes, *rest)


@caught_by("an_answered_commit_is_seen_by_all")
class ReadsFromItsOwnCache(MemoryEngine):
    """Right alone; of what another engine commits, it does not hear."""

    async def open(self) -> Any:
        self.cache: dict[Key, Record] = {}
        return await super().open()

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        for record in await super().get(keys, now_ms):
            if record is not None:
                self.cache.setdefault(record.key, record)
        return [self.cache.get(key) for key in keys]


@caught_by("a_sweep_spares_what_is_put_meanwhile")
class SweepsInTwoSteps(MemoryEngine):
    async def sweep(self, now_ms: int, limit: int = 1_000) -> int:
        due: list[Key] = []
        while self.memory.expiries and self.memory.expiries[0][0] <= now_ms and len(due) < limit:
            due.append(heapq.heappop(self.memory.expiries)[1])
        due = [key for key in due if self._current(key, now_ms) is None]
        await turns(1)
        for key in due:
            self.memory.table.drop(key)
        return len(due)


# What a commit tells.


@caught_by("visible_comes_once")
class IsNeverVisible(MemoryEngine):
    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        return await super().commit(writes, now_ms)


@caught_by("visible_comes_once")
class IsVisibleTwice(MemoryEngine):
    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        version = await super().commit(writes, now_ms, visible)
        if visible:
            visible(version)
        return version


@caught_by("visible_comes_once")
class IsVisibleThoughItConflicts(MemoryEngine):
    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        try:
            return await super().commit(writes, now_ms, visible)
        except Conflict:
            if visible:
                visible(self.memory.version)
            raise


@caught_by("visible_means_readable")
class IsVisibleTooEarly(MemoryEngine):
    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        judge(writes, lambda key: self._current(key, now_ms))
        if visible:
            visible(self.memory.version + 1)
        await turns(3)
        return await super().commit(writes, now_ms)


@caught_by("a_change_gives_a_hint")
class NeverHints(MemoryEngine):
    def watch(self, partition: str) -> Any:
        return super().watch("no one writes here")


@caught_by("a_change_elsewhere_gives_a_hint")
class HintsOnlyAtItsOwnChanges(MemoryEngine):
    async def open(self) -> Any:
        shared, self.memory = self.memory, Memory()
        self.memory.table = shared.table
        return await super().open()


@caught_by("a_closed_engine_refuses")
class NeverCloses(MemoryEngine):
    async def close(self) -> None:
        pass


@caught_by("closing_twice_is_closing_once")
class ClosesOnce(MemoryEngine):
    async def close(self) -> None:
        if not self._open:
            raise RuntimeError("closed already")
        await super().close()


@caught_by("reopening_keeps_everything")
class ForgetsEverything(MemoryEngine):
    async def open(self) -> Any:
        self.memory.table = Memory().table
        return await super().open()


# Cancellation.


@caught_by("a_cancelled_commit_is_whole")
class LeavesHalfWhenCancelled(Unlimited):
    """Whole for readers, who wait for the lock; but a cancelled commit stays half done."""

    async def open(self) -> Any:
        self.lock = asyncio.Lock()
        return await super().open()

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        async with self.lock:
            return await super().get(keys, now_ms)

    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        async with self.lock:
            judge(writes, lambda key: self._current(key, now_ms))
            self.apply(writes[: len(writes) // 2], self.memory.version + 1)
            await turns(1)
            rest = [
                write if write.expect is ANY else type(write)(write.key, expect=ANY)
                for write in writes
                if type(write) is not Put
            ]
            puts = [Put(w.key, w.value, w.expires_at_ms) for w in writes if type(w) is Put]
            return await super().commit([*puts, *rest], now_ms, visible)


@caught_by("a_cancelled_commit_is_whole")
class TakesBackWhatWasVisible(MemoryEngine):
    async def commit(self, writes: Sequence[Write], now_ms: int, visible: Any = None) -> Version:
        before = [self.memory.table.get(write.key) for write in writes]
        version = await super().commit(writes, now_ms, visible)
        try:
            await turns(2)
        except asyncio.CancelledError:
            for write, record in zip(writes, before, strict=True):
                self.memory.table.drop(write.key)
                if record is not None:
                    self.memory.table.put(record)
            raise
        return version


@caught_by("a_cancelled_commit_is_whole")
class KeepsTheLockWhenCancelled(MemoryEngine):
    async def open(self) -> Any:
        self.lock = asyncio.Lock()
        return await super().open()

    async def commit(self, writes: Sequence[Write], *rest: Any) -> Version:
        await self.lock.acquire()
        await turns(1)
        try:
            version = await super().commit(writes, *rest)
        except Exception:
            self.lock.release()
            raise
        self.lock.release()
        return version


# Durability: one engine that is honest, and those that are not.


class Lagging(MemoryEngine):
    """Honest: shows a commit at once, and answers when a batch of them is on its `disk`."""

    def __init__(self, disk: Memory | None = None) -> None:
        super().__init__()
        self.disk = disk or Memory()
        self.waiting: list[tuple[Sequence[Write], Version, asyncio.Future[None]]] = []
        self.flusher: asyncio.Task[None] | None = None

    async def open(self) -> Any:
        self.memory.version = self.disk.version
        for partition in self.disk.table.partitions.values():
            for record in partition.rows.values():
                self.memory.table.put(record)
                if record.expires_at_ms is not None:
                    expiry = (record.expires_at_ms, record.key, int(record.version))
                    heapq.heappush(self.memory.expiries, expiry)
        return await super().open()

    async def close(self) -> None:
        await super().close()
        if self.flusher is not None:
            await self.flusher

    def crash(self) -> "Lagging":
        if self.flusher is not None:
            self.flusher.cancel()
            self.flusher = None
        self._open = False
        return type(self)(self.disk)

    async def commit(self, writes: Sequence[Write], *rest: Any) -> Version:
        version = await super().commit(writes, *rest)
        await self.durable(writes, version)
        return version

    async def sweep(self, now_ms: int, limit: int = 1_000) -> int:
        swept = await super().sweep(now_ms, limit)
        kept, self.disk.table = self.memory.table, Memory().table
        for partition in kept.partitions.values():
            for record in partition.rows.values():
                self.disk.table.put(record)
        return swept

    def queue(self, writes: Sequence[Write], version: Version) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        self.waiting.append((writes, version, done))
        if self.flusher is None:
            self.flusher = asyncio.create_task(self.flush())
        return done

    async def durable(self, writes: Sequence[Write], version: Version) -> None:
        await self.queue(writes, version)

    async def flush(self) -> None:
        while self.waiting:
            await turns(4)
            batch, self.waiting = self.waiting, []
            for writes, version, done in batch:
                self.save(writes, version)
                if not done.done():
                    done.set_result(None)
        self.flusher = None

    def save(self, writes: Sequence[Write], version: Version) -> None:
        self.disk.version = max(self.disk.version, int(version))
        for write in writes:
            if type(write) is Put:
                self.disk.table.put(Record(write.key, write.value, version, write.expires_at_ms))
            elif type(write) is Delete:
                self.disk.table.drop(write.key)


@caught_by("an_answered_commit_survives_a_crash")
class AnswersBeforeItIsDurable(Lagging):
    async def durable(self, writes: Sequence[Write], version: Version) -> None:
        self.queue(writes, version)


@caught_by("an_answered_commit_survives_a_crash")
class TearsACommitApart(Lagging):
    async def flush(self) -> None:
        while self.waiting:
            writes, version, done = self.waiting.pop(0)
            for write in writes:
                await turns(1)
                self.save([write], version)
            if not done.done():
                done.set_result(None)
        self.flusher = None


@caught_by("what_survives_has_its_past")
class WritesTheLastFirst(Lagging):
    async def flush(self) -> None:
        while self.waiting:
            await turns(4)
            writes, version, done = self.waiting.pop()
            self.save(writes, version)
            if not done.done():
                done.set_result(None)
        self.flusher = None


@caught_by("a_checked_read_survives_a_crash")
class ChecksDoNotWait(Lagging):
    async def durable(self, writes: Sequence[Write], version: Version) -> None:
        if any(type(write) is not Check for write in writes):
            await super().durable(writes, version)


@caught_by("versions_are_not_reused_after_a_crash")
class CountsWhatItFinds(Lagging):
    async def open(self) -> Any:
        await super().open()
        rows = [r for p in self.disk.table.partitions.values() for r in p.rows.values()]
        self.memory.version = max((int(record.version) for record in rows), default=0)
        return self


@caught_by("cancelling_one_spares_the_others")
class SharesItsFate(Lagging):
    """One future for the whole batch: who is cancelled cancels it for all."""

    async def durable(self, writes: Sequence[Write], version: Version) -> None:
        self.queue(writes, version)
        assert self.flusher is not None
        await self.flusher


@caught_by("closing_settles_what_is_under_way")
class ClosesInTheMiddle(Lagging):
    """Answers what was under way, but writes nothing after a close."""

    def save(self, writes: Sequence[Write], version: Version) -> None:
        if self._open:
            super().save(writes, version)
