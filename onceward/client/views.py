"""What the server answers, as the client shows it. What is new in a newer server is ignored."""

from typing import Any

import msgspec


class Receipt(msgspec.Struct):
    """What a sender gets, the first time and each time after."""

    id: str
    key: str
    state: str
    duplicate: bool
    result: Any = None
    reason: str = ""
    same_body: bool = True


class Claim(msgspec.Struct):
    """A job at hand, and the token that proves it."""

    id: str
    body: Any
    attempt: int
    token: str
    lease_until: int
    key: str | None = None
    order_key: str | None = None
    made_ms: int = 0
    reason: str = ""


class Job(msgspec.Struct):
    """A job as it is."""

    id: str
    queue: str
    state: str
    body: Any
    made_ms: int
    due_ms: int
    attempt: int
    attempts_max: int
    priority: int
    key: str | None = None
    order_key: str | None = None
    result: Any = None
    reason: str = ""
    ended_ms: int = 0
    worker: str = ""
    history: list[dict[str, Any]] = []
    settled: list[dict[str, Any]] = []
    """The last settlements of steps in doubt, each with `settled_ms`, `step`, `done`, `by` and
    `reason`."""

    @property
    def ended(self) -> bool:
        return self.state in ("done", "dead", "doubt", "cancelled")


class Queue(msgspec.Struct):
    """A queue: how many jobs it has in which state, and its settings."""

    name: str
    jobs: dict[str, int]
    oldest_ready_ms: int | None
    counted_ms: int | None
    settings: dict[str, Any]


class Lock(msgspec.Struct):
    """What is held, until the lease runs out or is renewed."""

    id: str
    token: int
    tokens: dict[str, int]
    lease_until: int


class Someone(msgspec.Struct):
    """A holder, or one who waits."""

    owner: str
    since_ms: int
    number: int


class LockStatus(msgspec.Struct):
    """Who holds a lock, and who waits, in order."""

    name: str
    capacity: int
    token: int
    held: int
    waiting: int
    holders: list[Someone]
    waiters: list[Someone]


class ServerClock(msgspec.Struct):
    """What time it is for a server."""

    now_ms: int
    wall_ms: int
    """What the clock of its machine or of its database shows."""
    held: bool
    """Whether that is not believed, since it is far ahead of the last commit."""


class Answer(msgspec.Struct):
    """What the other calls answer, each some of it."""

    jobs: int = 0
    next: str | None = None
    state: str = ""
    lease_until: int = 0
    released: bool = False
    in_doubt: Any = 0
    """Names of steps, or how many jobs."""


class Claims(msgspec.Struct):
    jobs: list[Claim]


class Jobs(msgspec.Struct):
    jobs: list[Job]
    next: str | None = None


class Queues(msgspec.Struct):
    queues: list[Queue]


class Refusal(msgspec.Struct):
    code: str
    detail: str
    status: int


class Verdict(msgspec.Struct):
    accepted: Receipt | None = None
    refused: Refusal | None = None


class Verdicts(msgspec.Struct):
    results: list[Verdict]
