"""What the server answers about timers and endpoints, as the client shows it."""

from typing import Any

import msgspec


class RetryPolicy(msgspec.Struct):
    """When a call that failed is attempted again; None: not specified."""

    pauses_ms: list[int] | None = None
    attempts_max: int | None = None
    timeout_ms: int | None = None


class Pause(msgspec.Struct):
    """A receiver that does not answer is left alone for a while."""

    until_ms: int
    failures: int


class Attempt(msgspec.Struct):
    """One attempt of a firing, and what came of it."""

    attempt: int
    at: str
    at_ms: int
    outcome: str
    """done or failed."""
    said: str = ""


class Firing(msgspec.Struct):
    """The last time a timer has fired."""

    id: str
    """Of its job; the header webhook-id of all its attempts."""
    number: int
    fired_ms: int
    state: str
    attempts: list[Attempt] = []
    due_ms: int | None = None
    next_attempt_ms: int | None = None
    pause: Pause | None = None
    """If it waits since its receiver does not answer."""


class Timer(msgspec.Struct):
    """A timer as it is."""

    id: str
    state: str
    """active, suspended, firing, success, failed, skipped, cancelled or ended."""
    due: str
    due_ms: int
    left_ms: int
    made_ms: int
    fired: int
    url: str | None = None
    endpoint: str | None = None
    queue: str | None = None
    headers: dict[str, str] = {}
    body: Any = None
    append_id: bool = False
    attempts_max: int | None = None
    retry: RetryPolicy | None = None
    order_key: str | None = None
    limit_key: str | None = None
    priority: int | None = None
    every_ms: int | None = None
    cron: str | None = None
    zone: str | None = None
    catch_up: str = "all"
    next: list[str] = []
    """The next times of one that repeats."""
    last: Firing | None = None
    duplicate: bool = False
    """Whether it was set before, by the same call."""


class Health(msgspec.Struct):
    """How the last calls to an endpoint went."""

    failing: bool
    since: str | None = None
    since_ms: int | None = None
    said: str = ""


class Secret(msgspec.Struct):
    """A secret that calls are signed with."""

    secret: str
    until_ms: int | None = None


class Endpoint(msgspec.Struct):
    """An endpoint as it is."""

    id: str
    url: str
    made_ms: int
    disabled: bool
    health: Health
    description: str = ""
    headers: dict[str, str] = {}
    retry: RetryPolicy | None = None
    pause: Pause | None = None
    """If calls wait since it does not answer."""
    secrets: list[Secret] = []
    """The newest first; only if asked for."""
    suspended: bool = False
    """Whether calls wait, since its secrets need a server key that the server does not have."""
    duplicate: bool = False


class Timers(msgspec.Struct):
    timers: list[Timer]
    next: str | None = None


class Endpoints(msgspec.Struct):
    endpoints: list[Endpoint]
    next: str | None = None
