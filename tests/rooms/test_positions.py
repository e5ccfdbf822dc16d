"""There is room between any two positions, and they stay short where people insert a lot."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.errors import BadInput
from onceward.rooms.positions import admit, between, nth

VECTORS = json.loads(Path("tests/vectors/rooms/positions.json").read_text())


@pytest.mark.parametrize(("low", "high", "found"), VECTORS["between"])
def test_positions_are_as_in_the_vectors(low: str | None, high: str | None, found: str) -> None:
    assert between(low, high) == found


@pytest.mark.parametrize(("number", "found"), VECTORS["nth"])
def test_numbers_are_as_in_the_vectors(number: int, found: str) -> None:
    assert nth(number) == found


def insert_all(places: list[float]) -> list[str]:
    """Insert one after the other at places from 0, the front, to 1, the end."""
    found: list[str] = []
    for place in places:
        at = round(place * len(found))
        low = found[at - 1] if at else None
        high = found[at] if at < len(found) else None
        new = between(low, high)
        if new is None:
            break  # here the list would be numbered anew
        found.insert(at, new)
    return found


@given(st.lists(st.floats(0, 1), max_size=60))
def test_what_is_inserted_anywhere_sorts_where_it_was_inserted(places: list[float]) -> None:
    found = insert_all(places)
    assert found == sorted(set(found))
    for position in found:
        assert len(position) <= limits.POSITION_CHARS_MAX
        admit(position)


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_numbers_sort_as_text(one: int, other: int) -> None:
    assert (nth(one) < nth(other)) == (one < other)


@pytest.mark.parametrize("spot", ["front", "end", "behind the first", "before the last"])
def test_very_many_at_one_spot_stay_short(spot: str) -> None:
    ends = insert_all([1, 1])
    low, high = {
        "front": (None, ends[0]),
        "end": (ends[1], None),
        "behind the first": (ends[0], ends[1]),
        "before the last": (ends[0], ends[1]),
    }[spot]
    longest = 0
    for _ in range(5_000):
        new = between(low, high)
        assert new is not None
        longest = max(longest, len(new))
        if spot in ("front", "behind the first"):
            high = new
        else:
            low = new
    assert longest <= 6


def test_nothing_is_between_a_position_and_itself_or_one_before_it() -> None:
    for low, high in (("a1", "a1"), ("a2", "a1")):
        with pytest.raises(ValueError, match="no position between"):
            between(low, high)


LAST, FIRST = "h" + "z" * 8, "S" + "0" * 8


def test_numbers_end_where_a_browser_would_lose_count() -> None:
    admit(LAST)
    admit(FIRST)
    assert between(LAST, None) is None
    assert between(None, FIRST) is None
    assert between("a0" + LAST, "a1") is None
    assert between(FIRST, "S" + "0" * 7 + "1") == FIRST + "a0"


def test_a_position_is_as_long_as_may_be_and_no_longer() -> None:
    numbers = limits.POSITION_CHARS_MAX // 2
    short, long = "a0" * (numbers - 1), "a0" * numbers
    assert between(short, short[:-1] + "1") == long
    admit(long)
    assert between(long, long[:-1] + "1") is None
    with pytest.raises(BadInput):
        admit(long + "a0")


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a!", "0", "b0", "a0b", "é0", "a0" * 30),
        *("i" + "0" * 9, "R" + "z" * 9, "z" * 27, "A" + "0" * 26),
        *(None, 5, True, b"a0", ["a0"], ("a",), {}),
    ],
)
def test_what_is_no_position_is_refused(text: Any) -> None:
    with pytest.raises(BadInput) as refused:
        admit(text)
    assert refused.value.code == "bad_value"
