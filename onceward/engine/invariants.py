"""The interface for invariants between records, which `onceward check` verifies.

A part that keeps an index beside its records (a due entry and its job, a line and its
seat) says in a list of rules how to tell that they agree, and the command line hands all
such lists to the check. A rule looks at one record at a time, and may look up others.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from onceward import keys
from onceward.engine.base import Record
from onceward.errors import BadInput
from onceward.keys import Key

Lookup = Callable[[Key], Record | None]
"""What stands under a key at the moment of the check, expired or not."""


class Rule(NamedTuple):
    """Says what is wrong with a record, if anything."""

    kind: str
    """The first word of the partitions it is about."""
    judge: Callable[[Record, Lookup], Iterable[str]]


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
