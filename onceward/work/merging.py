"""Merging of messages: many sends become one job, by a debounce key or a batch key.

With a debounce key, a later message replaces the body of the job and postpones its start. With a
batch key, the body of the job is a list, and a later message is added to it. A job takes messages
until its first attempt. The commit that adds a message reads and writes the job, and so does the
commit that starts it: each message is in exactly one job, or is its last body.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from onceward import limits
from onceward.api.queues import QueueSettings
from onceward.errors import BadInput
from onceward.job_options import MERGE_NAMES, JobOptions, admit_shared_key
from onceward.json_values import encode
from onceward.keys import Key
from onceward.quantities import is_whole, milliseconds
from onceward.schedule import WAITING, Job, Schedule, admit_job, job_key
from onceward.schedule.records import merge_key
from onceward.store.transaction import Transaction
from onceward.tracing import Trace

# The dedupe record, the record of the key, a new job with its entry, order key and limit key; and a
# job that starts because the message does not fit into it: two entries, its limit key and the job.
MERGE_WRITES = 10


class Merge(msgspec.Struct, frozen=True):
    """The key of a message that joins others, and when the job starts."""

    kind: str
    """debounce or batch."""
    key: str
    wait_ms: int
    """The time after the last message (debounce), or after the first one (batch)."""
    max_ms: int | None = None
    """The longest time after the first message (debounce)."""
    size: int = limits.MERGE_MESSAGES_MAX
    """The number of messages with which the job starts at once (batch)."""

    @property
    def name(self) -> str:
        """As in the record of the job."""
        return f"{self.kind} {self.key}"

    def start_ms(self, first_ms: int, now_ms: int) -> int:
        """The start of a job in ms, by the times of its first and its last message."""
        latest_ms = limits.KEY_NUMBER_MAX if self.max_ms is None else first_ms + self.max_ms
        return min(now_ms + self.wait_ms, latest_ms)


def merge_of(keywords: Mapping[str, Any]) -> Merge | None:
    """The merge that keyword arguments of a sender ask for. Raises `BadInput`."""
    given = {name: keywords[name] for name in MERGE_NAMES if keywords.get(name) is not None}
    if not given:
        return None
    if "debounce_key" in given and "batch_key" in given:
        raise BadInput("a message has a debounce_key or a batch_key, not both; omit one of them")
    kind = "debounce" if "debounce_key" in given else "batch"
    for name in given:
        if not name.startswith(f"{kind}_") or f"{kind}_key" not in given:
            raise BadInput(f"{name} needs {name.partition('_')[0]}_key; pass both, or neither")
    if f"{kind}_s" not in given:
        after = "last" if kind == "debounce" else "first"
        raise BadInput(
            f"{kind}_key needs {kind}_s: the seconds from the {after} message to the start"
        )
    for name in ("due_ms", "delay_s"):
        if keywords.get(name):
            raise BadInput(f"{kind}_s decides when the job starts; omit {name}")
    key = given[f"{kind}_key"]
    admit_shared_key(f"a {kind} key", key)
    wait_ms = milliseconds(given[f"{kind}_s"], f"{kind}_s", limits.MERGE_S_MAX)
    if kind == "debounce":
        max_ms = None
        if "debounce_max_s" in given:
            max_ms = milliseconds(given["debounce_max_s"], "debounce_max_s", limits.MERGE_S_MAX)
            if max_ms < wait_ms:
                raise BadInput(
                    f"debounce_max_s must be at least debounce_s, {given['debounce_s']}, not "
                    f"{given['debounce_max_s']}"
                )
        return Merge(kind, key, wait_ms, max_ms)
    size = given.get("batch_size", limits.MERGE_MESSAGES_MAX)
    if not is_whole(size) or not 1 <= size <= limits.MERGE_MESSAGES_MAX:
        raise BadInput(
            f"batch_size must be 1 to {limits.MERGE_MESSAGES_MAX}, not {str(size)[:100]}"
        )
    return Merge(kind, key, wait_ms, size=size)


async def merged(
    tx: Transaction,
    schedule: Schedule,
    queue: str,
    body: Any,
    options: JobOptions,
    merge: Merge,
    *,
    caller: str,
    trace: Trace | None,
    settings: QueueSettings,
) -> tuple[str, Job]:
    """Add a message to the job of its key, or to a new one; returns the id and the job. Raises
    `BadInput` and `QueueFull`, before anything is written."""
    first = [body] if merge.kind == "batch" else body
    admit_job(queue, first, options)
    place = merge_key(queue, caller, merge.name)
    found = await _open_job(tx, place)
    if found is not None:
        id_, job = found
        _admit_same_keys(job, options, merge)
        if _adds(job, body, merge):
            start_ms = job.due_ms
            if merge.kind == "debounce":
                start_ms = merge.start_ms(job.created_ms, tx.ends_ms)
            elif len(job.body) == merge.size:
                start_ms = tx.now_ms
                tx.delete(place)
            await _start(tx, schedule, id_, job, start_ms)
            return id_, job
    schedule.admit(tx, queue)
    if found is not None:  # the message does not fit into it
        await _start(tx, schedule, *found, tx.now_ms)
        tx.delete(place)
    alone = merge.kind == "batch" and merge.size == 1
    id_, job = await schedule.add(
        tx,
        queue,
        first,
        options,
        due_ms=0 if alone else merge.start_ms(tx.ends_ms, tx.ends_ms),
        caller=caller,
        trace=trace,
        settings=settings,
        merge=merge.name,
    )
    if not alone:
        tx.put(place, id_)
    return id_, job


def takes_messages(job: Job) -> bool:
    """Whether a job has not started yet. An attempt that was given back counts as a start."""
    return job.stage in WAITING and not job.attempt and not job.uncounted


async def _open_job(tx: Transaction, place: Key) -> tuple[str, Job] | None:
    """The job that takes the messages of a key. One that cannot be read takes none."""
    [id_] = await tx.get_many([place], str, skip_damaged=True)
    if id_ is None:
        return None
    [job] = await tx.get_many([job_key(id_)], Job, skip_damaged=True)
    return (id_, job) if job is not None and takes_messages(job) else None


def _admit_same_keys(job: Job, options: JobOptions, merge: Merge) -> None:
    for name in ("order_key", "limit_key"):
        first, other = getattr(job.options, name), getattr(options, name)
        if first != other:
            raise BadInput(
                f"the job of the {merge.kind} key {merge.key!r} has the {name} {first!r}, not "
                f"{other!r}; use the same one in all messages of a {merge.kind} key"
            )


def _adds(job: Job, body: Any, merge: Merge) -> bool:
    """Add a message to the body of a job; False if it does not fit."""
    if merge.kind == "debounce":
        job.body = body
        return True
    messages = [*job.body, body]
    if len(messages) > merge.size:
        return False
    if len(encode(messages, (job.queue, "body"))) > limits.BODY_BYTES_MAX:
        return False
    job.body = messages
    return True


async def _start(tx: Transaction, schedule: Schedule, id_: str, job: Job, due_ms: int) -> None:
    """Set the start of a job, and write it. One that is already due keeps its place in the
    queue."""
    if due_ms != job.due_ms and job.stage in ("due", "blocked"):
        await schedule.reschedule(tx, id_, job, due_ms)
    else:
        tx.put(job_key(id_), job)
