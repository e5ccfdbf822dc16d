"""Strict parsing of JSON input, with precise errors.

`msgspec` is quick and strict about types. What it lets pass, a member that is there twice or
nesting without end, is found here, at little cost for a usual text.
"""

import json
import re
from functools import cache
from typing import Any, TypeVar

import msgspec

from onceward import limits
from onceward.errors import BadInput

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TOLD_CHARS = 300


def parse(raw: bytes, type_: type[T]) -> T:
    """The value in a text. Raises `BadInput`, with a code for each kind of mistake."""
    known: msgspec.json.Decoder[T] = decoder(type_)  # type: ignore[arg-type]
    return parse_by(known, raw)


def parse_by(decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
    """The same with what `decoder` has made, for who parses often: to find one again for a union
    of many types takes nearly as long as to use it."""
    if raw.count(b"[") + raw.count(b"{") > limits.JSON_DEPTH_MAX:
        _admit_depth(raw)
    try:
        value = decoder.decode(raw)
    except msgspec.ValidationError as error:
        _find_fault(raw)  # what is not sound JSON is told of first
        raise _invalid(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _find_fault(raw)
        raise BadInput(f"this is not JSON: {error}", code="not_json") from error
    # Of two members with the same name one is lost, and its colon with it. Those in texts stay,
    # if none was written as \\u003a.
    if raw.count(b":") != _encode(value).count(b":") or b"\\u" in raw:
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
    told = message.replace("Object missing required", "the object lacks the")
    # Not in the path of a member, such as `$.key_fields`.
    told = re.sub(r"\bfield\b", "member", told).replace("Object", "the object")
    return BadInput(told[:_TOLD_CHARS], code=code)


def _find_fault(raw: bytes) -> None:
    """Raise `BadInput` for what is wrong with a text, if anything is, beside its types."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"this is not UTF-8: {error}", code="not_text") from error
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise BadInput(f"this is not JSON: {error}", code="not_json") from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise BadInput(f"a number has too many digits: {error}", code="not_a_number") from error
    try:
        _encode(value)
    except UnicodeEncodeError as error:
        raise BadInput(f"there is a lone surrogate: {error}", code="not_text") from error


def _admit_depth(raw: bytes) -> None:
    """Raise `too_deep` for a text in which too many arrays and objects are in each other. What
    is not JSON is left for others to tell of."""
    # Without escapes, every other piece between quotes is outside of texts.
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = b"".join(plain.split(b'"')[::2]).translate(_SQUARE, _NO_BRACKETS)
    for _ in range(limits.JSON_DEPTH_MAX):
        left = left.replace(b"[]", b"")  # the innermost ones of all
    if b"[]" in left:
        raise _too_deep()


def _too_deep() -> BadInput:
    return BadInput(
        f"there are more than {limits.JSON_DEPTH_MAX} arrays and objects in each other",
        code="too_deep",
    )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise BadInput(
                    f"the member {name[:100]!a} is there twice: which one is meant?",
                    code="duplicate_member",
                )
            seen.add(name)
    return members


def _no_constant(name: str) -> Any:
    raise BadInput(f"{name} is not a number in JSON", code="not_a_number")


@cache
def decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """For `parse_by`."""
    # Written again, a struct must not have members that did not come: `parse` counts them.
    config = getattr(type_, "__struct_config__", None)
    assert config is None or config.omit_defaults, type_
    return msgspec.json.Decoder(type_)
