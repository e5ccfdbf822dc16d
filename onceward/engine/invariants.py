"""The interface for invariants between records, which `onceward check` verifies.

A part that keeps an index beside its records (a due entry and its job, a line and its
seat) says in a list of rules how to tell that they agree, and the command line hands all
such lists to the check. A rule looks at one record at a time, and may look up others.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from onceward import keys
from onceward.engine.base import Record
from onceward.errors import BadInput
from onceward.keys import Key

T = TypeVar("T")
Lookup = Callable[[Key], Record | None]
"""What stands under a key at the moment of the check, expired or not."""


class Rule(NamedTuple):
    """Says what is wrong with a record, if anything."""

    kind: str
    """The first word of the partitions it is about."""
    judge: Callable[[Record, Lookup], Iterable[str]]


def value_of(record: Record | None, type: type[T]) -> T | None:
    """The value of a record; None if there is no record, or its value is of another type."""
    if record is None:
        return None
    try:
        return msgspec.json.decode(record.value, type=type)
    except msgspec.DecodeError:
        return None


def due_ms(sort: str) -> int:
    """When a due entry is due; raises `BadInput` if that is not its key."""
    first, _, rest = sort.partition("#")
    if not rest or not first.isascii() or not first.isdigit() or keys.number(int(first)) != first:
        raise BadInput(f"{sort!r} does not start with a time", code="bad_key")
    return int(first)


def _due(record: Record, get: Lookup) -> Iterator[str]:
    try:
        due_ms(record.key[1])
    except BadInput as error:
        yield error.message


RULES = [Rule("due", _due)]
"""What holds for every database, whatever parts use it."""
