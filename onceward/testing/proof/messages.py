"""Messages of a simulation: from examples, from types of bodies, or from a file."""

import dataclasses
import datetime
import decimal
import enum
import json
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from onceward.errors import BadInput
from onceward.work.declarations import Declarations

_TRIES: Final = 50
_DEPTH_MAX: Final = 6


class Message(NamedTuple):
    """A message of a sender."""

    queue: str
    body: Any
    options: Mapping[str, Any] = {}
    """Options of `App.send`, such as an order key."""


Sender = tuple[Message, ...]
"""The messages of one sender, which take effect in this order."""


def draw(declared: Declarations, given: Sequence[Any], random: Random, most: int) -> list[Sender]:
    """The senders of a run: some of the given messages, or of the examples of handlers, or bodies
    made from their types. Raises `BadInput` if there are none."""
    sources: list[tuple[str | None, Any]] = [(None, one) for one in given] or [
        (queue, one) for queue, examples in declared.examples.items() for one in examples
    ]
    made = [
        handler
        for queue, handler in declared.handlers.items()
        if not given and handler.body is not None and not declared.examples.get(queue)
    ]
    if not sources and not made:
        if not declared.handlers:
            raise BadInput("nothing to simulate: the application has no handlers")
        names = ", ".join(sorted(declared.handlers))
        raise BadInput(
            f"nothing to send: the handlers ({names}) have neither examples nor a type. Declare "
            '`@app.handler("mails", examples=[{"to": "ann"}])`, annotate `job: Job[Mail]`, or pass '
            "recorded jobs with --jobs FILE"
        )
    senders = []
    for _ in range(random.randint(2, most)):
        queue, source = random.choice([*sources, *((one.queue, one) for one in made)])
        if source in made:
            source = make_body(source.body.type, source.body, random)
        senders.append(_sender(queue, source))
    return senders


def _sender(queue: str | None, source: Any) -> Sender:
    """A tuple is a sequence of one sender."""
    several = source if isinstance(source, tuple) and not isinstance(source, Message) else (source,)
    return tuple(
        one if isinstance(one, Message) else Message(queue or "", msgspec.to_builtins(one))
        for one in several
    )


def read_jobs(path: str) -> list[Message]:
    """The messages of a file with one JSON object per line, as `onceward jobs list --json` prints
    them. Raises `BadInput`."""
    found = []
    try:
        text = Path(path).read_text(encoding="utf-8")
        rows = json.loads(text) if text.lstrip().startswith("[") else None
        rows = rows or [json.loads(line) for line in text.splitlines() if line.strip()]
        for row in rows:
            options = {
                name: row[name] for name in ("order_key", "limit_key", "priority") if row.get(name)
            }
            found.append(Message(row["queue"], row["body"], options))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"cannot read jobs from {path!r}: {error!r}") from error
    return found


def make_body(type_: Any, converter: Any, random: Random) -> Any:
    """A body of a type, from small sets of values. Raises `BadInput` if none is valid."""
    problem: Exception | None = None
    for _ in range(_TRIES):
        try:
            body = msgspec.to_builtins(_made(type_, random, 0))
            converter.read(msgspec.json.encode(body), "body")
            return body
        except BadInput as error:
            problem = error
    raise BadInput(f"cannot make a body of {type_!r} ({problem}): declare examples on its handler")


def _made(type_: Any, random: Random, depth: int) -> Any:
    origin, args = typing.get_origin(type_), typing.get_args(type_)
    if origin is typing.Annotated:
        return _made(args[0], random, depth)
    if origin in (typing.Union, types.UnionType):
        return _made(random.choice(args), random, depth)
    if origin is typing.Literal:
        return random.choice(args)
    if origin in (list, Sequence, set, frozenset):
        return [_made(args[0], random, depth + 1) for _ in range(_few(random, depth))]
    if origin is tuple:
        return [_made(one, random, depth + 1) for one in args if one is not ...]
    if origin in (dict, Mapping):
        return {f"{_made(args[0], random, depth)}": _made(args[1], random, depth + 1)}
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return random.choice([one.value for one in type_])
    simple = _simple(type_, random)
    return simple if simple is not ... else _object(type_, random, depth)


def _few(random: Random, depth: int) -> int:
    return random.randint(0, 2) if depth < _DEPTH_MAX else 0


def _simple(type_: Any, random: Random) -> Any:
    values: dict[Any, Any] = {
        str: ("ann", "bob"),
        int: (1, 2, 5),
        float: (0.5, 2.0),
        bool: (True, False),
        None: (None,),
        type(None): (None,),
        Any: ("x", 1),
        bytes: ("YQ==",),
        decimal.Decimal: ("1.50",),
        uuid.UUID: ("00000000-0000-4000-8000-000000000001",),
        datetime.datetime: ("2024-01-02T03:04:05Z",),
        datetime.date: ("2024-01-02",),
        datetime.time: ("03:04:05",),
        dict: ({},),
        list: ([],),
    }
    return random.choice(values[type_]) if type_ in values else ...


def _object(type_: Any, random: Random, depth: int) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(type_)
    except (TypeError, NameError) as error:
        raise BadInput(f"{type_!r}: {error}") from error
    if fields := getattr(type_, "model_fields", None):
        hints = {name: field.annotation for name, field in fields.items()}
    elif dataclasses.is_dataclass(type_):
        hints = {field.name: hints[field.name] for field in dataclasses.fields(type_)}
    elif hasattr(type_, "__struct_fields__"):
        hints = {name: hints[name] for name in type_.__struct_fields__}
    return {name: _made(hint, random, depth + 1) for name, hint in hints.items()}
