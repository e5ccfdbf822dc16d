"""Policies: what is said counts, what is not said is as its kind says, nonsense is refused."""

from typing import Any

import msgspec
import pytest

from onceward import limits
from onceward.errors import BadInput
from onceward.parts.seats.policy import KINDS, Policy, policy_of


def test_a_policy_is_what_its_kind_says_but_for_what_is_given() -> None:
    assert policy_of() == Policy()
    assert policy_of({"kind": "speed"}).turn_ms == 10_000
    assert policy_of({"kind": "speed", "turn_ms": 5_000}).turn_ms == 5_000
    assert policy_of({"kind": "ranked"}).rated


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_is_the_same_after_a_journey_as_json(kind: str) -> None:
    policy = policy_of({"kind": kind, "seats": ["red", "blue", "green"], "party_max": 2})
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "slow"}, "kind is one of"),
        ({"kind": ["speed"]}, "kind is one of"),
        ({"sets": ["X"]}, "no rule `sets`"),
        ({"seats": []}, "1 to 8 names"),
        ({"seats": ["X", "X"]}, "there once"),
        ({"seats": [""]}, "1 to 32 bytes"),
        ({"seats": ["\ud800"]}, "1 to 32 bytes"),
        ({"seats": [7]}, "Expected `str`"),
        ({"max_wins": -1}, "max_wins is 0 to"),
        ({"max_wins": True}, "Expected `int`"),
        ({"turn_ms": limits.SEATS_MS_MAX + 1}, "turn_ms is 0 to"),
        ({"draw": "toss"}, "Invalid enum value"),
        ({"tiers": [1_200, 1_000]}, "tiers go up"),
        ({"tiers": [-1]}, "tiers are at most"),
        ({"party_max": 3}, "party_max is 1 to 2"),
        ({"lanes": [f"l{n}" for n in range(limits.SEATS_LANES_MAX + 1)]}, "1 to 48 names"),
        ({"lanes": ["a", "b", "c"], "tiers": list(range(1, 48))}, "at most 48 together"),
        ({"lanes": ["a/b"]}, "no / in their names"),
        ({"ladder": "x" * 33}, "ladder: a name has"),
        ({"opens": True, "ends_empty": True}, "cannot end when empty"),
    ],
)
def test_a_policy_that_no_table_can_go_by_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told) as refused:
        policy_of(given)
    assert refused.value.code == "bad_policy"
