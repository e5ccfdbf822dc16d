"""What must hold between the records of tables, with each record on its own."""

from typing import Any

import msgspec
import pytest

from onceward.api.tables import Rating, Seat
from onceward.engine.base import Record
from onceward.keys import Key
from onceward.tables import Policy
from onceward.tables.invariants import RULES
from onceward.tables.records import (
    Front,
    Head,
    Info,
    Lane,
    Stand,
    Wait,
    block_key,
    head_key,
    info_key,
    ladder_key,
    listed_key,
    rating_key,
    stand_key,
    wait_key,
)

INFO, HEAD = info_key("t"), head_key("t")
ANN, BEN, CAS = (stand_key("t", "e", user) for user in ("ann", "ben", "cas"))
PLACE = wait_key("t", "e", "main", 3)


def head(
    seats: dict[str, Seat] | None = None, number: int = 3, phase: Any = "playing", epoch: str = "e"
) -> Head:
    usual = {"X": Seat("ann", 0), "O": Seat("bot", 0, bot=True)}
    lanes = {"main": Lane(0, front=Front(number, 0, 0)), "vip": Lane(0)}
    return Head(epoch, phase, seats=usual if seats is None else seats, lanes=lanes)


TABLE: dict[Key, Any] = {
    INFO: Info("e", Policy(), 0),
    HEAD: head(),
    ANN: Stand("seated", 0),
    BEN: Stand("waiting", 0, lane="main", number=3),
    CAS: Stand("watching", 0),
    PLACE: Wait(("ben",), 0, 0, "main"),
    block_key("t", "e", "main", 0): "3",
    listed_key("t"): "e",
}

NO_HEAD = "not the head of a table"
NOT_LISTED = "table 't' does not exist in this epoch"
NOT_FIRST = "the first entry of lane 'main' is not a waiter"
NOT_SEATED = "'ann' sits at X but has no record of it"
NOT_WAITING = "'ben' waits in a lane but has no record of it"


def problems(values: dict[Key, Any]) -> list[str]:
    records = {
        key: Record(key, msgspec.json.encode(value), 1)
        for key, value in values.items()
        if value is not None
    }
    return sorted(
        problem
        for key, record in records.items()
        for rule in RULES
        if rule.kind == key[0].partition("#")[0]
        for problem in rule.judge(record, records.get)
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        # The head, and what stands beside it.
        ({HEAD: None}, ["the table has no head"]),
        ({HEAD: []}, [NO_HEAD]),
        ({INFO: None}, [NO_HEAD, NOT_LISTED]),
        ({INFO: Info("d", Policy(), 0)}, [NO_HEAD, NOT_LISTED]),
        ({INFO: []}, [NO_HEAD, NOT_LISTED, "not the settings of a table"]),
        # The list of all.
        ({listed_key("t"): None}, ["the table is missing in the list of tables"]),
        ({listed_key("t"): "d"}, [NOT_LISTED]),
        # Ratings and ladders.
        ({rating_key("l", "ann"): Rating(7)}, ["'ann' is missing in the ladder 'l' with 7"]),
        ({ladder_key("l", 7, "ann"): Rating(7)}, ["'ann' has a different rating"]),
        ({rating_key("l", "ann"): Rating(7), ladder_key("l", 7, "ann"): Rating(7)}, []),
        ({rating_key("l", "ann"): []}, ["not a rating"]),
        # Seats.
        (
            {HEAD: head({"Z": Seat("bot", 0, bot=True), "X": Seat("ann", 0)})},
            ["more seats are taken than the table has: Z, X"],
        ),
        (
            {HEAD: head({"X": Seat("ann", 0), "O": Seat("ann", 0)})},
            ["a user has two seats: ann, ann"],
        ),
        ({HEAD: head({})}, ["'ann' has no seat"]),
        ({ANN: None}, [NOT_SEATED]),
        ({ANN: Stand("watching", 0)}, [NOT_SEATED]),
        ({ANN: []}, [NOT_SEATED, "not the record of a user at a table"]),
        # The line.
        ({HEAD: head(number=4)}, [NOT_FIRST]),
        ({PLACE: None}, ["'ben' has no entry in a lane", NOT_FIRST]),
        ({PLACE: []}, ["not an entry of a lane"]),
        ({BEN: None}, [NOT_WAITING]),
        ({BEN: Stand("watching", 0, lane="main", number=3)}, [NOT_WAITING]),
        ({CAS: Stand("waiting", 0, lane="main", number=4)}, ["'cas' has no entry in a lane"]),
        ({wait_key("t", "e", "main", 4): Wait(("ben",), 0, 0, "main")}, [NOT_WAITING]),
        ({wait_key("t", "e", "vip", 3): Wait(("ben",), 0, 0, "main")}, [NOT_WAITING]),
        (
            {wait_key("t", "e", "old", 1): Wait(("ben",), 0, 0, "old")},
            ["the table has no lane 'old'"],
        ),
        ({block_key("t", "e", "old", 1): 3}, ["the table has no lane 'old'"]),
    ],
)
def test_what_does_not_agree_is_told_and_nothing_else(
    changes: dict[Key, Any], told: list[str]
) -> None:
    assert problems({**TABLE, **changes}) == sorted(told)


def test_what_an_earlier_table_of_that_name_has_left_is_no_problem() -> None:
    left = {
        stand_key("t", "d", "zoe"): Stand("seated", 0),
        stand_key("t", "d", "yan"): Stand("waiting", 0, lane="old", number=1),
        wait_key("t", "d", "old", 7): Wait(("xia",), 0, 0, "old"),
    }
    assert problems({**TABLE, **left}) == []


def test_what_a_closed_table_has_left_is_no_problem() -> None:
    closed = Head("e", "closed")
    assert problems({**TABLE, HEAD: closed}) == []
    gone = {HEAD: None, INFO: None, listed_key("t"): None}
    assert problems({**TABLE, **gone}) == [], "also when all else is gone"
