"""Conversion of record values and request bodies to and from JSON."""

import math
from functools import cache
from typing import Any, Literal

import msgspec

from onceward.errors import BadInput, OncewardError
from onceward.keys import Key, shown_key


def plain_model(value: Any) -> Any:
    """A Pydantic model as plain values; a hook of the encoder for objects that it does not know."""
    if not hasattr(type(value), "__pydantic_serializer__"):
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return value.model_dump(mode="json", by_alias=True, round_trip=True)


_encode = msgspec.json.Encoder(enc_hook=plain_model).encode
_encode_sorted = msgspec.json.Encoder(enc_hook=plain_model, order="sorted").encode


def encode(value: Any, key: Key, order: Literal["sorted"] | None = None) -> bytes:
    """A value as JSON, with sorted members if requested. Raises `BadInput` for values that JSON
    does not support."""
    if type(value) is msgspec.Raw:
        return bytes(value)  # already JSON
    try:
        text = _encode(value) if order is None else _encode_sorted(value)
        if b"null" in text and _has_no_number(msgspec.to_builtins(value, enc_hook=plain_model)):
            raise ValueError("NaN and infinity are not JSON")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(
            f"the value for {shown_key(key)} cannot be stored: {error}; use values that JSON has",
            code="bad_value",
        ) from error
    return text


def admit_json(value: Any, what: str) -> None:
    """Raise `BadInput` with the name of a value if JSON does not support it."""
    try:
        encode(value, (what, ""))
    except BadInput as error:
        why = f"the {what} cannot be stored: {error.__cause__}"
        raise BadInput(why, code="bad_value") from error.__cause__


def decode(text: bytes, type: Any, key: Key) -> Any:
    """The value of a record. Raises `damaged` if it does not have the expected type."""
    try:
        return _decoder(type).decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise OncewardError(
            f"the record {shown_key(key)} is not valid: {error}. Check the type, or restore "
            "a backup",
            code="damaged",
        ) from error


@cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type)


def _has_no_number(value: Any) -> bool:
    """Whether a value contains NaN or infinity, which the encoder would turn into null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_no_number, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_no_number, value))
    return False
