"""Numbers that callers give: what is a length of time, and what is not."""

from typing import Any

import pytest

from onceward.errors import BadInput
from onceward.quantities import milliseconds


def refused(message: str, code: str, admit: Any, *args: Any) -> None:
    with pytest.raises(BadInput, match=message) as raised:
        admit(*args)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [
        (0, 0),
        (1, 1_000),
        (0.1 + 0.2, 300),
        (0.000_1, 1),
        (1.000_1, 1_001),
        (1.000_000_001, 1_001),
        (1.000_000_000_4, 1_000),  # less than any clock could tell: an error of the arithmetic
        (60, 60_000),
    ],
)
def test_seconds_are_as_many_milliseconds_or_one_more(seconds: float, ms: int) -> None:
    assert milliseconds(seconds, "a delay", 60) == ms


@pytest.mark.parametrize("seconds", [-0.001, 60.001, float("nan"), "1", None, 1 + 0j, True, False])
def test_what_is_no_length_of_time_is_refused(seconds: Any) -> None:
    refused(
        "a delay must be 0 to 60 seconds, not", "bad_request", milliseconds, seconds, "a delay", 60
    )


def test_a_hundred_years_are_the_longest_time() -> None:
    most_s = 100 * 366 * 86_400
    assert milliseconds(most_s, "a delay") == most_s * 1_000
    refused("a delay must be 0 to", "bad_request", milliseconds, most_s + 1, "a delay")
