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
    made = await client.create_room("board.1", meta={"team": "a"}, capacity=5, per_user=2)
    assert (made.id, made.capacity, made.per_user, made.seq) == ("board.1", 5, 2, 0)
    with pytest.raises(OncewardError) as refused:
        await client.create_room("board.1")
    assert refused.value.code == "room_exists"
    other = await client.create_room()
    found, after = await client.rooms(prefix="board.", meta={"team": "a"})
    assert ([room.id for room in found], after) == (["board.1"], None)
    found, after = await client.rooms(limit=1)
    assert (len(found), after is None) == (1, False)
    assert (await client.configure_room("board.1", keep=7)).keep == 7
    assert [await client.change_room("board.1", [add()]) for _ in range(3)] == [1, 2, 3]
    assert (await client.room_state("board.1")).maps == {"m": {"k": 3}}
    assert (await client.room_state("board.1", 1)).maps == {"m": {"k": 1}}
    steps, since = await client.room_history("board.1", since=1, limit=1)
    assert ([step.seq for step in steps], since) == ([2], 2)
    assert (await client.room_info("board.1")).seq == 3
    assert [(one.id, one.user) for one in await client.room_members("board.1")] == [("", made.by)]
    assert await client.say_in_room("board.1", "hi") == 0
    await client.delete_room("board.1")
    await client.delete_room(other.id)
    with pytest.raises(NoSuchRoom):
        await client.room_info("board.1")


async def test_whole_maps_lists_and_presences(client: Client) -> None:
    await client.create_room("r")
    for kind in ("maps", "lists", "presences"):
        await client.make_in_room("r", kind, "it", schema={"type": "number"})
    insert = {"op": "list.insert", "list": "it", "id": "a", "value": 1}
    await client.change_room("r", [insert, {"op": "map.add", "map": "it", "key": "k", "by": 2}])
    assert await client.room_map("r", "it") == {"k": 2}
    assert await client.room_list("r", "it") == [("a", 1)]
    assert await client.room_presence("r", "it") == {}
    assert await client.drop_in_room("r", "maps", "it")
    assert not await client.drop_in_room("r", "maps", "it")


async def test_what_is_refused_raises(client: Client) -> None:
    await client.create_room("r")
    for call in (
        client.room_info("none"),
        client.delete_room("none"),
        client.change_room("none", [add()]),
        client.room_history("none"),
    ):
        with pytest.raises(NoSuchRoom):
            await call
    with pytest.raises(HistoryGone):
        await client.room_state("r", 9)
    for call in (
        client.change_room("r", []),
        client.change_room("r", [{"op": "dance"}]),
        client.create_room("x" * 300),
        client.create_room(capacity=0),
    ):
        with pytest.raises(BadInput):
            await call


@lossy
async def test_a_step_is_taken_once_however_often_it_is_sent(
    client: Client, cutter: Cutter, losses: list[Loss]
) -> None:
    await client.create_room("r")
    cutter.word, cutter.losses = "/rooms", list(losses)
    await client.change_room("r", [add()])
    assert (await client.room_state("r")).maps == {"m": {"k": 1}}


@lossy
async def test_a_room_is_made_and_deleted_on_bad_connections(
    client: Client, cutter: Cutter, losses: list[Loss]
) -> None:
    cutter.word, cutter.losses = "/rooms", list(losses)
    assert (await client.create_room("r")).id == "r"
    cutter.word, cutter.losses = "/rooms", list(losses)
    await client.delete_room("r")
    with pytest.raises(NoSuchRoom):
        await client.room_info("r")
