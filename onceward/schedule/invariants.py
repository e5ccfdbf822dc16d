"""Invariants of schedule records, for `onceward db check` and tests."""

from collections.abc import Iterator
from typing import Any, TypeVar

from onceward.api.jobs import ENDED
from onceward.engine.base import Record
from onceward.engine.invariants import Lookup, Rule, value_of
from onceward.errors import OncewardError
from onceward.keys import Key
from onceward.schedule.children import Child, Family, family_key, number_of
from onceward.schedule.records import (
    JOB_DUE,
    LEASE_DUE,
    STAGES,
    WAITING,
    Accepted,
    Gate,
    Job,
    Lease,
    Order,
    due_partition,
    failed_partition,
    job_key,
    lease_key,
    line_partition,
    merge_key,
    order_head_key,
    parked_partition,
    permit_key,
    ready_partition,
    slot_of,
)

T = TypeVar("T")

_HEAD_STAGES = ("due", "waiting", "parked", "ready", "running", "failed", "in_doubt")


def _due(record: Record, get: Lookup) -> Iterator[str]:
    words = record.key[1].split("#")
    id_, kind = words[1] if len(words) > 1 else "", words[-1]
    if kind == JOB_DUE:
        yield from _stands_there(record, id_, ("due", "waiting"), get)
    elif kind == LEASE_DUE and _job(id_, get) is None:
        # The job may be in any stage: a renewed lease leaves outdated entries behind.
        yield f"job {id_!r} not found"


def _ready(record: Record, get: Lookup) -> Iterator[str]:
    yield from _stands_there(record, value_of(record, Any), ("ready",), get)


def _line(record: Record, get: Lookup) -> Iterator[str]:
    yield from _stands_there(record, value_of(record, Any), ("blocked",), get)


def _parked(record: Record, get: Lookup) -> Iterator[str]:
    yield from _stands_there(record, value_of(record, Any), ("parked",), get)


def _failed(record: Record, get: Lookup) -> Iterator[str]:
    stage = value_of(record, str)
    if stage not in ("failed", "in_doubt"):
        yield "not an entry of a failed job"
        return
    yield from _stands_there(record, record.key[1].partition("#")[2], (stage,), get)


def _permit(record: Record, get: Lookup) -> Iterator[str]:
    id_ = value_of(record, Any)
    job = _job(id_, get)
    if job is None or job.stage != "running" or job.permit is None:
        yield f"job {id_!r} has a permit but is not running"
    elif permit_key(job.queue, job.permit) != record.key:
        yield f"job {id_!r} has another permit"


def _inbox(record: Record, get: Lookup) -> Iterator[str]:
    accepted = value_of(record, Accepted)
    if accepted is None:
        yield "not a record of an idempotency key"
    elif not accepted.state and _job(accepted.id, get) is None:
        yield f"job {accepted.id!r} not found"


def _merge(record: Record, get: Lookup) -> Iterator[str]:
    id_ = value_of(record, str)
    job = _job(id_, get)
    if id_ is None:
        yield "not a record of a debounce key or batch key"
    elif job is None or job.stage not in WAITING:
        return  # the next message makes a new job
    elif not job.merge or merge_key(job.queue, job.caller, job.merge) != record.key:
        yield f"job {id_} does not take the messages of this key"


def _gate(record: Record, get: Lookup) -> Iterator[str]:
    gate = value_of(record, Gate)
    if gate is None or min(gate.inside, gate.next, gate.parked) < 0:
        yield "not a record of a limit key"


def _stands_there(record: Record, id_: Any, stages: tuple[str, ...], get: Lookup) -> Iterator[str]:
    job = _job(id_, get)
    if job is None:
        yield f"job {id_!r} not found"
    elif job.stage not in stages or _place(id_, job) != record.key:
        yield f"job {id_} should not have an entry here: its stage is {job.stage}"


def _order(record: Record, get: Lookup) -> Iterator[str]:
    order = value_of(record, Order)
    head = None if order is None else _job(order.head, get)
    if order is None or head is None:
        yield "the order key has no job at its head"
    elif _head_key(order.head, head) != record.key or head.stage not in _HEAD_STAGES:
        yield f"job {order.head} is not the head of its order key: its stage is {head.stage}"


def _jobs(record: Record, get: Lookup) -> Iterator[str]:
    id_, _, what = record.key[1].partition("#")
    if what == "lease" and value_of(record, Lease) is None:
        yield "not a lease of a job"
    if what not in ("job", "lease", "steps", "events", "output"):
        yield "unknown kind of job record"
    if what != "job":
        return
    job = value_of(record, Job)
    if job is None or job.stage not in STAGES:
        yield "not a job"
        return
    place = _place(id_, job)
    renewed = job.stage == "running" and get(lease_key(id_)) is not None
    if place is not None and get(place) is None and not renewed:
        yield f"the job's stage is {job.stage}, but its entry in {'/'.join(place)} is missing"
    if job.permit is not None and get(permit_key(job.queue, job.permit)) is None:
        yield f"the record of the job's permit {job.permit} is missing"
    number = number_of(job.waits)
    if number is not None and get(family_key(id_, number)) is None:
        yield f"the job waits for its children, but the record of family {number} is missing"
    if (job.stage == "waiting") != bool(job.waits):
        yield f"the job's stage is {job.stage}, but it waits for {job.waits or 'nothing'}"
    if job.options.order_key is not None and job.stage not in ENDED:
        head = get(_head_key(id_, job))
        order = value_of(head, Order)
        if order is None or (order.head == id_) == (job.stage == "blocked"):
            yield f"the job's stage is {job.stage}, which contradicts the head of its order key"


def _family(record: Record, get: Lookup) -> Iterator[str]:
    parent, *_, index = record.key[1].split("#")
    if record.key[1].count("#") < 2:
        if value_of(record, Family) is None:
            yield "not a record of a family"
        return
    child = value_of(record, Child)
    if child is None:
        yield "not a record of a child"
        return
    job = _job(child.id, get)
    if not child.state and (job is None or job.stage in ("succeeded", "cancelled")):
        yield f"job {child.id!r}, a child of {parent}, has ended or is gone"
    elif job is not None and (job.parent is None or job.parent.index != int(index)):
        yield f"job {child.id!r} is not this child of {parent}"


def _place(id_: str, job: Job) -> Key | None:
    """The key of the entry that the job should have."""
    slot = slot_of(id_)
    if job.stage in ("due", "waiting", "running"):
        return due_partition(slot), job.place
    if job.stage == "ready":
        return ready_partition(slot, job.queue), job.place
    if job.stage == "parked":
        return parked_partition(job.queue, job.options.limit_key or ""), job.place
    if job.stage in ("failed", "in_doubt"):
        return failed_partition(job.queue), job.place
    if job.stage == "blocked":
        return line_partition(slot, job.queue, job.options.order_key or ""), job.place
    return None


def _head_key(id_: str, job: Job) -> Key:
    return order_head_key(slot_of(id_), job.queue, job.options.order_key or "")


def _job(id_: Any, get: Lookup) -> Job | None:
    try:
        record = get(job_key(id_))
    except (OncewardError, TypeError):
        return None
    return value_of(record, Job)


RULES = [
    Rule("due", _due),
    Rule("ready", _ready),
    Rule("line", _line),
    Rule("order", _order),
    Rule("job", _jobs),
    Rule("parked", _parked),
    Rule("failed", _failed),
    Rule("permit", _permit),
    Rule("inbox", _inbox),
    Rule("merge", _merge),
    Rule("limit", _gate),
    Rule("family", _family),
]
