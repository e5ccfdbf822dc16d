"""A store for tests: the memory engine, pauses that take no time, and outside changes."""

import asyncio
from typing import Any

import msgspec

from onceward.clock import Clock
from onceward.engine.base import Delete, Engine, Put, Record, Version
from onceward.engine.memory import MemoryEngine
from onceward.keys import Key
from onceward.store import Store

START_MS = 1_700_000_000_000


class QuickClock(Clock):
    """Stands still; sleeping is noted, and lets others run."""

    def __init__(self) -> None:
        self.at_ms = START_MS
        self.slept_s: list[float] = []
        super().__init__(lambda: self.at_ms * 1_000_000, lambda: self.at_ms * 1_000_000)

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await asyncio.sleep(0)


class WatchedEngine(MemoryEngine):
    """Notes its calls, and does `before_commit` before each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[Any] = []
        self.commits: list[Any] = []
        self.before_commit: Any = None

    async def get(self, keys: Any, now_ms: int) -> list[Record | None]:
        self.reads += keys
        return await super().get(keys, now_ms)

    async def commit(self, writes: Any, now_ms: int, visible: Any = None) -> Version:
        self.commits.append(writes)
        if self.before_commit is not None:
            await self.before_commit()
        return await super().commit(writes, now_ms, visible)


async def quick_store(engine: Engine | None = None) -> Store:
    return Store(await (engine or MemoryEngine()).open(), QuickClock())


async def change(store: Store, key: Key, value: Any) -> Version:
    """Write a value past the store, as another node would."""
    return await store.engine.commit([Put(key, msgspec.json.encode(value))], START_MS)


async def remove(store: Store, key: Key) -> None:
    await store.engine.commit([Delete(key)], START_MS)


async def stored(store: Store, key: Key) -> Any:
    """What the engine has under a key; None if nothing."""
    [record] = await store.engine.get([key], START_MS)
    return None if record is None else msgspec.json.decode(record.value)
