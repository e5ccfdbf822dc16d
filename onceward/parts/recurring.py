"""Recurring jobs: a job every so often, each in one commit with the time of the next.

What was missed while no node was running is made up for by one job, not by many.
"""

from typing import Any
from zlib import crc32

import msgspec

from onceward import keys, limits
from onceward.errors import BadInput
from onceward.keys import Key
from onceward.parts.schedule import Schedule, admit_job, due_partition
from onceward.transaction import Transaction, decode, encode

RECURRING_DUE = "recurring"
"""The kind of its entries in due."""
# The entry goes and the next one comes, the record is written, and a job is sent.
RECUR_WRITES = 6


class Recurring(msgspec.Struct, omit_defaults=True):
    """What recurs, and when it is due next."""

    queue: str
    body: Any
    every_ms: int
    next_ms: int
    order_key: str | None = None


def recurring_key(name: str) -> Key:
    return "recurring", keys.join(name)


async def recur(
    tx: Transaction,
    schedule: Schedule,
    name: str,
    queue: str,
    body: Any,
    every_ms: int,
    *,
    order_key: str | None = None,
) -> None:
    """Send a job to a queue every `every_ms`, from one such time on; the same again changes
    nothing, other values replace those before. Raises `BadInput`."""
    admit_job(queue, body, order_key=order_key)
    if not 0 < len(name) <= limits.QUEUE_CHARS_MAX:
        raise BadInput(f"a name has 1 to {limits.QUEUE_CHARS_MAX} characters, not {len(name)}")
    if not limits.RECUR_MS_MIN <= every_ms <= limits.RETENTION_MS_MAX:
        raise BadInput(
            f"a job recurs every {limits.RECUR_MS_MIN} to {limits.RETENTION_MS_MAX} ms, "
            f"not {every_ms}"
        )
    known = await tx.get(recurring_key(name), Recurring)
    # As it will be read again, so that the same is known to be the same.
    body = decode(encode(body, recurring_key(name)), Any, recurring_key(name))
    wanted = Recurring(queue, body, every_ms, 0, order_key)
    if known is not None:
        wanted.next_ms = known.next_ms
        if wanted == known:
            return
        tx.delete(_entry(schedule, name, known))
    wanted.next_ms = tx.now_ms + every_ms
    tx.put(recurring_key(name), wanted)
    tx.put(_entry(schedule, name, wanted), RECURRING_DUE)


async def stop(tx: Transaction, schedule: Schedule, name: str) -> bool:
    """Let a job recur no more; says whether it did."""
    known = await tx.get(recurring_key(name), Recurring)
    if known is None:
        return False
    tx.delete(_entry(schedule, name, known))
    tx.delete(recurring_key(name))
    return True


async def come_due(schedule: Schedule, tx: Transaction, entry: Key) -> None:
    """The time has come: send the job, and set the time of the next one."""
    name = keys.split(entry[1])[1]
    known = await tx.get(recurring_key(name), Recurring)
    tx.delete(entry)
    if known is None or _entry(schedule, name, known) != entry:
        return  # it was changed or stopped meanwhile
    await schedule.send(tx, known.queue, known.body, order_key=known.order_key)
    missed = (tx.now_ms - known.next_ms) // known.every_ms
    known.next_ms += (missed + 1) * known.every_ms
    tx.put(recurring_key(name), known)
    tx.put(_entry(schedule, name, known), RECURRING_DUE)


def read_to_recur(entry: Key) -> list[Key]:
    return [recurring_key(keys.split(entry[1])[1])]


def _entry(schedule: Schedule, name: str, recurring: Recurring) -> Key:
    slot = crc32(name.encode(errors="surrogatepass")) % schedule.slots
    return due_partition(slot), keys.join(recurring.next_ms, name, RECURRING_DUE)
