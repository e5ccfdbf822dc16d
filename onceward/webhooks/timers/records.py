"""Records of timers: structs, keys and validation."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Literal, get_args
from zlib import crc32

import msgspec
from msgspec.structs import replace

from onceward import keys, limits, recurrence
from onceward.api.retries import RetryPolicy
from onceward.api.timers import METHODS, CatchUp, FailureTarget, Overlap
from onceward.errors import BadInput
from onceward.job_options import NO_OPTIONS, JobOptions
from onceward.json_values import encode
from onceward.keys import Key
from onceward.recurrence import Cron, Interval, Repeat
from onceward.schedule import Job, admit_job, admit_queue, due_partition, is_whole
from onceward.server_key import ServerKeys
from onceward.tracing import Trace
from onceward.webhooks.retries import admit_policy

TIMER_DUE = "timer"
"""The kind of due entries of timers."""
WEBHOOKS = "onceward.webhooks"
"""The queue of webhook calls."""
# Removal of the due entry, the next entry, the record, the writes of a job, and the records of the
# firing.
FIRE_WRITES = 8

State = Literal["active", "suspended", "fired", "skipped", "cancelled", "ended"]
Status = Literal[
    "active", "paused", "suspended", "firing", "success", "failed", "skipped", "cancelled", "ended"
]


class Send(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="queue"
):
    """Fires by sending a job to a queue."""

    queue: str
    body: Any = None
    options: JobOptions = NO_OPTIONS


class Call(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="url"):
    """Fires by a call of a URL, or of an endpoint given by its id."""

    url: str = ""
    endpoint: str = ""
    headers: dict[str, str] = {}
    body: Any = None
    append_id: bool = False
    """Whether the timer's id is appended to the path of the URL."""
    attempts_max: int | None = None
    """The same as `attempts_max` of `retry`."""
    retry: RetryPolicy | None = None
    method: str = "POST"
    on_failure: FailureTarget | None = None
    """Receives a message when the call has failed permanently."""

    @property
    def policy(self) -> RetryPolicy:
        """The retry policy of the timer."""
        return (self.retry or RetryPolicy()).over(RetryPolicy(attempts_max=self.attempts_max))


Target = Send | Call


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The action and schedule of a timer."""

    target: Target
    due_ms: int | None = None
    """The first due time."""
    delay_ms: int | None = None
    """The first due time, relative to the creation."""
    repeat: Repeat | None = None
    """The repetition, starting at the first time if one is given."""
    catch_up: CatchUp = "all"
    """Which of the times that passed during an outage count: all, the last, or none."""
    until_ms: int | None = None
    """The last time at which a recurring timer may be due."""
    times: int | None = None
    """The number of firings after which a recurring timer ends."""
    overlap: Overlap = "allow"
    """Whether a firing starts while the previous one is unfinished: yes, never, or after it."""


class Timer(msgspec.Struct, omit_defaults=True):
    """The stored state of a timer."""

    spec: Spec
    due_ms: int
    """The current or last due time."""
    created_ms: int
    mark: str
    """A digest of the spec, to recognize the same timer."""
    state: State = "active"
    generation: int = 0
    """The number of changes. A due entry is valid only for its own generation."""
    fired: int = 0
    """The number of firings, also of earlier timers with this id."""
    job: str = ""
    """The id of the job of the last firing."""
    fired_ms: int = 0
    trace: Trace | None = None
    """The trace context of its creator; each firing of a recurring timer starts a new trace."""
    paused: bool = False
    """Whether it was paused. Its state is `suspended`, so that older nodes do not fire it."""
    fired_before: int = 0
    """The number of firings of earlier timers with this id."""
    skipped: int = 0
    """The number of times skipped because the previous firing was unfinished."""

    @property
    def is_spent(self) -> bool:
        """Whether it has fired as often as its spec allows."""
        times = self.spec.times
        return times is not None and self.fired - self.fired_before >= times


class Webhook(msgspec.Struct, omit_defaults=True):
    """The body of a job in the webhook queue."""

    timer: str
    due_ms: int
    number: int
    """The number of the firing, from 1."""
    call: Call
    caller: str = ""
    id: str = ""
    """The id of the call that it repeats; empty: that of its own job."""


class View(msgspec.Struct):
    """A timer with the result of its last firing."""

    id: str
    caller: str
    timer: Timer
    status: Status
    job: Job | None = None


def timer_key(caller: str, id_: str, slots: int) -> Key:
    """The key of a timer. Raises `BadInput` for an invalid id."""
    keys.admit_name(id_, "a timer's id", limits.TIMER_ID_BYTES_MAX)
    return timer_partition(timer_slot(caller, id_, slots)), keys.join(caller, id_)


def id_for(caller: str, key: str) -> str:
    """The id of a timer that was created with an idempotency key."""
    digest = blake2b(keys.join(caller, key).encode(), digest_size=16)
    return digest.hexdigest()


def admit(caller: str, id_: str, spec: Spec, now_ms: int) -> None:
    """Raise `BadInput` for an invalid timer."""
    target = spec.target
    if not isinstance(target, Send | Call):
        raise BadInput(f"a timer needs a `Send` or a `Call`, not {type(target).__name__}")
    if isinstance(target, Send):
        admit_job(target.queue, target.body, target.options)
    else:
        if type(target.url) is not str or type(target.endpoint) is not str:
            kinds = f"{type(target.url).__name__} and {type(target.endpoint).__name__}"
            raise BadInput(f"the url and endpoint of a timer must be text, not {kinds}")
        if type(target.append_id) is not bool:
            raise BadInput(f"append_id must be true or false, not {target.append_id!r}")
        if bool(target.url) == bool(target.endpoint):
            raise BadInput(
                "a timer needs either a url or an endpoint; "
                + ("omit one of them" if target.url else "both are missing")
            )
        if target.retry is not None:
            admit_policy(target.retry)
            if target.attempts_max is not None and target.retry.attempts_max is not None:
                raise BadInput(
                    f"attempts_max is given twice, {target.attempts_max} and "
                    f"{target.retry.attempts_max}; omit one"
                )
        _admit_call(target)
        # The largest possible body: an accepted timer must fit when it fires.
        webhook = Webhook(id_, limits.KEY_NUMBER_MAX, limits.KEY_NUMBER_MAX, target, caller)
        admit_job(WEBHOOKS, webhook, JobOptions(attempts_max=target.attempts_max))
    if spec.repeat is not None:
        recurrence.admit(spec.repeat)
    recurrence.admit_catch_up(spec.catch_up)
    _admit_ends(spec)
    if (spec.due_ms, spec.delay_ms, spec.repeat) == (None, None, None):
        raise BadInput(
            f"the timer {id_[:100]!r} needs a time, a delay or a repetition; give one of them, "
            'such as a delay of 60 seconds or the cron expression "0 9 * * MON"'
        )
    if spec.due_ms is not None and spec.delay_ms is not None:
        raise BadInput(
            f"a timer has either a time or a delay, not both {spec.due_ms} and "
            f"{spec.delay_ms} ms; omit one"
        )
    if spec.delay_ms is not None and (not is_whole(spec.delay_ms) or spec.delay_ms < 0):
        raise BadInput(f"a delay must be a whole number of ms, 0 or more, not {spec.delay_ms!r}")
    admit_due(first_ms(spec, now_ms, now_ms), now_ms)


def _admit_call(call: Call) -> None:
    if call.method not in METHODS:
        raise BadInput(f"method must be one of {', '.join(METHODS)}, not {call.method!r}")
    if call.method == "GET" and call.body is not None:
        raise BadInput("a GET request has no body; omit the body, or use another method")
    if call.on_failure is not None:
        admit_failure_target(call.on_failure)


def admit_failure_target(target: FailureTarget) -> None:
    """Raise `BadInput` for an invalid receiver of failures."""
    if not isinstance(target, FailureTarget):
        raise BadInput(f"on_failure must have a queue, a url or an endpoint, not {target!r}")
    given = [one for one in (target.queue, target.url, target.endpoint) if one is not None]
    if len(given) != 1 or type(given[0]) is not str or not given[0]:
        raise BadInput(
            f"on_failure needs exactly one of queue, url and endpoint, not {given!r:.200}"
        )
    if target.queue is not None:
        admit_queue(target.queue)


def _admit_ends(spec: Spec) -> None:
    """Check the end of a recurring timer, and its overlap policy."""
    if spec.overlap not in get_args(Overlap):
        known = ", ".join(get_args(Overlap))
        raise BadInput(f"overlap must be one of {known}, not {spec.overlap!r}")
    if spec.until_ms is not None and not is_whole(spec.until_ms):
        raise BadInput(f"until must be a time in whole ms since 1970, not {spec.until_ms!r}")
    if spec.times is not None and (not is_whole(spec.times) or spec.times < 1):
        raise BadInput(f"times must be a whole number, 1 or more, not {spec.times!r}")
    if spec.repeat is None:
        for name, value in (("until", spec.until_ms), ("times", spec.times)):
            if value is not None:
                raise BadInput(f"{name} is only for recurring timers; add every_ms or cron")
        if spec.overlap != "allow":
            raise BadInput(
                f"overlap {spec.overlap!r} is only for recurring timers; add every_ms or cron"
            )
    if spec.overlap == "queue" and isinstance(spec.target, Send) and spec.target.options.order_key:
        raise BadInput(
            f"overlap 'queue' sets an order key of its own; omit overlap or the order key "
            f"{spec.target.options.order_key[:100]!r}"
        )


def admit_due(due_ms: int, now_ms: int) -> None:
    """Raise `BadInput` for a time too far in the future. Past times are due immediately."""
    most_ms = now_ms + limits.DELAY_S_MAX * 1_000
    if type(due_ms) is not int:
        raise BadInput(f"a time must be a whole number of milliseconds, not {due_ms!r}")
    if not 0 <= due_ms <= most_ms:
        raise BadInput(f"a timer must be due 0 to {most_ms} ms after 1970, not {due_ms}")


def first_ms(spec: Spec, now_ms: int, ends_ms: int) -> int:
    """The first due time. Delays count from `ends_ms`, the end of the current millisecond."""
    start_ms = spec.due_ms
    if spec.delay_ms is not None:
        start_ms = ends_ms + spec.delay_ms if spec.delay_ms else now_ms
    if start_ms is not None:
        if not isinstance(spec.repeat, Cron) or type(start_ms) is not int or start_ms < 0:
            return start_ms
        # A cron timer is due only at times that match its expression.
        now_ms = start_ms - 1
    elif isinstance(spec.repeat, Interval):
        return ends_ms + spec.repeat.every_ms
    found_ms = None if spec.repeat is None else recurrence.next_ms(spec.repeat, now_ms)
    if found_ms is None:
        raise BadInput(f"{str(spec.repeat)[:150]} has no future times; use another expression")
    return found_ms


def encrypted(spec: Spec, server_keys: ServerKeys, caller: str, id_: str) -> Spec:
    """A spec in its stored form, with encrypted header values."""
    return _changed(spec, server_keys.encrypt, caller, id_)


def decrypted(spec: Spec, server_keys: ServerKeys, caller: str, id_: str) -> Spec:
    """A decrypted spec. Raises `SecretUnreadable`."""
    return _changed(spec, server_keys.decrypt, caller, id_)


def encrypt_headers(call: Call, server_keys: ServerKeys, caller: str, id_: str) -> Call:
    """A call in its stored form, with encrypted header values."""
    return replace(call, headers=_headers(call, server_keys.encrypt, caller, id_))


def open_headers(call: Call, server_keys: ServerKeys, caller: str, id_: str) -> dict[str, str]:
    """The decrypted headers of a stored call. Raises `SecretUnreadable`."""
    return _headers(call, server_keys.decrypt, caller, id_)


def _changed(spec: Spec, change: Callable[..., str], caller: str, id_: str) -> Spec:
    target = spec.target
    if not isinstance(target, Call) or not target.headers:
        return spec
    headers = _headers(target, change, caller, id_)
    return replace(spec, target=replace(target, headers=headers))


def _headers(call: Call, change: Callable[..., str], caller: str, id_: str) -> dict[str, str]:
    # Independent of the slot: the job of a firing has the same ciphertexts.
    place = ("timer", caller, id_, "header")
    return {name: change(value, *place, name) for name, value in call.headers.items()}


def mark_of(spec: Spec) -> str:
    """A digest of the spec without header values, so that it cannot be used to guess them."""
    spec = _changed(spec, lambda *_: "", "", "")
    return blake2b(encode(spec, ("timer", "spec"), order="sorted"), digest_size=16).hexdigest()


def timer_slot(caller: str, id_: str, slots: int) -> int:
    return crc32(keys.join(caller, id_).encode()) % slots


def timer_partition(slot: int) -> str:
    return keys.join("timer", slot)


def timer_entry(caller: str, id_: str, timer: Timer, slots: int) -> Key:
    """The key of the due entry of a timer."""
    return entry_in(timer_slot(caller, id_, slots), caller, id_, timer)


def entry_in(slot: int, caller: str, id_: str, timer: Timer) -> Key:
    return due_partition(slot), keys.join(timer.due_ms, caller, id_, timer.generation, TIMER_DUE)
