"""Recovery of jobs whose records cannot be read."""

from typing import Any

import msgspec

from onceward import keys, limits
from onceward.job_options import JobOptions
from onceward.schedule.records import Job, Order, job_key, order_head_key, permit_partition, slot_of
from onceward.store.transaction import Transaction


async def recovered(tx: Transaction, id_: str, queue: str, gated_by: str | None) -> Job:
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
    return Job(
        found,
        text.decode(errors="replace"),
        "",
        tx.now_ms,
        options=JobOptions(order_key=order_key, limit_key=limit_key),
        gated=gated_by is not None or left.get("gated") is True,
        quarantined=True,
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
