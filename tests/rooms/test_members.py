"""In a very large room the first members are told by name, and the others are counted."""

import random
from typing import Any

import pytest

from onceward import limits
from tests.rooms.people import House, Person
from tests.rooms.test_session import virtually


class Witness:
    """One who notes whom it is told of."""

    def __init__(self, person: Person, joined: Any) -> None:
        self.person = person
        self.me = joined["me"]

    def known(self) -> tuple[set[str], int]:
        """Whom it knows by name, and how many there are, as far as it was told."""
        known: set[str] = set()
        count = 0
        for frame in self.person.got:
            if frame["t"] == "joined":
                known, count = {member["id"] for member in frame["members"]}, frame.get("count", 0)
            elif frame["t"] == "came":
                known.add(frame["id"])
            elif frame["t"] == "went":
                known.discard(frame["id"])
            elif frame["t"] == "crowd":
                count = frame.get("count", 0)
        return known, count or len(known)


async def enter(house: House, number: int) -> Witness:
    person = await house.enter(f"u{number}")
    return Witness(person, await person.join("r", f"c{number}", create=True))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROOM_NAMED_MAX", 3)


def test_the_first_have_names_and_the_next_in_turn_when_one_of_them_goes() -> None:
    async def main(house: House) -> None:
        people = [await enter(house, number) for number in range(5)]
        ids = [one.me for one in people]
        assert people[4].known() == ({*ids[:3], ids[4]}, 5)
        await house.store.clock.sleep(2)
        assert people[0].known() == ({*ids[:3]}, 5)
        people[1].person.ask("leave", room="r")
        await house.store.clock.sleep(2)
        assert people[0].known() == ({ids[0], ids[2], ids[3]}, 4)
        people[4].person.ask("leave", room="r")
        await house.store.clock.sleep(2)
        assert [one.known() for one in (people[0], people[2], people[3])] == [
            ({ids[0], ids[2], ids[3]}, 3)
        ] * 3
        assert "count" not in people[0].person.got[-1]

    virtually(main)


def test_many_who_come_to_a_full_list_cost_those_who_are_there_little() -> None:
    async def main(house: House) -> None:
        first = await enter(house, 0)
        for number in range(1, 200):
            await enter(house, number)
        await house.store.clock.sleep(2)
        assert first.known()[1] == 200
        assert len(first.person.got) < 20
        assert len(house.hub.members("r")) == 200

    virtually(main)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whoever_comes_and_goes_everybody_knows_the_same_in_the_end(seed: int) -> None:
    async def main(house: House) -> None:
        chance = random.Random(seed)
        there: list[Witness] = []
        for number in range(60):
            if there and chance.random() < 0.45:
                there.pop(chance.randrange(len(there))).person.ask("leave", room="r")
            else:
                there.append(await enter(house, number))
            await house.store.clock.sleep(chance.choice((0, 0.01, 0.1, 1.5)))
        await house.store.clock.sleep(2)
        listed = {member.id for member in house.hub.members("r")}
        assert listed == {one.me for one in there}
        named = set.intersection(*[one.known()[0] for one in there])
        assert len(named) >= min(len(there), 3)
        for one in there:
            known, count = one.known()
            assert known <= listed
            assert known - named <= {one.me}
            assert count == len(there)

    virtually(main)
