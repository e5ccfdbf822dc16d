"""Operations do what they say, all of a step or nothing, and can be taken back."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from onceward import limits
from onceward.api import room_changes as op
from onceward.api.room_changes import RoomOperation
from onceward.errors import BadInput
from onceward.rooms.room import load_piece
from onceward.rooms.state import State, cell_of, same
from tests.rooms.making import STEPS, sizes

CASES = json.loads(Path("tests/vectors/rooms/steps.json").read_text())["cases"]


def applied(state: State, ops: list[RoomOperation]) -> str | None:
    """The code of the error, if the step is refused."""
    try:
        state.apply(ops)
    except BadInput as error:
        return error.code
    return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "_"))
def test_steps_lead_to_the_state_of_the_vectors(case: Any) -> None:
    state = State()
    for step in case["steps"]:
        ops = msgspec.convert(step["ops"], list[RoomOperation])
        assert applied(state, ops) == step.get("refused")
    assert state.plain() == case["state"]


@given(STEPS)
def test_a_step_can_be_taken_back_and_a_refused_one_leaves_nothing(steps: Any) -> None:
    state = State()
    for ops in steps:
        before, size = state.plain(), sizes(state)
        try:
            effects = state.apply(ops)
        except BadInput:
            assert (state.plain(), sizes(state)) == (before, size)
            continue
        after, size_after = state.plain(), sizes(state)
        state.revert(effects)
        assert (state.plain(), sizes(state)) == (before, size)
        state.apply(ops)
        assert (state.plain(), sizes(state)) == (after, size_after)


@given(STEPS)
def test_a_state_made_from_its_snapshot_is_the_same_and_goes_on_the_same(steps: Any) -> None:
    state = State()
    half = len(steps) // 2
    for ops in steps[:half]:
        applied(state, ops)
    copy = State()
    plain = msgspec.json.decode(msgspec.json.encode(state.plain()))
    load_piece(copy, plain["maps"], plain["lists"])
    assert (copy.plain(), sizes(copy)) == (state.plain(), sizes(state))
    for ops in steps[half:]:
        assert applied(copy, ops) == applied(state, ops)
    assert (copy.plain(), sizes(copy)) == (state.plain(), sizes(state))


@given(STEPS)
def test_items_have_positions_of_their_own_in_order(steps: Any) -> None:
    state = State()
    for ops in steps:
        applied(state, ops)
        for items in state.lists.values():
            found = [cell.position for _, cell in items.in_order()]
            assert found == sorted(set(found))
            assert len(found) == len(items.cells)


def test_positions_stay_short_however_items_are_inserted() -> None:
    state = State()
    state.apply([op.ListInsert("l", "low", 0), op.ListInsert("l", "high", 0)])
    low, order = "low", ["low", "high"]
    for number in range(400):
        new = f"z{number}"
        state.apply([op.ListInsert("l", new, number, after=low)])
        order.insert(order.index(low) + 1, new)
        if number % 2:
            low = new
        in_order = state.lists["l"].in_order()
        assert max(len(cell.position) for _, cell in in_order) <= limits.POSITION_CHARS_MAX
    assert [id_ for id_, _ in in_order] == order


def test_numbering_anew_can_be_taken_back() -> None:
    state = State()
    low = ""
    for number in range(300):
        before = state.plain()
        effects = state.apply([op.ListInsert("l", f"z{number}", 0, after=low)])
        if len(effects) > 3:
            state.revert(effects)
            assert state.plain() == before
            return
        low = f"z{number}" if number % 2 else low
    pytest.fail("it was never numbered anew")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (None, False, False),
        ({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2], [2, 1], False),
        ("1", 1, False),
        ([], {}, False),
    ],
)
def test_values_are_compared_as_json(one: Any, other: Any, expected: bool) -> None:
    assert same(one, other) is same(other, one) is expected


def test_effects_tell_what_was_and_what_is() -> None:
    state = State()
    made = state.apply([op.MapSet("m", "k", 1), op.ListInsert("l", "i", 2)])
    map_, list_ = state.get("map", "m", None), state.get("list", "l", None)
    assert made == [
        ("map", "m", None, None, map_),
        ("map", "m", "k", None, cell_of(1)),
        ("list", "l", None, None, list_),
        ("list", "l", "i", None, cell_of(2, "a0")),
    ]
    assert state.apply([op.ListSet("l", "i", 3)]) == [
        ("list", "l", "i", cell_of(2, "a0"), cell_of(3, "a0"))
    ]
    assert state.apply([op.ListInsert("l", "j", 4), op.ListMove("l", "i", after="j")])[1:] == [
        ("list", "l", "i", cell_of(3, "a0"), None),
        ("list", "l", "i", None, cell_of(3, "a2")),
    ]
    assert state.apply([op.ListDelete("l", "j"), op.MapDelete("m", "k")]) == [
        ("list", "l", "j", cell_of(4, "a1"), None),
        ("map", "m", "k", cell_of(1), None),
    ]
    assert state.apply([op.ListDrop("l"), op.MapDrop("m")]) == [
        ("list", "l", "i", cell_of(3, "a2"), None),
        ("list", "l", None, list_, None),
        ("map", "m", None, map_, None),
    ]
    assert state.apply([op.ListMake("l"), op.MapMake("m")]) == [
        ("list", "l", None, None, list_),
        ("map", "m", None, None, map_),
    ]


def test_effects_of_numbering_anew_are_those_of_a_list() -> None:
    state = State()
    last = "h" + "z" * 8
    state.apply([op.ListInsert("l", "i", 0), op.ListInsert("l", "j", 1, at=last)])
    assert state.apply([op.ListInsert("l", "k", 2)]) == [
        ("list", "l", "j", cell_of(1, last), None),
        ("list", "l", "i", cell_of(0, "a0"), None),
        ("list", "l", "i", None, cell_of(0, "a0")),
        ("list", "l", "j", None, cell_of(1, "a1")),
        ("list", "l", "k", None, cell_of(2, "a2")),
    ]


def test_an_item_that_is_moved_to_where_it_is_keeps_its_position() -> None:
    state = State()
    state.apply([op.ListInsert("l", id_, 0) for id_ in "abc"])
    before = state.plain()
    state.apply([op.ListMove("l", "b", after="a")])
    assert state.plain() == before


def encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@given(STEPS)
def test_a_state_is_as_large_as_all_that_is_in_it(steps: Any) -> None:
    state = State()
    for ops in steps:
        applied(state, ops)
    plain = state.plain()
    parts = [(name, "") for table in plain.values() for name in table]
    for entries in plain["maps"].values():
        parts += [(key, encode(value)) for key, value in entries.items()]
    for items in plain["lists"].values():
        parts += [(id_, position + encode(value)) for id_, position, value in items]
    size = sum(16 + len(encode(key)) + len(rest) for key, rest in parts)
    assert sizes(state) == (size, len(parts))


def test_a_step_that_would_change_too_much_changes_nothing() -> None:
    state = State()
    two = [op.MapSet("m", "a", 1), op.MapSet("m", "b", 1)]  # with the map itself three
    with pytest.raises(BadInput) as refused:
        state.apply(two, most=2)
    assert refused.value.code == "value_too_large"
    assert (state.plain(), sizes(state)) == ({"maps": {}, "lists": {}}, (0, 0))
    assert len(state.apply(two, most=3)) == 3


def asked(state: State, *ops: RoomOperation) -> list[Any]:
    """What is to be admitted in a step."""
    found: list[Any] = []
    state.apply(ops, lambda *value: found.append(value))
    return found


def test_values_are_to_be_admitted_if_they_are_new() -> None:
    state = State()
    assert asked(state, op.MapMake("m"), op.MapSet("m", "k", 1), op.MapAdd("m", "n", 2)) == [
        ("map", "m", 1),
        ("map", "m", 2),
    ]
    assert asked(state, op.MapDelete("m", "k"), op.MapSet("m", "k", 1)) == [("map", "m", 1)]
    assert asked(state, op.MapDelete("m", "k"), op.MapDrop("m")) == []
    assert asked(state, op.ListInsert("l", "i", 1), op.ListInsert("l", "j", 2)) == [
        ("list", "l", 1),
        ("list", "l", 2),
    ]
    assert asked(state, op.ListMove("l", "i", after="j"), op.ListMake("l")) == []
    assert asked(state, op.ListMove("l", "i", after=""), op.ListSet("l", "i", 3)) == [
        ("list", "l", 3)
    ]
    assert asked(state, op.ListSet("l", "i", 3)) == [("list", "l", 3)]
    assert asked(state, op.ListDelete("l", "i"), op.ListInsert("l", "i", 4)) == [("list", "l", 4)]


def test_a_step_with_a_value_that_is_not_admitted_changes_nothing() -> None:
    def admit(kind: str, name: str, value: Any) -> None:
        if value == "bad":
            raise BadInput("it is bad", code="bad_shape")

    state = State()
    with pytest.raises(BadInput, match="it is bad"):
        state.apply([op.MapSet("m", "k", "good"), op.ListInsert("l", "i", "bad")], admit)
    assert (state.plain(), sizes(state)) == ({"maps": {}, "lists": {}}, (0, 0))


MOST = limits.ROOM_NUMBER_MAX


@pytest.mark.parametrize(
    ("value", "by", "code"),
    [
        (MOST - 1, 1, None),
        (MOST, 1, "not_countable"),
        (1 - MOST, -1, None),
        (-MOST, -1, "not_countable"),
        (0, MOST, None),
        (0, -MOST, None),
        (-2, MOST + 1, "not_countable"),
        (2, -MOST - 1, "not_countable"),
        (MOST + 1, -2, "not_countable"),
        (-MOST - 1, 2, "not_countable"),
    ],
)
def test_counters_count_as_far_as_a_browser_does(value: int, by: int, code: str | None) -> None:
    state = State()
    state.apply([op.MapSet("m", "n", value)])
    assert applied(state, [op.MapAdd("m", "n", by)]) == code
    assert state.plain()["maps"]["m"]["n"] == (value if code else value + by)


@pytest.mark.parametrize("by", [True, False, None, "1", [1], {}])
def test_what_is_added_is_a_number(by: Any) -> None:
    state = State()
    state.apply([op.MapSet("m", "n", 1)])
    with pytest.raises(BadInput, match="the amount must be a number, not") as refused:
        state.apply([op.MapAdd("m", "n", by)])
    assert refused.value.code == "wrong_type"
    assert state.plain()["maps"]["m"]["n"] == 1


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (
            op.MapCompare("m", "k", 1),
            "'k' in 'm' is not as expected: it is \"short\"; read it again",
        ),
        (
            op.MapCompare("m", "none", 1, 2),
            "'none' in 'm' is not as expected: it is missing; read it again",
        ),
        (op.MapAdd("m", "k", 1), "'k' in 'm' is not a number: \"short\"; set a number first"),
        (
            op.MapAdd("m", "long", 1),
            f"'long' in 'm' is not a number: \"{'x' * 99}; set a number first",
        ),
        (
            op.MapAdd("m", "wide", 1),
            f"'wide' in 'm' is not a number: \"{'é' * 49}\ufffd; set a number first",
        ),
    ],
)
def test_a_refusal_tells_what_is_there_and_of_a_long_value_the_beginning(
    does: RoomOperation, told: str
) -> None:
    state = State()
    for key, value in (("k", "short"), ("long", "x" * 200), ("wide", "é" * 100)):
        state.apply([op.MapSet("m", key, value)])
    with pytest.raises(BadInput) as refused:
        state.apply([does])
    assert refused.value.message == told
