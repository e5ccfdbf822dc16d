"""An engine that finds out what became of lost commits, as the store does: so that it can be
certified over a network that cuts."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar

from onceward.engine.base import Check, Engine, Record, Version, Watch, Write, admit
from onceward.engine.postgres import PostgresEngine
from onceward.errors import Conflict, Unavailable
from onceward.keys import Key
from onceward.store import Store

T = TypeVar("T")

MARKER = b"\0onceward_commit\0"
"""In a request that commits, and in no other."""


class ResolvingEngine(Engine):
    """Repeats what was refused because the server was away, and settles what was lost."""

    def __init__(self, url: str) -> None:
        self.inner = PostgresEngine(url)
        self._store = Store(self.inner)

    async def open(self) -> Self:
        await self.inner.open()
        return self

    async def close(self) -> None:
        await self.inner.close()

    async def get(self, keys: Sequence[Key], now_ms: int) -> list[Record | None]:
        return await self._insist(lambda: self.inner.get(keys, now_ms))

    async def scan(self, partition: str, now_ms: int, **bounds: Any) -> list[Record]:
        return await self._insist(lambda: self.inner.scan(partition, now_ms, **bounds))

    async def sweep(self, now_ms: int, limit: int = 1_000) -> int:
        return await self._insist(lambda: self.inner.sweep(now_ms, limit))

    def watch(self, partition: str) -> Watch:
        return self.inner.watch(partition)

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        admit(writes)
        if all(isinstance(write, Check) for write in writes):
            return await self._insist(lambda: self.inner.commit(writes, now_ms, visible))
        while True:
            try:
                return await self._insist(
                    lambda: self._store._commit_traced(
                        list(writes), now_ms, visible or (lambda _version: None)
                    )
                )
            except Conflict as conflict:
                # Without keys: it was lost on the way, and is fenced out.
                if "keys" in conflict.details:
                    raise

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        ask = 0
        while True:
            try:
                return await call()
            except Unavailable as error:
                if error.code != "engine_unreachable":
                    raise
            await self._store._pause(ask)
            ask += 1
