"""Where a job stands, and how it gets from there to the next place or to its end.

These are pieces of transitions: each takes its part of a commit.
"""

from collections.abc import Callable
from typing import Any, Protocol
from zlib import crc32

import msgspec

from onceward import keys, limits
from onceward.errors import NoSuchJob, OncewardError
from onceward.ids import Ids
from onceward.job_options import NO_OPTIONS, JobOptions
from onceward.json_values import encode
from onceward.reasons import reason_text
from onceward.schedule.quota import give_permit_back
from onceward.schedule.records import (
    JOB_DUE,
    LEASE_DUE,
    Accepted,
    Attempt,
    Claim,
    Dedupe,
    Effect,
    Job,
    Order,
    admit_id,
    admit_job,
    dead_partition,
    due_partition,
    job_key,
    job_partition,
    latest,
    order_head_key,
    permit_partition,
    ready_partition,
    slot_of,
    steps_key,
)
from onceward.schedule.settings import Lookup, default_settings
from onceward.schedule.waiting import (
    become_head,
    leave_gate,
    leave_line,
    next_head,
    pass_gate,
    unpark,
)
from onceward.store.transaction import Transaction


class Taker(Protocol):
    """A worker at hand, who takes a job the moment it would be ready."""

    @property
    def worker(self) -> str: ...
    @property
    def lease_ms(self) -> int: ...

    def promise(self, tx: Transaction, claim: Claim) -> None:
        """Let him have it, once the commit is durable."""


def _any_number(tx: Transaction, queue: str) -> None:
    pass


def _nobody(tx: Transaction, queue: str) -> Taker | None:
    return None


class Turns(Protocol):
    """Says when the turn of a sender is, in queues where senders take turns."""

    async def turn_ms(self, queue: str, rank: int, sender: str, now_ms: int) -> int:
        """Where the next job of a sender stands among those that are ready."""

    def started(self, queue: str, place: str) -> None:
        """A job was handed out from this place."""


class Places:
    """Puts jobs where they belong, and takes them away from there."""

    admit: Callable[[Transaction, str], None] = staticmethod(_any_number)
    """Raises `QueueFull` for a queue that may hold no more jobs."""
    turns: Turns | None = None
    """Who is next where senders take turns; None: who came first."""

    process = ""
    """What marks leases of handlers of this process, if no other one can use the database."""

    taker: Callable[[Transaction, str], Taker | None] = staticmethod(_nobody)
    """Who takes a new job of a queue at once, if somebody does."""

    on_quarantined: Callable[[str, str, str], None] = staticmethod(lambda id_, queue, why: None)
    """Called with id, queue and reason of a job that a commit of this schedule has put into
    quarantine."""

    def __init__(
        self,
        ids: Ids,
        slots: int = limits.SLOTS_DEFAULT,
        settings: Lookup = default_settings,
    ) -> None:
        self.slots = slots
        self.settings = settings
        self._ids = ids

    async def add(
        self,
        tx: Transaction,
        queue: str,
        body: Any,
        options: JobOptions = NO_OPTIONS,
        *,
        due_ms: int = 0,
        dedupe: Dedupe | None = None,
        caller: str = "",
        ready_ms: int | None = None,
        cause: Effect | None = None,
    ) -> tuple[str, Job]:
        """`send`, for those who need the job's record too, know it by a dedupe key, or let it
        take its place among those who are ready since a time that has passed."""
        admit_job(queue, body, options, due_ms)
        order_key, attempts_max = options.order_key, options.attempts_max
        if attempts_max is None:
            attempts_max = self.settings(queue).attempts_max
        id_ = self._ids.new(tx.now_ms)
        spread = id_ if order_key is None else keys.join(queue, order_key)
        slot = crc32(spread.encode()) % self.slots
        id_ += f"{slot:03x}"
        job = Job(queue, body, "", tx.now_ms, due_ms, options, attempts_max)
        job.dedupe = dedupe
        job.caller = caller
        job.since_ms = ready_ms or 0
        if cause is not None:
            job.cause = cause
        elif tx.job:
            job.cause = Effect("job", tx.job)
        if order_key is None or await become_head(tx, id_, job, order_key):
            await self._place(tx, id_, job, new=True)
        tx.add((job_partition(slot), f"{id_}#job"), job)  # its `job_key`
        return id_, job

    async def get(self, tx: Transaction, id_: str) -> Job:
        """The job; raises `NoSuchJob`."""
        admit_id(id_)
        job = await tx.get(job_key(id_), Job)
        if job is None:
            raise NoSuchJob(f"there is no job {id_}", id=id_)
        return job

    async def quarantine(
        self, tx: Transaction, id_: str, queue: str, why: str, gated_by: str | None = None
    ) -> Job:
        """End a job whose record cannot be read: it is listed with the dead letters of its queue,
        with the reason. `queue` counts if the record does not name one; `gated_by` is the limit
        key of which it holds a place, if that is known.

        Others of its order key go on, unless dead jobs block theirs in that queue.
        """
        record = tx.seen.get(job_key(id_))
        left = {} if record is None else _left_of(record.value)
        found = _text(left, "queue") or queue
        options = _left(left, "options")
        order_key = _text(options, "order_key")
        if order_key is None:
            found, order_key = await self._headed_by(tx, id_) or (found, None)
        text = b"" if record is None else record.value[: limits.QUARANTINED_BYTES]
        job = Job(found, text.decode(errors="replace"), "", tx.now_ms)
        limit_key = gated_by or _text(options, "limit_key")
        job.options = JobOptions(order_key=order_key, limit_key=limit_key)
        job.quarantined, job.ended_by, job.reason = True, "", reason_text(why)
        for row in await tx.scan(permit_partition(found), str, skip_damaged=True):
            if row.value == id_:
                tx.delete(row.key)
        job.gated = gated_by is not None or left.get("gated") is True
        await self._leave_gate(tx, job)
        await self._end(tx, id_, job, "dead")
        return job

    async def _headed_by(self, tx: Transaction, id_: str) -> tuple[str, str] | None:
        """The queue and the order key whose head a job is. Looks through all of its slot."""
        partition, start = order_head_key(slot_of(id_), "", "")[0], ""
        while True:
            rows = await tx.scan(partition, Order, start=start, skip_damaged=True)
            for row in rows:
                if row.value.head == id_:
                    queue, order_key = keys.split(row.key[1])
                    return queue, order_key
            if not rows:
                return None
            start = keys.after(rows[-1].key[1])

    async def _next(
        self, tx: Transaction, id_: str, queue: str, gated_by: str | None = None
    ) -> Job | None:
        """A job that is to move on; None if its record cannot be read, and it has ended."""
        try:
            return await self.get(tx, id_)
        except OncewardError as error:
            if error.code != "damaged":
                raise
            why = error.message
        tx.on_durable(lambda: self.on_quarantined(id_, queue, why))
        await self.quarantine(tx, id_, queue, why, gated_by)
        return None

    async def _unlease(self, tx: Transaction, id_: str, job: Job, *, leave: bool = True) -> None:
        # If the lease was renewed, its entry in due may have moved on; that one finds that its
        # token does not count any more, when its time comes.
        tx.delete((due_partition(slot_of(id_)), job.place))
        job.token = ""
        if job.permit is not None:
            give_permit_back(tx, job.queue, job.permit)
            job.permit = None
        if leave:
            await self._leave_gate(tx, job)

    async def _leave_gate(self, tx: Transaction, job: Job) -> None:
        limit_key = job.options.limit_key
        if not job.gated or limit_key is None:
            return
        limit = self.settings(job.queue).limit_per_key
        for next_id in await leave_gate(tx, job, limit_key, limit):
            next_job = await self._next(tx, next_id, job.queue, limit_key)
            if next_job is not None:
                next_job.gated = True
                await self._place(tx, next_id, next_job)
                tx.put(job_key(next_id), next_job)

    def _note(self, tx: Transaction, job: Job, reason: str) -> None:
        job.reason = reason_text(reason)
        over = Attempt(job.attempt, tx.now_ms, job.worker, job.reason)
        job.history = latest([*job.history, over])

    async def _end(
        self, tx: Transaction, id_: str, job: Job, state: str, *, promote: bool = True
    ) -> None:
        settings = self.settings(job.queue)
        job.state, job.place, job.ended_ms = state, "", tx.now_ms
        expires_at_ms = None
        if state in ("dead", "doubt"):
            job.place = keys.join(tx.now_ms, id_)
            tx.add((dead_partition(job.queue), job.place), state)
            promote = promote and not settings.dead_blocks
            if settings.notice and settings.notice != job.queue:
                await self._notify(tx, id_, job, settings.notice)
        else:
            expires_at_ms = _until(tx.now_ms, settings.job_retention_ms)
            if job.stepped:
                tx.delete(steps_key(id_))
            if job.dedupe is not None:
                # Known for as long as the queue says, from the end on: nothing is done twice
                # because it was done late.
                known_until_ms = _until(tx.now_ms, settings.key_retention_ms)
                accepted = Accepted(id_, job.dedupe.fingerprint, state)
                key = (job.dedupe.partition, job.dedupe.sort)
                tx.put(key, accepted, expires_at_ms=known_until_ms)
        tx.put(job_key(id_), job, expires_at_ms=expires_at_ms)
        if promote and job.options.order_key is not None:
            next_id = await next_head(tx, id_, job, job.options.order_key)
            if next_id is not None:
                next_job = await self._next(tx, next_id, job.queue)
                if next_job is not None:
                    await self._place(tx, next_id, next_job, new=next_job.attempt == 0)
                    tx.put(job_key(next_id), next_job)

    async def _notify(self, tx: Transaction, id_: str, job: Job, queue: str) -> None:
        """Tell another queue that a job has died, in the same commit."""
        body = {"id": id_, "queue": job.queue, "state": job.state, "reason": job.reason}
        await self.add(tx, queue, {**body, "attempts": job.attempt})

    async def _withdraw(self, tx: Transaction, id_: str, job: Job) -> None:
        """Take a job's entry away from where it waits, or its lease from a worker."""
        slot = slot_of(id_)
        if job.state == "waiting":
            await leave_line(tx, id_, job, job.options.order_key or "")
        elif job.state == "parked":
            await unpark(tx, job, job.options.limit_key or "")
        elif job.state == "due":
            tx.delete((due_partition(slot), job.place))
        elif job.state == "ready":
            tx.delete((ready_partition(slot, job.queue), job.place))
            await self._leave_gate(tx, job)
        elif job.state == "leased":
            await self._unlease(tx, id_, job)
        else:
            tx.delete((dead_partition(job.queue), job.place))

    async def _place(
        self,
        tx: Transaction,
        id_: str,
        job: Job,
        ready_ms: int | None = None,
        *,
        new: bool = False,
    ) -> None:
        """Let a job wait for its time, or for a worker if that has come.

        It is ready since `since_ms` of the job, else since `ready_ms`, else from now on. One that
        is `new` goes to a worker at hand straight away.
        """
        if job.due_ms > tx.now_ms:
            job.state, job.place = "due", keys.join(job.due_ms, id_, JOB_DUE)
            tx.add((due_partition(slot_of(id_)), job.place), JOB_DUE)
            return
        limit_key = job.options.limit_key
        if limit_key is not None and not job.gated:
            limit = self.settings(job.queue).limit_per_key
            if limit and not await pass_gate(tx, id_, job, limit_key, limit):
                return
        taker = self.taker(tx, job.queue) if new else None
        if taker is not None:
            claim = self._lease(tx, id_, job, taker.worker, taker.lease_ms, local=True)
            # As it is stored: whoever sent it may change his own.
            body = msgspec.json.decode(encode(claim.body, job_key(id_)))
            taker.promise(tx, msgspec.structs.replace(claim, body=body))
            return
        since_ms = job.since_ms or (tx.now_ms if ready_ms is None else ready_ms)
        # What has failed before comes behind what has not, of the same priority: so poison, which
        # is tried again and again, takes only what time the others leave.
        rank = 2 * job.options.priority + (job.attempt > 0)
        if self.turns is not None and self.settings(job.queue).fair:
            since_ms = await self.turns.turn_ms(job.queue, rank, job.caller, tx.now_ms)
        job.state, job.place = "ready", f"{rank:016d}#{since_ms:016d}#{id_}"
        tx.add((ready_partition(slot_of(id_), job.queue), job.place), id_)

    def _lease(
        self, tx: Transaction, id_: str, job: Job, worker: str, lease_ms: int, *, local: bool
    ) -> Claim:
        """Begin an attempt. Whoever calls it writes the job. `local` is a handler here."""
        until_ms = tx.now_ms + lease_ms
        job.state = "leased"
        job.attempt += 1
        job.token = self._ids.token(8)
        if local and self.process:
            job.token += f"~{self.process}"
        job.worker, job.ended_by = worker, ""
        job.place = lease_place(until_ms, id_, job)
        tx.add((due_partition(slot_of(id_)), job.place), LEASE_DUE)
        return Claim(
            id_,
            job.queue,
            job.body,
            job.attempt,
            job.token,
            until_ms,
            job.options,
            job.due_ms,
            job.made_ms,
            job.reason,
            job.stepped,
            job.cut_off and job.attempt == job.attempts_max,
            job.dedupe,
        )


def lease_place(until_ms: int, id_: str, job: Job) -> str:
    """Where a job stands in due while it is leased."""
    # With the token, so that no attempt meets what another one has left behind.
    return f"{until_ms:016d}#{id_}#{job.token}#{LEASE_DUE}"


def _left_of(value: bytes) -> dict[str, Any]:
    """What can be read of a record that is not as it should be."""
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _left(left: dict[str, Any], name: str) -> dict[str, Any]:
    value = left.get(name)
    return value if isinstance(value, dict) else {}


def _text(left: dict[str, Any], name: str) -> str | None:
    value = left.get(name)
    return value if isinstance(value, str) and value else None


def _until(now_ms: int, retention_ms: int | None) -> int | None:
    return None if retention_ms is None else now_ms + retention_ms
