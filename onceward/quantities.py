"""Validation of numbers and durations that callers pass."""

import math
from typing import Any

from onceward import limits
from onceward.errors import BadInput


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number. Booleans and floats are not: records could not restore
    them."""
    return isinstance(value, int) and not isinstance(value, bool)


def milliseconds(seconds: Any, what: str, most_s: float = limits.DELAY_S_MAX) -> int:
    """A duration in seconds as milliseconds, rounded up. Raises `BadInput`."""
    # `True` is an int in Python, but not a valid duration.
    if isinstance(seconds, int | float) and type(seconds) is not bool and 0 <= seconds <= most_s:
        return math.ceil(round(seconds * 1000, 6))
    raise BadInput(f"{what} must be 0 to {most_s} seconds, not {str(seconds)[:100]}")
