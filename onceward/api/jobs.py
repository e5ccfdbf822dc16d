"""Operations on jobs: find, follow, retry, cancel, settle, claim and complete."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onceward import limits
from onceward.api.job_history import (
    JobAttempt,
    JobChange,
    JobChild,
    JobChildCounts,
    JobEffect,
    JobSettlement,
    JobSpan,
    JobStep,
)
from onceward.api.job_output import JobOutput, ReadOutput, ReportOutput, StoredOutput
from onceward.api.messages import Token, Wait, WaitMs
from onceward.api.operation import Body, Operation, Query
from onceward.conversion import Converter
from onceward.errors import JobFailed, NotEnded
from onceward.job_options import JobOptions, JobOptionsView

LeaseMs = Annotated[int, Meta(ge=1, le=limits.LEASE_MS_MAX)]
DelayMs = Annotated[int, Meta(ge=0, le=limits.KEY_NUMBER_MAX)]
State = Literal[
    "scheduled",
    "queued",
    "running",
    "waiting",
    "retrying",
    "succeeded",
    "failed",
    "in_doubt",
    "cancelled",
]
"""The state of a job.

`scheduled`: waits for its time. `queued`: waits for a worker, for an earlier job with the same
order key, or for its limit key. `running`: leased to a worker. `waiting`: waits for children or
an event, without a worker. `retrying`: an attempt has failed,
and the next one is scheduled. `succeeded`, `failed`, `in_doubt` and `cancelled`: ended.
"""

ENDED = ("succeeded", "failed", "in_doubt", "cancelled")
"""The states of jobs that have ended."""


class ClaimJobs(Body):
    """Which jobs a worker claims, and for how long."""

    max: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 1
    """The maximum number of jobs."""
    lease_ms: LeaseMs = 30_000
    """The length of the lease."""
    wait_ms: WaitMs = 0
    """How long to wait for a job."""
    worker: str = ""
    """The name of the worker, shown with the job."""


class ClaimedJob(JobOptionsView, frozen=True):
    """A job that is leased to a worker. To complete, fail or extend it, send its token."""

    id: str
    key: str | None
    body: Any
    attempt: int
    token: str
    lease_until_ms: int
    created_ms: int
    reason: str
    """The error of the attempt before this one."""
    caller: str
    """The id of the sender; empty: the application."""
    traceparent: str = ""
    """The trace context of the sender (W3C Trace Context); empty without one."""
    tracestate: str = ""
    """The vendor part of the trace context."""


class ClaimedJobs(msgspec.Struct):
    """Jobs for a worker; empty if none was ready in time."""

    jobs: list[ClaimedJob]


class CompleteJob(Body):
    """The result of a job that has succeeded."""

    token: Token
    """The token of the claimed job."""
    result: Any = None
    """The result of the job."""


class FailJob(Body):
    """The error of an attempt that has failed."""

    token: Token
    """The token of the claimed job."""
    reason: str
    """The error, for people."""
    retry_after_ms: DelayMs | None = None
    """The pause before the next attempt. By default, the backoff of the queue."""
    not_before_ms: DelayMs = 0
    """The shortest pause before the next attempt."""
    final: bool = False
    """Whether the job fails without further attempts."""
    type: Annotated[str, Meta(max_length=limits.ERROR_TYPE_CHARS_MAX)] = ""
    """The type of the error, such as `ValueError`."""
    traceback: str = ""
    """The traceback of the error; its end is stored."""


class ExtendJob(Body):
    """A longer lease."""

    token: Token
    """The token of the claimed job."""
    lease_ms: LeaseMs
    """The length of the lease, from now."""


class RetryJob(Body):
    """The options of a retry."""

    key: Annotated[str, Meta(max_length=limits.SETTLEMENT_KEY_CHARS_MAX)] = ""
    """The idempotency key: a repeated request retries the job once, even if it has failed again."""


class SettleJob(Body):
    """The outcome of a step in doubt, as found out by an operator."""

    step: Annotated[str, Meta(min_length=1)]
    """The name of the step."""
    done: bool
    """Whether the step was done. If not, it runs again."""
    result: Any = None
    """The result of the step, if it was done."""
    reason: Annotated[str, Meta(max_length=limits.SETTLEMENT_REASON_CHARS_MAX)] = ""
    """How the outcome was found out. It is stored with the job, the caller and the time."""
    key: Annotated[str, Meta(max_length=limits.SETTLEMENT_KEY_CHARS_MAX)] = ""
    """The idempotency key: a repeated request settles the step once, even if the step is in doubt
    again."""


class EmitEvent(Body):
    """An event for a job, whose handler waits for it or will do so."""

    event: Annotated[str, Meta(min_length=1, max_length=limits.EVENT_NAME_BYTES_MAX)]
    """The name of the event."""
    value: Any = None
    """The value that the handler receives."""
    key: Annotated[str, Meta(max_length=limits.SETTLEMENT_KEY_CHARS_MAX)] = ""
    """The idempotency key: a repeated request sends the event once."""


class CreateEventLink(Body):
    """A link with which a person sends an event once."""

    event: Annotated[str, Meta(min_length=1, max_length=limits.EVENT_NAME_BYTES_MAX)]
    """The name of the event."""
    value: Any = None
    """The value that the handler receives."""
    choices: dict[str, Any] | None = None
    """In place of a value: the labels of several buttons, with their values."""
    text: Annotated[str, Meta(max_length=limits.LINK_TEXT_CHARS_MAX)] = ""
    """What the page asks."""
    expires_ms: Annotated[int, Meta(ge=1, le=limits.EVENT_LINK_S_MAX * 1_000)] = 7 * 86_400_000
    """How long the link works."""
    base_url: Annotated[str, Meta(max_length=limits.LINK_TEXT_CHARS_MAX)] = ""
    """The address of the server for browsers. Without it, the link is a path."""


class CreatedEventLink(msgspec.Struct):
    """A link that sends an event."""

    url: str
    """The link; a path if the request has no `base_url`."""
    until_ms: int
    """When it expires."""


class ListChildren(Query):
    """Which children of a job to list."""

    after: str = ""
    """The cursor of the next page."""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 50
    """The maximum number of entries in the response."""
    state: Literal["succeeded", "failed", "cancelled", "open"] | UnsetType = UNSET
    """The state of the children: one in which they ended, or `open`; default: any."""


class JobChildren(msgspec.Struct):
    """Children of a job, in the order in which it has asked for them."""

    children: list[JobChild]
    next: str | None
    """The cursor of the next page, for the parameter `after`."""


class JobOutcome(msgspec.Struct, omit_defaults=True):
    """The state of a job after a change."""

    id: str
    state: str
    in_doubt: list[str] = []
    """The steps of a retried job that are in doubt. If the handler cannot find out their outcome,
    the job is in doubt again until they are settled."""


class JobLease(msgspec.Struct):
    """The end of a lease."""

    lease_until_ms: int


class Job(JobOptionsView, frozen=True):
    """A job."""

    id: str
    queue: str
    state: str
    body: Any
    created_ms: int
    due_ms: int
    attempt: int
    key: str | None = None
    result: Any = None
    """The return value of the handler, once the job has succeeded."""
    reason: str = ""
    """The error of the last attempt, if one failed."""
    ended_ms: int = 0
    worker: str = ""
    waits: str = ""
    """What the job waits for without a worker: `event NAME` or `children NUMBER`."""
    parent: str = ""
    """The id of the job that has created it as a child."""
    progress: float | None = None
    """The last progress that its handler has reported, 0 to 1; null if there is none."""
    progress_text: str = ""
    history: list[JobAttempt] = msgspec.field(default_factory=list)
    """The last attempts that failed."""
    settled: list[JobSettlement] = msgspec.field(default_factory=list)
    """The last settlements of steps in doubt."""
    changes: list[JobChange] = msgspec.field(default_factory=list)
    """The last retries, settlements and cancellations, by time."""

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self.state in ENDED


class AttemptWithError(Protocol):
    """The values of a failed attempt that errors of callers have."""

    @property
    def type(self) -> str: ...


class JobWithResult(Protocol):
    """The values of a job that its result depends on."""

    @property
    def queue(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def result(self) -> Any: ...
    @property
    def history(self) -> Sequence[AttemptWithError]: ...


def result_of(id_: str, job: JobWithResult, converter: Converter | None) -> Any:
    """The result of a job that has succeeded. Raises `JobFailed`, and `NotEnded` for a job that has
    not ended."""
    if job.state not in ENDED:
        raise NotEnded(
            f"job {id_} of {job.queue!r} has not ended in time: it is {job.state}. Wait again, or "
            "read it later",
            id=id_,
            state=job.state,
        )
    if job.state != "succeeded":
        how = {"failed": "failed", "cancelled": "was cancelled"}.get(job.state, "is in doubt")
        raise JobFailed(
            f"job {id_} of {job.queue!r} {how}: {job.reason or 'no reason was given'}",
            id=id_,
            queue=job.queue,
            state=job.state,
            reason=job.reason,
            type=job.history[-1].type if job.history and job.state != "cancelled" else "",
        )
    if converter is None:
        return job.result
    return converter.read(msgspec.json.encode(job.result), "result")


class KnownJob(Protocol):
    """The values of a job that filters compare."""

    @property
    def queue(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def options(self) -> JobOptions: ...


class JobFilter(Query):
    """The parameters that select jobs."""

    queue: str | UnsetType = UNSET
    """The queue; default: all queues of the caller."""
    state: State | UnsetType = UNSET
    """The state of the jobs; default: any."""
    tag: Annotated[str, Meta(min_length=1, max_length=limits.TAG_BYTES_MAX)] | UnsetType = UNSET
    """A tag of the jobs; default: any."""

    def fits(self, id_: str, job: KnownJob) -> bool:
        """Whether a job is selected."""
        return (
            self.queue in (UNSET, job.queue)
            and self.state in (UNSET, job.state)
            and (self.tag is UNSET or self.tag in job.options.tags)
        )


class FindJobs(JobFilter):
    """Which jobs to list."""

    key: str | UnsetType = UNSET
    """The idempotency key of the job."""
    text: str = ""
    """A part of the id, the key or the order key."""
    after: str = ""
    """The cursor of the next page."""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 50
    """The maximum number of entries in the response."""

    def fits(self, id_: str, job: KnownJob) -> bool:
        parts = (job.key, job.options.order_key, id_)
        return super().fits(id_, job) and any(self.text in (part or "") for part in parts)


class CountJobs(JobFilter):
    """Which jobs to count."""

    after: str = ""
    """The cursor of a count that was not complete."""


class JobCount(msgspec.Struct):
    """The number of jobs found, in the time that a request may take."""

    jobs: int
    complete: bool
    """Whether all jobs were scanned. If not, there may be more."""
    next: str | None
    """The cursor that counts the rest, for the parameter `after`."""


class JobSummary(JobOptionsView, frozen=True):
    """A job in a list."""

    id: str
    queue: str
    state: str
    key: str | None
    caller: str
    created_ms: int
    due_ms: int
    ended_ms: int
    attempt: int
    worker: str
    reason: str
    """The beginning of the last error."""
    progress: float | None = None
    """The last progress that its handler has reported, 0 to 1; null if there is none."""
    progress_text: str = ""


class JobPage(msgspec.Struct):
    """Jobs, the newest first."""

    jobs: list[JobSummary]
    scanned: int
    """The number of jobs that were scanned."""
    next: str | None
    """The cursor of the next page, for the parameter `after`."""


class JobHistory(msgspec.Struct):
    """A job with its steps, its cause and its effects."""

    job: Job
    caller: str
    """The sender."""
    lease_until_ms: int
    """The end of its lease, while it runs."""
    differences: int
    """How often its key was sent with another body."""
    steps: list[JobStep]
    cause: JobEffect | None
    effects: list[JobEffect]
    timeline: list[JobSpan] = msgspec.field(default_factory=list)
    """Its waits, attempts and steps, by their start."""
    parent: JobEffect | None = None
    """The job that has created it as a child."""


_TOKEN = ("no_such_job", "stale_token")

CLAIM = Operation(
    name="jobs.claim",
    method="POST",
    path="/v1/queues/{queue}/claim",
    summary="Claim jobs, or wait for some",
    scope="work:{queue}",
    body=ClaimJobs,
    response=ClaimedJobs,
    errors=("bad_name",),
    waits=True,
    returns="jobs",
)

COMPLETE = Operation(
    name="jobs.complete",
    method="POST",
    path="/v1/jobs/{id}/complete",
    summary="Complete a job",
    scope="work:{queue of the job}",
    body=CompleteJob,
    response=JobOutcome,
    errors=_TOKEN,
)

FAIL = Operation(
    name="jobs.fail",
    method="POST",
    path="/v1/jobs/{id}/fail",
    summary="Fail an attempt of a job",
    scope="work:{queue of the job}",
    body=FailJob,
    response=JobOutcome,
    errors=_TOKEN,
)

EXTEND = Operation(
    name="jobs.extend",
    method="POST",
    path="/v1/jobs/{id}/extend",
    summary="Renew the lease of a job",
    scope="work:{queue of the job}",
    body=ExtendJob,
    response=JobLease,
    errors=_TOKEN,
    returns="lease_until_ms",
)

GET = Operation(
    name="jobs.get",
    method="GET",
    path="/v1/jobs/{id}",
    summary="Show a job, or wait for its end",
    scope="send | work | manage:{queue of the job}",
    query=Wait,
    response=Job,
    errors=("no_such_job",),
    waits=True,
)

CANCEL = Operation(
    name="jobs.cancel",
    method="DELETE",
    path="/v1/jobs/{id}",
    summary="Cancel a job",
    scope="send | manage:{queue of the job}",
    response=JobOutcome,
    errors=("no_such_job", "already_ended"),
)

RETRY = Operation(
    name="jobs.retry",
    method="POST",
    path="/v1/jobs/{id}/retry",
    summary="Retry a failed job",
    scope="manage:{queue of the job}",
    body=RetryJob,
    body_optional=True,
    fills=("key",),
    response=JobOutcome,
    errors=("no_such_job", "not_failed"),
    done_errors=("not_failed",),
)

REPORT = Operation(
    name="jobs.report",
    method="POST",
    path="/v1/jobs/{id}/output",
    summary="Report progress and output of a running job",
    scope="work:{queue of the job}",
    body=ReportOutput,
    response=StoredOutput,
    errors=(*_TOKEN, "stream_full", "value_too_large"),
    returns="bytes",
)

OUTPUT = Operation(
    name="jobs.output",
    method="GET",
    path="/v1/jobs/{id}/output",
    summary="Read progress and output of a job, or wait for news",
    scope="send | work | manage:{queue of the job}",
    query=ReadOutput,
    response=JobOutput,
    errors=("no_such_job",),
    waits=True,
)

EMIT = Operation(
    name="jobs.emit",
    method="POST",
    path="/v1/jobs/{id}/events",
    summary="Send an event to a job",
    scope="work | manage:{queue of the job}",
    body=EmitEvent,
    fills=("key",),
    response=JobOutcome,
    errors=("no_such_job", "already_ended", "too_many_events"),
)

EVENT_LINK = Operation(
    name="jobs.event_link",
    method="POST",
    path="/v1/jobs/{id}/event-links",
    summary="Create a link that sends an event once",
    description="A person opens the link and presses a button, without credentials.",
    scope="work | manage:{queue of the job}",
    body=CreateEventLink,
    response=CreatedEventLink,
    errors=("no_such_job", "already_ended", "value_too_large", "no_server_key"),
    returns="url",
)

CHILDREN = Operation(
    name="jobs.children",
    method="GET",
    path="/v1/jobs/{id}/children",
    summary="List the children of a job",
    scope="work | manage:{queue of the job}",
    query=ListChildren,
    response=JobChildren,
    errors=("no_such_job",),
)

COUNT_CHILDREN = Operation(
    name="jobs.count_children",
    method="GET",
    path="/v1/jobs/{id}/children/count",
    summary="Count the children of a job",
    scope="work | manage:{queue of the job}",
    response=JobChildCounts,
    errors=("no_such_job",),
)

SETTLE = Operation(
    name="jobs.settle",
    method="POST",
    path="/v1/jobs/{id}/settle",
    summary="Settle a step in doubt",
    scope="manage:{queue of the job}",
    body=SettleJob,
    response=JobOutcome,
    errors=("no_such_job", "not_failed", "key_reused"),
    fills=("key",),
    done_errors=("not_failed",),
)

LIST = Operation(
    name="jobs.list",
    method="GET",
    path="/v1/jobs",
    summary="List jobs, the newest first",
    scope="manage:{queue of each job}",
    query=FindJobs,
    response=JobPage,
    errors=("bad_key",),
)

COUNT = Operation(
    name="jobs.count",
    method="GET",
    path="/v1/jobs/count",
    summary="Count jobs",
    scope="manage:{queue of each job}",
    query=CountJobs,
    response=JobCount,
)

HISTORY = Operation(
    name="jobs.history",
    method="GET",
    path="/v1/jobs/{id}/history",
    summary="Show a job with its steps and effects",
    scope="send | work | manage:{queue of the job}",
    response=JobHistory,
    errors=("no_such_job",),
)
