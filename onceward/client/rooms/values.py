"""Validation of values before they are sent to a room."""

from typing import Any

from onceward import limits
from onceward.errors import BadInput
from onceward.rooms import names


def plain(value: Any) -> Any:
    """A copy of a value as plain JSON, as other members see it.

    Raises `BadInput`, for example for values that are nested too deeply: a server would close the
    connection.
    """
    found = names.plain(value)
    _admit_depth(found, limits.ROOM_DEPTH_MAX)
    return found


def _admit_depth(value: Any, left: int) -> None:
    if not isinstance(value, dict | list):
        return
    if not left:
        raise BadInput(
            f"a value must have at most {limits.ROOM_DEPTH_MAX} nested levels; "
            f"{str(value)[:50]} is below them",
            code="too_deep",
        )
    for one in value.values() if isinstance(value, dict) else value:
        _admit_depth(one, left - 1)
