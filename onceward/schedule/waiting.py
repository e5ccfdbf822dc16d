"""Jobs that wait for an order key or a limit key.

An order key has one job past its line at a time, from the moment it is sent to its end,
whether it waits for its time, for a worker or for its next attempt. A limit key has a
number of them, and only while they are ready or worked on: a job that waits for its time
holds nobody up.
"""

from onceward import keys
from onceward.schedule.records import (
    Gate,
    Job,
    Order,
    gate_key,
    line_partition,
    order_head_key,
    parked_partition,
    slot_of,
)
from onceward.store.transaction import Transaction


async def become_head(tx: Transaction, id_: str, job: Job, order_key: str) -> bool:
    """Whether a job becomes the head of its order key; if not, it joins the line."""
    head_key = order_head_key(slot_of(id_), job.queue, order_key)
    order = await tx.get(head_key, Order)
    if order is None:
        tx.put(head_key, Order(id_))
        return True
    if order.head == id_:
        return True  # it failed there, and failed jobs of its queue block their keys
    job.stage, job.place = "blocked", keys.number(order.next)
    tx.add((line_partition(slot_of(id_), job.queue, order_key), job.place), id_)
    order.next += 1
    order.waiting += 1
    tx.put(head_key, order)
    return False


async def next_head(tx: Transaction, id_: str, job: Job, order_key: str) -> str | None:
    """The job that follows the head of an order key, which is now the head, if there is one.
    Does nothing if `id_` is not the head."""
    slot = slot_of(id_)
    head_key = order_head_key(slot, job.queue, order_key)
    order = await tx.get(head_key, Order)
    if order is None or order.head != id_:
        return None
    if not order.waiting:
        tx.delete(head_key)
        return None
    # The head record is checked, and whoever joins the line writes it: so this is the first.
    # Of an entry that cannot be read nobody knows whose it was: the next one follows.
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
    """Take a job that waits out of its line."""
    slot = slot_of(id_)
    head_key = order_head_key(slot, job.queue, order_key)
    order = await tx.get(head_key, Order)
    assert order is not None, "a line has a head"
    tx.delete((line_partition(slot, job.queue, order_key), job.place))
    order.waiting -= 1
    tx.put(head_key, order)


async def pass_gate(tx: Transaction, id_: str, job: Job, limit_key: str, limit: int) -> bool:
    """Whether a job passes the gate of its limit key; if not, it is parked before it."""
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
    """A job leaves its place; returns the ids of those that get in: one, or two if the limit
    has been raised, or none if it was lowered."""
    job.gated = False
    key = gate_key(job.queue, limit_key)
    gate = await tx.get(key, Gate) or Gate(1)
    gate.inside -= 1
    # While more are inside than a lowered limit allows, nobody gets in.
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
    """Take a parked job away."""
    key = gate_key(job.queue, limit_key)
    gate = await tx.get(key, Gate)
    assert gate is not None, "a parked job has a gate"
    tx.delete((parked_partition(job.queue, limit_key), job.place))
    gate.parked -= 1
    tx.put(key, gate)
