"""What can happen to a job. Every function takes a transaction."""

from typing import Any
from zlib import crc32

from onceward import keys, limits
from onceward.errors import NoSuchJob, StaleToken
from onceward.ids import Ids
from onceward.keys import Key
from onceward.parts.schedule.records import (
    JOB_DUE,
    LEASE_DUE,
    PRIORITY_DEFAULT,
    Claim,
    Job,
    Lease,
    Order,
    admit_job,
    admit_lease,
    admit_time,
    admit_worker,
    due_ms_of,
    due_partition,
    job_key,
    lease_key,
    line_partition,
    order_head_key,
    ready_partition,
    slot_of,
)
from onceward.transaction import Transaction

# How many writes of a commit each transition takes at the most, reads that are checked
# included. To promote: the entry goes, the job and its ready entry are written. To claim:
# likewise, with an entry in due. To expire: the entry, the job's own entry if the lease was
# renewed, the lease, the job; and if that is dead, the head of its order key, the place in
# line of the next, that job and its entry.
PROMOTE_WRITES = 3
CLAIM_WRITES = 3
EXPIRE_WRITES = 8


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
        """Add a job, ready at once or due later; returns its id. Raises `BadInput`."""
        admit_job(queue, body, due_ms, order_key, priority, attempts_max)
        id_ = self._ids.new()
        spread = id_ if order_key is None else keys.join(queue, order_key)
        slot = crc32(spread.encode()) % self.slots
        id_ += f"{slot:03x}"
        job = Job(queue, body, "", tx.now_ms, due_ms, priority, order_key, attempts_max)
        if order_key is None or await self._is_head(tx, id_, job, order_key):
            self._place(tx, id_, job)
        tx.add(job_key(id_), job)
        return id_

    async def _is_head(self, tx: Transaction, id_: str, job: Job, order_key: str) -> bool:
        """Whether a new job is the first of its order key; if not, it joins the line."""
        head_key = order_head_key(slot_of(id_), job.queue, order_key)
        order = await tx.get(head_key, Order)
        if order is None:
            tx.put(head_key, Order(id_))
            return True
        job.state, job.place = "waiting", keys.number(order.next)
        tx.add((line_partition(slot_of(id_), job.queue, order_key), job.place), id_)
        order.next += 1
        order.waiting += 1
        tx.put(head_key, order)
        return False

    async def get(self, tx: Transaction, id_: str) -> Job:
        """The job; raises `NoSuchJob`."""
        job = await tx.get(job_key(id_), Job)
        if job is None:
            raise NoSuchJob(f"there is no job {id_}", id=id_)
        return job

    async def promote(self, tx: Transaction, entry: Key) -> None:
        """Make a job whose time has come ready. Does nothing if it is not due there any more."""
        id_ = entry[1].split("#")[1]
        job = await tx.get(job_key(id_), Job)
        if job is None or job.state != "due" or job.place != entry[1]:
            tx.delete(entry)
        elif job.due_ms <= tx.now_ms:
            tx.delete(entry)
            self._place(tx, id_, job)
            tx.put(job_key(id_), job)

    def read_to_promote(self, entry: Key) -> list[Key]:
        return [job_key(entry[1].split("#")[1])]

    async def claim(self, tx: Transaction, entry: Key, worker: str, lease_ms: int) -> Claim | None:
        """Lease a ready job to a worker; None if it is not ready there any more."""
        admit_worker(worker)
        admit_lease(lease_ms)
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
        job.worker = worker
        job.place = _lease_place(until_ms, id_, job)
        tx.put(job_key(id_), job)
        tx.add((due_partition(slot_of(id_)), job.place), LEASE_DUE)
        return Claim(id_, job.queue, job.body, job.attempt, job.token, until_ms, job.order_key)

    async def extend(self, tx: Transaction, id_: str, token: str, lease_ms: int) -> int:
        """Renew a lease from now on; returns until when. Raises `StaleToken`, `NoSuchJob`.

        It is never made shorter. The entry in due stays where it is: when its time comes,
        it moves on to the new end.
        """
        admit_lease(lease_ms)
        job = await self._held(tx, id_, token)
        now_until_ms = await self._leased_until_ms(tx, id_, job)
        until_ms = max(now_until_ms, tx.now_ms + lease_ms)
        if until_ms > now_until_ms:
            tx.put(lease_key(id_), Lease(token, until_ms), expires_at_ms=until_ms)
        return until_ms

    async def complete(self, tx: Transaction, id_: str, token: str) -> None:
        """End a job well, in the same commit as its effects. Raises `StaleToken`, `NoSuchJob`.

        Twice is an error, so that the effects cannot happen twice.
        """
        job = await self._held(tx, id_, token)
        self._unlease(tx, id_, job)
        await self._end(tx, id_, job, "done")

    async def fail(
        self, tx: Transaction, id_: str, token: str, reason: str, retry_ms: int | None
    ) -> str:
        """End an attempt badly: the job is due again at `retry_ms`, or dead if that is None
        or its attempts are used up. Returns its new state. Raises `StaleToken`, `NoSuchJob`."""
        if retry_ms is not None:
            admit_time(retry_ms)
        job = await self._held(tx, id_, token)
        self._unlease(tx, id_, job)
        await self._attempt_over(tx, id_, job, reason, retry_ms)
        return job.state

    async def release(self, tx: Transaction, id_: str, token: str) -> None:
        """Give a job back on which nobody has worked: the attempt does not count.

        Raises `StaleToken`, `NoSuchJob`.
        """
        job = await self._held(tx, id_, token)
        self._unlease(tx, id_, job)
        job.attempt -= 1
        self._place(tx, id_, job)
        tx.put(job_key(id_), job)

    async def expire(self, tx: Transaction, entry: Key) -> None:
        """End an attempt whose lease ran out; or move the entry to where the lease now ends."""
        _, id_, token, _ = entry[1].split("#")
        job = await tx.get(job_key(id_), Job)
        if job is None or job.token != token:
            tx.delete(entry)  # left over from an attempt that has ended
            return
        until_ms = await self._leased_until_ms(tx, id_, job)
        if until_ms > tx.now_ms:
            later = (entry[0], _lease_place(until_ms, id_, job))
            if later != entry:
                tx.delete(entry)
                tx.add(later, LEASE_DUE)
            return
        tx.delete(entry)
        self._unlease(tx, id_, job)
        reason = f"the lease of {job.worker} ran out"
        await self._attempt_over(tx, id_, job, reason, tx.now_ms)

    def read_to_expire(self, entry: Key) -> list[Key]:
        id_ = entry[1].split("#")[1]
        return [job_key(id_), lease_key(id_)]

    async def _held(self, tx: Transaction, id_: str, token: str) -> Job:
        job = await self.get(tx, id_)
        if job.state != "leased" or job.token != token:
            raise StaleToken(
                f"job {id_} is not held by this token any more: it is {job.state}",
                id=id_,
                state=job.state,
            )
        return job

    async def _leased_until_ms(self, tx: Transaction, id_: str, job: Job) -> int:
        lease = await tx.get(lease_key(id_), Lease)
        if lease is not None and lease.token == job.token:
            return lease.until_ms
        return due_ms_of(job.place)

    def _unlease(self, tx: Transaction, id_: str, job: Job) -> None:
        # If the lease was renewed, its entry in due may have moved on; that one finds that its
        # token does not count any more, when its time comes.
        tx.delete((due_partition(slot_of(id_)), job.place))
        job.token = ""

    async def _attempt_over(
        self, tx: Transaction, id_: str, job: Job, reason: str, retry_ms: int | None
    ) -> None:
        job.reason = reason[: limits.REASON_CHARS_MAX]
        if retry_ms is None or (job.attempts_max and job.attempt >= job.attempts_max):
            await self._end(tx, id_, job, "dead")
        else:
            job.due_ms = retry_ms
            self._place(tx, id_, job)
            tx.put(job_key(id_), job)

    async def _end(self, tx: Transaction, id_: str, job: Job, state: str) -> None:
        job.state, job.place = state, ""
        expires_at_ms = tx.now_ms + limits.JOB_RETENTION_MS if state == "done" else None
        tx.put(job_key(id_), job, expires_at_ms=expires_at_ms)
        if job.order_key is not None:
            await self._promote_next(tx, id_, job.queue, job.order_key)

    async def _promote_next(self, tx: Transaction, id_: str, queue: str, order_key: str) -> None:
        slot = slot_of(id_)
        head_key = order_head_key(slot, queue, order_key)
        order = await tx.get(head_key, Order)
        if order is None or order.head != id_:
            return
        if not order.waiting:
            tx.delete(head_key)
            return
        # The head record is checked, and whoever joins the line writes it: so this is the first.
        [(entry, next_id)] = await tx.scan(line_partition(slot, queue, order_key), str, limit=1)
        tx.delete(entry)
        order.head = next_id
        order.waiting -= 1
        tx.put(head_key, order)
        job = await self.get(tx, next_id)
        self._place(tx, next_id, job)
        tx.put(job_key(next_id), job)

    def _place(self, tx: Transaction, id_: str, job: Job) -> None:
        """Let a job wait for its time, or for a worker if that has come."""
        if job.due_ms > tx.now_ms:
            job.state, job.place = "due", keys.join(job.due_ms, id_, JOB_DUE)
            tx.add((due_partition(slot_of(id_)), job.place), JOB_DUE)
        else:
            job.state, job.place = "ready", keys.join(job.priority, tx.now_ms, id_)
            tx.add((ready_partition(slot_of(id_), job.queue), job.place), id_)


def _lease_place(until_ms: int, id_: str, job: Job) -> str:
    # With the token, so that no attempt meets what another one has left behind.
    return keys.join(until_ms, id_, job.token, LEASE_DUE)
