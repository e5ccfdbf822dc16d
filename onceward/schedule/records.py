"""Records of the schedule: structs, keys and validation."""

import re
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from onceward import keys, limits
from onceward.api.jobs import ENDED
from onceward.errors import BadInput, NoSuchJob, TooLarge
from onceward.ids import LENGTH
from onceward.job_options import NO_OPTIONS, JobOptions, OptionAttributes, admit_options
from onceward.json_values import encode
from onceward.keys import Key
from onceward.quantities import is_whole
from onceward.tracing import Trace

T = TypeVar("T")

# The kinds of due entries that belong to the schedule itself.
JOB_DUE = "job"
LEASE_DUE = "lease"
# Of `onceward.work.output`: removes the output of a job.
OUTPUT_DUE = "output"

# The stages of a job: its position in the schedule. `state_of` derives the public state.
WAITING = ("blocked", "due", "parked", "ready")
STAGES = (*WAITING, "waiting", "running", *ENDED)

_QUEUE_NAME = re.compile(rf"[A-Za-z0-9._:-]{{1,{limits.QUEUE_CHARS_MAX}}}")


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """A failed attempt of a job."""

    attempt: int
    ended_ms: int
    worker: str
    reason: str
    type: str = ""
    """The type of the error; empty if it is unknown."""
    traceback: str = ""
    """The traceback, if the attempt is one of the last ones."""


class Run(msgspec.Struct, frozen=True, array_like=True):
    """The time between a lease of a job and the end of that lease."""

    attempt: int
    due_ms: int
    """When the job could have started."""
    started_ms: int
    ended_ms: int
    then: str = ""
    """How it ended: `failed`, or what the job waits for since: `time`, `event NAME` or `children
    NUMBER`; empty if the worker gave it back."""


class ErrorDetails(NamedTuple):
    """The error of an attempt, besides its message."""

    type: str = ""
    traceback: str = ""


NO_DETAILS = ErrorDetails()


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A retry or a cancellation."""

    changed_ms: int
    kind: str
    """retried or cancelled."""
    by: str = ""
    """The id of the caller; empty for code of the application."""
    reason: str = ""


class Settlement(msgspec.Struct, frozen=True, array_like=True):
    """The recorded outcome of a step in doubt."""

    settled_ms: int
    step: str
    done: bool
    by: str = ""
    """The id of the caller; empty for code of the application."""
    reason: str = ""
    key: str = ""
    """The idempotency key of the request."""


class Effect(msgspec.Struct, frozen=True, array_like=True):
    """Another result of the commit that completed a job."""

    kind: str
    """step, job, timer, room or record."""
    name: str
    """Its id, or the key of the record."""
    caller: str = ""
    """The owner of a timer."""
    started_ms: int = 0
    ended_ms: int = 0
    """The time of a step; 0 for other effects."""


class Parent(msgspec.Struct, frozen=True, array_like=True):
    """The job that created a child and waits for it."""

    id: str
    family: int
    """The number of the call that created the child."""
    index: int
    """The position among the children of that call."""


class Dedupe(msgspec.Struct, frozen=True, array_like=True):
    """The key of the record that detects a job's duplicates. It is kept while the job exists, and
    for the queue's key retention after its end."""

    partition: str
    sort: str
    fingerprint: str

    @property
    def key(self) -> str | None:
        """The idempotency key as it was sent; None if only its digest is stored."""
        return None if self.sort.startswith("!") else keys.split(self.sort)[-1]


class Accepted(msgspec.Struct):
    """The record of an idempotency key."""

    id: str
    fingerprint: str
    state: str = ""
    """The final state of the job; empty until it ends."""
    differences: int = 0
    """How many messages had the same key and another body, in queues that only count them."""


class Job(msgspec.Struct, OptionAttributes, omit_defaults=True):
    """The record of a job."""

    queue: str
    body: Any
    stage: str
    """One of `STAGES`."""
    created_ms: int
    due_ms: int = 0
    options: JobOptions = NO_OPTIONS
    attempts_max: int = 0
    """The number of attempts after which a failure is final, from the job's options or the queue's
    settings at the time of sending; 0: unlimited."""
    place: str = ""
    """The sort key of its entry in due, ready, line, parked or failed."""
    attempt: int = 0
    token: str = ""
    """The secret of the current attempt, required to complete, extend or fail it."""
    worker: str = ""
    """The holder of the current or last lease."""
    reason: str = ""
    """Why the last attempt failed."""
    gated: bool = False
    """Whether it occupies capacity of its limit key."""
    permit: int | None = None
    """Its permit while it runs, if its queue has a limit."""
    dedupe: Dedupe | None = None
    result: Any = None
    ended_ms: int = 0
    history: list[Attempt] = []
    """The last failed attempts."""
    settled: list[Settlement] = []
    """The last settlements of its steps."""
    changes: list[Change] = []
    """The last retries and cancellations."""
    retry_key: str = ""
    """The idempotency key of the last retry."""
    stepped: bool = False
    """Whether its attempts have recorded steps, which are deleted when it ends."""
    cut_off: bool = False
    """Whether the lease of its last attempt expired, possibly because the job crashed its
    worker."""
    caller: str = ""
    """The sender, where it is relevant."""
    ended_by: str = ""
    """The token of the attempt that completed or failed it, until the next attempt."""
    cause: Effect | None = None
    """The job or timer whose commit sent it."""
    effects: list[Effect] = []
    """The first few effects of its commit."""
    since_ms: int = 0
    """The time from which it counts as ready, even after releases; 0: when it becomes ready."""
    uncounted: int = 0
    """How many earlier leases `attempt` does not count: those given back, and those before a
    retry."""
    waits: str = ""
    """What it waits for without a worker: `event NAME` or `children NUMBER`."""
    parent: Parent | None = None
    """The job that created it as a child."""
    families: bool = False
    """Whether its attempts have created children."""
    evented: bool = False
    """Whether it was sent events, which are deleted when it ends."""
    started_ms: int = 0
    """The start of its current run, or of the one in which it ended."""
    runs: list[Run] = []
    """The last runs before that one."""
    output: bool = False
    """Whether its attempts have reported progress or output, which is kept as long as the job."""
    quarantined: bool = False
    """Whether it replaces an unreadable record; the body is the readable part of that record."""
    trace: Trace | None = None
    """The trace context of its sender."""
    merge: str = ""
    """The key of the messages that it takes until its first attempt: `debounce KEY` or
    `batch KEY`."""

    @property
    def state(self) -> str:
        """The public state: one of `onceward.api.jobs.State`."""
        return state_of(self.stage, self.attempt)

    def end_run(self, now_ms: int, then: str = "") -> None:
        """Add the current run to the earlier ones, as many as fit into a record."""
        if self.started_ms:
            run = Run(self.attempt, self.due_ms, self.started_ms, now_ms, then)
            self.runs = _latest([*self.runs, run], limits.RUNS_MAX, limits.RUNS_BYTES_MAX)
            self.started_ms = 0


class Intent(msgspec.Struct):
    """The part of a step that shows whether it is in doubt: attempted but without a result."""

    intent: int = 0
    done: bool = False


class Lease(msgspec.Struct):
    """A renewed lease. It replaces the job's own lease for the same token.

    The record expires with the lease.
    """

    token: str
    until_ms: int


class Order(msgspec.Struct):
    """The head of an order key, and the position of the next job behind it."""

    head: str
    next: int = 0
    waiting: int = 0


class Gate(msgspec.Struct):
    """The number of jobs of a limit key that have capacity, and of those parked for it."""

    inside: int = 0
    next: int = 0
    parked: int = 0


class Claim(msgspec.Struct, OptionAttributes, frozen=True):
    """A leased job with the token that authorizes its worker to end the attempt."""

    id: str
    queue: str
    body: Any
    attempt: int
    token: str
    lease_until_ms: int
    options: JobOptions = NO_OPTIONS
    due_ms: int = 0
    created_ms: int = 0
    reason: str = ""
    """Why the previous attempt failed."""
    stepped: bool = False
    """Whether earlier attempts have recorded steps."""
    suspect: bool = False
    """Whether this is the last attempt after one whose lease expired; it should run alone."""
    dedupe: Dedupe | None = None
    attempts_max: int = 0
    """The number of attempts after which a failure is final; 0: unlimited."""
    caller: str = ""
    """The sender, where it is relevant."""
    trace: Trace | None = None
    """The trace context of the sender."""
    number: int = 0
    """The number of this lease among all leases of the job. Unlike `attempt`, it only increases."""
    related: bool = False
    """Whether it has a parent, children, events or output."""


class LocalWorker(msgspec.Struct, frozen=True):
    """A handler of this process that takes new jobs in the commits that add them."""

    name: str
    lease_ms: int


class HandedOver(msgspec.Struct, frozen=True):
    """A note in a transaction: its commit leases a new job to a handler of this process."""

    worker: LocalWorker
    claim: Claim


def state_of(stage: str, attempt: int) -> str:
    """The public state of a job, from its stage and its number of failed attempts.

    An attempt that sleeps in a step does not count: the job is scheduled.
    """
    if stage == "due":
        return "retrying" if attempt else "scheduled"
    return "queued" if stage in WAITING else stage


# Both are called several times per job.
@lru_cache(maxsize=8_192)
def slot_of(id_: Any) -> int:
    """The slot contained in a job's id; raises `NoSuchJob` for an invalid id."""
    if isinstance(id_, str) and len(id_) == LENGTH + 3 and id_.isascii() and id_.isalnum():
        try:
            return int(id_[LENGTH:], 16)
        except ValueError:
            pass
    raise _not_an_id(id_)


def admit_id(id_: Any) -> None:
    """Raise `NoSuchJob` for ids that are not text, which `slot_of` and `job_key` do not check."""
    if not isinstance(id_, str):
        raise _not_an_id(id_)


def _not_an_id(id_: Any) -> NoSuchJob:
    shown = str(id_)[:100]
    return NoSuchJob(f"{shown!r} is not a job id; use the `id` of a receipt or a job", id=shown)


@lru_cache(maxsize=8_192)
def job_key(id_: str) -> Key:
    return job_partition(slot_of(id_)), f"{id_}#job"


def job_partition(slot: int) -> str:
    return f"job#{slot:04d}"


def lease_key(id_: str) -> Key:
    return job_partition(slot_of(id_)), f"{id_}#lease"


def steps_key(id_: str) -> Key:
    return job_partition(slot_of(id_)), f"{id_}#steps"


def events_key(id_: str) -> Key:
    return job_partition(slot_of(id_)), f"{id_}#events"


def output_key(id_: str) -> Key:
    return job_partition(slot_of(id_)), f"{id_}#output"


def due_partition(slot: int) -> str:
    return f"due#{slot:04d}"


def due_ms_of(sort: str) -> int:
    """The time of a due entry, by its sort key; 0 (due now) if the key has no valid time."""
    try:
        return int(sort[:16])
    except ValueError:
        return 0


def ready_partition(slot: int, queue: str) -> str:
    return f"ready#{slot:04d}#{queue}"


def slot_of_ready(partition: str) -> int:
    """The slot of a partition of ready entries."""
    return int(partition[6:10])


def priority_of(sort: str) -> int:
    """The rank of a ready entry, by its sort key; 0 (first) if the key has no valid rank."""
    try:
        return int(sort[:16])
    except ValueError:
        return 0


def order_head_key(slot: int, queue: str, order_key: str) -> Key:
    return f"order#{slot:04d}", keys.join(queue, order_key)


def line_partition(slot: int, queue: str, order_key: str) -> str:
    return keys.join("line", f"{slot:04d}", queue, order_key)


def gate_key(queue: str, limit_key: str) -> Key:
    sort = keys.join(queue, limit_key)
    return f"limit#{crc32(sort.encode()) & 0xFF:02x}", sort


def parked_partition(queue: str, limit_key: str) -> str:
    return keys.join("parked", queue, limit_key)


def permit_partition(queue: str) -> str:
    return keys.join("permit", queue)


def permit_key(queue: str, number: int) -> Key:
    return permit_partition(queue), keys.number(number)


def rate_key(queue: str) -> Key:
    return "rate", keys.join(queue)


def merge_key(queue: str, caller: str, name: str) -> Key:
    """The record of a debounce key or batch key; `name` is the member `merge` of its job."""
    sort = keys.join(caller, *name.split(" ", 1))
    return f"merge#{crc32(sort.encode()) & 0xFF:02x}#{queue}", sort


def lease_place(until_ms: int, id_: str, job: Job) -> str:
    """The sort key of a running job's entry in due."""
    # Contains the token, so that entries of different attempts are distinct.
    return f"{until_ms:016d}#{id_}#{job.token}#{LEASE_DUE}"


def failed_partition(queue: str) -> str:
    return keys.join("failed", queue)


def admit_queue(queue: Any) -> None:
    if not isinstance(queue, str) or not _is_queue(queue):
        raise BadInput(
            f"a queue name must have 1 to {limits.QUEUE_CHARS_MAX} letters, digits or . _ : -, "
            f"not {str(queue)[:200]!r}",
            code="bad_name",
        )


@lru_cache(maxsize=1_024)
def _is_queue(name: str) -> bool:
    return _QUEUE_NAME.fullmatch(name) is not None


def admit_worker(worker: str) -> None:
    keys.admit_text(worker, "a worker's name")
    if not 0 < len(worker) <= limits.WORKER_CHARS_MAX:
        raise BadInput(
            f"a worker name must have 1 to {limits.WORKER_CHARS_MAX} characters, not {len(worker)}"
        )


def admit_lease(lease_ms: int) -> None:
    if not is_whole(lease_ms) or not 0 < lease_ms <= limits.LEASE_MS_MAX:
        raise BadInput(f"a lease must last 1 to {limits.LEASE_MS_MAX} ms, not {lease_ms!r}")


def admit_job(queue: str, body: Any, options: JobOptions = NO_OPTIONS, due_ms: int = 0) -> None:
    """Raise `BadInput` for an invalid job, before anything is written."""
    admit_queue(queue)
    if type(due_ms) is not int or due_ms:
        admit_time(due_ms)
    if options is not NO_OPTIONS:
        admit_options(options)
    body_bytes = len(encode(body, (queue, "body")))
    if body_bytes > limits.BODY_BYTES_MAX:
        raise TooLarge(
            f"a job body must have at most {limits.BODY_BYTES_MAX} bytes as JSON, not {body_bytes}",
            code="value_too_large",
        )


def admit_time(time_ms: int) -> None:
    if not is_whole(time_ms) or not 0 <= time_ms <= limits.KEY_NUMBER_MAX:
        raise BadInput(
            f"a time must be 0 to {limits.KEY_NUMBER_MAX} whole ms since 1970, not {time_ms!r}"
        )


def admit_reason(reason: Any) -> None:
    if not isinstance(reason, str):
        raise BadInput(f"a reason must be text, not {type(reason).__name__}")


def latest(history: list[Attempt]) -> list[Attempt]:
    """The last attempts of a history that fit into a record beside the largest body, and the
    tracebacks of the last ones among them."""
    shown = [msgspec.structs.replace(one, traceback="") for one in history]
    kept = _latest(shown, limits.HISTORY_MAX, limits.HISTORY_BYTES_MAX)
    left_bytes = limits.TRACEBACKS_BYTES_MAX
    for back in range(1, len(kept) + 1):
        left_bytes -= len(encode(history[-back].traceback, ("job", "history")))
        if left_bytes < 0:
            break
        kept[-back] = history[-back]
    return kept


def changed(job: Job, now_ms: int, kind: str, by: str) -> list[Change]:
    """The changes of a job with one more, as many as fit into a record."""
    change = Change(now_ms, kind, by, job.reason[: limits.SETTLEMENT_REASON_CHARS_MAX])
    return _latest([*job.changes, change], limits.CHANGES_MAX, limits.CHANGES_BYTES_MAX)


def latest_settled(settled: list[Settlement]) -> list[Settlement]:
    """The last settlements that fit into a record."""
    return _latest(settled, limits.SETTLEMENTS_MAX, limits.SETTLEMENTS_BYTES_MAX)


def _latest(entries: list[T], most: int, left_bytes: int) -> list[T]:
    kept: list[T] = []
    for entry in reversed(entries[-most:]):
        left_bytes -= len(encode(entry, ("job", "history")))
        if left_bytes < 0:
            break
        kept.insert(0, entry)
    return kept
