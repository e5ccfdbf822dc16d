"""Options of commands, made from the arguments of operations, and their values."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import UNSET

from onceward.api.arguments import Argument, members
from onceward.cli.parser import Parser, suggest
from onceward.errors import BadInput

_PLACE = "given."
"""The beginning of the names under which a parser stores the values of arguments."""
_NONE = "none"
_SENTENCE = re.compile(r"(?<=[a-z0-9)`])\.(?: |$)")


def add_option(parser: Parser, argument: Argument, names: Mapping[str, str]) -> None:
    """Add an argument to a parser: required ones by position, others as options. `names` are
    the options by the fields of the request, for references in descriptions."""
    if not is_flat(argument):
        _add(parser, argument, option_name(argument), argument.name, names)
        return
    for member in members(argument.struct):
        dest = f"{argument.name}.{member.name}"
        _add(parser, member, _member_option(argument, member), dest, names)
    if _nullable(argument.type) and argument.default is UNSET:
        option = f"--no-{_dashed(argument.name)}"
        help_ = f"Remove the {argument.name} policy"
        dest = f"{_PLACE}{argument.name}"
        parser.add_argument(option, action="store_const", const=_NONE, dest=dest, help=help_)


def option_name(argument: Argument) -> str:
    """The option of an argument: `--order-key`; of a repeated one in the singular: `--header`."""
    name = _dashed(argument.name)
    if name.endswith("s") and (_is_pairs(argument.type) or _item(argument.type) is str):
        name = name.removesuffix("s")
    return f"--{name}"


def _member_option(argument: Argument, member: Argument) -> str:
    return f"--{_dashed(argument.name)}-{option_name(member).removeprefix('--')}"


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _add(
    parser: Parser, argument: Argument, option: str, dest: str, names: Mapping[str, str]
) -> None:
    type_ = argument.type
    help_ = describe(argument, names).replace("%", "%%")
    options: dict[str, Any] = {"dest": f"{_PLACE}{dest}", "help": help_}
    if _bare(type_) is bool:
        if argument.place == "query" and argument.default is False:
            parser.add_argument(option, action="store_const", const=True, **options)
        else:
            action = argparse.BooleanOptionalAction
            parser.add_argument(option, action=action, required=argument.required, **options)
        return
    options["metavar"] = metavar(argument)
    many = _is_many(type_)
    if not argument.required:
        parser.add_argument(option, action="append" if many else "store", **options)
        return
    options["metavar"] = _dashed(argument.name).upper()
    if many:
        options |= {"nargs": "+", "metavar": option.removeprefix("--").upper()}
    # The name of a positional argument is its destination.
    parser.add_argument(options.pop("dest"), **options)


def describe(argument: Argument, names: Mapping[str, str]) -> str:
    """The help of an argument: the first sentence of its description, with the default."""
    text = _SENTENCE.split(argument.doc, maxsplit=1)[0].rstrip(".")
    text = re.sub(r"`(\w+)`", lambda found: names.get(found[1], found[1]), text)
    text = text.replace("None:", f"{_NONE}:")
    for beginning in ("Whether to ", "The "):
        text = text.removeprefix(beginning)
    text = text[:1].upper() + text[1:]
    choices = _choices(argument.type)
    if not all(choice in text for choice in choices):
        text = f"{text} ({', '.join(choices)})"
    if _is_many(argument.type):
        text += "; repeatable"
    default = argument.default
    if type(default) not in (int, float, str) or default in ("", "{}", 0) or "[" in text:
        return text
    return f"{text} [{default / 1_000:g}]" if argument.duration else f"{text} [{default}]"


def metavar(argument: Argument) -> str:
    """The placeholder of a value."""
    type_ = _bare(argument.type)
    if argument.json:
        return "JSON"
    if argument.duration:
        return "S" if _item(argument.type) is None else "S,S,…"
    if _is_time(argument):
        return "TIME"
    if type_ in (int, float):
        return "N"
    if _item(argument.type) in (int, float):
        return "N,N,…"
    if _is_pairs(argument.type):
        return "NAME:VALUE"
    if type_ is str or _item(argument.type) is str or _choices(argument.type):
        return option_name(argument).rpartition("-")[2].upper()
    return "JSON"


def read_options(known: list[Argument], namespace: argparse.Namespace) -> dict[str, Any]:
    """The values that were given, by the names of arguments. Raises `BadInput`."""
    given = {
        name.removeprefix(_PLACE): value
        for name, value in vars(namespace).items()
        if name.startswith(_PLACE) and value is not None
    }
    found: dict[str, Any] = {}
    for argument in known:
        if argument.name in given:
            label = option_name(argument)
            if argument.required and _bare(argument.type) is not bool:
                label = _dashed(argument.name).upper()
            found[argument.name] = _read(argument, given[argument.name], label)
        elif is_flat(argument):
            inner = dict(_members_given(argument, given))
            found |= {argument.name: inner} if inner else {}
    return found


def _members_given(argument: Argument, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for member in members(argument.struct):
        value = given.get(f"{argument.name}.{member.name}")
        if value is not None:
            yield member.name, _read(member, value, _member_option(argument, member))


def is_flat(argument: Argument) -> bool:
    """Whether each member of an argument is an option: `--retry-timeout-s`."""
    if argument.struct is None or _item(argument.type) is not None:
        return False
    return all(_is_simple(one.type) for one in members(argument.struct))


def _read(argument: Argument, value: Any, label: str) -> Any:
    type_ = dict if argument.json else argument.type
    if isinstance(value, bool):
        return value
    if value == _NONE and _nullable(type_) and argument.default is UNSET and not _is_text(type_):
        return None
    if _is_pairs(type_):
        return _read_pairs(value, label)
    item = _item(type_)
    if item in (int, float):
        read = _seconds if argument.duration else _reader(item)
        return [read(one, label) for one in value.split(",") if one]
    if item is str and value == [_NONE] and argument.default is UNSET and not argument.required:
        return None if _nullable(type_) else []
    if item is str:
        return value
    if item is not None:
        return _read_list(value, label)
    if argument.duration:
        return _seconds(value, label)
    if _is_time(argument):
        return _time(value, label, whole=argument.name.endswith("_ms"))
    if choices := _choices(type_):
        if value not in choices:
            hint = suggest(value, choices)
            raise BadInput(f"unknown {label} {value!r}; {hint}", code="wrong_type")
        return value
    return _reader(_bare(type_))(value, label)


def _reader(type_: Any) -> Callable[[str, str], Any]:
    readers: dict[Any, Callable[[str, str], Any]] = {int: _whole, float: _number, str: _text}
    return readers.get(type_, read_json)


def _text(text: str, label: str) -> str:
    return text


def _whole(text: str, label: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{label} must be a whole number, not {text!r}", code="wrong_type") from None


def _number(text: str, label: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{label} must be a number, not {text!r}", code="wrong_type") from None


def _seconds(text: str, label: str) -> float:
    try:
        return float(text)
    except ValueError:
        hint = "as in 90 or 0.5"
        raise BadInput(
            f"{label} must be in seconds, {hint}, not {text!r}", code="wrong_type"
        ) from None


def _time(text: str, label: str, *, whole: bool) -> int | datetime:
    """A point in time, as datetime or (`whole`) in milliseconds since 1970."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        hint = "a time as in 2030-01-31T09:00:00Z, or milliseconds since 1970"
        raise BadInput(f"{label} is {hint}, not {text!r}", code="wrong_type")
    return int(found.timestamp() * 1_000) if whole else found


def read_json(text: str, label: str) -> Any:
    """The value of a JSON text; `-` reads standard input. Raises `BadInput`."""
    given = text
    if text == "-":
        text = sys.stdin.read()
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        why = str(error).removeprefix("JSON is malformed: ")
        # The shell removes one pair of quotes.
        hint = "; quote texts twice: '\"text\"'"
        if text[:1] in ("", "{", "[", '"'):
            hint = "" if text[:1] in ("", '"') else "; put it in single quotes: '{\"a\": 1}'"
        if given == "-":
            hint = ""
        raise BadInput(f"{label} is not JSON: {why}{hint}", code="not_json") from error


def _read_list(texts: list[str], label: str) -> list[Any]:
    """Values of a list, each as JSON; `-` reads a JSON array from standard input."""
    found: list[Any] = []
    for text in texts:
        value = read_json(text, label)
        found += value if text == "-" and isinstance(value, list) else [value]
    return found


def _read_pairs(texts: list[str], label: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon:
            raise BadInput(f"{label} must be NAME:VALUE, not {text!r}", code="wrong_type")
        pairs[name.strip()] = value.strip()
    return pairs


def _is_many(type_: Any) -> bool:
    """Whether an option can be repeated. Numbers of a list are separated by commas instead."""
    return _is_pairs(type_) or _item(type_) not in (None, int, float)


def _is_simple(type_: Any) -> bool:
    """Whether a value is written without JSON."""
    bare, item = _bare(type_), _item(type_)
    return bare in (bool, int, float, str) or item in (int, float, str) or bool(_choices(type_))


def _is_time(argument: Argument) -> bool:
    whole = argument.name.endswith("_ms") and _bare(argument.type) is int
    return whole or datetime in get_args(argument.type)


def _is_pairs(type_: Any) -> bool:
    return get_args(_bare(type_)) == (str, str) and get_origin(_bare(type_)) is dict


def _is_text(type_: Any) -> bool:
    return _bare(type_) is str


def _choices(type_: Any) -> list[str]:
    bare = _bare(type_)
    if get_origin(bare) is Literal:
        return [one for one in get_args(bare) if one]
    if get_origin(bare) in (Union, UnionType):
        found = [_choices(one) for one in get_args(bare)]
        return [choice for one in found for choice in one]
    return []


def _item(type_: Any) -> Any:
    """The type of the items of a list; None if it is no list."""
    bare = _bare(type_)
    return get_args(bare)[0] if get_origin(bare) in (list, tuple) else None


def _bare(type_: Any) -> Any:
    """A type without None."""
    if get_origin(type_) in (Union, UnionType):
        left = [one for one in get_args(type_) if one is not NoneType]
        return left[0] if len(left) == 1 else Union[tuple(left)]  # noqa: UP007
    return type_


def _nullable(type_: Any) -> bool:
    return get_origin(type_) in (Union, UnionType) and NoneType in get_args(type_)
