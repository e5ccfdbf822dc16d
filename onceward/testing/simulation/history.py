"""The history of a run: trace, messages, final state and verdict.

Checks get only a `History`: requests and responses of clients, notes of nodes, all durable commits,
and the final records of the database.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple, NoReturn

from onceward.engine.base import Write
from onceward.keys import Key

Mode = Literal["shared", "local"]

NEVER_NS: Final = 1 << 62
"""The end time of an operation that did not end."""


class Violation(AssertionError):
    """A guarantee was violated; `kind` is a short name for it."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {message}")


def violated(kind: str, message: str) -> NoReturn:
    """Report a violated guarantee from a check. Raises `Violation`."""
    raise Violation(kind, message)


class Trace:
    """Every event of a run, one line each. Equal runs have equal digests."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.lines: list[str] = []
        self._now_ns = now_ns

    def note(self, text: str) -> None:
        self.lines.append(f"{self._now_ns() / 1e9:.6f} {text}")

    def digest(self) -> str:
        return blake2b("\n".join(self.lines).encode(), digest_size=16).hexdigest()


class Answer(NamedTuple):
    """A response that a client received."""

    returned_ns: int
    node: str
    body: Any


@dataclass(slots=True)
class Call:
    """A request of a client, with all responses: the network may deliver several."""

    id: str
    client: str
    request: Any
    called_ns: int
    answers: list[Answer] = field(default_factory=list)

    @property
    def answer(self) -> Any:
        """The first response, which the client used."""
        return self.answers[0].body

    @property
    def returned_ns(self) -> int:
        return self.answers[0].returned_ns if self.answers else NEVER_NS


class Note(NamedTuple):
    """A note of a node for the checks, such as calls of its hooks."""

    at_ns: int
    node: str
    topic: str
    body: Any


class Applied(NamedTuple):
    """A commit that the database has applied."""

    at_ns: int
    version: int
    writes: Sequence[Write]


class Stored(NamedTuple):
    """A final record of the database, with its value decoded."""

    value: Any
    expires_at_ms: int | None


@dataclass(slots=True)
class History:
    """The input of all checks."""

    mode: Mode
    calls: list[Call]
    notes: list[Note]
    final: dict[Key, Stored]
    clock_error_ms: int
    """The maximum error of a node's clock."""
    commits: list[Applied] = field(default_factory=list)
    """All durable commits, in the order of the database."""
    calm_ns: int = 0
    """The end of all faults: all nodes are up, and earlier calls have ended."""
    seen: Counter[str] = field(default_factory=Counter)
    """Events that a check has found, counted with the faults: see `Scenario.kinds`."""

    def values(self, partition: str) -> dict[str, Any]:
        """The final values of a partition, by sort key."""
        return {key[1]: found.value for key, found in self.final.items() if key[0] == partition}


class Span(NamedTuple):
    """An operation that took effect at one moment between its call and its return."""

    called_ns: int
    returned_ns: int
    name: str


def check_real_time(order: Sequence[Span], what: str) -> None:
    """Fail unless effects in this order could each lie within their own span."""
    # Each with the latest call of all before it.
    for latest, span in zip(accumulate(order, max), order[1:], strict=False):
        if span.returned_ns < latest.called_ns:
            violated(
                "not linearizable",
                f"{what}: {span.name} had returned before {latest.name} was called, "
                "and yet came after it",
            )


def check_unique(names: Iterable[str], kind: str, what: str) -> None:
    """Fail if a name occurs twice."""
    seen: dict[str, None] = {}
    for name in names:
        if name in seen:
            violated(kind, f"{what}: {name} occurs twice")
        seen[name] = None
