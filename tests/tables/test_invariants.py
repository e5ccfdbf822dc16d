"""What does not agree between the records of tables is found."""

from typing import Any

import msgspec
import pytest

from onceward.api.tables import Seat
from onceward.keys import Key
from onceward.tables.records import head_key, stand_key, wait_key
from tests.tables.club import Club, new_club, problems


async def club_with_people() -> tuple[Club, str]:
    club = await new_club()
    await club.create(party_max=2)
    await club.join("ann", "ben", "cas", "dan")
    await club.join("eve", party=["fay"])
    await club.do("watch", "gil")
    assert problems(club.engine) == []
    return club, club.head().epoch


async def put(club: Club, key: Key, value: Any) -> None:
    async def fn(tx: Any) -> None:
        if value is None:
            tx.delete(key)
        else:
            tx.put(key, value)

    await club.run(fn)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("seat", "more seats are taken than the table has"),
        ("twice", "a user has two seats"),
        ("unknown", "sits at X but has no record of it"),
        ("front", "the first entry of lane 'main' is not a waiter"),
        ("stand", "waits in a lane but has no record of it"),
        ("wait", "has no entry in a lane"),
        ("up", "'ann' has no seat"),
        ("lane", "the table has no lane 'vip'"),
        ("odd", "not the head of a table"),
        ("odd wait", "not an entry of a lane"),
        ("headless", "the table has no head"),
    ],
)
async def test_what_does_not_agree_is_found(change: str, told: str) -> None:
    club, epoch = await club_with_people()
    head = club.head()
    lane = head.lanes["main"]
    if change == "seat":
        head.seats["Z"] = Seat("zoe", 0, bot=True)
    elif change == "twice":
        head.seats["O"] = head.seats["X"]
    elif change == "up":
        del head.seats["X"]
    if change in ("seat", "twice", "up"):
        await put(club, head_key("t"), head)
    elif change == "unknown":
        await put(club, stand_key("t", epoch, "ann"), None)
    elif change == "stand":
        await put(club, stand_key("t", epoch, "cas"), None)
    elif change in ("front", "wait"):
        assert lane.front is not None
        await put(club, wait_key("t", epoch, "main", lane.front.number), None)
    elif change == "lane":
        wait = {"users": ["zoe"], "since_ms": 0, "order": 9, "lane": "vip"}
        await put(club, wait_key("t", epoch, "vip", 0), wait)
    elif change == "odd":
        await put(club, head_key("t"), {"epoch": "other"})
    elif change == "odd wait":
        await put(club, wait_key("t", epoch, "main", 1), [])
    else:
        await put(club, head_key("t"), None)
    assert any(told in problem for problem in problems(club.engine)), problems(club.engine)


async def test_what_is_left_of_a_closed_table_is_no_problem() -> None:
    club, _ = await club_with_people()
    await club.do("close")
    assert problems(club.engine) == []
    assert msgspec.json.encode(club.head())
