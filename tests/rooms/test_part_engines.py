"""Rooms on the engines that last: what was committed is there after a restart."""

from pathlib import Path
from typing import Any

import pytest

from onceward import engine as engines
from onceward import limits
from onceward.api import room_changes as op
from onceward.engine.base import Engine
from onceward.rooms.part import Rooms
from onceward.rooms.room import Room
from onceward.store import Store


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/rooms.db"
    return str(request.getfixturevalue("url"))


async def opened(address: str) -> tuple[Engine, Store, Rooms]:
    engine = await engines.create(address).open()
    store = Store(engine)
    return engine, store, Rooms(store.ids, slots=4)


async def test_a_room_comes_back_from_its_snapshot_and_its_log(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROOM_SNAPSHOT_STEPS", 10)
    engine, store, rooms = await opened(address)
    await store.run(lambda tx: rooms.create(tx, "r", keep=15))
    for number in range(1, 38):
        insert = op.ListInsert("l", f"i{number}", number, after="")
        await store.run(
            lambda tx, insert=insert, n=number: rooms.change(tx, "r", [insert], client="c", n=n)
        )
    await engine.close()

    engine, store, rooms = await opened(address)
    room = await store.run(lambda tx: rooms.load(tx, "r"))
    assert [cell.value for _, cell in room.state.lists["l"].in_order()] == list(range(37, 0, -1))
    assert room.clients["", "c"].n == room.seq == 37
    past = await store.run(lambda tx: rooms.load(tx, "r", 25))
    assert len(past.state.lists["l"].cells) == 25
    again = await store.run(lambda tx: rooms.change(tx, "r", [op.MapMake("m")], client="c", n=37))
    assert again is None
    await store.run(lambda tx: rooms.remove(tx, "r"))
    assert (await store.run(lambda tx: rooms.find(tx))) == ([], "")
    await engine.close()


async def test_the_largest_room_takes_the_largest_steps_in_one_commit(address: str) -> None:
    engine, store, rooms = await opened(address)
    await store.run(lambda tx: rooms.create(tx, "r"))
    room: Room = await store.run(lambda tx: rooms.load(tx, "r"))

    async def append(*values: Any) -> int:
        taken = [room.take([one], by="u" * 200, client=f"c{room.seq}", n=9) for one in values]
        entries = [one.entry for one in taken if one is not None]
        head = await store.run(lambda tx: rooms.append(tx, "r", room, entries))
        return len(head.snapshots)

    text = "x" * 240_000
    for key in "abcdefgh":
        await append(op.MapSet("m", key, text))
    assert room.state.bytes > 1_900_000
    for number in range(limits.ROOM_CLIENTS_MAX):
        room.clients["u" * 250, f"{number:060}"] = room.clients["u" * 200, "c0"]._replace(
            skipped=tuple(range(2**52, 2**52 + limits.ROOM_SKIPPED_MAX))
        )
    before = len((await store.run(lambda tx: rooms.head(tx, "r"))).snapshots)
    for _ in range(4):
        snapshots = await append(*[op.MapSet("m", key, text + "y") for key in "abcd"])
    assert snapshots > before, "the largest of all commits was among them"
    again = await store.run(lambda tx: rooms.load(tx, "r"))
    assert again.state.plain() == room.state.plain()
    assert len(again.clients) >= limits.ROOM_CLIENTS_MAX
    await engine.close()
