"""Calls about rooms by the client, on good connections and on bad ones."""

from typing import Any

import pytest

from onceward.client import Client
from onceward.errors import BadInput, HistoryGone, NoSuchRoom, OncewardError
from tests.client.served import Cutter, Loss

LOSSES = [[Loss.REQUEST], [Loss.ANSWER], [Loss.HALF, Loss.REQUEST, Loss.ANSWER]]
lossy = pytest.mark.parametrize("losses", LOSSES, ids=" and ".join)


def add(key: str = "k") -> dict[str, Any]:
    return {"op": "map.add", "map": "m", "key": key, "by": 1}


async def test_a_room_is_made_found_changed_seen_and_deleted(client: Client) -> None:
    made = await client.rooms.create(id="board.1", meta={"team": "a"}, capacity=5, per_user=2)
    assert (made.id, made.capacity, made.per_user, made.seq) == ("board.1", 5, 2, 0)
    with pytest.raises(OncewardError) as refused:
        await client.rooms.create(id="board.1")
    assert refused.value.code == "room_exists"
    other = await client.rooms.create()
    found = await client.rooms.list(prefix="board.", meta={"team": "a"})
    assert ([room.id for room in found.rooms], found.next) == (["board.1"], None)
    found = await client.rooms.list(limit=1)
    assert (len(found.rooms), found.next is None) == (1, False)
    assert (await client.rooms.update("board.1", keep=7)).keep == 7
    applied = [await client.rooms.apply("board.1", [add()]) for _ in range(3)]
    assert [one.seq for one in applied] == [1, 2, 3]
    assert (await client.rooms.snapshot("board.1")).maps == {"m": {"k": 3}}
    assert (await client.rooms.snapshot("board.1", at=1)).maps == {"m": {"k": 1}}
    steps = await client.rooms.history("board.1", since=1, limit=1)
    assert ([step.seq for step in steps.entries], steps.next) == ([2], 2)
    assert [step.seq async for step in client.rooms.iterate_history("board.1", limit=2)] == [
        1,
        2,
        3,
    ]
    assert (await client.rooms.get("board.1")).seq == 3
    assert [(one.id, one.user) for one in await client.rooms.members("board.1")] == [("", made.by)]
    assert await client.rooms.broadcast("board.1", "hi") == 0
    await client.rooms.delete("board.1")
    await client.rooms.delete(other.id)
    with pytest.raises(NoSuchRoom):
        await client.rooms.get("board.1")


async def test_a_step_creates_its_room_if_it_may(client: Client) -> None:
    for _ in range(2):
        await client.rooms.apply("new", [add()], create=True)
    assert (await client.rooms.snapshot("new")).maps == {"m": {"k": 2}}
    with pytest.raises(OncewardError) as refused:
        await client.rooms.apply("n\0", [add()], create=True)
    assert refused.value.code == "bad_name"


async def test_whole_maps_lists_and_presences(client: Client) -> None:
    await client.rooms.create(id="r")
    for put in (client.rooms.put_map, client.rooms.put_list, client.rooms.put_presence):
        await put("r", "it", schema={"type": "number"})
    insert = {"op": "list.insert", "list": "it", "id": "a", "value": 1}
    await client.rooms.apply("r", [insert, {"op": "map.add", "map": "it", "key": "k", "by": 2}])
    assert await client.rooms.get_map("r", "it") == {"k": 2}
    assert await client.rooms.get_list("r", "it") == [("a", 1)]
    assert await client.rooms.get_presence("r", "it") == {}
    assert await client.rooms.delete_map("r", "it")
    assert not await client.rooms.delete_map("r", "it")


async def test_what_is_refused_raises(client: Client) -> None:
    await client.rooms.create(id="r")
    for call in (
        client.rooms.get("none"),
        client.rooms.delete("none"),
        client.rooms.apply("none", [add()]),
        client.rooms.history("none"),
    ):
        with pytest.raises(NoSuchRoom):
            await call
    with pytest.raises(HistoryGone):
        await client.rooms.snapshot("r", at=9)
    for call in (
        client.rooms.apply("r", []),
        client.rooms.apply("r", [{"op": "dance"}]),
        client.rooms.create(id="x" * 300),
        client.rooms.create(capacity=0),
    ):
        with pytest.raises(BadInput):
            await call


@lossy
async def test_a_step_is_taken_once_however_often_it_is_sent(
    client: Client, cutter: Cutter, losses: list[Loss]
) -> None:
    await client.rooms.create(id="r")
    cutter.word, cutter.losses = "/rooms", list(losses)
    await client.rooms.apply("r", [add()])
    assert (await client.rooms.snapshot("r")).maps == {"m": {"k": 1}}


@lossy
async def test_a_room_is_made_and_deleted_on_bad_connections(
    client: Client, cutter: Cutter, losses: list[Loss]
) -> None:
    cutter.word, cutter.losses = "/rooms", list(losses)
    assert (await client.rooms.create(id="r")).id == "r"
    cutter.word, cutter.losses = "/rooms", list(losses)
    await client.rooms.delete("r")
    with pytest.raises(NoSuchRoom):
        await client.rooms.get("r")
