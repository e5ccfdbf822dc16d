"""Schemas of map, list and presence values: a subset of JSON Schema.

Supported are `type` (one or a list of null, boolean, integer, number, string, array, object),
`enum`, `const`, `minimum`, `maximum`, `minLength`, `maxLength`, `minItems`, `maxItems`, `items`,
`properties`, `required`, `additionalProperties` (true or false) and `anyOf`. `title`, `description`
and `default` are ignored. Other keywords are rejected when the schema is set.
"""

from collections.abc import Callable, Mapping
from operator import gt, lt
from typing import Any, Literal

import msgspec

from onceward import limits
from onceward.api.rooms import Schemas
from onceward.errors import BadInput
from onceward.rooms.state import same


class Work:
    """The remaining budget of a check. Schema and value together may need far more comparisons than
    their sizes suggest.
    """

    def __init__(self) -> None:
        self.left = limits.ROOM_CHECKS_MAX

    def spend(self, checks: int) -> None:
        """Raise `BadInput` when the budget is exceeded."""
        self.left -= checks
        if self.left < 0:
            raise _misfit(
                f"the schema needs more than {limits.ROOM_CHECKS_MAX} comparisons: "
                "send less at once, or use a schema with fewer alternatives"
            )


Check = Callable[[Any, str, Work], None]
"""Raises `BadInput` for a value that does not match; the text is its location."""

_DEPTH_MAX = 20
# The cost of an alternative that does not match, in comparisons.
_TRY = 4
_NUMBER = (int, float)


class Shapes:
    """Compiled schemas."""

    def __init__(self, schemas: Schemas | None = None) -> None:
        """Raises `BadInput` for an invalid or unsupported schema."""
        self.schemas = schemas = schemas or Schemas()
        size = len(msgspec.json.encode(schemas))
        if size > limits.ROOM_SCHEMAS_BYTES_MAX:
            raise BadInput(
                f"schemas must have at most {limits.ROOM_SCHEMAS_BYTES_MAX} bytes, not {size}",
                code="bad_schema",
            )
        self._checks: dict[tuple[str, str], Check] = {
            (kind, name): _compile(schema, f"{kind} {name}", _DEPTH_MAX)
            for kind, named in (
                ("map", schemas.maps),
                ("list", schemas.lists),
                ("presence", schemas.presences),
            )
            for name, schema in named.items()
        }

    @property
    def any(self) -> bool:
        """Whether there is a schema."""
        return bool(self._checks)

    def admit(self, kind: Literal["map", "list", "presence"], name: str, value: Any) -> None:
        """Raise `BadInput` with the code `bad_shape` for a value that does not match or is too
        expensive to check.
        """
        self.step()(kind, name, value)

    def step(self) -> Callable[[Literal["map", "list", "presence"], str, Any], None]:
        """`admit` with one budget for all values of a step."""
        work = Work()

        def admit(kind: Literal["map", "list", "presence"], name: str, value: Any) -> None:
            check = self._checks.get((kind, name))
            if check is not None:
                check(value, f"a value in {name!r}", work)

        return admit


def _is(type_: str, value: Any) -> bool:
    if type_ == "null":
        return value is None
    if type_ == "boolean":
        return isinstance(value, bool)
    if type_ == "integer":
        return type(value) is int or (type(value) is float and value.is_integer())
    if type_ == "number":
        return type(value) in _NUMBER
    return isinstance(value, {"string": str, "array": list, "object": dict}[type_])


_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
# Keywords with a bound: the values they apply to, the compared quantity, the test that rejects, and
# its description.
_Test = Callable[[Any, Any], bool]
_BOUNDS: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any], _Test, str]] = {
    "minimum": (lambda v: type(v) in _NUMBER, lambda v: v, lt, "is less than"),
    "maximum": (lambda v: type(v) in _NUMBER, lambda v: v, gt, "is more than"),
    "minLength": (lambda v: isinstance(v, str), len, lt, "has fewer characters than"),
    "maxLength": (lambda v: isinstance(v, str), len, gt, "has more characters than"),
    "minItems": (lambda v: isinstance(v, list), len, lt, "has fewer items than"),
    "maxItems": (lambda v: isinstance(v, list), len, gt, "has more items than"),
}
_SILENT = ("title", "description", "default")


def _compile(schema: Any, where: str, depth: int) -> Check:
    if not isinstance(schema, Mapping):
        raise BadInput(
            f"the schema of {where} must be an object, not {type(schema).__name__}",
            code="bad_schema",
        )
    if depth == 0:
        raise BadInput(
            f"the schema of {where} is nested too deeply; simplify it", code="bad_schema"
        )
    checks: list[Check] = []
    properties = schema.get("properties", {})
    for word, said in schema.items():
        if word in _SILENT:
            continue
        if word not in _WORDS and word not in _BOUNDS:
            known = ", ".join(sorted({*_WORDS, *_BOUNDS}))
            raise BadInput(
                f"unknown keyword {word!r} in the schema of {where}; supported are {known}",
                code="bad_schema",
            )
        if word in _BOUNDS:
            checks.append(_bound(word, said, where))
        elif word == "additionalProperties":
            checks.append(_additional(said, properties, where))
        else:
            checks.append(_WORDS[word](said, where, depth - 1))

    def check(value: Any, place: str, work: Work) -> None:
        work.spend(1 + len(checks))
        for one in checks:
            one(value, place, work)

    return check


def _bound(word: str, bound: Any, where: str) -> Check:
    about, measure, beyond, told = _BOUNDS[word]
    whole = word not in ("minimum", "maximum")
    if type(bound) not in _NUMBER or (whole and (type(bound) is not int or bound < 0)):
        raise BadInput(
            f"the number for {word} in the schema of {where} must be a number, and 0 or "
            f"more for sizes, not {str(bound)[:50]}",
            code="bad_schema",
        )

    def check(value: Any, place: str, work: Work) -> None:
        # Compared instead of subtracted, which integers may be too large for.
        if about(value) and beyond(measure(value), bound):
            raise _misfit(f"{place} {told} {bound}")

    return check


def _type(said: Any, where: str, _depth: int) -> Check:
    types = [said] if isinstance(said, str) else said
    if not isinstance(types, list) or not types or any(type_ not in _TYPES for type_ in types):
        raise BadInput(
            f"the type in the schema of {where} must be one or a list of "
            f"{', '.join(_TYPES)}, not {str(said)[:50]!r}",
            code="bad_schema",
        )

    def check(value: Any, place: str, work: Work) -> None:
        if not any(_is(type_, value) for type_ in types):
            raise _misfit(f"{place} is not of the type {' or '.join(types)}")

    return check


def _enum(said: Any, where: str, _depth: int) -> Check:
    if not isinstance(said, list) or not said:
        raise BadInput(
            f"enum in the schema of {where} must be a list of values, not {str(said)[:50]!r}",
            code="bad_schema",
        )

    parts = _parts(said)

    def check(value: Any, place: str, work: Work) -> None:
        work.spend(parts)
        if not any(same(value, allowed) for allowed in said):
            raise _misfit(f"{place} is not one of the allowed values")

    return check


def _items(said: Any, where: str, depth: int) -> Check:
    inner = _compile(said, f"the items of {where}", depth)

    def check(value: Any, place: str, work: Work) -> None:
        if isinstance(value, list):
            for number, item in enumerate(value):
                inner(item, f"{place}, item {number},", work)

    return check


def _properties(said: Any, where: str, depth: int) -> Check:
    if not isinstance(said, Mapping):
        raise BadInput(
            f"properties in the schema of {where} must be an object, not {type(said).__name__}",
            code="bad_schema",
        )
    inner = {name: _compile(one, f"{name} of {where}", depth) for name, one in said.items()}

    def check(value: Any, place: str, work: Work) -> None:
        if isinstance(value, dict):
            work.spend(len(inner))
            for name, one in inner.items():
                if name in value:
                    one(value[name], f"{place}, member {name!r},", work)

    return check


def _required(said: Any, where: str, _depth: int) -> Check:
    if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
        raise BadInput(
            f"required in the schema of {where} must be a list of names, not {str(said)[:50]!r}",
            code="bad_schema",
        )

    def check(value: Any, place: str, work: Work) -> None:
        for name in said if isinstance(value, dict) else ():
            if name not in value:
                raise _misfit(f"{place} lacks the member {name!r}")

    return check


def _additional(said: Any, properties: Any, where: str) -> Check:
    if not isinstance(said, bool):
        raise BadInput(
            f"additionalProperties in the schema of {where} must be true or false, not "
            f"{str(said)[:50]!r}",
            code="bad_schema",
        )

    def check(value: Any, place: str, work: Work) -> None:
        if not said and isinstance(value, dict):
            for name in value.keys() - properties.keys():
                raise _misfit(f"{place} has the unknown member {name[:100]!r}")

    return check


def _any_of(said: Any, where: str, depth: int) -> Check:
    if not isinstance(said, list) or not said:
        raise BadInput(
            f"anyOf in the schema of {where} must be a list of schemas, not {str(said)[:50]!r}",
            code="bad_schema",
        )
    inner = [_compile(one, where, depth) for one in said]

    def check(value: Any, place: str, work: Work) -> None:
        for one in inner:
            work.spend(_TRY)
            try:
                one(value, place, work)
                return
            except BadInput:
                pass
        raise _misfit(f"{place} matches none of the schemas")

    return check


_WORDS: dict[str, Callable[[Any, str, int], Check]] = {
    "type": _type,
    "enum": _enum,
    "const": lambda said, where, depth: _enum([said], where, depth),
    "items": _items,
    "properties": _properties,
    "required": _required,
    "anyOf": _any_of,
    "additionalProperties": lambda said, where, depth: _additional(said, {}, where),
}


def _parts(value: Any) -> int:
    """The number of values in a value, including itself."""
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + sum(map(_parts, value)) if isinstance(value, list) else 1


def _misfit(message: str) -> BadInput:
    return BadInput(message[:500], code="bad_shape")
