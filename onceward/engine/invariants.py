"""The interface for invariants between records, which `onceward db check` verifies.

A part that keeps an index of its records (a due entry and its job, a waitlist and its seats)
defines rules that verify it. The command line passes all rules to the check. A rule checks one
record at a time and may read others.
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
"""Returns the record of a key at the time of the check, including expired ones."""


class Rule(NamedTuple):
    """Checks the records of one kind and yields a description of each problem."""

    kind: str
    """The first word of the partitions that it checks."""
    judge: Callable[[Record, Lookup], Iterable[str]]


def value_of(record: Record | None, type: type[T]) -> T | None:
    """The decoded value of a record, or None if it is missing or of another type."""
    if record is None:
        return None
    try:
        return msgspec.json.decode(record.value, type=type)
    except msgspec.DecodeError:
        return None


def due_ms(sort: str) -> int:
    """The due time in the key of a due entry; raises `BadInput` if the key has another form."""
    first, _, rest = sort.partition("#")
    if not rest or not first.isascii() or not first.isdigit() or keys.number(int(first)) != first:
        raise BadInput(
            f"{sort!r} does not start with a time; begin it with keys.number(…)", code="bad_key"
        )
    return int(first)


def _due(record: Record, get: Lookup) -> Iterator[str]:
    try:
        due_ms(record.key[1])
    except BadInput as error:
        yield error.message


RULES = [Rule("due", _due)]
"""The rules for every database, independent of the parts in use."""
