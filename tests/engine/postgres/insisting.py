"""An engine that repeats what was refused because the server was away: so that it can be certified
over a network that cuts."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar

from onceward.clock import Clock
from onceward.engine.base import Engine, Record, Version, Watch, Write
from onceward.engine.postgres import PostgresEngine
from onceward.errors import Unavailable
from onceward.keys import Key

T = TypeVar("T")

MARKER = b"\0onceward_commit\0"
"""In a request that commits, and in no other."""
MARKERS = b"\0onceward_"
"""In a request that commits or asks what became of a commit."""
_PAUSE_S = 0.002


class InsistingEngine(Engine):
    """Repeats what was refused."""

    def __init__(self, url: str) -> None:
        self.inner = PostgresEngine(url)
        self._clock = Clock()

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
        return await self._insist(lambda: self.inner.commit(writes, now_ms, visible))

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except Unavailable as error:
                if error.code != "engine_unreachable":
                    raise
            await self._clock.sleep(_PAUSE_S)
