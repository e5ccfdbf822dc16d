"""What undo leaves as it is, and what it keeps in mind."""

from typing import Any

import pytest

from onceward import limits
from onceward.api import room_changes as op
from onceward.client.rooms.replica import Replica
from onceward.client.rooms.steps import Step
from onceward.client.rooms.undo import Undo
from onceward.rooms.frames import Ack, Refused
from tests.client.rooms.copies import by_bob, entries, hear, live, put

LAST = "h" + "z" * 8


def do(undo: Undo, replica: Replica, *ops: op.RoomOperation) -> Step:
    step = replica.change(list(ops))
    undo.record(step)
    return step


def ids(replica: Replica) -> list[str]:
    return [id_ for id_, _ in replica.state.lists["l"].in_order()]


@pytest.mark.parametrize("fill", [None, "own", "bob"])
@pytest.mark.parametrize("kind", ["map", "list"])
def test_what_was_made_goes_unless_others_use_it_meanwhile(kind: str, fill: str | None) -> None:
    replica = live()
    undo = Undo(replica)
    made: Any = op.MapMake("x") if kind == "map" else op.ListMake("x")
    into = [op.MapSet("x", "k", 1) if kind == "map" else op.ListInsert("x", "k", 1)]
    do(undo, replica, made, *(into if fill == "own" else ()))
    if fill == "bob":
        hear(replica, Ack("r", 1, 1), by_bob(2, *into))
    tables: Any = replica.state.maps if kind == "map" else replica.state.lists
    kept = undo.undo().kept
    if fill == "bob":
        assert kept == [f"the {kind} 'x' is in use"]
        assert "x" in tables
    else:
        assert kept == []
        assert "x" not in tables


def test_what_is_in_a_map_and_a_list_of_the_same_name_is_not_taken_for_each_other() -> None:
    replica = live({"x": {"k": 1}}, {})
    undo = Undo(replica)
    do(undo, replica, op.ListMake("x"))
    assert undo.undo().kept == []
    assert (replica.state.plain()) == {"maps": {"x": {"k": 1}}, "lists": {}}


@pytest.mark.parametrize("drop", [op.MapDrop("x"), op.ListDrop("x")])
def test_what_was_dropped_is_there_again_with_all_that_was_in_it(drop: op.RoomOperation) -> None:
    items = [("i", "a0", 1), ("j", "a1", 2)]
    replica = live({"x": {"a": 1, "b": 2}}, {"x": items})
    undo = Undo(replica)
    before = replica.state.plain()
    do(undo, replica, drop)
    assert undo.undo().kept == []
    assert replica.state.plain() == before
    assert undo.can_redo
    undo.redo()
    assert undo.can_undo
    assert replica.state.plain() != before


# Counting.


@pytest.mark.parametrize(
    ("ops", "after", "undone"),
    [
        ([op.MapAdd("m", "n", 5)], 7, 2),
        ([op.MapAdd("m", "n", 5), put("k")], 7, 2),
        ([put("k"), op.MapAdd("m", "n", 5), op.MapAdd("other", "n", 7)], 7, 2),
        ([op.MapAdd("m", "n", 5), op.MapAdd("m", "n", 4)], 11, 2),
    ],
)
def test_counting_is_counted_back_whatever_else_was_done_with_it(
    ops: Any, after: int, undone: int
) -> None:
    replica = live({"m": {"n": 1}})
    undo = Undo(replica)
    do(undo, replica, *ops)
    hear(replica, Ack("r", 1, 1), by_bob(2, op.MapAdd("m", "n", 1)))
    assert entries(replica)["n"] == after
    assert undo.undo().kept == []
    assert entries(replica) == {"n": undone}


@pytest.mark.parametrize(
    "ops",
    [
        [op.MapDrop("m"), op.MapAdd("m", "n", 5)],
        [op.MapAdd("m", "n", 5), op.MapSet("m", "n", 7)],
        [op.MapSet("m", "n", 7), op.MapAdd("m", "n", 5)],
        [op.MapDelete("m", "n"), op.MapAdd("m", "n", 5)],
        [op.MapCompare("m", "n", 7, 1), op.MapAdd("m", "n", 5)],
    ],
)
def test_what_was_set_and_counted_is_restored(ops: Any) -> None:
    replica = live({"m": {"n": 1}})
    undo = Undo(replica)
    do(undo, replica, *ops)
    assert undo.undo().kept == []
    assert entries(replica) == {"n": 1}


def test_a_counter_that_was_made_and_counted_nothing_goes_again() -> None:
    replica = live()
    undo = Undo(replica)
    do(undo, replica, op.MapAdd("m", "n", 0))
    assert undo.undo().kept == []
    assert entries(replica) == {}


# What came meanwhile.


def test_undo_is_of_what_one_sees_also_before_all_that_came_is_settled() -> None:
    replica = live({"m": {"k": 0}})
    undo = Undo(replica)
    do(undo, replica, put("k", 1))
    replica.receive(by_bob(1, put("k", 2)))
    assert undo.undo().kept == []
    assert entries(replica) == {"k": 2}


def test_a_move_is_undone_in_a_list_that_was_numbered_anew_before_it() -> None:
    replica = live({}, {"l": [("a", "a0", 1), ("b", "a1", 1), ("c", LAST, 1)]})
    undo = Undo(replica)
    do(undo, replica, op.ListInsert("l", "d", 1))
    assert replica.numbered == {"l": 1}
    do(undo, replica, op.ListMove("l", "a", after="c"))
    assert ids(replica) == ["b", "c", "a", "d"]
    assert undo.undo().kept == []
    assert ids(replica) == ["a", "b", "c", "d"]


def test_an_item_that_stays_where_it_is_gets_its_value_back() -> None:
    replica = live({}, {"l": [("a", "a0", 1), ("b", "a1", 1), ("c", LAST, 1)]})
    undo = Undo(replica)
    do(undo, replica, op.ListMove("l", "a", after="b"), op.ListSet("l", "a", 2))
    hear(replica, Ack("r", 1, 1), by_bob(2, op.ListInsert("l", "d", 1)))
    assert undo.undo().kept == ["'a' in 'l' keeps its position, because its list was renumbered"]
    assert ids(replica) == ["b", "a", "c", "d"]
    assert replica.state.lists["l"].cells["a"].value == 1


def test_what_cannot_be_sent_cannot_be_undone_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replica = live()
    undo = Undo(replica)
    do(undo, replica, put("a"))
    monkeypatch.setattr(limits, "ROOM_WAITING_STEPS_MAX", 1)
    turned = undo.undo()
    assert turned.step is None
    assert turned.kept == ["1 changes already wait for a response; retry later"]
    assert entries(replica) == {"a": 1}
    assert not undo.can_redo


def test_an_undo_that_was_refused_cannot_be_redone() -> None:
    replica = live()
    undo = Undo(replica)
    do(undo, replica, put("a"))
    undo.undo()
    hear(replica, Ack("r", 1, 1), Refused("r", 2, "bad_shape"))
    assert entries(replica) == {"a": 1}
    assert not undo.can_redo


# What is kept in mind.


def test_nothing_is_kept_of_steps_beyond_those_that_can_be_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "ROOM_UNDO_MAX", 2)
    for early in (True, False):
        replica = live({"m": dict.fromkeys("abcd", 0)})
        undo = Undo(replica)
        steps = []
        for number, key in enumerate("abcd", 1):
            steps.append(do(undo, replica, put(key), op.MapSet("m", "k", number)))
            if early:
                hear(replica, Ack("r", number, number))
        for number in () if early else range(1, 5):
            hear(replica, Ack("r", number, number))
        places = {place[2]: step for place, step in replica.latest.items()}
        assert places == {"c": steps[2], "d": steps[3], "k": steps[3]}
        assert [bool(step.below) for step in steps] == [False, False, True, True]


def test_what_cannot_be_redone_any_more_is_forgotten() -> None:
    replica = live({"m": {"a": 0}})
    undo = Undo(replica)
    do(undo, replica, put("a"))
    undone = undo.undo().step
    assert undone is not None
    hear(replica, Ack("r", 1, 1), Ack("r", 2, 2))
    assert undone.below
    do(undo, replica, put("b"))
    assert not undo.can_redo
    assert not undone.below


def test_a_step_that_changes_nothing_is_nothing_to_undo() -> None:
    replica = live()
    undo = Undo(replica)
    do(undo, replica, put("a"))
    undo.undo()
    do(undo, replica, op.MapDelete("m", "none"))
    assert (undo.can_undo, undo.can_redo) == (False, True)
