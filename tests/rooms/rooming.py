"""Rooms on a memory engine, each call in a commit of its own."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from onceward.engine.memory import Memory, MemoryEngine
from onceward.rooms.part import Rooms
from onceward.rooms.room import Entry, Room
from onceward.store import Store
from onceward.store.transaction import Transaction
from tests.quick import QuickClock

T = TypeVar("T")


class House:
    """A node with rooms; several may share a memory."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.engine = MemoryEngine(memory)
        self.clock = QuickClock()
        self.store = Store(self.engine, self.clock)
        self.rooms = Rooms(self.store.ids, slots=4)

    async def open(self) -> "House":
        await self.engine.open()
        return self

    async def run(self, fn: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self.store.run(fn)

    async def create(self, id_: str = "r", **options: Any) -> Any:
        return await self.run(lambda tx: self.rooms.create(tx, id_, **options))

    async def change(self, *ops: Any, room: str = "r", **options: Any) -> Entry | None:
        return await self.run(lambda tx: self.rooms.change(tx, room, list(ops), **options))

    async def load(self, room: str = "r", at: int | None = None) -> Room:
        return await self.run(lambda tx: self.rooms.load(tx, room, at))

    async def state(self, room: str = "r", at: int | None = None) -> Any:
        return (await self.load(room, at)).state.plain()

    def records(self, kind: str) -> list[tuple[str, str]]:
        partitions = self.engine.memory.table.partitions.values()
        keys = [record.key for partition in partitions for record in partition.rows.values()]
        return sorted(key for key in keys if key[0].partition("#")[0] == kind)


async def house(memory: Memory | None = None) -> House:
    return await House(memory).open()
