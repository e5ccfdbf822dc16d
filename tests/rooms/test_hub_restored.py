"""A room that has steps which the database lost is loaded again, and goes on from what is there."""

from collections.abc import AsyncIterator
from copy import deepcopy

import pytest

from onceward.engine.base import Incarnation
from onceward.engine.memory import MemoryEngine
from onceward.errors import Unavailable
from onceward.rooms.loaded import LoadedRoom
from onceward.rooms.part import Rooms
from onceward.store import Store
from tests.rooms.people import House, map_set, open_house


@pytest.fixture
async def engine() -> MemoryEngine:
    return await MemoryEngine().open()


@pytest.fixture
async def house(engine: MemoryEngine) -> AsyncIterator[House]:
    async with open_house(Store(engine)) as house:
        yield house


async def lose_a_step(house: House, engine: MemoryEngine) -> None:
    """Ann is in the room and has made two steps; the database has the first."""
    ann = await house.enter("ann")
    await ann.join("r", create=True)
    ann.step("r", 1, map_set("m", "k", "kept"))
    await ann.next("ack")
    table = deepcopy(engine.memory.table)
    ann.step("r", 2, map_set("m", "k", "lost"))
    await ann.next("ack")
    engine.memory.table = table
    engine.memory.version += 1_000_000


async def test_rooms_in_memory_end_when_the_database_was_restored(
    house: House, engine: MemoryEngine
) -> None:
    ben = await house.enter("ben")
    await lose_a_step(house, engine)
    assert (await ben.join("r", "b"))["maps"] == {"m": {"k": "lost"}}
    engine.incarnation_changed(Incarnation("other", 2))
    assert (await ben.next("left"))["code"] == "room_moved"
    assert (await ben.join("r", "b"))["maps"] == {"m": {"k": "kept"}}
    ben.step("r", 1, map_set("m", "l", 1))
    assert (await ben.next("ack"))["seq"] == 2


async def test_a_room_ahead_of_its_record_takes_no_step(house: House, engine: MemoryEngine) -> None:
    ben = await house.enter("ben")
    await lose_a_step(house, engine)
    await ben.join("r", "b")
    ben.step("r", 1, map_set("m", "l", 1))
    assert (await ben.next("left", "ack"))["code"] == "room_moved"
    ben.ask("join", room="r", client="b")
    assert (await ben.next("snapshot"))["maps"] == {"m": {"k": "kept"}}


async def test_a_room_loaded_while_the_database_is_restored_is_not_used(
    house: House, engine: MemoryEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.make("r")
    load = LoadedRoom.load

    async def restored(store: Store, rooms: Rooms, id_: str) -> LoadedRoom:
        ledger = await load(store, rooms, id_)
        monkeypatch.setattr(
            MemoryEngine, "incarnation", property(lambda self: Incarnation("other", 2))
        )
        return ledger

    monkeypatch.setattr(LoadedRoom, "load", restored)
    with pytest.raises(Unavailable, match="restored"):
        await house.hub.fetch("r")
    assert (await house.hub.fetch("r")).id == "r"
