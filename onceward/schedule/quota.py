"""Quotas: the number of jobs of a queue that may start now.

Each job of a limited queue that is worked on holds a permit: a record with a number below
the limit. To take one conflicts only with who takes the same; to give it back conflicts
with nobody.
"""

from typing import NamedTuple

from onceward import limits
from onceward.api.queues import QueueSettings
from onceward.schedule.records import permit_key, permit_partition, rate_key
from onceward.store.transaction import Transaction


class Quota(NamedTuple):
    """How many, and when to ask again if that is too few (0: when a permit is given back)."""

    jobs: int
    permits: list[int]
    """The permits for them, if the queue has a limit."""
    again_ms: int = 0


async def quota(tx: Transaction, queue: str, settings: QueueSettings, wanted: int) -> Quota:
    """How many of the jobs wanted may be claimed in this transaction. Call `spend` for them."""
    if settings.paused:
        return Quota(0, [])
    again_ms = 0
    if settings.rate:
        next_ms = _not_long_ago(await tx.get(rate_key(queue), float) or 0.0, tx.now_ms)
        allowed = max(1 + int((tx.now_ms - next_ms) * settings.rate / 1000), 0)
        if next_ms > tx.now_ms:
            return Quota(0, [], int(next_ms) + 1)
        if allowed < wanted:
            wanted, again_ms = allowed, tx.now_ms + 1
    if not settings.limit:
        return Quota(wanted, [], again_ms)
    # All of them: while the limit was higher, higher numbers were given out.
    taken = {int(sort) for sort in await tx.sorts(permit_partition(queue), limits.QUEUE_LIMIT_MAX)}
    wanted = min(wanted, max(settings.limit - len(taken), 0))
    permits = [number for number in range(settings.limit) if number not in taken][:wanted]
    return Quota(len(permits), permits, again_ms)


async def spend(tx: Transaction, queue: str, settings: QueueSettings, jobs: int) -> None:
    """So many jobs were claimed in this transaction."""
    if settings.rate and jobs:
        next_ms = _not_long_ago(await tx.get(rate_key(queue), float) or 0.0, tx.now_ms)
        tx.put(rate_key(queue), next_ms + jobs * 1000 / settings.rate)


def take_permit(tx: Transaction, queue: str, number: int, id_: str) -> None:
    tx.add(permit_key(queue, number), id_)


def give_permit_back(tx: Transaction, queue: str, number: int) -> None:
    tx.delete(permit_key(queue, number))


def _not_long_ago(next_ms: float, now_ms: int) -> float:
    # What was not used is lost after a while, but not at once: else whoever asks a little late
    # each time would never get as many as the rate allows.
    return next_ms if next_ms > now_ms - limits.RATE_SLACK_MS else float(now_ms)
