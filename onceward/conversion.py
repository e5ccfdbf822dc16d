"""Conversion between JSON and types: dataclasses, TypedDict, msgspec structs, Pydantic models.

msgspec converts all types except those of Pydantic, which is optional: it is used only if a type
belongs to it, so that the application has imported it.
"""

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args

import msgspec

from onceward.errors import BadInput
from onceward.json_values import plain_model

_PLAIN = (dict, list, str, int, float, bool, type(None), msgspec.Raw)
_PROBLEMS_MAX = 5
_AT = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?P<verb>missing|contains unknown).* field `(?P<name>.*)`", re.DOTALL)


class _Invalid(ValueError):
    """A value that does not match its type."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        """Each begins with its path within the value: `.to: missing`."""


@dataclass(frozen=True, slots=True)
class Converter:
    """Converts the values of one type."""

    type: Any
    _read: Callable[[bytes], Any]
    _plain: Callable[[Any], Any]

    def read(self, text: bytes, name: str) -> Any:
        """The value of this type with this JSON text. Raises `BadInput` with the path of each
        problem, which begins with `name`."""
        try:
            return self._read(text)
        except msgspec.ValidationError as error:
            raise BadInput(_of_msgspec(error, name), code="wrong_type") from None
        except _Invalid as error:
            raise BadInput(_below(name, error), code="wrong_type") from None

    def plain(self, value: Any, name: str) -> Any:
        """A value of this type as JSON has it: as dict, list, str and so on. Raises `BadInput` as
        `read` does."""
        try:
            plain = self._plain(value)
            text = msgspec.json.encode(plain)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadInput(f"{name}: {error}; use values that JSON has", code="bad_value") from None
        self.read(text, name)
        return plain


def converter(type_: Any) -> Converter | None:
    """The converter of a type; None for `Any` and `object`. Raises `BadInput` for a type that
    cannot be converted."""
    if type_ is Any or type_ is object:
        return None
    try:
        return _converter(type_)
    except BadInput:
        raise
    except TypeError:  # not hashable
        return _converter.__wrapped__(type_)


def model_converter(type_: Any) -> Converter | None:
    """The converter of a type with Pydantic models; None for all other types."""
    return converter(type_) if any(map(_is_pydantic, _parts(type_))) else None


@lru_cache(maxsize=1024)
def _converter(type_: Any) -> Converter:
    try:
        if any(map(_is_pydantic, _parts(type_))):
            return _by_pydantic(type_)
        for cls in _custom(msgspec.inspect.type_info(type_), set()):
            if _is_pydantic(cls):
                _converter(cls)  # so that it is known to be convertible
                continue
            raise TypeError(
                f"{shown_type(cls)} is not a dataclass, TypedDict, msgspec struct or Pydantic model"
            )
        read = msgspec.json.Decoder(type_, dec_hook=_read_model).decode
    except Exception as error:
        why = str(error).partition("\n")[0]
        raise BadInput(
            f"the type {shown_type(type_)} cannot be converted from JSON: {why}; use another type"
        ) from (error)
    return Converter(type_, read, _builtins)


def plain_value(value: Any) -> Any:
    """A value as JSON has it: dataclasses, structs and models become dicts. Plain values are
    returned as they are."""
    return value if type(value) in _PLAIN else _builtins(value)


def _builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True, enc_hook=plain_model)


def plain_body(body: Any) -> Any:
    """A body as JSON has it, so that its fields can be read. Raises `BadInput`."""
    if type(body) in _PLAIN:
        return body
    try:
        return _builtins(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(
            f"the body cannot be stored: {error}; use values that JSON has", code="bad_value"
        ) from error


def shown_type(type_: Any) -> str:
    """The name of a type, for messages."""
    return type_.__name__ if isinstance(type_, type) and not get_args(type_) else str(type_)


def _parts(type_: Any) -> Iterator[Any]:
    """A type and those in its brackets: `list[Mail]` has `Mail`."""
    yield type_
    for part in get_args(type_):
        yield from _parts(part)


def _is_pydantic(part: Any) -> bool:
    """Whether a type, or metadata in `Annotated`, belongs to Pydantic."""
    return (
        hasattr(part, "__pydantic_validator__")
        or hasattr(part, "__get_pydantic_core_schema__")
        or type(part).__module__.partition(".")[0] == "pydantic"
    )


def _by_pydantic(type_: Any) -> Converter:
    pydantic = sys.modules["pydantic"]
    adapter = pydantic.TypeAdapter(type_)
    if not adapter.pydantic_complete:
        adapter.rebuild(raise_errors=True)

    def read(text: bytes) -> Any:
        try:
            return adapter.validate_json(text)
        except pydantic.ValidationError as error:
            problems = error.errors(include_url=False, include_context=False)
            shown = [_of_pydantic(problem) for problem in problems[:_PROBLEMS_MAX]]
            if len(problems) > len(shown):
                shown.append(f": {len(problems) - len(shown)} more")
            raise _Invalid(shown) from None

    def plain(value: Any) -> Any:
        return adapter.dump_python(
            value, mode="json", by_alias=True, round_trip=True, warnings="none"
        )

    return Converter(type_, read, plain)


def _read_model(type_: Any, value: Any) -> Any:
    """A Pydantic model within a type that msgspec converts."""
    return _converter(type_)._read(msgspec.json.encode(value))


def _custom(info: Any, seen: set[int]) -> Iterator[Any]:
    """The classes within a type that msgspec does not know."""
    if isinstance(info, tuple):
        for one in info:
            yield from _custom(one, seen)
    elif isinstance(info, msgspec.inspect.CustomType):
        yield info.cls
    elif isinstance(info, msgspec.Struct) and id(info) not in seen:
        seen.add(id(info))
        for name in info.__struct_fields__:
            yield from _custom(getattr(info, name), seen)


def _of_msgspec(error: msgspec.ValidationError, name: str) -> str:
    found = _AT.fullmatch(str(error))
    assert found is not None  # any text matches
    what, path = found["what"], name + (found["path"] or "")
    if isinstance(error.__cause__, _Invalid):
        return _below(path, error.__cause__)
    if (field := _FIELD.fullmatch(what)) is not None:
        missing = field["verb"] == "missing"
        return f"{path}.{field['name']}: {'missing' if missing else 'unknown field'}"
    what = what.replace("`", "")
    return f"{path}: {'a key: ' if found['key'] else ''}{what[:1].lower()}{what[1:]}"


def _of_pydantic(problem: dict[str, Any]) -> str:
    path = "".join(f"[{one}]" if type(one) is int else f".{one}" for one in problem["loc"])
    if problem["type"] == "missing":
        return f"{path}: missing"
    what = problem["msg"]
    got = f", got {type(problem['input']).__name__}" if problem["type"].endswith("_type") else ""
    return f"{path}: {what[:1].lower()}{what[1:]}{got}"


def _below(path: str, invalid: _Invalid) -> str:
    """The problems of the value at a path."""
    return "; ".join(path + problem for problem in invalid.problems)
