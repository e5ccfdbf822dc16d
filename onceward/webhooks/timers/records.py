"""Records of timers: structs, keys and validation."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Literal
from zlib import crc32

import msgspec
from msgspec.structs import replace

from onceward import keys, limits, recurrence
from onceward.api.retries import RetryPolicy
from onceward.api.timers import CatchUp
from onceward.errors import BadInput
from onceward.job_options import NO_OPTIONS, JobOptions
from onceward.json_values import encode
from onceward.keys import Key
from onceward.recurrence import Cron, Interval, Repeat
from onceward.schedule import Job, admit_job, due_partition, is_whole
from onceward.server_key import ServerKeys
from onceward.webhooks.retries import admit_policy

TIMER_DUE = "timer"
"""The kind of its entries in due."""
WEBHOOKS = "onceward.webhooks"
"""The queue of outward calls."""
# The entry goes and the next one comes, the record is written, and a job is sent.
FIRE_WRITES = 7

State = Literal["active", "suspended", "fired", "skipped", "cancelled", "ended"]
Status = Literal[
    "active", "suspended", "firing", "success", "failed", "skipped", "cancelled", "ended"
]


class Send(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="queue"
):
    """Fire by sending a job to a queue."""

    queue: str
    body: Any = None
    options: JobOptions = NO_OPTIONS


class Call(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="url"):
    """Fire by a POST to a URL, or to an endpoint that is known by its id."""

    url: str = ""
    endpoint: str = ""
    headers: dict[str, str] = {}
    body: Any = None
    append_id: bool = False
    """Whether the timer's id comes behind the path of the URL."""
    attempts_max: int | None = None
    """The same as that of `retry`."""
    retry: RetryPolicy | None = None

    @property
    def policy(self) -> RetryPolicy:
        """What the timer specifies about attempts."""
        return (self.retry or RetryPolicy()).over(RetryPolicy(attempts_max=self.attempts_max))


Target = Send | Call


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a timer is to do, and when."""

    target: Target
    due_ms: int | None = None
    """The first time."""
    delay_ms: int | None = None
    """The same, from when it is set."""
    repeat: Repeat | None = None
    """Again and again; from the first of its times on, if no other one is given."""
    catch_up: CatchUp = "all"
    """Which of the times that passed while no node ran count: all, the last one, or none."""


class Timer(msgspec.Struct, omit_defaults=True):
    """A timer as it is kept."""

    spec: Spec
    due_ms: int
    """When it is due, or was."""
    created_ms: int
    mark: str
    """Of what it was made from: the same again is known to be the same."""
    state: State = "active"
    generation: int = 0
    """How many times it was changed: an entry in due counts only for its own."""
    fired: int = 0
    job: str = ""
    """The id of the last firing."""
    fired_ms: int = 0


class Webhook(msgspec.Struct, omit_defaults=True):
    """The body of a job in the queue of webhooks."""

    timer: str
    due_ms: int
    number: int
    """Which firing of its timer it is, from 1 on."""
    call: Call
    caller: str = ""


class View(msgspec.Struct):
    """A timer as it is seen, with what became of its last firing."""

    id: str
    caller: str
    timer: Timer
    status: Status
    job: Job | None = None


def timer_key(caller: str, id_: str, slots: int) -> Key:
    """Where a timer stands. Raises `BadInput` for what cannot be an id."""
    keys.admit_name(id_, "a timer's id", limits.TIMER_ID_BYTES_MAX)
    return timer_partition(timer_slot(caller, id_, slots)), keys.join(caller, id_)


def id_for(caller: str, key: str) -> str:
    """The id of a timer that is known by an idempotency key alone."""
    digest = blake2b(keys.join(caller, key).encode(), digest_size=16)
    return digest.hexdigest()


def admit(caller: str, id_: str, spec: Spec, now_ms: int) -> None:
    """Raise `BadInput` for what cannot be a timer."""
    target = spec.target
    if not isinstance(target, Send | Call):
        raise BadInput(f"a timer has a `Send` or a `Call` to do, not {type(target).__name__}")
    if isinstance(target, Send):
        admit_job(target.queue, target.body, target.options)
    else:
        if type(target.url) is not str or type(target.endpoint) is not str:
            raise BadInput("the url of a timer and its endpoint are text")
        if type(target.append_id) is not bool:
            raise BadInput(f"append_id is true or false, not {target.append_id!r}")
        if bool(target.url) == bool(target.endpoint):
            raise BadInput("a timer calls a url or an endpoint, one of them")
        if target.retry is not None:
            admit_policy(target.retry)
            if target.attempts_max is not None and target.retry.attempts_max is not None:
                raise BadInput("attempts_max is given twice: leave it out, or out of retry")
        # As long as it can become: what is let in must find room when it is due.
        webhook = Webhook(id_, limits.KEY_NUMBER_MAX, limits.KEY_NUMBER_MAX, target, caller)
        admit_job(WEBHOOKS, webhook, JobOptions(attempts_max=target.attempts_max))
    if spec.repeat is not None:
        recurrence.admit(spec.repeat)
    recurrence.admit_catch_up(spec.catch_up)
    if (spec.due_ms, spec.delay_ms, spec.repeat) == (None, None, None):
        raise BadInput("a timer needs a time, a delay or a repetition")
    if spec.due_ms is not None and spec.delay_ms is not None:
        raise BadInput("a timer has a time or a delay, not both")
    if spec.delay_ms is not None and (not is_whole(spec.delay_ms) or spec.delay_ms < 0):
        raise BadInput(f"a delay has 0 whole ms or more, not {spec.delay_ms!r}")
    admit_due(first_ms(spec, now_ms, now_ms), now_ms)


def admit_due(due_ms: int, now_ms: int) -> None:
    """Raise `BadInput` for a time too far ahead; one that has passed is due at once."""
    most_ms = now_ms + limits.DELAY_S_MAX * 1_000
    if type(due_ms) is not int:
        raise BadInput(f"a time is a whole number of milliseconds, not {due_ms!r}")
    if not 0 <= due_ms <= most_ms:
        raise BadInput(f"a timer is due 0 to {most_ms} ms after 1970, not {due_ms}")


def first_ms(spec: Spec, now_ms: int, ends_ms: int) -> int:
    """When a timer is due first; delays count from `ends_ms` on, when this millisecond ends."""
    start_ms = spec.due_ms
    if spec.delay_ms is not None:
        start_ms = ends_ms + spec.delay_ms if spec.delay_ms else now_ms
    if start_ms is not None:
        if not isinstance(spec.repeat, Cron) or type(start_ms) is not int or start_ms < 0:
            return start_ms
        # It is due at times that its expression names, and at no other.
        now_ms = start_ms - 1
    elif isinstance(spec.repeat, Interval):
        return ends_ms + spec.repeat.every_ms
    found_ms = None if spec.repeat is None else recurrence.next_ms(spec.repeat, now_ms)
    if found_ms is None:
        raise BadInput("what is to repeat has no time to come")
    return found_ms


def encrypted(spec: Spec, server_keys: ServerKeys, caller: str, id_: str) -> Spec:
    """A timer's description as it is stored: with the values of its headers encrypted."""
    return _changed(spec, server_keys.encrypt, caller, id_)


def decrypted(spec: Spec, server_keys: ServerKeys, caller: str, id_: str) -> Spec:
    """The same as it was given. Raises `SecretUnreadable`."""
    return _changed(spec, server_keys.decrypt, caller, id_)


def encrypt_headers(call: Call, server_keys: ServerKeys, caller: str, id_: str) -> Call:
    """A call of a timer as it is stored."""
    return replace(call, headers=_headers(call, server_keys.encrypt, caller, id_))


def open_headers(call: Call, server_keys: ServerKeys, caller: str, id_: str) -> dict[str, str]:
    """The headers of a stored call of a timer. Raises `SecretUnreadable`."""
    return _headers(call, server_keys.decrypt, caller, id_)


def _changed(spec: Spec, change: Callable[..., str], caller: str, id_: str) -> Spec:
    target = spec.target
    if not isinstance(target, Call) or not target.headers:
        return spec
    headers = _headers(target, change, caller, id_)
    return replace(spec, target=replace(target, headers=headers))


def _headers(call: Call, change: Callable[..., str], caller: str, id_: str) -> dict[str, str]:
    # Not by its slot: the job of a firing has the same ciphertexts.
    place = ("timer", caller, id_, "header")
    return {name: change(value, *place, name) for name, value in call.headers.items()}


def mark_of(spec: Spec) -> str:
    """Of a description without the values of its headers: nobody can try values against it."""
    spec = _changed(spec, lambda *_: "", "", "")
    return blake2b(encode(spec, ("timer", "spec"), order="sorted"), digest_size=16).hexdigest()


def timer_slot(caller: str, id_: str, slots: int) -> int:
    return crc32(keys.join(caller, id_).encode()) % slots


def timer_partition(slot: int) -> str:
    return keys.join("timer", slot)


def timer_entry(caller: str, id_: str, timer: Timer, slots: int) -> Key:
    """Where a timer waits for its time."""
    return entry_in(timer_slot(caller, id_, slots), caller, id_, timer)


def entry_in(slot: int, caller: str, id_: str, timer: Timer) -> Key:
    return due_partition(slot), keys.join(timer.due_ms, caller, id_, timer.generation, TIMER_DUE)
