"""Strategies for operations that meet each other: few names, few keys, few items."""

from typing import Any

from hypothesis import strategies as st

from onceward.api import room_changes as op
from onceward.rooms.state import State

VALUES: Any = st.one_of(
    st.integers(-3, 3), st.booleans(), st.none(), st.text("ab", max_size=2), st.just({"x": [1]})
)
NAMES = st.sampled_from(["one", "two"])
KEYS = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from([f"i{number}" for number in range(8)])
AFTERS = st.one_of(st.none(), st.just(""), IDS)
ATS = st.one_of(st.none(), st.sampled_from(["a0", "a1", "a0a0", "Zz", "b00"]))

OPERATIONS: Any = st.one_of(
    st.builds(op.MapSet, NAMES, KEYS, VALUES),
    st.builds(op.MapDelete, NAMES, KEYS),
    st.builds(op.MapCompare, NAMES, KEYS, VALUES),
    st.builds(op.MapCompare, NAMES, KEYS, VALUES, VALUES),
    st.builds(op.MapAdd, NAMES, KEYS, st.integers(-2, 2)),
    st.builds(op.MapMake, NAMES),
    st.builds(op.MapDrop, NAMES),
    *[st.builds(op.ListInsert, NAMES, IDS, VALUES, AFTERS, ATS)] * 3,
    st.builds(op.ListSet, NAMES, IDS, VALUES),
    *[st.builds(op.ListMove, NAMES, IDS, AFTERS, ATS)] * 2,
    st.builds(op.ListDelete, NAMES, IDS),
    st.builds(op.ListMake, NAMES),
    st.builds(op.ListDrop, NAMES),
)
STEPS = st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=25)


def sizes(state: State) -> tuple[int, int]:
    return state.bytes, state.cells
