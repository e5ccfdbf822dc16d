"""Transitions of jobs between stages, as functions of a transaction."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal
from zlib import crc32

import msgspec

from onceward import keys, limits
from onceward.api.queues import QueueSettings
from onceward.errors import AlreadyEnded, NoSuchJob, NotFailed, OncewardError, StaleToken
from onceward.ids import Ids
from onceward.job_options import NO_OPTIONS, JobOptions
from onceward.json_values import encode
from onceward.keys import Key
from onceward.reasons import reason_text
from onceward.schedule.children import report, ring
from onceward.schedule.damaged import recovered
from onceward.schedule.failures import OnFailed, send_notice
from onceward.schedule.quota import give_permit_back, take_permit
from onceward.schedule.records import (
    JOB_DUE,
    LEASE_DUE,
    NO_DETAILS,
    OUTPUT_DUE,
    WAITING,
    Accepted,
    Attempt,
    Claim,
    Dedupe,
    Effect,
    ErrorDetails,
    HandedOver,
    Job,
    Lease,
    LocalWorker,
    Parent,
    admit_id,
    admit_job,
    admit_lease,
    admit_queue,
    admit_reason,
    admit_time,
    admit_worker,
    changed,
    due_ms_of,
    due_partition,
    events_key,
    failed_partition,
    job_key,
    job_partition,
    latest,
    lease_key,
    lease_place,
    order_head_key,
    ready_partition,
    slot_of,
    steps_key,
)
from onceward.schedule.settings import Lookup, default_settings, kept_until_ms, retry_pause_ms
from onceward.schedule.waiting import (
    become_head,
    end_merge,
    intends,
    leave_gate,
    leave_line,
    next_head,
    pass_gate,
    unpark,
)
from onceward.store.transaction import Transaction
from onceward.tracing import Trace

UNKNOWN_QUEUE: Final = "damaged"
"""The queue that lists unreadable jobs whose queue is unknown."""
AFTER_PAUSE: Final = "after the pause"
"""Instead of a time for the retry: use the backoff of the queue's settings."""
RetryAt = int | Literal["after the pause"] | None
"""A time in ms, `AFTER_PAUSE`, or None for no retry."""


class Schedule:
    """The schedule of one database. `slots` was chosen when the database was created.

    It only reads and writes records. The processes of a node replace the functions below to provide
    further information; the defaults work without them.
    """

    admit: Callable[[Transaction, str], None] = staticmethod(lambda tx, queue: None)
    """Raises `QueueFull` for a queue that has reached its depth limit."""
    turn_ms: Callable[[str, int, str, int], Awaitable[int]] | None = None
    """The turn of a sender's next job among the ready jobs, by queue, rank, sender and time. If
    None, jobs are ordered by time even in queues with the setting `fair`."""
    local_worker: Callable[[Transaction, str, int], LocalWorker | None] = staticmethod(
        lambda tx, queue, slot: None
    )
    """Reserves a free handler of this process for a new job of a queue and slot. The commit that
    adds the job then leases it, which saves a commit. The reservation ends with the transaction,
    whose notes hold the claim (`HandedOver`)."""
    on_quarantined: Callable[[str, str, str], None] = staticmethod(lambda id_, queue, why: None)
    """Called with the id, queue and reason of each job that a durable commit has quarantined."""
    process = ""
    """Marks leases of handlers of this process, on a single-process database."""

    def __init__(
        self,
        ids: Ids,
        slots: int = limits.SLOTS_DEFAULT,
        settings: Lookup = default_settings,
    ) -> None:
        self.slots = slots
        self.settings = settings
        self._ids = ids
        self.on_failed: dict[str, OnFailed] = {}

    async def send(
        self,
        tx: Transaction,
        queue: str,
        body: Any,
        options: JobOptions = NO_OPTIONS,
        *,
        due_ms: int = 0,
    ) -> str:
        """Add a job that is ready now or due later; returns its id. Raises `BadInput`."""
        admit_queue(queue)
        self.admit(tx, queue)
        id_, _ = await self.add(tx, queue, body, options, due_ms=due_ms)
        return id_

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
        trace: Trace | None = None,
        parent: Parent | None = None,
        settings: QueueSettings | None = None,
        merge: str = "",
    ) -> tuple[str, Job]:
        """Add a job; returns its id and record. Unlike `send`, it can set the dedupe key, the
        caller, the cause, and an earlier time from which the job counts as ready."""
        admit_job(queue, body, options, due_ms)
        order_key, attempts_max = options.order_key, options.attempts_max
        if attempts_max is None:
            attempts_max = (settings or self.settings(queue)).attempts_max
        id_ = self._ids.new(tx.now_ms)
        spread = id_ if order_key is None else keys.join(queue, order_key)
        slot = crc32(spread.encode()) % self.slots
        id_ += f"{slot:03x}"
        job = Job(queue, body, "", tx.now_ms, due_ms, options, attempts_max)
        job.dedupe = dedupe
        job.caller = caller
        job.trace = trace
        job.since_ms = ready_ms or 0
        job.parent, job.merge = parent, merge
        if cause is not None:
            job.cause = cause
        elif tx.job:
            job.cause = Effect("job", tx.job)
        if order_key is None or await become_head(tx, id_, job, order_key):
            await self._place(tx, id_, job, new=True)
        tx.add((job_partition(slot), f"{id_}#job"), job)  # equals `job_key(id_)`
        return id_, job

    async def get(self, tx: Transaction, id_: str) -> Job:
        """Return the job. Raises `NoSuchJob`."""
        admit_id(id_)
        job = await tx.get(job_key(id_), Job)
        if job is None:
            raise NoSuchJob(f"job {id_} not found; check its id", id=id_)
        return job

    async def quarantine(
        self, tx: Transaction, id_: str, queue: str, why: str, gated_by: str | None = None
    ) -> Job:
        """Fail a job whose record cannot be read, and list it in its dead-letter queue with the
        reason.

        `queue` is used if the record does not name one. `gated_by` is the limit key whose capacity
        the job occupies, if known. Later jobs of its order key continue, unless the queue's setting
        `failed_blocks` is on.
        """
        job = await recovered(tx, id_, queue, gated_by, self.slots)
        job.reason = reason_text(why)
        await self._leave_gate(tx, job)
        await self._end(tx, id_, job, "failed")
        return job

    async def promote(self, tx: Transaction, entry: Key) -> None:
        """Make a due job ready. Does nothing if the entry is outdated."""
        id_ = entry[1].split("#")[1]
        job = await tx.get(job_key(id_), Job)
        if job is None or job.stage not in ("due", "waiting") or job.place != entry[1]:
            tx.delete(entry)
        elif job.due_ms <= tx.now_ms:
            tx.delete(entry)
            job.waits = ""
            await self._place(tx, id_, job, job.due_ms, new=job.attempt == 0)
            tx.put(job_key(id_), job)

    async def quarantine_entry(self, tx: Transaction, entry: Key) -> tuple[str, str, str] | None:
        """Quarantine the job of an entry in ready or due if its record cannot be read.

        Returns its id, queue and reason, or None if the record is readable or the entry is gone.
        """
        if not await tx.has(entry):
            return None
        kind, _, rest = entry[0].partition("#")
        id_ = entry[1].rpartition("#")[2] if kind == "ready" else entry[1].split("#")[1]
        queue = rest[5:] if kind == "ready" else UNKNOWN_QUEUE
        try:
            await tx.get(job_key(id_), Job)
            return None
        except NoSuchJob as error:
            tx.delete(entry)  # the entry contains no job id
            return "", queue, error.message
        except OncewardError as error:
            if error.code != "damaged":
                raise
            tx.delete(entry)
            job = await self.quarantine(tx, id_, queue, error.message)
            return id_, job.queue, error.message

    def read_to_promote(self, entry: Key) -> list[Key]:
        return [job_key(entry[1].split("#")[1])]

    async def claim(
        self,
        tx: Transaction,
        entry: Key,
        worker: str,
        lease_ms: int,
        permit: int | None = None,
        *,
        local: bool = False,
    ) -> Claim | None:
        """Lease a ready job to a worker; None if the entry is outdated. `local` marks a handler of
        this process.

        The caller gets a `quota` first, passes a permit from it in limited queues, and calls
        `spend` for all claimed jobs.
        """
        admit_worker(worker)
        admit_lease(lease_ms)
        if not await tx.has(entry):
            return None
        id_ = entry[1].rpartition("#")[2]
        job = await tx.get(job_key(id_), Job)
        tx.delete(entry)
        if job is None or job.stage != "ready" or job.place != entry[1]:
            return None
        if permit is not None:
            job.permit = permit
            take_permit(tx, job.queue, permit, id_)
        claim = self._lease(tx, id_, job, worker, lease_ms, local=local)
        tx.put(job_key(id_), job)
        return claim

    async def extend(self, tx: Transaction, id_: str, token: str, lease_ms: int) -> int:
        """Renew a lease from now on; returns its end. Raises `StaleToken`, `NoSuchJob`.

        A lease is never shortened. The entry in due stays in place, and moves to the new end when
        its time comes.
        """
        admit_lease(lease_ms)
        job = await self.held(tx, id_, token)
        now_until_ms = await self._leased_until_ms(tx, id_, job)
        until_ms = max(now_until_ms, tx.now_ms + lease_ms)
        if until_ms > now_until_ms:
            tx.put(lease_key(id_), Lease(token, until_ms), expires_at_ms=until_ms)
        return until_ms

    async def complete(
        self,
        tx: Transaction,
        id_: str,
        token: str,
        result: Any = None,
        effects: list[Effect] | None = None,
    ) -> None:
        """Complete a job in the same commit as its effects. Raises `StaleToken`, `NoSuchJob`.

        Not idempotent: a second call raises, so that the effects happen only once.
        """
        job = await self.held(tx, id_, token)
        await self._unlease(tx, id_, job)
        job.result, job.ended_by, job.effects = result, token, effects or []
        await self._end(tx, id_, job, "succeeded")

    def read_to_complete(self, claim: Claim) -> list[Key]:
        order_key = claim.options.order_key
        if order_key is None:
            return [job_key(claim.id)]
        head_key = order_head_key(slot_of(claim.id), claim.queue, order_key)
        return [job_key(claim.id), head_key]

    async def fail(
        self,
        tx: Transaction,
        id_: str,
        token: str,
        reason: str,
        retry_ms: RetryAt = AFTER_PAUSE,
        *,
        not_before_ms: int = 0,
        details: ErrorDetails = NO_DETAILS,
    ) -> str:
        """End an attempt with a failure; returns the job's new state.

        The job is due again at `retry_ms` or, by default, after the queue's backoff, but not
        earlier than `not_before_ms`. It fails permanently if `retry_ms` is None or no attempts are
        left. If an at-most-once step of it was interrupted, it is in doubt instead. Raises
        `StaleToken`, `NoSuchJob`.
        """
        admit_reason(reason)
        for time_ms in (retry_ms, not_before_ms):
            if time_ms is not None and time_ms != AFTER_PAUSE:
                admit_time(time_ms)
        job = await self.held(tx, id_, token)
        job.cut_off, job.ended_by = False, token
        await self._unlease(tx, id_, job)
        self._note(tx, job, reason, details)
        await self._attempt_over(tx, id_, job, retry_ms, not_before_ms)
        return job.state

    async def release(
        self, tx: Transaction, id_: str, token: str, due_ms: int = 0, waits: str = ""
    ) -> None:
        """Return a running job to the schedule. The attempt does not count.

        It is due now, at a time, or, if it `waits` for something, when `wake` is called.
        Raises `StaleToken`, `NoSuchJob`.
        """
        admit_time(due_ms)
        job = await self.held(tx, id_, token)
        waits = "" if 0 < due_ms <= tx.now_ms else waits  # its time limit may have passed
        await self._unlease(tx, id_, job, leave=bool(waits) or due_ms > tx.now_ms)
        job.end_run(tx.now_ms, waits or ("time" if due_ms > tx.now_ms else ""))
        job.attempt, job.uncounted = job.attempt - 1, job.uncounted + 1
        job.waits = waits
        job.due_ms = max(job.due_ms, due_ms or (limits.KEY_NUMBER_MAX if waits else 0))
        await self._place(tx, id_, job)
        tx.put(job_key(id_), job)

    async def wake(self, tx: Transaction, id_: str, job: Job) -> None:
        """Continue a job that waits for something."""
        await self._withdraw(tx, id_, job)
        job.waits, job.due_ms = "", tx.now_ms
        await self._place(tx, id_, job)
        tx.put(job_key(id_), job)

    async def hold(
        self, tx: Transaction, id_: str, token: str, reason: str, details: ErrorDetails = NO_DETAILS
    ) -> None:
        """End an attempt whose outcome is unknown: the job stays in doubt until an operator settles
        it. Raises `StaleToken`, `NoSuchJob`."""
        job = await self.held(tx, id_, token)
        await self._unlease(tx, id_, job)
        self._note(tx, job, reason, details)
        await self._end(tx, id_, job, "in_doubt")

    async def cancel(
        self, tx: Transaction, id_: str, reason: str = "cancelled", *, by: str = ""
    ) -> None:
        """Cancel a job that has not succeeded, including failed ones. The worker of a running job
        can then not complete it. `by` is the caller. Idempotent. Raises `NoSuchJob`,
        `AlreadyEnded`."""
        admit_reason(reason)
        job = await self.get(tx, id_)
        if job.stage == "cancelled":
            return
        if job.stage == "succeeded":
            raise AlreadyEnded(f"job {id_} has succeeded; send a new one", id=id_, state=job.state)
        was_in_line = job.stage == "blocked"
        await self._withdraw(tx, id_, job)
        job.reason = reason_text(reason)
        job.changes = changed(job, tx.now_ms, "cancelled", by)
        await self._end(tx, id_, job, "cancelled", promote=not was_in_line)

    async def move(self, tx: Transaction, id_: str, due_ms: int) -> None:
        """Change the time of a waiting job. Raises `NoSuchJob`, or `AlreadyEnded` if it has ended
        or is running."""
        admit_time(due_ms)
        job = await self.get(tx, id_)
        if job.stage not in WAITING:
            raise AlreadyEnded(
                f"job {id_} cannot be moved: it is {job.state}; send it again",
                id=id_,
                state=job.state,
            )
        await self.reschedule(tx, id_, job, due_ms)

    async def reschedule(self, tx: Transaction, id_: str, job: Job, due_ms: int) -> None:
        """Change the time of a waiting job, and write it."""
        job.due_ms = due_ms
        if job.stage != "blocked":  # otherwise it applies when the job becomes the head of its key
            await self._withdraw(tx, id_, job)
            await self._place(tx, id_, job)
        tx.put(job_key(id_), job)

    async def retry(self, tx: Transaction, id_: str, key: str = "", *, by: str | None = "") -> None:
        """Retry a failed job from its first attempt, behind all other jobs of its order key. The
        same key twice in a row retries it once. `by` is the caller; None if it is recorded
        otherwise. Raises `NoSuchJob`, `NotFailed`."""
        job = await self.get(tx, id_)
        if key and job.retry_key == key:
            return
        if job.stage not in ("failed", "in_doubt"):
            raise NotFailed(f"job {id_} is {job.state}; retry failed jobs", id=id_, state=job.state)
        if job.quarantined:
            raise NotFailed(
                f"job {id_} cannot be retried because its record is unreadable. Send the message "
                "again, and cancel this job.",
                id=id_,
                state=job.state,
            )
        tx.delete((failed_partition(job.queue), job.place))
        job.uncounted += job.attempt
        job.attempt, job.due_ms, job.ended_ms, job.cut_off = 0, 0, 0, False
        job.retry_key = key
        if by is not None:
            job.changes = changed(job, tx.now_ms, "retried", by)
        order_key = job.options.order_key
        if order_key is None or await become_head(tx, id_, job, order_key):
            await self._place(tx, id_, job)
        tx.put(job_key(id_), job)

    async def expire(self, tx: Transaction, entry: Key) -> None:
        """End an attempt whose lease expired, or move the entry to the end of the renewed lease."""
        _, id_, token, _ = entry[1].split("#")
        if not await tx.has(entry):
            return  # another owner of the slot has already moved it
        job = await tx.get(job_key(id_), Job)
        if job is None or job.token != token:
            tx.delete(entry)  # left from an earlier attempt
            return
        until_ms = await self._leased_until_ms(tx, id_, job)
        if until_ms > tx.now_ms:
            later = (entry[0], lease_place(until_ms, id_, job))
            if later != entry:
                tx.delete(entry)
                tx.add(later, LEASE_DUE)
            return
        await self._cut_off(tx, entry, id_, job, f"the lease of {job.worker} ran out")

    def is_former(self, entry: Key) -> bool:
        """Whether a due entry is a lease of a handler of an earlier process."""
        *_, token, kind = entry[1].split("#")
        _, mark, process = token.partition("~")
        return kind == LEASE_DUE and bool(mark) and process != self.process

    async def abandon(self, tx: Transaction, entry: Key) -> None:
        """End an attempt whose process has ended, without waiting for its lease. Idempotent."""
        _, id_, token, _ = entry[1].split("#")
        job = await tx.get(job_key(id_), Job) if await tx.has(entry) else None
        if job is not None and job.token == token:
            await self._cut_off(tx, entry, id_, job, f"the process of {job.worker} ended")

    async def _cut_off(self, tx: Transaction, entry: Key, id_: str, job: Job, reason: str) -> None:
        tx.delete(entry)
        await self._unlease(tx, id_, job)
        job.cut_off = True
        # Without a backoff: the lease has already passed, or the worker is known to be gone.
        self._note(tx, job, reason)
        await self._attempt_over(tx, id_, job, tx.now_ms)

    def read_to_expire(self, entry: Key) -> list[Key]:
        id_ = entry[1].split("#")[1]
        return [entry, job_key(id_), lease_key(id_)]

    async def held(self, tx: Transaction, id_: str, token: str) -> Job:
        """Return the job if `token` is that of its current attempt. Raises `StaleToken`,
        `NoSuchJob`."""
        job = await self.get(tx, id_)
        if job.stage != "running" or job.token != token:
            raise StaleToken(
                f"this token no longer owns job {id_}: the job is {job.state}. Stop this attempt",
                id=id_,
                state=job.state,
            )
        return job

    async def _leased_until_ms(self, tx: Transaction, id_: str, job: Job) -> int:
        lease = await tx.get(lease_key(id_), Lease)
        if lease is not None and lease.token == job.token:
            return lease.until_ms
        return due_ms_of(job.place)

    async def _attempt_over(
        self, tx: Transaction, id_: str, job: Job, retry_ms: RetryAt, not_before_ms: int = 0
    ) -> None:
        if retry_ms is None:
            await self._end(tx, id_, job, "failed")
            return
        if job.attempts_max and job.attempt >= job.attempts_max:
            # No later attempt would detect a started step without a result.
            await self._end(tx, id_, job, "in_doubt" if await intends(tx, id_, job) else "failed")
            return
        if retry_ms == AFTER_PAUSE:
            settings, fraction = self.settings(job.queue), self._ids.fraction()
            retry_ms = tx.now_ms + retry_pause_ms(settings, job.attempt, fraction)
        job.due_ms = max(retry_ms, not_before_ms)
        await self._place(tx, id_, job)
        tx.put(job_key(id_), job)

    async def _next(
        self, tx: Transaction, id_: str, queue: str, gated_by: str | None = None
    ) -> Job | None:
        """The next job to place; None if its record is unreadable, and it was quarantined."""
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
        # A renewed lease may have another entry in due. That one is deleted at its time, because
        # its token is outdated.
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

    def _note(
        self, tx: Transaction, job: Job, reason: str, details: ErrorDetails = NO_DETAILS
    ) -> None:
        job.end_run(tx.now_ms, "failed")
        job.reason = reason_text(reason)
        over = Attempt(job.attempt, tx.now_ms, job.worker, job.reason, *details)
        job.history = latest([*job.history, over])

    async def _end(
        self, tx: Transaction, id_: str, job: Job, stage: str, *, promote: bool = True
    ) -> None:
        settings = self.settings(job.queue)
        job.stage, job.place, job.waits, job.ended_ms = stage, "", "", tx.now_ms
        expires_at_ms = None
        if stage in ("failed", "in_doubt"):
            job.place = keys.join(tx.now_ms, id_)
            tx.add((failed_partition(job.queue), job.place), stage)
            promote = promote and not settings.failed_blocks
            if settings.failure_queue and settings.failure_queue != job.queue:
                await send_notice(self.add, tx, id_, job, settings.failure_queue)
            if job.queue in self.on_failed:
                await self.on_failed[job.queue](tx, id_, job)
        else:
            kept_ms = settings.job_retention_ms
            if job.merge:
                kept_ms = await end_merge(tx, id_, job, settings)
            expires_at_ms = kept_until_ms(tx.now_ms, kept_ms)
            if job.stepped:
                tx.delete(steps_key(id_))
            if job.evented:
                tx.delete(events_key(id_))
            if job.output and expires_at_ms is not None:
                sort = keys.join(expires_at_ms, id_, OUTPUT_DUE)
                tx.put((due_partition(slot_of(id_)), sort), OUTPUT_DUE)
            if job.dedupe is not None:
                # Key retention starts at the end of the job, so that late jobs are deduplicated as
                # well.
                known_until_ms = kept_until_ms(tx.now_ms, settings.key_retention_ms)
                accepted = Accepted(id_, job.dedupe.fingerprint, stage)
                key = (job.dedupe.partition, job.dedupe.sort)
                tx.put(key, accepted, expires_at_ms=known_until_ms)
        tx.put(job_key(id_), job, expires_at_ms=expires_at_ms)
        if job.parent is not None:
            report(tx, id_, job, job.parent)
        if job.families:
            ring(tx, id_)
        if promote and job.options.order_key is not None:
            next_id = await next_head(tx, id_, job, job.options.order_key)
            if next_id is not None:
                next_job = await self._next(tx, next_id, job.queue)
                if next_job is not None:
                    await self._place(tx, next_id, next_job, new=next_job.attempt == 0)
                    tx.put(job_key(next_id), next_job)

    async def _withdraw(self, tx: Transaction, id_: str, job: Job) -> None:
        """Remove a job's entry from its place in the schedule, or its lease."""
        slot = slot_of(id_)
        if job.stage == "blocked":
            await leave_line(tx, id_, job, job.options.order_key or "")
        elif job.stage == "parked":
            await unpark(tx, job, job.options.limit_key or "")
        elif job.stage in ("due", "waiting"):
            tx.delete((due_partition(slot), job.place))
        elif job.stage == "ready":
            tx.delete((ready_partition(slot, job.queue), job.place))
            await self._leave_gate(tx, job)
        elif job.stage == "running":
            await self._unlease(tx, id_, job)
        else:
            tx.delete((failed_partition(job.queue), job.place))

    async def _place(
        self,
        tx: Transaction,
        id_: str,
        job: Job,
        ready_ms: int | None = None,
        *,
        new: bool = False,
    ) -> None:
        """Add an entry for a job: in due if its time is in the future, else in ready or parked.

        It counts as ready since the job's `since_ms`, else since `ready_ms`, else since now. A
        `new` job goes directly to a free local worker.
        """
        if job.due_ms > tx.now_ms:
            job.stage = "waiting" if job.waits else "due"
            job.place = keys.join(job.due_ms, id_, JOB_DUE)
            tx.add((due_partition(slot_of(id_)), job.place), JOB_DUE)
            return
        limit_key = job.options.limit_key
        if limit_key is not None and not job.gated:
            limit = self.settings(job.queue).limit_per_key
            if limit and not await pass_gate(tx, id_, job, limit_key, limit):
                return
        worker = self.local_worker(tx, job.queue, slot_of(id_)) if new else None
        if worker is not None:
            claim = self._lease(tx, id_, job, worker.name, worker.lease_ms, local=True)
            # The stored form: the sender may change its own copy.
            body = msgspec.json.decode(encode(claim.body, job_key(id_)))
            tx.notes.append(HandedOver(worker, msgspec.structs.replace(claim, body=body)))
            return
        since_ms = job.since_ms or (tx.now_ms if ready_ms is None else ready_ms)
        # Retries rank behind first attempts of the same priority, so poison jobs cannot starve
        # healthy ones.
        rank = 2 * job.options.priority + (job.attempt > 0)
        if self.turn_ms is not None and self.settings(job.queue).fair:
            since_ms = await self.turn_ms(job.queue, rank, job.caller, tx.now_ms)
        job.stage, job.place = "ready", f"{rank:016d}#{since_ms:016d}#{id_}"
        tx.add((ready_partition(slot_of(id_), job.queue), job.place), id_)

    def _lease(
        self, tx: Transaction, id_: str, job: Job, worker: str, lease_ms: int, *, local: bool
    ) -> Claim:
        """Start an attempt. The caller writes the job. `local` marks a handler of this process."""
        until_ms = tx.now_ms + lease_ms
        job.stage = "running"
        job.attempt += 1
        job.started_ms = tx.now_ms
        job.token = self._ids.token(8)
        if local and self.process:
            job.token += f"~{self.process}"
        job.worker, job.ended_by = worker, ""
        job.place = lease_place(until_ms, id_, job)
        tx.add((due_partition(slot_of(id_)), job.place), LEASE_DUE)
        if local and tx.keeps:
            tx.keep(job_key(id_))  # until its end
        return Claim(
            id_,
            job.queue,
            job.body,
            job.attempt,
            job.token,
            until_ms,
            job.options,
            job.due_ms,
            job.created_ms,
            job.reason,
            job.stepped,
            job.cut_off and job.attempt == job.attempts_max,
            job.dedupe,
            job.attempts_max,
            job.caller,
            job.trace,
            job.attempt + job.uncounted,
            job.parent is not None or job.families or job.evented or job.output,
        )
