"""Groups for a table that is opened: those who came first, and any if there is one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward import limits
from onceward.tables import Policy
from onceward.tables.records import Lane, Wait
from onceward.tables.rules import group, lane_key

THREE = Policy(seats=("A", "B", "C"), party_max=3)


def came(*arrivals: tuple[str, int]) -> tuple[dict[str, Lane], dict[str, list[Wait]]]:
    """Those who wait in lanes of a name and size, in the order in which they came, and a
    millisecond after each other; the names of lanes with a higher priority begin with `vip`."""
    lanes: dict[str, Lane] = {}
    waits: dict[str, list[Wait]] = {}
    for order, (name, size) in enumerate(arrivals):
        key = lane_key(name, 0, size)
        lanes[key] = Lane(0 if name.startswith("vip") else 1, 0, size)
        waits.setdefault(key, []).append(Wait(("u",) * size, order, order, name))
    return lanes, waits


@pytest.mark.parametrize(
    ("arrivals", "found"),
    [
        ([], None),
        ([("main", 1), ("main", 1)], None),
        ([("main", 1)] * 4, ["main"] * 3),
        ([("main", 2), ("other", 2)], None),
        ([("main", 3)], ["main/0/3"]),
        # Whoever came first is there, and then those who came next.
        ([("a", 1), ("b", 1), ("a", 1), ("b", 1)], ["a", "b", "a"]),
        ([("a", 1), ("b", 1), ("b", 1), ("a", 1)], ["a", "b", "b"]),
        ([("a", 2), ("b", 3), ("c", 1)], ["a/0/2", "c"]),
        ([("a", 2), ("b", 2), ("c", 1)], ["a/0/2", "c"]),
        ([("a", 1), ("b", 3), ("a", 1)], ["b/0/3"]),
        # A priority counts for more than that.
        ([("a", 1), ("b", 1), ("c", 1), ("vip", 1)], ["vip", "a", "b"]),
        ([("a", 1), ("vip", 1), ("a", 1), ("vip", 1)], ["vip", "vip", "a"]),
    ],
)
def test_a_group_has_those_first_who_came_first(
    arrivals: list[tuple[str, int]], found: list[str] | None
) -> None:
    lanes, waits = came(*arrivals)
    assert group(THREE, lanes, waits, 99) == found


def test_a_lane_in_which_nobody_waits_gives_none() -> None:
    lanes, waits = came(("main", 3))
    assert group(THREE, {**lanes, "a": Lane(0)}, {**waits, "a": []}, 99) == ["main/0/3"]


def test_only_so_many_ways_to_fill_a_table_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(seats=("A", "B", "C"), tiers=(1_000,), widen_ms=1_000, party_max=2)
    lanes = {"far": Lane(0, 1, 1), "pair": Lane(0, 0, 2), "one": Lane(0, 0, 1)}
    waits = {key: [Wait(("u",), 0, order, "main")] for order, key in enumerate(lanes)}
    monkeypatch.setattr(limits, "SEATS_GROUPS_MAX", 1)  # that is the one with whoever is first
    assert group(policy, lanes, waits, 0) is None
    monkeypatch.setattr(limits, "SEATS_GROUPS_MAX", 2)
    assert group(policy, lanes, waits, 0) == ["pair", "one"]


COMERS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 2)), max_size=7
).map(lambda comers: sorted(comers, key=lambda comer: -comer[2]))
"""Who came, the first ones first: how many together, of which tier, and how many they reach."""


@given(COMERS, st.integers(2, 6))
@settings(max_examples=200, deadline=None)
def test_a_group_is_found_if_and_only_if_there_is_one(
    comers: list[tuple[int, int, int]], seats: int
) -> None:
    policy = Policy(
        seats=tuple("ABCDEF"[:seats]), tiers=(1_000, 1_500), widen_ms=10, party_max=seats
    )
    lanes: dict[str, Lane] = {}
    waits: dict[str, list[Wait]] = {}
    now_ms = 29
    for order, (size, tier, far) in enumerate(comers):
        key = lane_key("main", tier, size)
        lanes.setdefault(key, Lane(0, tier, size))
        since_ms = now_ms - 10 * far
        waits.setdefault(key, []).append(Wait(("u",) * size, since_ms, order, "main"))
    found = group(policy, lanes, waits, now_ms)
    assert (found is not None) == somehow(comers, seats)
    if found is not None:
        assert sum(lanes[key].size for key in found) == seats
        assert all(found.count(key) <= len(waits[key]) for key in found)


def somehow(comers: list[tuple[int, int, int]], seats: int) -> bool:
    """Whether any of all choices that overtake nobody in a lane fills the table."""
    lanes = [(size, tier) for size, tier, _ in comers]
    for choice in range(1 << len(comers)):
        chosen = [at for at in range(len(comers)) if choice >> at & 1]
        if sum(comers[at][0] for at in chosen) != seats:
            continue
        if any(
            lanes[at] == lanes[other] and other not in chosen
            for at in chosen
            for other in range(at)
        ):
            continue
        if all(
            abs(comers[one][1] - comers[two][1]) <= max(comers[one][2], comers[two][2])
            for one in chosen
            for two in chosen
        ):
            return True
    return False
