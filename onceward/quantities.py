"""Validation of numbers and durations that callers pass."""

import math
from typing import Any

from onceward import limits
from onceward.errors import BadInput


def is_whole(value: Any) -> bool:
    """Whether a record holds a value as a whole number. True and 1.5 could not be read again as
    one."""
    return isinstance(value, int) and not isinstance(value, bool)


def milliseconds(seconds: Any, what: str, most_s: float = limits.DELAY_S_MAX) -> int:
    """A length of time that a caller gave in seconds, rounded up; raises `BadInput`."""
    # True is a number to Python, and nobody means one second by it.
    if isinstance(seconds, int | float) and type(seconds) is not bool and 0 <= seconds <= most_s:
        return math.ceil(round(seconds * 1000, 6))
    raise BadInput(f"{what} is 0 to {most_s} seconds, not {str(seconds)[:100]}")
