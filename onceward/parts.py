"""The registry of parts: kinds of records and due entries that each capability declares.

A capability has a module `register` with one constant, `PART`. `load` returns all of them, in the
order of `onceward.capabilities`. Generic code uses this list: `onceward db check`, nodes, and the
page of capabilities in the reference.

The modules are loaded by name. So a new capability is a folder and an entry in
`onceward.capabilities`, and the parts can declare records of any layer above this one.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import msgspec

from onceward import keys
from onceward.capabilities import CAPABILITIES
from onceward.engine.base import Record
from onceward.engine.invariants import RULES as COMMON_RULES
from onceward.engine.invariants import Lookup, Rule
from onceward.ids import Ids
from onceward.keys import Key

T = TypeVar("T")


class Kind(NamedTuple):
    """A kind of records. Words in braces are placeholders for names and numbers."""

    partition: str
    """Such as `lock#{slot}`."""
    sort: str
    """Such as `{name}#hold#{token}`."""
    type: Any
    """The type of its values."""
    holds: str
    """A noun phrase that describes a record of this kind."""
    example: Key | None = None
    """A key made by the function for keys of this kind, to detect changes of the layout."""

    @property
    def word(self) -> str:
        return keys.kind_of(self.partition)


class Attribute(NamedTuple):
    """The attribute of applications that holds the object of a part: `app.rooms`."""

    name: str
    type: type
    """The class of the object."""


Guard = Callable[[Any, Any, Any, str], None]
"""`guard(node, caller, action, name)` raises `not_allowed` for a caller without access."""


class Due(NamedTuple):
    """A kind of due entries, and the methods of the part's object that process them."""

    kind: str
    act: Callable[..., Awaitable[Any]]
    """`act(object, tx, entry)`; see `Dispatcher.on_due`."""
    writes: int
    reads: Callable[..., Iterable[Key]] | None = None


class Made:
    """The objects of all parts on one node, by class."""

    def __init__(self, ids: Ids, slots: int, *made: Any) -> None:
        self.ids = ids
        self.slots = slots
        self._made: dict[type, Any] = {}
        for one in made:
            self.add(one)

    def add(self, made: Any) -> None:
        """Register an object under its class and base classes."""
        self._made.update(dict.fromkeys(type(made).__mro__, made))

    def get(self, kind: type[T]) -> T:
        """The object of this class. Raises KeyError."""
        found: T = self._made[kind]
        return found


class Part(NamedTuple):
    """The declarations of a capability."""

    kinds: tuple[Kind, ...] = ()
    rules: Sequence[Rule] = ()
    """Invariants of records. A kind without a rule is checked for its type."""
    due: tuple[Due, ...] = ()
    make: Callable[[Made], Any] | None = None
    """Creates the object with the functions of the part, which also process its due entries. None
    if the part has no object, or if the dispatcher has it from the start (jobs)."""
    attribute: Attribute | None = None
    """The attribute of applications that holds the object."""
    guard: Guard | None = None
    """Checks access of remote callers beyond the scope. None: the scope suffices."""


@cache
def load() -> dict[str, Part]:
    """All parts by folder."""
    return {
        one.folder: import_module(f"onceward.{one.folder}.register").PART for one in CAPABILITIES
    }


def attributes() -> list[Attribute]:
    """The attributes that parts add to applications."""
    return [part.attribute for part in load().values() if part.attribute is not None]


@cache
def guards() -> dict[str, Guard]:
    """The guards of parts by action."""
    return {
        scope.action: guard
        for one in CAPABILITIES
        if (guard := load()[one.folder].guard) is not None
        for scope in one.scopes
    }


def all_kinds() -> list[Kind]:
    return [kind for part in load().values() for kind in part.kinds]


@cache
def all_rules() -> list[Rule]:
    """All invariants of a database, for `onceward db check`."""
    rules = [*COMMON_RULES, *(rule for part in load().values() for rule in part.rules)]
    kinds: dict[str, list[Kind]] = {}
    for kind in all_kinds():
        kinds.setdefault(kind.word, []).append(kind)
    for word in kinds.keys() - {rule.kind for rule in rules}:
        rules.append(Rule(word, _typed(kinds[word])))
    return [*rules, Rule("due", _known)]


def _typed(kinds: list[Kind]) -> Callable[[Record, Lookup], Iterable[str]]:
    """The rule that records of one word have the key and value of one of these kinds."""
    rows = [(_pattern(kind.sort), msgspec.json.Decoder(kind.type), kind) for kind in kinds]

    def judge(record: Record, get: Lookup) -> Iterator[str]:
        for pattern, decoder, kind in rows:
            if pattern.fullmatch(record.key[1]):
                try:
                    decoder.decode(record.value)
                except msgspec.DecodeError as error:
                    yield f"not {kind.holds}: {error}"
                return
        yield "unknown kind of record: no part declares this key"

    return judge


def _pattern(sort: str) -> re.Pattern[str]:
    words = re.split(r"\{[^}]*\}", sort)
    return re.compile("(?s:.*)".join(map(re.escape, words)))


def _known(record: Record, get: Lookup) -> Iterator[str]:
    kind = keys.split(record.key[1])[-1]
    if kind not in {due.kind for part in load().values() for due in part.due}:
        yield f"unknown kind of due entry {kind!r}: no part declares it"
