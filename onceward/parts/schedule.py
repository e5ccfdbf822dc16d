"""The schedule: everything that waits, for time or for a worker.

A job waits in one of three places, and its record says in which. `due` holds what waits
for time; `ready` what waits for a worker; a `line` what waits behind another job of the
same order key. Only the head of an order key is ever due, ready or leased: its end
promotes the next in the same commit. What is leased stands in `due` too, at the time its
lease runs out.

Every transition is a versioned write on the job's own record: claim, complete, fail and
expire of one job exclude each other, whoever attempts them. The lease is a record of its
own, so renewing it never conflicts with the worker's own commit.

States: waiting (in line) -> due -> ready -> leased -> done or dead; a failed or lost
attempt goes back to due or ready.
"""

from typing import Any
from zlib import crc32

import msgspec

from onceward import keys, limits
from onceward.errors import BadInput, NoSuchJob, StaleToken
from onceward.ids import LENGTH, Ids
from onceward.keys import Key
from onceward.transaction import Transaction

PRIORITY_DEFAULT = 5
JOB_DUE = "job"
LEASE_DUE = "lease"


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
    reason: str = ""
    """Why the last attempt failed."""


class Lease(msgspec.Struct):
    """Who works on a job, until when."""

    worker: str
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


def slot_of(id_: str) -> int:
    """The slot that a job's id contains; raises `NoSuchJob` if it is no job's id."""
    try:
        return int(id_[LENGTH:], 16)
    except ValueError:
        raise NoSuchJob(f"{id_!r} is not the id of a job", id=id_) from None


def job_key(id_: str) -> Key:
    return keys.join("job", id_), "job"


def lease_key(id_: str) -> Key:
    return keys.join("job", id_), "lease"


def due_partition(slot: int) -> str:
    return f"due#{slot:04d}"


def ready_partition(slot: int, queue: str) -> str:
    return keys.join("ready", f"{slot:04d}", queue)


def _order_key(slot: int, queue: str, order_key: str) -> Key:
    return f"order#{slot:04d}", keys.join(queue, order_key)


def _line_partition(slot: int, queue: str, order_key: str) -> str:
    return keys.join("line", f"{slot:04d}", queue, order_key)


class Schedule:
    """The schedule of one database. `slots` was chosen when that was created."""

    def __init__(self, ids: Ids, slots: int = limits.SLOTS_DEFAULT) -> None:
        self.slots = slots
        self._ids = ids

    async def send(
        self,
        tx: Transaction,
        queue: str,
        body: Any,
        *,
        due_ms: int = 0,
        order_key: str | None = None,
        priority: int = PRIORITY_DEFAULT,
        attempts_max: int = 0,
    ) -> str:
        """Add a job, ready at once or due later; returns its id."""
        if not 0 <= priority <= limits.PRIORITY_MAX:
            raise BadInput(f"a priority is 0 (first) to {limits.PRIORITY_MAX}, not {priority}")
        id_ = self._ids.new()
        spread = id_ if order_key is None else keys.join(queue, order_key)
        slot = crc32(spread.encode()) % self.slots
        id_ += f"{slot:03x}"
        job = Job(queue, body, "", tx.now_ms, due_ms, priority, order_key, attempts_max)
        if order_key is None:
            self._place(tx, id_, job)
            return id_
        order = await tx.get(_order_key(slot, queue, order_key), Order)
        if order is None:
            tx.put(_order_key(slot, queue, order_key), Order(id_))
            self._place(tx, id_, job)
            return id_
        job.state, job.place = "waiting", keys.number(order.next)
        tx.put((_line_partition(slot, queue, order_key), job.place), id_)
        order.next += 1
        order.waiting += 1
        tx.put(_order_key(slot, queue, order_key), order)
        tx.put(job_key(id_), job)
        return id_

    async def get(self, tx: Transaction, id_: str) -> Job:
        """The job; raises `NoSuchJob`."""
        job = await tx.get(job_key(id_), Job)
        if job is None:
            raise NoSuchJob(f"there is no job {id_}", id=id_)
        return job

    async def promote(self, tx: Transaction, entry: Key) -> None:
        """Make a job whose time has come ready. Does nothing if it is not due there any more."""
        _, id_, kind = keys.split(entry[1])
        job = await tx.get(job_key(id_), Job)
        if job is None or job.state != "due" or job.place != entry[1] or kind != JOB_DUE:
            tx.delete(entry)
            return
        if job.due_ms <= tx.now_ms:
            tx.delete(entry)
            self._ready(tx, id_, job)

    async def claim(self, tx: Transaction, entry: Key, worker: str, lease_ms: int) -> Claim | None:
        """Lease a ready job to a worker; None if it is not ready there any more."""
        id_ = await tx.get(entry, str)
        if id_ is None:
            return None
        job = await tx.get(job_key(id_), Job)
        tx.delete(entry)
        if job is None or job.state != "ready" or job.place != entry[1]:
            return None
        until_ms = tx.now_ms + lease_ms
        job.state = "leased"
        job.attempt += 1
        job.token = self._ids.token(8)
        job.place = keys.join(until_ms, id_, LEASE_DUE)
        tx.put(job_key(id_), job)
        tx.put(lease_key(id_), Lease(worker, until_ms))
        tx.put((due_partition(slot_of(id_)), job.place), LEASE_DUE)
        return Claim(id_, job.queue, job.body, job.attempt, job.token, until_ms, job.order_key)

    async def extend(self, tx: Transaction, id_: str, token: str, lease_ms: int) -> int:
        """Renew a lease from now on; returns until when. Raises `StaleToken`, `NoSuchJob`.

        The entry in due stays where it is: when its time comes, it moves on to the new end.
        """
        await self._held(tx, id_, token)
        lease = await tx.get(lease_key(id_), Lease)
        if lease is None:
            raise StaleToken(f"job {id_} is not leased any more", id=id_)
        lease.until_ms = max(lease.until_ms, tx.now_ms + lease_ms)
        tx.put(lease_key(id_), lease)
        return lease.until_ms

    async def complete(self, tx: Transaction, id_: str, token: str) -> None:
        """End a job well, in the same commit as its effects. Raises `StaleToken`, `NoSuchJob`."""
        job = await self._held(tx, id_, token)
        self._unlease(tx, id_, job)
        await self._end(tx, id_, job, "done")

    async def fail(
        self, tx: Transaction, id_: str, token: str, reason: str, retry_ms: int | None
    ) -> str:
        """End an attempt badly: the job is due again at `retry_ms`, or dead if that is None
        or its attempts are used up. Returns its new state. Raises `StaleToken`, `NoSuchJob`."""
        job = await self._held(tx, id_, token)
        self._unlease(tx, id_, job)
        await self._attempt_over(tx, id_, job, reason, retry_ms)
        return job.state

    async def expire(self, tx: Transaction, entry: Key) -> None:
        """End an attempt whose lease ran out; or move the entry to where the lease now ends."""
        _, id_, _ = keys.split(entry[1])
        job = await tx.get(job_key(id_), Job)
        lease = await tx.get(lease_key(id_), Lease)
        if job is None or lease is None or job.state != "leased":
            tx.delete(entry)
            return
        if lease.until_ms > tx.now_ms:
            later = (entry[0], keys.join(lease.until_ms, id_, LEASE_DUE))
            if later != entry:
                tx.delete(entry)
                tx.put(later, LEASE_DUE)
            return
        tx.delete(entry)
        self._unlease(tx, id_, job)
        reason = f"the lease of {lease.worker} ran out"
        await self._attempt_over(tx, id_, job, reason, tx.now_ms)

    async def _held(self, tx: Transaction, id_: str, token: str) -> Job:
        job = await self.get(tx, id_)
        if job.state != "leased" or job.token != token:
            raise StaleToken(f"job {id_} is not this worker's any more (it is {job.state})", id=id_)
        return job

    def _unlease(self, tx: Transaction, id_: str, job: Job) -> None:
        # If the lease was renewed, its entry in due may have moved on; that one finds the
        # job not leased, or leased anew, when its time comes.
        tx.delete((due_partition(slot_of(id_)), job.place))
        tx.delete(lease_key(id_))
        job.token = ""

    async def _attempt_over(
        self, tx: Transaction, id_: str, job: Job, reason: str, retry_ms: int | None
    ) -> None:
        job.reason = reason
        if retry_ms is None or (job.attempts_max and job.attempt >= job.attempts_max):
            await self._end(tx, id_, job, "dead")
        else:
            job.due_ms = retry_ms
            self._place(tx, id_, job)

    async def _end(self, tx: Transaction, id_: str, job: Job, state: str) -> None:
        job.state, job.place = state, ""
        expires_at_ms = tx.now_ms + limits.JOB_RETENTION_MS if state == "done" else None
        tx.put(job_key(id_), job, expires_at_ms=expires_at_ms)
        if job.order_key is not None:
            await self._promote_next(tx, id_, job.queue, job.order_key)

    async def _promote_next(self, tx: Transaction, id_: str, queue: str, order_key: str) -> None:
        slot = slot_of(id_)
        head_key = _order_key(slot, queue, order_key)
        order = await tx.get(head_key, Order)
        if order is None or order.head != id_:
            return
        # The head record is checked: whoever joins the line writes it.
        line = await tx.scan(_line_partition(slot, queue, order_key), str, limit=1)
        if not line:
            tx.delete(head_key)
            return
        [(entry, next_id)] = line
        tx.delete(entry)
        order.head = next_id
        order.waiting -= 1
        tx.put(head_key, order)
        self._place(tx, next_id, await self.get(tx, next_id))

    def _place(self, tx: Transaction, id_: str, job: Job) -> None:
        if job.due_ms <= tx.now_ms:
            self._ready(tx, id_, job)
            return
        job.state, job.place = "due", keys.join(job.due_ms, id_, JOB_DUE)
        tx.put((due_partition(slot_of(id_)), job.place), JOB_DUE)
        tx.put(job_key(id_), job)

    def _ready(self, tx: Transaction, id_: str, job: Job) -> None:
        job.state, job.place = "ready", keys.join(job.priority, self._ids.new())
        tx.put((ready_partition(slot_of(id_), job.queue), job.place), id_)
        tx.put(job_key(id_), job)
