"""Arguments of operations: names in seconds, defaults, and conversion to requests."""

import pytest
from msgspec import UNSET

from onceward.api import OPERATIONS
from onceward.api.arguments import arguments, in_milliseconds
from onceward.api.retries import RetryPolicy
from onceward.api.tables import Policy
from onceward.errors import BadInput


def test_required_arguments_come_first_and_durations_are_in_seconds():
    found = {one.name: one for one in arguments(OPERATIONS["jobs.claim"])}
    assert list(found) == ["queue", "max", "lease_s", "wait_s", "worker"]
    assert found["queue"].required
    assert found["queue"].place == "path"
    assert (found["lease_s"].field, found["lease_s"].default) == ("lease_ms", 30_000)
    assert found["max"].type is int


def test_points_in_time_stay_in_milliseconds():
    found = {one.name: one for one in arguments(OPERATIONS["messages.send"])}
    assert "due_ms" in found
    assert not found["due_ms"].duration
    assert found["delay_s"].field == "delay_ms"


def test_members_without_effect_are_not_offered():
    assert "left_s" not in {one.name for one in arguments(OPERATIONS["timers.create"])}


def test_partial_changes_have_no_defaults():
    found = arguments(OPERATIONS["queues.configure"])
    assert {one.default for one in found if one.place == "body"} == {UNSET}


def test_mappings_know_their_struct():
    found = {one.name: one for one in arguments(OPERATIONS["tables.create"])}
    assert found["policy"].struct is Policy
    found = {one.name: one for one in arguments(OPERATIONS["endpoints.update"])}
    assert found["retry"].struct is RetryPolicy


def test_names_of_arguments_are_unique_in_each_operation():
    for operation in OPERATIONS.values():
        names = [one.name for one in arguments(operation)]
        assert len(names) == len(set(names)), operation.name


def test_members_in_seconds_are_converted():
    given = {"pauses_s": [0.5, 30], "attempts_max": 3, "timeout_s": None}
    assert in_milliseconds(RetryPolicy, given) == {
        "pauses_ms": (500, 30_000),
        "attempts_max": 3,
        "timeout_ms": None,
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"pauses_ms": [5]}, "did you mean 'pauses_s'?"),
        ({"color": 1}, "known names: pauses_s, attempts_max, timeout_s"),
        ({"timeout_s": "5"}, "timeout_s must be 0 to"),
        ({"pauses_s": [5, -1]}, "pauses_s must be 0 to"),
        ([1], "the options must be a mapping of names to values, not list"),
    ],
)
def test_wrong_members_are_named(given, told):
    with pytest.raises(BadInput) as caught:
        in_milliseconds(RetryPolicy, given)
    assert told in str(caught.value)
