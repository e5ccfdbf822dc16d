"""Operations on queues: settings, dead letters and bulk changes of jobs."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.api.jobs import Job
from onceward.api.operation import Body, NotForClients, Operation, Query

DAY_MS = 24 * 3_600_000


class QueueSettingsView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of a queue, as responses have them."""

    paused: bool = False
    """Whether the queue is paused: workers get no jobs."""
    limit: int = 0
    """The maximum number of running jobs, on all nodes together; 0: no limit."""
    limit_per_key: int = 0
    """The maximum number of ready and running jobs with the same `limit_key`; 0: no limit."""
    rate: float = 0.0
    """The maximum number of jobs that start per second; 0: no limit."""
    attempts_max: int = 5
    """The number of attempts after which a failure is final; 0: no limit."""
    retry_first_ms: int = 1_000
    """The pause after the first failure; it doubles each time, up to `retry_max_ms`."""
    retry_max_ms: int = 3_600_000
    """The longest pause between two attempts."""
    failed_blocks: bool = False
    """Whether a failed job blocks its order key until it is retried or cancelled."""
    failure_queue: str = ""
    """The queue that gets a job for each job that fails permanently in this queue."""
    key_fields: tuple[str, ...] = ()
    """The fields of the body that form the idempotency key of messages without one."""
    fingerprint: tuple[str, ...] | None = None
    """The fields that must be equal in messages with the same key; None: the whole body."""
    mismatch: str = "reject"
    """Whether a message with a known key and another body is rejected (`reject`), or only counted
    (`record`)."""
    key_retention_ms: int | None = 7 * DAY_MS
    """How long an idempotency key is kept after the end of its job; None: forever."""
    job_retention_ms: int | None = 7 * DAY_MS
    """How long a job is kept with its result after its end; None: forever."""
    depth_max: int = 0
    """The maximum number of jobs that have not ended; 0: no limit. A full queue rejects further
    messages (`queue_full`), but accepts jobs of timers and of failure queues."""
    fair: bool = False
    """Whether senders take turns, so that the backlog of one sender does not delay the jobs of
    another one. The sender is the `caller` of a message."""
    internal: NotForClients = False
    """Whether only code of the application can send to the queue. Callers over HTTP cannot send to
    it or claim its jobs, regardless of their scopes. Set by code of the application, not over
    HTTP."""
    remote_work: NotForClients = False
    """Whether callers with the scope `work` can claim jobs of an internal queue over HTTP."""


class QueueSettings(QueueSettingsView, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The settings of a queue."""

    mismatch: Literal["reject", "record"] = "reject"
    """Whether a message with a known key and another body is rejected, or only counted."""


class QueueKeywords(TypedDict, total=False):
    """The settings of a queue as keyword arguments, with durations in seconds."""

    paused: bool
    limit: int
    limit_per_key: int
    rate: float
    attempts_max: int
    retry_first_s: float
    retry_max_s: float
    failed_blocks: bool
    failure_queue: str
    key_fields: Sequence[str]
    fingerprint: Sequence[str] | None
    mismatch: Literal["reject", "record"]
    key_retention_s: float | None
    job_retention_s: float | None
    depth_max: int
    fair: bool
    internal: bool
    """Whether only code of the application can send to the queue."""
    remote_work: bool
    """Whether callers with the scope `work` can claim jobs of an internal queue over HTTP."""


class Queue(msgspec.Struct):
    """A queue: its settings, and the number of its jobs by state."""

    name: str
    jobs: dict[str, int]
    oldest_queued_ms: int | None
    counted_ms: int | None
    """When the jobs were counted; None before the first count."""
    settings: QueueSettingsView


class QueueList(msgspec.Struct):
    """The queues that have jobs or settings."""

    queues: list[Queue]


class FailedJobsQuery(Query):
    """Which failed jobs to list."""

    after: str = ""
    """The member `next` of the last page."""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 100
    """The maximum number of entries in the response."""


class FailedJobs(msgspec.Struct):
    """Jobs that have failed or are in doubt, the oldest failure first."""

    jobs: list[Job]
    next: str | None
    """Where the next page starts; None on the last page."""


class RedriveJobs(Body):
    """Which failed jobs to retry."""

    after: str = ""
    """Where to continue: the member `next` of the last response."""
    reason: str | None = None
    """A part of the error of the last attempt."""
    order_key: str | None = None
    """The order key of the jobs."""
    since_ms: Annotated[int, Meta(ge=0)] | None = None
    """The earliest time of the failure."""


class PurgeJobs(Body):
    """Where to continue a purge."""

    after: str = ""
    """The member `next` of the last response."""


class ChangedJobs(msgspec.Struct, omit_defaults=True):
    """The number of changed jobs. A request does a part of a large change."""

    jobs: int
    next: str | None
    """Where to continue; None if the change is complete."""
    in_doubt: int = 0
    """The number of retried jobs with steps in doubt."""


_NAME = ("bad_name",)

LIST = Operation(
    name="queues.list",
    method="GET",
    path="/v1/queues",
    summary="List queues",
    scope="manage:{each queue}",
    response=QueueList,
    returns="queues",
)

GET = Operation(
    name="queues.get",
    method="GET",
    path="/v1/queues/{queue}",
    summary="Show a queue",
    scope="manage:{queue}",
    response=Queue,
    errors=_NAME,
)

CONFIGURE = Operation(
    name="queues.configure",
    method="PUT",
    path="/v1/queues/{queue}",
    summary="Change some settings of a queue",
    scope="manage:{queue}",
    body=QueueSettings,
    partial=True,
    response=Queue,
    errors=_NAME,
)

PAUSE = Operation(
    name="queues.pause",
    method="POST",
    path="/v1/queues/{queue}/pause",
    summary="Pause a queue",
    scope="manage:{queue}",
    response=Queue,
    errors=_NAME,
)

RESUME = Operation(
    name="queues.resume",
    method="POST",
    path="/v1/queues/{queue}/resume",
    summary="Resume a queue",
    scope="manage:{queue}",
    response=Queue,
    errors=_NAME,
)

FAILED = Operation(
    name="queues.failed",
    method="GET",
    path="/v1/queues/{queue}/failed",
    summary="List failed jobs and jobs in doubt",
    scope="manage:{queue}",
    query=FailedJobsQuery,
    response=FailedJobs,
    errors=_NAME,
)

REDRIVE = Operation(
    name="queues.redrive",
    method="POST",
    path="/v1/queues/{queue}/redrive",
    summary="Retry failed jobs",
    scope="manage:{queue}",
    body=RedriveJobs,
    body_optional=True,
    response=ChangedJobs,
    errors=_NAME,
)

PURGE = Operation(
    name="queues.purge",
    method="POST",
    path="/v1/queues/{queue}/purge",
    summary="Cancel all waiting jobs of a queue",
    scope="manage:{queue}",
    body=PurgeJobs,
    body_optional=True,
    response=ChangedJobs,
    errors=_NAME,
)
