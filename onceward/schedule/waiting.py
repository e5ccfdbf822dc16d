"""Jobs that wait for an order key, a limit key, further messages, or the outcome of a step.

One job per order key is past the line at a time, from sending to its end, including the time it
waits to be due, for a worker or for a retry. A limit key admits several jobs, and counts them only
while they are ready or running: a job that waits for its time does not use its capacity.
"""

from zlib import crc32

from onceward import keys
from onceward.api.queues import QueueSettings
from onceward.job_options import JobOptions
from onceward.keys import Key
from onceward.schedule.records import (
    Gate,
    Intent,
    Job,
    Order,
    gate_key,
    line_partition,
    merge_key,
    order_head_key,
    parked_partition,
    slot_of,
    steps_key,
)
from onceward.store.transaction import Transaction


def read_to_wait(queue: str, options: JobOptions, slots: int) -> list[Key]:
    """The records that a new job shares with others of its order key and its limit key."""
    found = []
    if options.order_key is not None:
        slot = crc32(keys.join(queue, options.order_key).encode()) % slots  # as `Schedule.add`
        found.append(order_head_key(slot, queue, options.order_key))
    if options.limit_key is not None:
        found.append(gate_key(queue, options.limit_key))
    return found


async def become_head(tx: Transaction, id_: str, job: Job, order_key: str) -> bool:
    """Make a job the head of its order key, or append it to the line; returns whether it leads."""
    head_key = order_head_key(slot_of(id_), job.queue, order_key)
    order = await tx.get(head_key, Order)
    if order is None:
        tx.put(head_key, Order(id_))
        return True
    if order.head == id_:
        return True  # it failed as the head, in a queue where failed jobs block their order keys
    job.stage, job.place = "blocked", keys.number(order.next)
    tx.add((line_partition(slot_of(id_), job.queue, order_key), job.place), id_)
    order.next += 1
    order.waiting += 1
    tx.put(head_key, order)
    return False


async def next_head(tx: Transaction, id_: str, job: Job, order_key: str) -> str | None:
    """Replace the head of an order key by the next job and return its id. None if there is no next
    job or `id_` is not the head."""
    slot = slot_of(id_)
    head_key = order_head_key(slot, job.queue, order_key)
    order = await tx.get(head_key, Order)
    if order is None or order.head != id_:
        return None
    if not order.waiting:
        tx.delete(head_key)
        return None
    # Every job that joins the line writes the head record, which is checked, so this is the first.
    # An unreadable entry is skipped, since its job is unknown.
    partition = line_partition(slot, job.queue, order_key)
    rows = await tx.scan(partition, str, limit=1, skip_damaged=True)
    if not rows:
        tx.delete(head_key)
        return None
    entry, next_id = rows[0]
    tx.delete(entry)
    order.head = next_id
    order.waiting -= 1
    tx.put(head_key, order)
    return next_id


async def leave_line(tx: Transaction, id_: str, job: Job, order_key: str) -> None:
    """Remove a blocked job from its line."""
    slot = slot_of(id_)
    head_key = order_head_key(slot, job.queue, order_key)
    order = await tx.get(head_key, Order)
    assert order is not None, "a line has a head"
    tx.delete((line_partition(slot, job.queue, order_key), job.place))
    order.waiting -= 1
    tx.put(head_key, order)


async def pass_gate(tx: Transaction, id_: str, job: Job, limit_key: str, limit: int) -> bool:
    """Give a job capacity of its limit key, or park it; returns whether it has capacity."""
    key = gate_key(job.queue, limit_key)
    gate = await tx.get(key, Gate) or Gate()
    if gate.inside < limit and not gate.parked:
        gate.inside += 1
        job.gated = True
        tx.put(key, gate)
        return True
    job.stage, job.place = "parked", keys.join(job.options.priority, gate.next)
    tx.add((parked_partition(job.queue, limit_key), job.place), id_)
    gate.next += 1
    gate.parked += 1
    tx.put(key, gate)
    return False


async def leave_gate(tx: Transaction, job: Job, limit_key: str, limit: int) -> list[str]:
    """Free the capacity of a job; returns the ids of parked jobs that get it.

    Usually that is one job, two after the limit was raised, and none after it was lowered.
    """
    job.gated = False
    key = gate_key(job.queue, limit_key)
    gate = await tx.get(key, Gate) or Gate(1)
    gate.inside -= 1
    # After the limit was lowered, no job is admitted until enough have left.
    room = min(max(limit - gate.inside, 0) if limit else 2, 2, gate.parked)
    rows = []
    if room:
        partition = parked_partition(job.queue, limit_key)
        rows = await tx.scan(partition, str, limit=room, skip_damaged=True)
    for entry, _ in rows:
        tx.delete(entry)
    gate.parked -= len(rows)
    gate.inside += len(rows)
    if gate.inside > 0:
        tx.put(key, gate)
    else:
        tx.delete(key)
    return [id_ for _, id_ in rows]


async def unpark(tx: Transaction, job: Job, limit_key: str) -> None:
    """Remove a parked job."""
    key = gate_key(job.queue, limit_key)
    gate = await tx.get(key, Gate)
    assert gate is not None, "a parked job has a gate"
    tx.delete((parked_partition(job.queue, limit_key), job.place))
    gate.parked -= 1
    tx.put(key, gate)


async def end_merge(tx: Transaction, id_: str, job: Job, settings: QueueSettings) -> int | None:
    """Remove the record of a job's debounce key or batch key, unless another job has it. Returns
    the retention of the job, at least that of the idempotency keys of its messages."""
    place = merge_key(job.queue, job.caller, job.merge)
    if await tx.get_many([place], str, skip_damaged=True) == [id_]:
        tx.delete(place)
    job_ms, key_ms = settings.job_retention_ms, settings.key_retention_ms
    return None if job_ms is None or key_ms is None else max(job_ms, key_ms)


async def intends(tx: Transaction, id_: str, job: Job) -> bool:
    """Whether a step of the job was started at most once and has no result."""
    steps = await tx.get(steps_key(id_), dict[str, Intent]) if job.stepped else None
    return any(step.intent and not step.done for step in (steps or {}).values())
