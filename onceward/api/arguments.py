"""The arguments of operations: path, query and body of a request as one list of names.

Clients and commands take durations in seconds (`lease_s`). Requests have milliseconds (`lease_ms`).
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, UNSET, Meta, UnsetType

from onceward.api.field_docs import field_docs
from onceward.api.operation import Operation
from onceward.errors import BadInput
from onceward.json_values import encode
from onceward.quantities import milliseconds

_TIMES = frozenset(("due_ms", "since_ms", "at_ms"))
"""Fields that are points in time, which clients give in milliseconds since 1970."""


# Names of fields in docs.
_MILLISECONDS = re.compile(r"\b[a-z]\w*_ms\b")


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of an operation."""

    name: str
    """The name in clients and commands: lease_s."""
    field: str
    """The name in the request: lease_ms."""
    place: Literal["path", "query", "body"]
    type: Any
    """The type of the field without annotations and `UnsetType`."""
    required: bool = True
    default: Any = UNSET
    """The default in the request; `UNSET` if leaving the member out differs from every value."""
    struct: Any = None
    """The struct of a mapping argument, whose durations are in seconds as well."""
    json: bool = False
    """Whether the field is JSON text. Clients take the value, commands the text."""
    doc: str = ""

    @property
    def duration(self) -> bool:
        return self.name != self.field


def arguments(operation: Operation[Any]) -> list[Argument]:
    """The arguments of an operation: those of the path, then required ones, then the others."""
    found = [
        Argument(name=name, field=name, place="path", type=str, doc=_path_doc(operation, name))
        for name in operation.parameters
    ]
    if operation.body is not None:
        found += _fields(operation.body, "body", partial=operation.partial)
    if operation.query is not None:
        found += _fields(operation.query, "query", partial=False)
    return sorted(found, key=lambda one: (not one.required, one.place != "path"))


def _path_doc(operation: Operation[Any], name: str) -> str:
    one = "match" if operation.noun == "matches" else operation.noun.removesuffix("s")
    if name == "id":
        return f"The id of the {one}."
    if name == "user":
        return "The id of the user."
    # get_map is about a map.
    what = (operation.verb.partition("_")[2] or one) if name == "name" else name
    return f"The name of the {what}."


def members(struct: type[msgspec.Struct]) -> list[Argument]:
    """The members of a struct as arguments, all of which can be left out."""
    return _fields(struct, "body", partial=True)


@cache
def _fields(
    struct: type[msgspec.Struct], place: Literal["query", "body"], *, partial: bool
) -> list[Argument]:
    docs = field_docs(struct)
    hints = get_type_hints(struct, include_extras=True)
    found = []
    for field in msgspec.structs.fields(struct):
        extra = _extra(hints[field.name])
        if extra.get("ignored"):
            continue
        default = field.default
        if field.default_factory is not NODEFAULT:
            default = field.default_factory()
        found.append(
            Argument(
                name=argument_name(field.encode_name),
                field=field.encode_name,
                place=place,
                type=_plain(hints[field.name]),
                required=default is NODEFAULT,
                default=UNSET if partial or default is NODEFAULT else default,
                struct=extra.get("struct") or _struct_in(hints[field.name]),
                json=extra.get("json", False),
                doc=_MILLISECONDS.sub(
                    lambda found: argument_name(found[0]), docs.get(field.name, "")
                ),
            )
        )
    return found


def argument_name(field: str) -> str:
    """The name of a field of a request in clients and commands."""
    return f"{field[:-3]}_s" if field.endswith("_ms") and field not in _TIMES else field


def in_milliseconds(struct: type[msgspec.Struct], given: Mapping[str, Any]) -> dict[str, Any]:
    """Members of a struct that are given in seconds, as the struct has them: `timeout_s: 5` is
    `timeout_ms: 5000`. Raises `BadInput` for unknown names."""
    if not isinstance(given, Mapping):
        raise BadInput(
            f"the options must be a mapping of names to values, not {type(given).__name__}"
        )
    names = {argument_name(field): field for field in struct.__struct_fields__}
    found = {}
    for name, value in given.items():
        if name not in names:
            raise unknown_name(name, names)
        field = names[name]
        found[field] = in_ms(name, value) if field != name else value
    return found


def unknown_name(name: Any, known: Iterable[str]) -> BadInput:
    """The error for a name that is not known, with the nearest one that is."""
    known = list(known)
    close = difflib.get_close_matches(str(name), known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"known names: {', '.join(known)}"
    return BadInput(f"unknown name {str(name)[:100]!r}; {hint}")


def in_ms(name: str, seconds: Any) -> Any:
    """A duration, or a list of durations, in milliseconds; None and `UNSET` stay. Raises
    `BadInput`."""
    if seconds is None or seconds is UNSET:
        return seconds
    if isinstance(seconds, Sequence) and not isinstance(seconds, str | bytes):
        return tuple(milliseconds(one, name) for one in seconds)
    return milliseconds(seconds, name)


def given(**members: Any) -> dict[str, Any]:
    """The members that are not `UNSET`."""
    return {name: value for name, value in members.items() if value is not UNSET}


def as_list(name: str, given: Any) -> Any:
    """A list of the given elements; None and `UNSET` stay. Raises `BadInput`."""
    if given is None or given is UNSET:
        return given
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise BadInput(f"{name} must be a list, not {type(given).__name__}")
    return list(given)


def as_tuple(name: str, given: Any) -> Any:
    """The same as a tuple. An empty one is the default of members that are tuples, so requests
    omit it. Raises `BadInput`."""
    found = as_list(name, given)
    return tuple(found) if isinstance(found, list) else found


def as_dict(name: str, given: Any) -> Any:
    """A dict of the given members; None and `UNSET` stay. Raises `BadInput`."""
    if given is None or given is UNSET:
        return given
    if not isinstance(given, Mapping):
        raise BadInput(f"{name} must be a mapping of names to values, not {type(given).__name__}")
    return dict(given)


def as_struct(name: str, given: Any, struct: type[msgspec.Struct]) -> Any:
    """The members of a struct that are given in seconds, or the struct itself; None and `UNSET`
    stay. Raises `BadInput`."""
    if given is None or given is UNSET or isinstance(given, struct):
        return given
    try:
        return in_milliseconds(struct, given)
    except BadInput as error:
        raise BadInput(f"{name}: {error.message}") from error


def as_structs(name: str, given: Any, struct: type[msgspec.Struct]) -> Any:
    """A list of structs, each as by `as_struct`. Raises `BadInput`."""
    if given is None:
        raise BadInput(f"{name} must be a list, not None")
    return [as_struct(f"{name}[{n}]", one, struct) for n, one in enumerate(as_list(name, given))]


def as_time(name: str, given: Any) -> Any:
    """A point in time: milliseconds, a datetime with a time zone, or a text as in RFC 3339. Raises
    `BadInput`."""
    if isinstance(given, datetime) and given.tzinfo is None:
        raise BadInput(f"{name} needs a time zone: {given} can be any time")
    return given


def as_json(name: str, given: Any) -> Any:
    """The JSON of a value. Raises `BadInput`."""
    return encode(given, ("request", name)).decode()


def _extra(hint: Any) -> Mapping[str, Any]:
    metas = hint.__metadata__ if get_origin(hint) is Annotated else ()
    return next((one.extra for one in metas if isinstance(one, Meta) and one.extra), {})


def _plain(hint: Any) -> Any:
    """A type without annotations and `UnsetType`."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        members = [_plain(one) for one in get_args(hint) if one is not UnsetType]
        return Union[tuple(members)]  # noqa: UP007
    return hint


def _struct_in(hint: Any) -> Any:
    plain = _plain(hint)
    for one in (plain, *get_args(plain)):
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            return one
    return None
