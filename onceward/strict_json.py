"""Strict parsing of JSON input, with precise errors.

`msgspec` is fast and strict about types. This module also rejects duplicate members and excessive
nesting, at little cost for usual texts.
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
    """Parse a text. Raises `BadInput`, with a code for each kind of mistake."""
    known: msgspec.json.Decoder[T] = decoder(type_)  # type: ignore[arg-type]
    return parse_by(known, raw)


def convert(value: Any, type_: type[T]) -> T:
    """Convert a parsed value to a type. Raises `BadInput`, as `parse` does."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error


def parse_by(decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
    """Like `parse`, with a decoder from `decoder`. For frequent calls: the lookup of a decoder for
    a union of many types takes nearly as long as parsing."""
    if raw.count(b"[") + raw.count(b"{") > limits.JSON_DEPTH_MAX:
        _admit_depth(raw)
    try:
        value = decoder.decode(raw)
    except msgspec.ValidationError as error:
        _find_fault(raw)  # syntax errors take precedence
        raise _invalid(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _find_fault(raw)
        raise BadInput(
            f"the text is not JSON: {error}; correct it there", code="not_json"
        ) from error
    # Decoding drops one of two members with the same name, and its colon. Colons in strings are
    # kept, unless one was written as \\u003a.
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
    """Raise `BadInput` for syntax errors, duplicate members and invalid text or numbers."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"the text is not UTF-8: {error}; encode it as UTF-8", code="not_text"
        ) from error
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"the text is not JSON: {error}; correct it there", code="not_json"
        ) from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        raise BadInput(
            f"a number has too many digits: {error}; send it as text", code="not_a_number"
        ) from error
    try:
        _encode(value)
    except UnicodeEncodeError as error:
        raise BadInput(
            f"the text contains a lone surrogate: {error}; remove it", code="not_text"
        ) from error


def _admit_depth(raw: bytes) -> None:
    """Raise `too_deep` for a text with too many nested arrays and objects. Other syntax errors are
    reported elsewhere."""
    # Without escapes, every second piece between quotes is outside of strings.
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = b"".join(plain.split(b'"')[::2]).translate(_SQUARE, _NO_BRACKETS)
    for _ in range(limits.JSON_DEPTH_MAX):
        left = left.replace(b"[]", b"")  # removes the innermost pairs
    if b"[]" in left:
        raise _too_deep()


def _too_deep() -> BadInput:
    return BadInput(
        f"arrays and objects are nested more than {limits.JSON_DEPTH_MAX} levels deep; use fewer",
        code="too_deep",
    )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise BadInput(
                    f"the member {name[:100]!a} occurs twice; give it once",
                    code="duplicate_member",
                )
            seen.add(name)
    return members


def _no_constant(name: str) -> Any:
    raise BadInput(f"{name} is not a valid JSON number; send it as text", code="not_a_number")


@cache
def decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """A decoder for `parse_by`."""
    # Structs must omit defaults, since `parse` compares the members of input and output.
    config = getattr(type_, "__struct_config__", None)
    assert config is None or config.omit_defaults, type_
    return msgspec.json.Decoder(type_)
