"""A client that joins anew is there once, and no step comes over the connection that it left."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onceward import limits
from tests.rooms.people import House, map_set, open_house


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as house:
        yield house


async def test_a_client_that_joins_anew_is_put_out_where_it_was(house: House) -> None:
    old, new = await house.enter("ann"), await house.enter("ann")
    first = await old.join("r", "c", create=True)
    old.ask("presence.set", room="r", name="p", value="here")
    joined = await new.join("r", "c", epoch=first["epoch"], seq=0, steps=[step(1)])
    assert [member["id"] for member in joined["members"]] == [joined["me"]]
    assert joined["presences"] == {"p": {"ann": "here"}}, "it never seemed to have gone"
    assert (await new.next("ack"))["n"] == 1
    left = await old.next("left")
    assert (left["room"], left["code"]) == ("r", "room_moved")
    old.step("r", 1, map_set("m", "k", "late"))
    assert (await old.next("refused"))["code"] == "not_joined"
    other = await house.enter("ben")
    assert (await other.join("r", "b"))["maps"] == {"m": {"k": 1}}


async def test_the_same_client_name_of_another_user_is_another_client(house: House) -> None:
    ann, ben = await house.enter("ann"), await house.enter("ben")
    await ann.join("r", "c", create=True)
    await ben.join("r", "c")
    assert (await ann.next("came", "left"))["t"] == "came"


async def test_a_full_room_lets_in_who_was_there(house: House) -> None:
    await house.make("r", capacity=1)
    old, new = await house.enter("ann"), await house.enter("ann")
    await old.join("r", "c")
    await new.join("r", "c")
    other = await house.enter("ben")
    other.ask("join", room="r", client="b")
    assert (await other.next("left"))["code"] == "room_full"


async def test_a_client_is_told_which_of_its_steps_were_refused(house: House) -> None:
    ann = await house.enter("ann")
    await ann.join("r", "c", create=True)
    ann.step("r", 1, map_set("m", "k", 1))
    ann.step("r", 2, {"op": "map.compare", "map": "m", "key": "k", "value": 2})
    ann.step("r", 3, map_set("m", "k", 3))
    await ann.next("refused")
    again = await house.enter("ann")
    joined = await again.join("r", "c")
    assert (joined["n"], joined["known"], joined["skipped"]) == (3, 1, [2])


def step(n: int) -> dict[str, object]:
    return {"n": n, "ops": [map_set("m", "k", n)]}


class Slow:
    """Lets the store wait, so that what comes meanwhile waits for a commit."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go = asyncio.Event()
        run = house.store.run

        async def slowly(*asked: Any, **how: Any) -> Any:
            await self.go.wait()
            return await run(*asked, **how)

        monkeypatch.setattr(house.store, "run", slowly)


async def test_a_client_that_joins_twice_at_once_is_there_once_and_the_first_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    ben = await house.enter("ben")
    await ben.join("r", "b", create=True)
    old, new = await house.enter("ann"), await house.enter("ann")
    slow = Slow(house, monkeypatch)
    ben.step("r", 1, map_set("m", "k", 1))
    old.ask("join", room="r", client="c")
    new.ask("join", room="r", client="c")
    await house.until(lambda: len(house.hub.rooms["r"]._joins) == 2)
    slow.go.set()
    left = await old.next("left")
    assert (left["room"], left["code"]) == ("r", "room_moved")
    old.step("r", 1, map_set("m", "k", "late"))
    assert (await old.next("refused"))["code"] == "not_joined"
    new.step("r", 1, map_set("m", "k", 2))
    assert (await new.next("ack"))["seq"] == 2


async def test_who_joins_again_as_another_client_gets_no_answer_to_steps_of_the_first(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROOM_COMMIT_STEPS_MAX", 1)
    ann = await house.enter("ann")
    await ann.join("r", "c", create=True)
    slow = Slow(house, monkeypatch)
    ann.step("r", 1, map_set("m", "k", 1))
    ann.step("r", 2, map_set("m", "k", 2))
    ann.step("r", 3, {"op": "map.compare", "map": "m", "key": "k", "value": 3})
    ann.ask("leave", room="r")
    ann.ask("join", room="r", client="d")
    await house.until(lambda: len(house.hub.rooms["r"]._joins) == 1)
    slow.go.set()
    assert (await ann.next("joined"))["seq"] == 1
    told = await ann.next("ack", "change", "refused")
    assert (told["t"], told.get("client"), told["n"]) == ("change", "c", 2)
    ann.step("r", 1, map_set("m", "k", 4))
    told = await ann.next("ack", "change", "refused")
    assert (told["t"], told["n"], told["seq"]) == ("ack", 1, 3)
