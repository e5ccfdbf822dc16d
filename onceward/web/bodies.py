"""JSON as it comes in: strictly what was meant, or an error that says what is wrong.

`msgspec` is quick and strict about types. What it lets pass, a member that is there twice or
nesting without end, is found here, at little cost for a usual body.
"""

import json
from functools import cache
from typing import Any, TypeVar

import msgspec

from onceward import limits
from onceward.errors import BadInput

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


def parse(raw: bytes, type_: type[T]) -> T:
    """The value in a body. Raises `BadInput`, with a code for each kind of mistake."""
    try:
        value: T = _decoder(type_).decode(raw)  # type: ignore[arg-type]
    except msgspec.ValidationError as error:
        _find_fault(raw)  # what is not sound JSON is told of first
        raise _invalid(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _find_fault(raw)
        raise BadInput(f"the body is not JSON: {error}", code="not_json") from error
    # Compact JSON in which nothing is lost is as long when it is written again. Anything else is
    # looked at closely.
    if len(_encode(value)) != len(raw) or raw.count(b"[") + raw.count(b"{") > limits.JSON_DEPTH_MAX:
        _find_fault(raw)
    return value


def _invalid(message: str) -> BadInput:
    code = "wrong_type"
    if "unknown field" in message:
        code = "unknown_member"
    elif "missing required field" in message:
        code = "missing_member"
    elif "out of range" in message:
        code = "not_a_number"
    return BadInput(message.replace("field", "member").replace("Object", "the object"), code=code)


def _find_fault(raw: bytes) -> None:
    """Raise `BadInput` for what is wrong with a body, if anything is, beside its types."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"the body is not UTF-8: {error}", code="not_text") from error
    if _depth(text) > limits.JSON_DEPTH_MAX:
        raise BadInput(
            f"the body has more than {limits.JSON_DEPTH_MAX} arrays and objects in each other",
            code="too_deep",
        )
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except ValueError as error:
        raise BadInput(f"the body is not JSON: {error}", code="not_json") from error
    try:
        _encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError) as error:
        raise BadInput(f"the body has a lone surrogate: {error}", code="not_text") from error


def _depth(text: str) -> int:
    """How deeply a text is nested, whatever else may be wrong with it."""
    depth = deepest = 0
    inside = escaped = False
    for char in text:
        if inside:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                inside = False
        elif char == '"':
            inside = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInput(
            f"the member {twice[:100]!a} is there twice: which one is meant?",
            code="duplicate_member",
        )
    return members


def _no_constant(name: str) -> Any:
    raise BadInput(f"{name} is not a number in JSON", code="not_a_number")


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)
