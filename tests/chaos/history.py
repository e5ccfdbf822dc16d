"""What was asked of the servers, what they acknowledged, and what was seen of it outside.

Everything is noted by those who ask, not by the servers: before it is sent, and again when an
answer has come. `Found` is what is there in the end. From these two alone the auditor judges.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

NEVER_NS = 1 << 62


@dataclass(slots=True)
class Message:
    """A message, by its dedupe key."""

    key: str
    ids: set[str] = field(default_factory=set)
    """The jobs that receipts have named: one, if all is well, and none before the first receipt."""
    counted: bool = True
    """Whether its handler counts its effect."""


@dataclass(slots=True)
class Call:
    """Something that a job did to the outside, as it arrived there."""

    what: str
    """A step, or `order`, or `fired`."""
    subject: str
    """What it was about: a message's key, a line, or a timer."""
    job: str
    """The id under which it can be told from others for ever."""
    begun_ns: int
    """When the caller began, by a clock that all processes share."""
    came_ms: float
    """When it came, by the wall clock."""
    n: int = 0
    """Of an order: its place in the line."""
    process: int = 0
    """Whose it was."""


@dataclass(slots=True)
class Still:
    """A process stood still, from when to when."""

    process: int
    from_ns: int
    to_ns: int


@dataclass(slots=True)
class Line:
    """Messages with one order key, sent one after the other."""

    acknowledged: int = 0
    """So many were, each before the next one was sent."""
    inside: bool = True
    """Whether their order is noted in the database, or outside."""


@dataclass(slots=True)
class Use:
    """One use of a lock."""

    name: str
    asked_ns: int
    granted_ns: int = NEVER_NS
    token: int = 0
    until_ns: int = 0
    """Until when the holder could count on its lease, as it knew: from before it asked."""
    ended_ns: int = NEVER_NS
    """When it began to let go."""


@dataclass(slots=True)
class FencedWrite:
    """A write to something outside that tells old tokens from new ones."""

    name: str
    use: str
    token: int
    sent_ns: int
    refused: bool = False
    """Because a newer token had written before."""


@dataclass(slots=True)
class Timer:
    """A timer that was set."""

    asked_ms: float
    """By the wall clock, before it was sent."""
    delay_ms: int
    due_ms: int | None = None
    """As it was acknowledged last; None before that."""
    repeats: bool = False
    cancelled: bool = False
    """Whether that was acknowledged, so that nothing may come any more."""
    webhook: bool = True


@dataclass(slots=True)
class Visit:
    """A call of a timer, as it arrived."""

    timer: str
    job: str
    came_ms: float
    number: int = 1
    due_ms: int | None = None


@dataclass(slots=True)
class Member:
    """Someone who adds to a counter in a room, of which each has one."""

    taken: int = 0
    unknown: int = 0
    """Steps of which the client was told that their outcome is not known."""


@dataclass(slots=True)
class Move:
    """A move that was asked for at a table."""

    match: str
    number: int
    seat: str
    move: int
    acknowledged: bool = False


@dataclass(slots=True)
class Table:
    """A table, who is at it, and what was seen there."""

    seats: int
    people: dict[str, bool] = field(default_factory=dict)
    """Whether someone is to be there, by the last acknowledgement."""
    moves: list[Move] = field(default_factory=list)
    seen: list[dict[str, str]] = field(default_factory=list)
    """Who sat where after each step of the table, by marker."""


@dataclass(slots=True)
class History:
    """All of it."""

    messages: dict[str, Message] = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    stills: list[Still] = field(default_factory=list)
    uses: dict[str, Use] = field(default_factory=dict)
    writes: list[FencedWrite] = field(default_factory=list)
    timers: dict[str, Timer] = field(default_factory=dict)
    visits: list[Visit] = field(default_factory=list)
    rooms: dict[str, dict[str, Member]] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    troubles: Counter[str] = field(default_factory=Counter)
    """Errors that callers were told to try again after, by code."""


@dataclass(slots=True)
class Order:
    """What a database says of a line in the end."""

    last: int = 0
    count: int = 0
    wrong: list[tuple[int, int]] = field(default_factory=list)
    """Which number came after which other one, where that was not the next."""


@dataclass(slots=True)
class Place:
    """Where someone is at a table in the end."""

    role: str
    marker: str = ""
    number: int = 0
    position: int = 0


@dataclass(slots=True)
class Found:
    """What is there in the end."""

    jobs: dict[str, str] = field(default_factory=dict)
    """The state of each job, by id."""
    effects: dict[str, int] = field(default_factory=dict)
    """How often each message took effect, by key."""
    orders: dict[str, Order] = field(default_factory=dict)
    timers: dict[str, str] = field(default_factory=dict)
    """The state of each timer, by id."""
    rooms: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By room: what each copy shows, by whose it is; `server` is the server's own."""
    places: dict[str, dict[str, Place]] = field(default_factory=dict)
    logs: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """The moves of each match, by seat."""
    held: dict[str, int] = field(default_factory=dict)
    """How many hold or wait for a lock when all is over."""
    problems: list[str] = field(default_factory=list)
    """What `onceward db check` says, and what else went wrong with processes."""
