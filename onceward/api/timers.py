"""Operations on timers: webhook calls and jobs at a time, once or recurring."""

from datetime import datetime
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onceward import limits
from onceward.api.messages import Milliseconds
from onceward.api.operation import Body, Ignored, Operation, Query
from onceward.api.retries import RetryPolicy, RetryPolicyView
from onceward.job_options import OptionalOptions, RequestedOptions

CatchUp = Literal["all", "last", "none"]
"""Of the times that were missed: each of them, the latest, or none."""
TimerState = Literal[
    "active", "paused", "suspended", "firing", "success", "failed", "skipped", "cancelled", "ended"
]
Overlap = Literal["allow", "skip", "queue"]
"""What happens at a time when the previous firing is unfinished: fire, skip it, or wait."""
Method = Literal["POST", "PUT", "PATCH", "DELETE", "GET"]
METHODS = get_args(Method)
Moment = Annotated[datetime, Meta(tz=True)]
Whole = Annotated[int, Meta(ge=0)]
FiringCount = Annotated[int, Meta(ge=1)]


class FailureTargetView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The receiver of a message about a call that has failed permanently, as responses have it."""

    queue: str | None = None
    """The queue to send a job to."""
    url: str | None = None
    """The URL to call."""
    endpoint: str | None = None
    """The id of the endpoint to call."""


class FailureTarget(FailureTargetView, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The receiver of a message about a call that has failed permanently: one of the members."""


class CreateTimer(RequestedOptions, frozen=True):
    """A new timer: a call of a URL or an endpoint, or a job in a queue.

    It fires at a time or after a delay, once or repeatedly. The options of jobs are for timers with
    a queue, except `attempts_max`.
    """

    id: str | None = None
    """The id of the timer; by default, the server generates one."""
    key: str | None = None
    """An idempotency key in place of an id. It can come as the header Idempotency-Key instead."""
    url: str | None = None
    """The URL to call."""
    endpoint: str | None = None
    """The id of the endpoint to call."""
    queue: str | None = None
    """The queue to send a job to."""
    at: Milliseconds | Moment | None = None
    """The time: milliseconds since 1970, or a text as in RFC 3339. A past time is due at once."""
    delay_ms: Milliseconds | None = None
    """The delay from now."""
    every_ms: Milliseconds | None = None
    """The interval of a recurring timer."""
    cron: str | None = None
    """A cron expression: 0 9 * * MON-FRI. The spellings of Quartz and EventBridge work as well."""
    zone: str | None = None
    """The time zone of the cron expression [UTC]."""
    catch_up: CatchUp = "all"
    """Which of the times to catch up on that passed while no server ran."""
    until: Milliseconds | Moment | None = None
    """The end of a recurring timer: milliseconds since 1970, or a text as in RFC 3339."""
    times: FiringCount | None = None
    """The number of firings after which a recurring timer ends."""
    overlap: Overlap = "allow"
    """What happens at a time when the previous firing is unfinished: fire, skip it, or queue."""
    method: Method = "POST"
    """The HTTP method of the call; a GET request has no body."""
    on_failure: FailureTarget | None = None
    """Where to report a call that has failed permanently: `queue`, `url` or `endpoint`."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Headers to send with the call."""
    body: Any = None
    """The body of the call or job: any JSON value."""
    append_id: bool = False
    """Whether the timer's id is appended to the path of the URL."""
    retry: RetryPolicy | None = None
    """When a failed call is retried: `pauses_ms`, `attempts_max`, `timeout_ms`."""
    due_ms: Milliseconds | None = None
    """In place of `at` and `delay_ms`: milliseconds since 1970."""
    # So a timer can be posted as GET shows it.
    state: Ignored = None
    due: Ignored = None
    left_ms: Ignored = None
    created_ms: Ignored = None
    fired: Ignored = None
    skipped: Ignored = None
    next: Ignored = None
    last: Ignored = None
    duplicate: Ignored = None


class TimerAttempt(msgspec.Struct):
    """One attempt of a firing, and its outcome."""

    attempt: int
    at: str
    """When it ended."""
    at_ms: int
    outcome: str
    """`succeeded` or `failed`."""
    said: str
    """The response, or the error."""


class ReceiverPause(msgspec.Struct):
    """A receiver that does not respond gets one call at a time, with pauses of up to 2 s."""

    until_ms: int
    """When this node makes the next call; in the past if a call is under way."""
    failures: int
    """The number of calls in a row without a response."""


class Firing(msgspec.Struct, omit_defaults=True):
    """The last firing of a timer."""

    id: str
    """The id of its job, and the header webhook-id of all its attempts."""
    number: int
    """The number of the firing, from 1."""
    fired_ms: int
    state: str
    """The state of its job; forgotten, if it ended long ago."""
    attempts: list[TimerAttempt]
    """The last attempts that are over."""
    due_ms: int | None = None
    next_attempt_ms: int | None = None
    """When it is retried, while it waits for that."""
    ended_ms: int | None = None
    """When it succeeded or failed permanently."""
    latency_ms: int | None = None
    """From its due time until then."""
    resent: str | None = None
    """The id of the firing that it repeats, with the same header webhook-id."""
    pause: ReceiverPause | None = None
    """If it waits because its receiver does not respond."""


class Timer(OptionalOptions, frozen=True):
    """A timer."""

    id: str
    state: str
    due: str
    """When it is or was due, as in RFC 3339."""
    due_ms: int
    left_ms: int
    created_ms: int
    fired: int
    """How often it has fired."""
    url: str | None = None
    endpoint: str | None = None
    queue: str | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    body: Any = None
    append_id: bool = False
    retry: RetryPolicyView | None = None
    every_ms: int | None = None
    cron: str | None = None
    zone: str | None = None
    catch_up: str = "all"
    """`all`, `last` or `none`."""
    until: str | None = None
    """The end of a recurring timer, as in RFC 3339."""
    times: int | None = None
    """The number of firings after which it ends."""
    overlap: str = "allow"
    """`allow`, `skip` or `queue`."""
    skipped: int = 0
    """How many times it has skipped because the previous firing was unfinished."""
    method: str = "POST"
    on_failure: FailureTargetView | None = None
    next: list[str] = msgspec.field(default_factory=list)
    """The next times of a recurring timer."""
    last: Firing | None = None
    """Its last firing."""
    caller: str | None = None
    """Its owner, in a list of all callers."""


class CreatedTimer(Timer, frozen=True, kw_only=True):
    """A timer that was created."""

    duplicate: bool
    """Whether it existed before; then this request has changed nothing."""


class MoveTimer(Body):
    """Another time for a timer."""

    at: Milliseconds | Moment | None = None
    """The new time: milliseconds since 1970, or a text as in RFC 3339."""
    delay_ms: Milliseconds | None = None
    """The delay from now."""


class UpdateTimer(Body):
    """Changes to a timer; members that are not given stay, and null means the default.

    A `url`, an `endpoint` or a `queue` replaces the other two. `every_ms` replaces `cron`, and the
    reverse. The due time stays unless a time, a delay or the repetition is given.
    """

    url: str | UnsetType | None = UNSET
    """The URL to call."""
    endpoint: str | UnsetType | None = UNSET
    """The id of the endpoint to call."""
    queue: str | UnsetType | None = UNSET
    """The queue to send a job to."""
    at: Milliseconds | Moment | UnsetType | None = UNSET
    """The next time: milliseconds since 1970, or a text as in RFC 3339."""
    delay_ms: Milliseconds | UnsetType | None = UNSET
    """The delay from now."""
    every_ms: Milliseconds | UnsetType | None = UNSET
    """The interval of a recurring timer."""
    cron: str | UnsetType | None = UNSET
    """A cron expression."""
    zone: str | UnsetType | None = UNSET
    """The time zone of the cron expression [UTC]."""
    catch_up: CatchUp | UnsetType | None = UNSET
    """Which of the times to catch up on that passed while no server ran."""
    until: Milliseconds | Moment | UnsetType | None = UNSET
    """The end of a recurring timer: milliseconds since 1970, or a text as in RFC 3339."""
    times: FiringCount | UnsetType | None = UNSET
    """The number of firings after which a recurring timer ends."""
    overlap: Overlap | UnsetType | None = UNSET
    """What happens at a time when the previous firing is unfinished: fire, skip it, or queue."""
    method: Method | UnsetType | None = UNSET
    """The HTTP method of the call."""
    on_failure: FailureTarget | UnsetType | None = UNSET
    """Where to report a call that has failed permanently: `queue`, `url` or `endpoint`."""
    headers: dict[str, str] | UnsetType | None = UNSET
    """Headers to send with the call, in place of the current ones."""
    body: Any = UNSET
    """The body of the call or job: any JSON value."""
    append_id: bool | UnsetType | None = UNSET
    """Whether the timer's id is appended to the path of the URL."""
    retry: RetryPolicy | UnsetType | None = UNSET
    """When a failed call is retried: `pauses_ms`, `attempts_max`, `timeout_ms`."""
    order_key: str | UnsetType | None = UNSET
    """The order key of its jobs."""
    limit_key: str | UnsetType | None = UNSET
    """The limit key of its jobs."""
    priority: Annotated[int, Meta(ge=0, le=limits.PRIORITY_MAX)] | UnsetType | None = UNSET
    """The priority of its jobs: 0 runs first."""
    attempts_max: Whole | UnsetType | None = UNSET
    """The number of attempts after which a failure is final. 0: no limit."""
    tags: tuple[str, ...] | UnsetType | None = UNSET
    """The tags of its jobs, in place of the current ones."""


class WhoseTimer(Query):
    """Whose timer: by default, the caller's own."""

    app: bool = False
    """A timer of the application itself."""
    caller: str | UnsetType = UNSET
    """A timer of another caller."""


class FindFirings(WhoseTimer):
    """Which firings to list."""

    after: str = ""
    """The cursor of the next page."""
    limit: Annotated[int, Meta(ge=1, le=limits.FIRINGS_MAX)] = 50
    """The maximum number of entries in the response."""


class FiringPage(msgspec.Struct):
    """Firings of a timer, the latest first."""

    firings: list[Firing]
    next: str | None
    """The cursor of the next page, for the parameter `after`."""


class ResendFiring(Body):
    """Which firing to send again."""

    firing: str = ""
    """The id of the firing, which may have succeeded; by default, the last one, if it failed."""
    key: Annotated[str, Meta(max_length=limits.SETTLEMENT_KEY_CHARS_MAX)] = ""
    """The idempotency key: a repeated request sends the firing once."""


class FindTimers(Query):
    """Which timers to list."""

    prefix: str = ""
    """The beginning of the ids."""
    state: TimerState | Literal[""] = ""
    """The state of the timers; by default, any."""
    endpoint: str = ""
    """The endpoint that they call."""
    queue: str = ""
    """The queue that they send to."""
    due_from: Milliseconds | UnsetType = UNSET
    """The earliest due time, in milliseconds since 1970."""
    due_until: Milliseconds | UnsetType = UNSET
    """The latest due time, in milliseconds since 1970."""
    app: bool = False
    """Whether to list timers of the application itself."""
    after: str = ""
    """The cursor of the next page."""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 100
    """The maximum number of entries in the response."""


class TimerPage(msgspec.Struct):
    """Timers in the order of their ids."""

    timers: list[Timer]
    next: str | None
    """The cursor of the next page, for the parameter `after`."""


class DueTimersQuery(Query):
    """How many timers to list."""

    limit: Annotated[int, Meta(ge=1, le=limits.AGENDA_MAX)] = 50
    """The maximum number of entries in the response."""


class DueTimers(msgspec.Struct):
    """The timers that are due next, in order."""

    now_ms: int
    timers: list[Timer]


class FindAllTimers(Query):
    """Which timers of all callers to list."""

    state: TimerState | UnsetType = UNSET
    """The state of the timers; by default, any."""
    text: str = ""
    """A part of the id."""
    after: str = ""
    """The cursor of the next page."""
    limit: Annotated[int, Meta(ge=1, le=limits.AGENDA_MAX)] = 50
    """The maximum number of entries in the response."""


class AllTimersPage(msgspec.Struct):
    """Timers by caller and id."""

    now_ms: int
    timers: list[Timer]
    next: str | None
    """The cursor of the next page, for the parameter `after`."""


class PlainTimer(Body):
    """A POST to a URL after a delay."""

    hours: Whole
    """Hours of the delay."""
    minutes: Whole
    """Minutes of the delay."""
    seconds: Whole
    """Seconds of the delay."""
    url: str
    """The URL to call."""


class PlainTimerId(msgspec.Struct):
    """A timer that was created."""

    id: str


class PlainTimerStatus(msgspec.Struct):
    """A timer in the simple form."""

    id: str
    time_left: int
    """In whole seconds; 0 once it is due."""
    status: str
    """`ACTIVE`, `SUCCESS`, `FAILED` or `CANCELLED`."""


_OWN = ("no_such_timer", "bad_name")
_KNOWN = ("no_such_timer", "bad_name", "already_ended")
_NEW = ("bad_timer", "bad_url", "address_refused", "bad_name", "bad_key", "key_reused")
_SCOPE = "timer:{id} of your own | manage:{queue} | operate:{id}"

CREATE = Operation(
    name="timers.create",
    method="POST",
    path="/v1/timers",
    summary="Create a timer, once for its id or key",
    scope="timer:{id of the timer}",
    body=CreateTimer,
    headers=("Idempotency-Key",),
    response=CreatedTimer,
    statuses=(202, 200),
    errors=(*_NEW, "value_too_large", "no_such_endpoint"),
    fills=("id",),
)

LIST = Operation(
    name="timers.list",
    method="GET",
    path="/v1/timers",
    summary="List your timers, or the application's",
    scope=_SCOPE,
    query=FindTimers,
    response=TimerPage,
)

GET = Operation(
    name="timers.get",
    method="GET",
    path="/v1/timers/{id}",
    summary="Show a timer",
    scope=_SCOPE,
    query=WhoseTimer,
    response=Timer,
    errors=_OWN,
)

UPDATE = Operation(
    name="timers.update",
    method="PATCH",
    path="/v1/timers/{id}",
    summary="Change a timer",
    scope=_SCOPE,
    query=WhoseTimer,
    body=UpdateTimer,
    partial=True,
    response=Timer,
    errors=(
        *_KNOWN,
        *("bad_timer", "bad_url", "address_refused", "value_too_large", "no_such_endpoint"),
    ),
    done_errors=("already_ended",),
)

PAUSE = Operation(
    name="timers.pause",
    method="POST",
    path="/v1/timers/{id}/pause",
    summary="Pause a timer until it is resumed",
    scope=_SCOPE,
    query=WhoseTimer,
    response=Timer,
    errors=_KNOWN,
)

RESUME = Operation(
    name="timers.resume",
    method="POST",
    path="/v1/timers/{id}/resume",
    summary="Resume a paused timer with its next time",
    scope=_SCOPE,
    query=WhoseTimer,
    response=Timer,
    errors=_KNOWN,
)

MOVE = Operation(
    name="timers.move",
    method="POST",
    path="/v1/timers/{id}/move",
    summary="Move a timer to another time",
    scope=_SCOPE,
    query=WhoseTimer,
    body=MoveTimer,
    response=Timer,
    errors=(*_KNOWN, "bad_timer"),
    done_errors=("already_ended",),
)

CANCEL = Operation(
    name="timers.cancel",
    method="DELETE",
    path="/v1/timers/{id}",
    summary="Cancel a timer",
    scope=_SCOPE,
    query=WhoseTimer,
    response=Timer,
    errors=_KNOWN,
)

RESEND = Operation(
    name="timers.resend",
    method="POST",
    path="/v1/timers/{id}/resend",
    summary="Resend a firing, with the same id",
    scope=_SCOPE,
    query=WhoseTimer,
    body=ResendFiring,
    body_optional=True,
    fills=("key",),
    response=Timer,
    errors=(*_OWN, "not_failed", "no_such_firing"),
    done_errors=("not_failed",),
)

FIRINGS = Operation(
    name="timers.firings",
    method="GET",
    path="/v1/timers/{id}/firings",
    summary="List the firings of a timer, the latest first",
    scope=_SCOPE,
    query=FindFirings,
    response=FiringPage,
    errors=_OWN,
)

DUE = Operation(
    name="timers.due",
    method="GET",
    path="/v1/agenda",
    summary="List the timers of all callers that are due next",
    scope="timer:{id} of your own | operate:{id}",
    query=DueTimersQuery,
    response=DueTimers,
)

LIST_ALL = Operation(
    name="timers.list_all",
    method="GET",
    path="/v1/agenda/timers",
    summary="List the timers of all callers",
    scope="timer:{id} of your own | operate:{id}",
    query=FindAllTimers,
    response=AllTimersPage,
)

CREATE_PLAIN = Operation(
    name="plain_timers.create",
    method="POST",
    path="/timers",
    summary="Create a timer in the simple form",
    scope="timer:{id of the timer}",
    body=PlainTimer,
    form=True,
    headers=("Idempotency-Key",),
    response=PlainTimerId,
    errors=_NEW,
)

GET_PLAIN = Operation(
    name="plain_timers.get",
    method="GET",
    path="/timers/{id}",
    summary="Show a timer in the simple form",
    scope="timer:{id}",
    response=PlainTimerStatus,
    errors=_OWN,
)

CANCEL_PLAIN = Operation(
    name="plain_timers.cancel",
    method="DELETE",
    path="/timers/{id}",
    summary="Cancel a timer in the simple form",
    scope="timer:{id}",
    response=PlainTimerStatus,
    errors=_KNOWN,
)
