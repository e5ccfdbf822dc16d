"""Validation of names of rooms, maps, keys and clients, and of steps."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from onceward import keys, limits
from onceward.api import room_changes as op
from onceward.api.room_changes import RoomOperation
from onceward.errors import BadInput, TooLarge
from onceward.json_values import encode
from onceward.rooms import positions

TABLE_ROOMS: Final = "table:"
"""The prefix of the ids of rooms that show tables; only the tables write them."""


def admit_text(text: Any, what: str, bytes_max: int, *, empty: bool = False) -> None:
    """Raise `BadInput` unless `text` is a string of a permitted length."""
    if type(text) is not str:
        raise BadInput(f"{what} must be a string, not {type(text).__name__}", code="bad_name")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{what} must not contain lone surrogates, as {text[:50]!a} does", code="bad_name"
        ) from error
    if size > bytes_max or not (size or empty):
        least = 0 if empty else 1
        raise BadInput(
            f"{what} must have {least} to {bytes_max} bytes, not {size}", code="bad_name"
        )


def admit_room(id_: Any) -> None:
    keys.admit_name(id_, "a room's id", limits.ROOM_ID_BYTES_MAX)


def admit_name(name: Any, what: str) -> None:
    admit_text(name, what, limits.ROOM_NAME_BYTES_MAX)


def admit_client(client: Any) -> None:
    """Raise `BadInput` for an invalid client name. It is printable ASCII, since ids of items
    contain it.
    """
    admit_text(client, "a client's name", limits.ROOM_CLIENT_CHARS_MAX)
    if not (client.isascii() and client.isprintable()):
        raise BadInput(
            f"the name of a client must be printable ASCII, not {client[:100]!a}", code="bad_name"
        )


def admit_number(n: Any, what: str = "the number of a step", least: int = 1) -> None:
    if type(n) is not int or not least <= n <= limits.ROOM_NUMBER_MAX:
        raise BadInput(
            f"{what} must be {least} to {limits.ROOM_NUMBER_MAX}, not {str(n)[:50]}",
            code="wrong_type",
        )


def admit_step(ops: Sequence[RoomOperation]) -> bytes:
    """The JSON of a step. Raises `BadInput` for operations that are invalid in every room."""
    if not 0 < len(ops) <= limits.ROOM_OPS_MAX:
        raise TooLarge(
            f"a step must have 1 to {limits.ROOM_OPS_MAX} operations, not {len(ops)}",
            code="value_too_large" if ops else "bad_request",
        )
    for does in ops:
        if isinstance(does, op.MapOp):
            admit_name(does.map, "a map's name")
            if isinstance(does, _KEYED):
                admit_text(does.key, "a map's key", limits.ROOM_KEY_BYTES_MAX, empty=True)
        elif isinstance(does, op.ListOp):
            admit_name(does.list, "a list's name")
            _admit_item(does)
        else:
            raise BadInput(
                f"{does!r:.100} is not an operation; use one such as map.set", code="wrong_type"
            )
    text = encoded(ops)
    if len(text) > limits.ROOM_STEP_BYTES_MAX:
        raise TooLarge(
            f"a step must have at most {limits.ROOM_STEP_BYTES_MAX} bytes, not {len(text)}",
            code="value_too_large",
        )
    return text


_KEYED = (op.MapSet, op.MapDelete, op.MapCompare, op.MapAdd)


def _admit_item(does: op.ListOp) -> None:
    if isinstance(does, op.ListInsert | op.ListSet | op.ListMove | op.ListDelete):
        admit_text(does.id, "an item's id", limits.ROOM_KEY_BYTES_MAX)
    if isinstance(does, op.ListInsert | op.ListMove):
        if does.after is not None:
            admit_text(does.after, "an item's id", limits.ROOM_KEY_BYTES_MAX, empty=True)
        if does.at is not None:
            positions.admit(does.at)


# Matches every number beyond the limit, as the encoder writes it, and few others.
_maybe_large = re.compile(rb"[0-9](?:[0-9]{15}|e[0-9]{2})").search


def encoded(value: Any) -> bytes:
    """JSON for a value of a room.

    Raises `BadInput` for a value that JSON cannot represent, and for numbers that a browser would
    round.
    """
    try:
        text = encode(value, ("room", "value"))
    except BadInput as error:
        raise BadInput(
            f"not JSON: {error.__cause__}; use values that JSON has", code="bad_value"
        ) from error
    if _maybe_large(text):
        for number in unsafe_numbers(msgspec.json.decode(text)):
            raise BadInput(
                f"the number {str(number)[:50]} is outside ±{limits.ROOM_NUMBER_MAX} (2^53 - 1), "
                "the range that browsers represent exactly; use text instead",
                code="bad_value",
            )
    return text


def unsafe_numbers(value: Any) -> Iterator[int | float]:
    """The numbers in a JSON value, at any depth, that a browser cannot represent exactly.

    All floats of that size are whole numbers.
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from unsafe_numbers(one)
    elif type(value) in (int, float) and abs(value) > limits.ROOM_NUMBER_MAX:
        yield value


def plain(value: Any) -> Any:
    """A copy of a value as plain JSON, as other members see it. Raises `BadInput`."""
    return msgspec.json.decode(encoded(value))
