"""Queue settings, dead letters and bulk changes, as functions of a transaction.

The schedule handles single jobs. Each function here handles the jobs that fit into one commit, and
returns where to continue.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from onceward import keys, limits
from onceward.errors import BadInput, OncewardError
from onceward.schedule import (
    WAITING,
    Job,
    QueueSettings,
    Schedule,
    admit_queue,
    admit_settings,
    failed_partition,
    job_key,
    job_partition,
    settings_key,
)
from onceward.store.transaction import Transaction

# The maximum number of writes to end one job; a page ends when fewer are left.
_END_WRITES = 20
_PAGE = 100


class FailedJob(msgspec.Struct, frozen=True):
    """A failed job, or a job in doubt."""

    id: str
    job: Job
    place: str
    """The cursor of this job."""


class Page(msgspec.Struct, frozen=True):
    """The result of one commit of a bulk operation, and where the next one starts."""

    done: int
    next: str | None
    """None after the last page."""
    in_doubt: int = 0
    """The number of jobs with steps in doubt."""


async def configure(tx: Transaction, queue: str, **changes: Any) -> QueueSettings:
    """Change some settings of a queue and keep the others. Raises `BadInput`."""
    admit_queue(queue)
    before = await tx.get(settings_key(queue), QueueSettings) or QueueSettings()
    after_ = changed(queue, before, changes)
    if after_ != before:
        tx.put(settings_key(queue), after_)
    return after_


def changed(queue: str, before: QueueSettings, changes: dict[str, Any]) -> QueueSettings:
    """Settings with some changes. Raises `BadInput`."""
    try:
        plain = msgspec.to_builtins(msgspec.structs.replace(before, **changes))
        after_ = msgspec.convert(plain, QueueSettings)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError) as error:
        raise BadInput(
            f"invalid settings for the queue {queue!r}: {error}; correct them in app.queue(…)"
        ) from error
    admit_settings(after_)
    if after_.failure_queue:
        admit_queue(after_.failure_queue)
    return after_


async def failed_jobs(
    tx: Transaction, queue: str, *, after: str = "", limit: int = _PAGE
) -> list[FailedJob]:
    """The failed jobs of a queue, the oldest failure first."""
    admit_queue(queue)
    start = keys.after(after) if after else ""
    sorts = await tx.sorts(failed_partition(queue), limit, start)
    ids = [sort.split("#")[1] for sort in sorts]
    for first in range(0, len(ids), limits.GET_KEYS_MAX):
        await tx.fetch([job_key(id_) for id_ in ids[first : first + limits.GET_KEYS_MAX]])
    jobs = [await _failed(tx, queue, id_) for id_ in ids]
    return [
        FailedJob(id_, job, sort)
        for sort, id_, job in zip(sorts, ids, jobs, strict=True)
        if job is not None
    ]


async def _failed(tx: Transaction, queue: str, id_: str) -> Job | None:
    try:
        return await tx.get(job_key(id_), Job)
    except OncewardError as error:
        if error.code != "damaged":
            raise
        return Job(queue, None, "failed", 0, reason=error.message, quarantined=True)


async def redrive(
    tx: Transaction,
    schedule: Schedule,
    queue: str,
    *,
    start: str = "",
    before_ms: int = limits.KEY_NUMBER_MAX,
    chosen: Callable[[Job], bool] = lambda job: True,
    by: str = "",
) -> Page:
    """Retry failed jobs of a queue that failed before `before_ms`, up to the size of a commit."""
    admit_queue(queue)
    end = keys.number(before_ms)
    rows = await tx.scan(failed_partition(queue), str, start=start, end=end, limit=_PAGE)
    redriven = held = 0
    for row in rows:
        if tx.size > limits.COMMIT_WRITES_MAX - _END_WRITES:
            return Page(redriven, row.key[1], held)
        id_ = row.key[1].split("#")[1]
        job = await _failed(tx, queue, id_)
        # Another transaction may have moved it since the scan.
        movable = job is not None and job.place == row.key[1] and not job.quarantined
        if job is not None and movable and chosen(job):
            await schedule.retry(tx, id_, by=by)
            redriven += 1
            held += job.stage == "in_doubt"
    return Page(redriven, keys.after(rows[-1].key[1]) if len(rows) == _PAGE else None, held)


async def purge(
    tx: Transaction, schedule: Schedule, queue: str, *, start: str = "", by: str = ""
) -> Page:
    """Cancel waiting jobs of a queue, up to the size of a commit. Running jobs continue. Scans the
    jobs of all queues, slot by slot."""
    admit_queue(queue)
    slot_text, _, sort = start.partition("/")
    slot = int(slot_text or 0)
    partition = job_partition(slot)
    rows = await tx.scan(partition, start=sort, limit=_PAGE, skip_damaged=True)
    purged = 0
    for row in rows:
        if tx.size > limits.COMMIT_WRITES_MAX - _END_WRITES:
            return Page(purged, f"{slot}/{row.key[1]}")
        if row.key[1].endswith("#job") and row.value.get("queue") == queue and _waits(row.value):
            await schedule.cancel(tx, row.key[1].removesuffix("#job"), "purged", by=by)
            purged += 1
    if len(rows) == _PAGE:
        return Page(purged, f"{slot}/{keys.after(rows[-1].key[1])}")
    return Page(purged, f"{slot + 1}/" if slot + 1 < schedule.slots else None)


def _waits(job: Any) -> bool:
    return job.get("stage") in WAITING
