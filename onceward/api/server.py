"""Operations on the server: health, activity, senders, settings and clock."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onceward import limits
from onceward.api.operation import Operation, Query


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """The activity in one interval, and the state at its end."""

    at_ms: int
    accepted: float
    repeats: float
    """Messages with a known key, which took no effect again."""
    succeeded: float
    failed: float
    commit_ms: float | None
    """The median time until commits were durable; None if there were none."""
    commit_99_ms: float | None
    late_ms: float | None
    """The median lateness of due entries."""
    late_99_ms: float | None
    connections: float
    members: float
    age_ms: int
    """The age of the oldest job that waits for a worker, as of the last count."""


class Totals(msgspec.Struct, frozen=True):
    """The activity since the process started, and the current state."""

    accepted: float
    repeats: float
    succeeded: float
    failed: float
    connections: float
    members: float


class SamplesQuery(Query):
    """Which samples to return."""

    after: Annotated[int, Meta(ge=0, le=limits.KEY_NUMBER_MAX)] = 0
    """The member `last` of the previous response."""


class Activity(msgspec.Struct):
    """The activity of the last seconds, and in total."""

    now_ms: int
    every_ms: int
    """The time between two samples."""
    last: int
    """The number of the last sample: send it as `after` the next time."""
    samples: list[Sample]
    totals: Totals


class QueueActivity(msgspec.Struct):
    """The activity of a queue on this node, since it started."""

    name: str
    jobs: dict[str, int]
    oldest_queued_ms: int | None
    paused: bool
    accepted: float
    repeats: float
    succeeded: float
    failed: float


class Attention(msgspec.Struct):
    """A condition that an operator should look at."""

    kind: str
    """failed, in_doubt, stuck (jobs without a worker), endpoint (failing), receiver (not
    responding, so that calls to it are paused), clock or alarm."""
    name: str
    """The queue or endpoint, the URL of the receiver without its path, or the code of the
    alarm."""
    count: int = 0
    """The number of jobs, or of failed calls in a row."""
    since_ms: int = 0
    said: str = ""
    """The last error of an endpoint or receiver, or the message of an alarm."""
    caller: str = ""
    """The owner of the endpoint or of the waiting calls; empty if there are several."""
    until_ms: int = 0
    """When this node calls a receiver again; in the past if a call is under way."""


class Overview(msgspec.Struct):
    """A server at a glance."""

    version: str
    node: str
    dev: bool
    now_ms: int
    started_ms: int
    counted_ms: int | None
    """When the jobs were counted; None before the first count."""
    jobs: dict[str, int]
    timers: dict[str, int]
    rooms: int
    queues: list[QueueActivity]
    """The queues that the caller may manage, the most active ones first."""
    attention: list[Attention]


class SendersQuery(Query):
    """Which senders to list."""

    queue: str | UnsetType = UNSET
    """The queue that the senders send to."""


class Sender(msgspec.Struct):
    """The messages of a sender to a queue, since this node started."""

    queue: str
    sender: str
    accepted: int
    repeats: int
    rejected: int
    """Known keys with another body."""
    last_ms: int
    ack_ms: float | None
    """The median time until a message was durable."""
    ack_99_ms: float | None
    ack_max_ms: float | None
    causes: dict[str, int]
    """Why messages were repeated, where the application knows it: the number by cause."""


class SenderList(msgspec.Struct):
    """Senders by queue and name."""

    senders: list[Sender]


class ServerSetting(msgspec.Struct):
    """A setting and its source."""

    name: str
    value: str
    source: str
    meaning: str


class ServerSettings(msgspec.Struct):
    """The settings of this server, without secrets."""

    settings: list[ServerSetting]


class ServerClock(msgspec.Struct):
    """The time of the server."""

    now_ms: int
    wall_ms: int
    """The clock of the machine or of the database."""
    held: bool
    """Whether that clock is not used, because it is far ahead of the last commit."""


class ActiveAlarm(msgspec.Struct):
    """A condition that an operator should look at; `/v1/overview` has its message."""

    code: str
    since_ms: int


class Health(msgspec.Struct, omit_defaults=True):
    """The health of the server."""

    status: str
    alarms: list[ActiveAlarm] = []


ACTIVITY = Operation(
    name="server.activity",
    method="GET",
    path="/v1/activity",
    summary="Show the activity of the last seconds",
    query=SamplesQuery,
    response=Activity,
)

OVERVIEW = Operation(
    name="server.overview",
    method="GET",
    path="/v1/overview",
    summary="Show the server at a glance",
    response=Overview,
)

SENDERS = Operation(
    name="server.senders",
    method="GET",
    path="/v1/senders",
    summary="List senders with their repeats and latency",
    scope="manage | operate:{each queue}",
    query=SendersQuery,
    response=SenderList,
    returns="senders",
)

SETTINGS = Operation(
    name="server.settings",
    method="GET",
    path="/v1/settings",
    summary="List the settings of the server",
    scope="all",
    response=ServerSettings,
    returns="settings",
)

CLOCK = Operation(
    name="server.clock",
    method="GET",
    path="/v1/clock",
    summary="Show the time of the server",
    scope="operate:*",
    response=ServerClock,
)

CONFIRM_CLOCK = Operation(
    name="server.confirm_clock",
    method="POST",
    path="/v1/clock/confirm",
    summary="Confirm a clock that is far ahead",
    scope="operate:*",
    response=ServerClock,
)

HEALTH = Operation(
    name="server.health",
    method="GET",
    path="/healthz",
    summary="Check whether the process runs",
    response=Health,
    kind="page",
    public=True,
)

READY = Operation(
    name="server.ready",
    method="GET",
    path="/readyz",
    summary="Check whether the server is ready",
    response=Health,
    kind="page",
    public=True,
)

METRICS: Operation[None] = Operation(
    name="server.metrics",
    method="GET",
    path="/metrics",
    summary="Show metrics for Prometheus",
    media_type="text/plain",
    errors=("no_credentials", "not_allowed", "rate_limited"),
    kind="page",
    public=True,
)

OPENAPI: Operation[None] = Operation(
    name="server.openapi",
    method="GET",
    path="/openapi.json",
    summary="Show this document",
    media_type="application/json",
    kind="page",
    public=True,
)

DOCS: Operation[None] = Operation(
    name="server.docs",
    method="GET",
    path="/docs",
    summary="Show this document as a page",
    media_type="text/html",
    kind="page",
    public=True,
)
