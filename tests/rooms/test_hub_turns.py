"""What rooms say in one turn of the event loop reaches each connection in one write."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.rooms.people import House, Person, map_set, open_house


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as house:
        yield house


async def test_what_several_rooms_say_in_one_turn_is_one_write(house: House) -> None:
    ann, ben = await house.enter("ann"), await house.enter("ben")
    for room in ("r", "s", "t"):
        await ann.join(room, create=True)
        await ben.join(room)
        await ann.next("came")
    writes = ben.writes
    for n in range(1, 4):
        for room in ("r", "s", "t"):
            ann.ask("say", room=room, event=f"{n}")
    ben.ask("ping")
    await house.until(lambda: ben.writes > writes)
    assert ben.writes == writes + 1
    told = [(frame["t"], frame.get("room"), frame.get("event")) for frame in ben.got[-10:]]
    assert [one for one in told if one[0] == "pong"]
    for room in ("r", "s", "t"):
        assert [one for one in told if one[1] == room] == [
            ("said", room, f"{n}") for n in range(1, 4)
        ]


async def test_those_who_are_cut_off_in_the_midst_of_a_turn_harm_nobody_else(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = [await house.enter(f"u{number}") for number in range(20)]
    for person in people:
        await person.join("r", create=True)
    ann, mutes, rest = people[0], people[1:11], people[11:]
    await house.until(lambda: all(person.got[-1].get("user") == "u19" for person in people[:-1]))
    for mute in mutes:
        monkeypatch.setattr(mute, "send", lambda _, mute=mute: mute.session.cut_off())
    for n in range(1, 4):
        ann.step("r", n, map_set("m", "k", n))
        while (await ann.next("ack"))["n"] < n:
            pass
    for mute in mutes:
        assert await mute.closed() == "slow_reader"
    for person in rest:

        def told(kind: str, what: str, person: Person = person) -> list[Any]:
            return [frame[what] for frame in person.got if frame["t"] == kind]

        await house.until(lambda told=told: len(told("went", "id")) == len(mutes))
        await house.until(lambda told=told: told("change", "seq") == [1, 2, 3])
    assert len(house.hub.members("r")) == len(people) - len(mutes)
