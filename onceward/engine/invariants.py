"""What must hold between records, by kind, for `onceward check` to find out.

A part that keeps an index beside its records (a due entry and its job, a line and its
seat) says in a list of rules how to tell that they agree, and the command line hands all
such lists to the check. A rule looks at one record at a time, and may look up others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

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


class Part(NamedTuple):
    """One capability: the kinds of its records, and what must hold for them. Each registers itself
    in the list that `onceward check` goes by, and a test compares that with the table of keys."""

    name: str
    rules: Sequence[Rule]
    """One at the least for every kind of its records."""
    due: tuple[str, ...] = ()
    """The kinds of its entries in `due`."""

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(rule.kind for rule in self.rules)


def decodes(kind: str, type_: Any, what: str, sort: str | None = None) -> Rule:
    """The rule that values of a kind, or under one sort key, are of a type."""
    decoder = msgspec.json.Decoder(type_)

    def judge(record: Record, get: Lookup) -> Iterator[str]:
        if sort is None or record.key[1] == sort:
            try:
                decoder.decode(record.value)
            except msgspec.DecodeError as error:
                yield f"this is not {what}: {error}"

    return Rule(kind, judge)


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
