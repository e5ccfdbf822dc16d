"""Records of matches that do not agree are found, and those of games that were played agree."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from onceward.engine.base import Record
from onceward.keys import Key
from onceward.tables.games.invariants import RULES
from tests.quick import change, remove
from tests.schedule.jobs import all_records
from tests.tables.games.test_part import Hall, hall

Break = Callable[[Hall, str], Any]


def problems(here: Hall) -> list[str]:
    records = all_records(here.engine)
    found: list[str] = []
    for key, record in records.items():
        for rule in RULES:
            if key[0].partition("#")[0] == rule.kind:
                found += rule.judge(record, records.get)
    return found


async def played() -> tuple[Hall, str]:
    """One match that is over, one without a place, and one that is on, whose id is returned."""
    here = await hall()
    await change(here.store, ("config", "schedule"), {"slots": 1})
    over = await here.begin(place="corner", turn_s=10.0)
    await here.leave(over, "first")
    await here.begin(turn_s=5.0)
    await here.begin()
    on = await here.begin(place="corner", turn_s=10.0)
    await here.play(on, "first", 2)
    assert problems(here) == []
    return here, on


async def lose_log(here: Hall, id_: str) -> None:
    await remove(here.store, (f"match#{id_}", "log#0000000000000002"))


async def lose_head(here: Hall, id_: str) -> None:
    await remove(here.store, (f"match#{id_}", "head"))


async def spoil_head(here: Hall, id_: str) -> None:
    await change(here.store, (f"match#{id_}", "head"), {"begun": 1})


async def lose_place(here: Hall, id_: str) -> None:
    await remove(here.store, ("playing", "corner"))


async def move_place(here: Hall, id_: str) -> None:
    await change(here.store, ("playing", "window"), id_)


async def spoil_place(here: Hall, id_: str) -> None:
    await change(here.store, ("playing", "window"), 7)


async def lose_clock(here: Hall, id_: str) -> None:
    for key in here.entries():
        if id_ in key[1]:
            await remove(here.store, key)


async def move_clock(here: Hall, id_: str) -> None:
    [entry] = [key for key in here.entries() if id_ in key[1]]
    await change(here.store, (entry[0], "1" + entry[1][1:]), "match")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lose_log, "log entry 2 is missing"),
        (lose_head, "does not exist"),
        (spoil_head, "not a match"),
        (lose_place, "is not registered at its place 'corner'"),
        (move_place, "is not running here"),
        (spoil_place, "match None does not exist"),
        (lose_clock, "the due entry due#"),
        (move_clock, "has another due entry"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_records_of_matches_that_do_not_agree_are_found(spoil: Break, said: str) -> None:
    here, on = await played()
    await spoil(here, on)
    assert [one for one in problems(here) if said in one]


def test_what_is_judged_is_what_matches_store() -> None:
    assert {rule.kind for rule in RULES} == {"match", "playing", "due"}
    key: Key = ("due#0000", "0000000000000001#job-1#job")
    foreign = Record(key, msgspec.json.encode("job"), 1, None)
    [due] = [rule for rule in RULES if rule.kind == "due"]
    assert list(due.judge(foreign, lambda _: None)) == []
