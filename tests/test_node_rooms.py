"""What a deleted room leaves is removed by the node, and only that."""

import asyncio

from onceward.api import room_changes as op
from onceward.engine.base import Delete, Put
from onceward.engine.memory import MemoryEngine
from onceward.node import Node
from onceward.rooms.part import Rooms
from onceward.store import Store
from onceward.store.transaction import Transaction

STEPS = 100  # more than one commit removes


async def test_the_records_of_a_deleted_room_are_removed_while_another_of_its_name_is_used() -> (
    None
):
    engine = await MemoryEngine().open()
    store = Store(engine)
    left, gone = STEPS, asyncio.Event()

    def saw(write: Put | Delete) -> None:
        nonlocal left
        if isinstance(write, Delete):
            left -= 1
            if left == 0:
                gone.set()

    async with Node(store, slots=2) as node:
        node.act_on_parts()
        rooms = node.parts.get(Rooms)

        async def fill(tx: Transaction) -> None:
            await rooms.create(tx, "r")
            await rooms.map_set(tx, "r", "m", "k", 0)

        await store.run(fill)
        for number in range(1, STEPS):
            await store.run(lambda tx, n=number: rooms.change(tx, "r", [op.MapSet("m", "k", n)]))
        store.on_change("roomlog", saw)

        async def replace(tx: Transaction) -> None:
            await rooms.remove(tx, "r")
            await rooms.create(tx, "r")
            await rooms.map_set(tx, "r", "m", "k", "new")

        await store.run(replace)
        await gone.wait()
        assert await store.run(lambda tx: rooms.map(tx, "r", "m")) == {"k": "new"}
    await engine.close()
