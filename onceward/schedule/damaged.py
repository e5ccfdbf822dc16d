"""Recovery of jobs whose records cannot be read."""

from typing import Any

import msgspec

from onceward import keys, limits
from onceward.job_options import JobOptions
from onceward.schedule.children import family_key, family_partition_of
from onceward.schedule.records import (
    JOB_DUE,
    Job,
    Order,
    Parent,
    due_partition,
    events_key,
    job_key,
    order_head_key,
    output_key,
    permit_partition,
    slot_of,
)
from onceward.store.transaction import Transaction


async def recovered(tx: Transaction, id_: str, queue: str, gated_by: str | None, slots: int) -> Job:
    """A substitute for a job whose record cannot be read; its permit is returned.

    `queue` is used if the record does not name one. `gated_by` is the limit key whose capacity the
    job occupies, if known.
    """
    record = tx.seen.get(job_key(id_))
    left = {} if record is None else _left_of(record.value)
    options = left.get("options")
    options = options if isinstance(options, dict) else {}
    found = _text(left, "queue") or queue
    order_key = _text(options, "order_key")
    if order_key is None:
        found, order_key = await _headed_by(tx, id_) or (found, None)
    text = b"" if record is None else record.value[: limits.QUARANTINED_BYTES]
    limit_key = gated_by or _text(options, "limit_key")
    for row in await tx.scan(permit_partition(found), str, skip_damaged=True):
        if row.value == id_:
            tx.delete(row.key)
    families = await tx.has(family_key(id_, 1))
    if families:  # its entry if it waited for children
        tx.delete((due_partition(slot_of(id_)), keys.join(limits.KEY_NUMBER_MAX, id_, JOB_DUE)))
    return Job(
        found,
        text.decode(errors="replace"),
        "",
        tx.now_ms,
        options=JobOptions(order_key=order_key, limit_key=limit_key),
        gated=gated_by is not None or left.get("gated") is True,
        quarantined=True,
        parent=await _parent_of(tx, id_, left, slots),
        families=families,
        evented=await tx.has(events_key(id_)),
        output=await tx.has(output_key(id_)),
    )


async def _headed_by(tx: Transaction, id_: str) -> tuple[str, str] | None:
    """The queue and the order key whose head a job is. Scans the whole slot."""
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


async def _parent_of(tx: Transaction, id_: str, left: dict[str, Any], slots: int) -> Parent | None:
    """The job that waits for a job. Scans all children if the record does not name it."""
    try:
        return msgspec.convert(left["parent"], Parent)
    except (KeyError, msgspec.ValidationError):
        if _text(left, "queue") and "parent" not in left:
            return None  # the record is complete enough to show that it has no parent
    for slot in range(slots):
        partition, start = family_partition_of(slot), ""
        while rows := await tx.scan(partition, start=start, skip_damaged=True):
            for row in rows:
                if isinstance(row.value, dict) and row.value.get("id") == id_:
                    parent, number, index = row.key[1].split("#")
                    return Parent(parent, int(number), int(index))
            start = keys.after(rows[-1].key[1])
    return None


def _left_of(value: bytes) -> dict[str, Any]:
    """The readable members of an invalid record."""
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(left: dict[str, Any], name: str) -> str | None:
    value = left.get(name)
    return value if isinstance(value, str) and value else None
