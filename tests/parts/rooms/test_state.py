"""Operations do what they say, all of a step or nothing, and can be taken back."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from onceward import limits
from onceward.errors import BadInput
from onceward.parts.rooms import operations as op
from onceward.parts.rooms.operations import Operation
from onceward.parts.rooms.room import load_piece
from onceward.parts.rooms.state import State, same
from tests.parts.rooms.making import STEPS, sizes

CASES = json.loads(Path("tests/vectors/rooms/steps.json").read_text())["cases"]


def applied(state: State, ops: list[Operation]) -> str | None:
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
        ops = msgspec.convert(step["ops"], list[Operation])
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
