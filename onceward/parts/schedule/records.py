"""The records of the schedule: what they hold, where they stand, what they may contain."""

import re
from functools import lru_cache
from typing import Any

import msgspec

from onceward import keys, limits
from onceward.errors import BadInput, NoSuchJob, TooLarge
from onceward.ids import LENGTH
from onceward.keys import Key
from onceward.transaction import encode

PRIORITY_DEFAULT = 5
# The kinds of entries in due that belong to the schedule itself.
JOB_DUE = "job"
LEASE_DUE = "lease"

_QUEUE_NAME = re.compile(rf"[A-Za-z0-9._:-]{{1,{limits.QUEUE_CHARS_MAX}}}")


class Job(msgspec.Struct, omit_defaults=True):
    """The record of a job."""

    queue: str
    body: Any
    state: str
    made_ms: int
    due_ms: int = 0
    priority: int = PRIORITY_DEFAULT
    order_key: str | None = None
    attempts_max: int = 0
    """After how many attempts a failure is final; 0: never."""
    place: str = ""
    """The sort key of its entry in due, ready or line, to find it again."""
    attempt: int = 0
    token: str = ""
    """Held by the worker of this attempt; nobody else can complete, extend or fail it."""
    worker: str = ""
    """Who holds the lease, or held it last."""
    reason: str = ""
    """Why the last attempt failed."""


class Lease(msgspec.Struct):
    """A lease that was renewed: it counts instead of the job's own, for the same token.

    The record expires when the lease does.
    """

    token: str
    until_ms: int


class Order(msgspec.Struct):
    """The head of an order key, and where the next one joins the line behind it."""

    head: str
    next: int = 0
    waiting: int = 0


class Claim(msgspec.Struct, frozen=True):
    """What a worker gets: the job, and what proves that this attempt is its own."""

    id: str
    queue: str
    body: Any
    attempt: int
    token: str
    lease_until_ms: int
    order_key: str | None = None


# Both are needed again and again while a job is worked on.
@lru_cache(maxsize=8_192)
def slot_of(id_: str) -> int:
    """The slot that a job's id contains; raises `NoSuchJob` if it is no job's id."""
    if len(id_) == LENGTH + 3 and id_.isascii() and id_.isalnum():
        try:
            return int(id_[LENGTH:], 16)
        except ValueError:
            pass
    raise NoSuchJob(f"{id_[:100]!r} is not the id of a job", id=id_)


@lru_cache(maxsize=8_192)
def job_key(id_: str) -> Key:
    return f"job#{slot_of(id_):04d}", f"{id_}#job"


def lease_key(id_: str) -> Key:
    return f"job#{slot_of(id_):04d}", f"{id_}#lease"


def due_partition(slot: int) -> str:
    return f"due#{slot:04d}"


def due_ms_of(sort: str) -> int:
    """When an entry in due is due, by its sort key; one that does not say is due at once."""
    try:
        return int(sort[:16])
    except ValueError:
        return 0


def ready_partition(slot: int, queue: str) -> str:
    return f"ready#{slot:04d}#{queue}"


def order_head_key(slot: int, queue: str, order_key: str) -> Key:
    return f"order#{slot:04d}", keys.join(queue, order_key)


def line_partition(slot: int, queue: str, order_key: str) -> str:
    return keys.join("line", f"{slot:04d}", queue, order_key)


def admit_queue(queue: str) -> None:
    if not _QUEUE_NAME.fullmatch(queue):
        raise BadInput(
            f"a queue's name has 1 to {limits.QUEUE_CHARS_MAX} letters, digits and . _ : -, "
            f"not {queue[:200]!r}",
            code="bad_key",
        )


def admit_worker(worker: str) -> None:
    if not 0 < len(worker) <= limits.WORKER_CHARS_MAX:
        raise BadInput(
            f"a worker's name has 1 to {limits.WORKER_CHARS_MAX} characters, not {len(worker)}"
        )


def admit_lease(lease_ms: int) -> None:
    if not 0 < lease_ms <= limits.LEASE_MS_MAX:
        raise BadInput(f"a lease has 1 to {limits.LEASE_MS_MAX} ms, not {lease_ms}")


def admit_job(
    queue: str, body: Any, due_ms: int, order_key: str | None, priority: int, attempts_max: int
) -> None:
    admit_queue(queue)
    admit_time(due_ms)
    if order_key is not None:
        order_bytes = len(order_key.encode(errors="surrogatepass"))
        if not 0 < order_bytes <= limits.ORDER_KEY_BYTES_MAX:
            raise BadInput(
                f"an order key has 1 to {limits.ORDER_KEY_BYTES_MAX} bytes, not {order_bytes}",
                code="bad_key",
            )
    if not 0 <= priority <= limits.PRIORITY_MAX:
        raise BadInput(f"a priority is 0 (first) to {limits.PRIORITY_MAX}, not {priority}")
    if attempts_max < 0:
        raise BadInput(f"the number of attempts is 1 or more, or 0 for no end, not {attempts_max}")
    body_bytes = len(encode(body, (queue, "body")))
    if body_bytes > limits.BODY_BYTES_MAX:
        raise TooLarge(
            f"a job's body has at most {limits.BODY_BYTES_MAX} bytes as JSON, not {body_bytes}",
            code="value_too_large",
        )


def admit_time(time_ms: int) -> None:
    if not 0 <= time_ms <= limits.KEY_NUMBER_MAX:
        raise BadInput(f"a time is 0 to {limits.KEY_NUMBER_MAX} ms since 1970, not {time_ms}")
