"""Quotas: the number of jobs of a queue that may start now.

Each running job of a limited queue holds a permit: a record with a number below the limit. Taking a
permit conflicts only with a commit that takes the same number. Returning one never conflicts.
"""

from typing import NamedTuple

from onceward import limits
from onceward.api.queues import QueueSettings
from onceward.schedule.records import permit_key, permit_partition, rate_key
from onceward.store.transaction import Transaction


class Quota(NamedTuple):
    """The number of jobs, and when to ask again if it is too low (0: when a permit is returned)."""

    jobs: int
    permits: list[int]
    """The permits for the jobs, if the queue has a limit."""
    again_ms: int = 0


async def quota(tx: Transaction, queue: str, settings: QueueSettings, wanted: int) -> Quota:
    """The number of jobs that this transaction may claim. Call `spend` for the claimed ones."""
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
    # All permits: numbers above the limit exist if the limit was lowered.
    taken = {int(sort) for sort in await tx.sorts(permit_partition(queue), limits.QUEUE_LIMIT_MAX)}
    wanted = min(wanted, max(settings.limit - len(taken), 0))
    permits = [number for number in range(settings.limit) if number not in taken][:wanted]
    return Quota(len(permits), permits, again_ms)


async def spend(tx: Transaction, queue: str, settings: QueueSettings, jobs: int) -> None:
    """Charge `jobs` claims of this transaction to the queue's rate."""
    if settings.rate and jobs:
        next_ms = _not_long_ago(await tx.get(rate_key(queue), float) or 0.0, tx.now_ms)
        tx.put(rate_key(queue), next_ms + jobs * 1000 / settings.rate)


def take_permit(tx: Transaction, queue: str, number: int, id_: str) -> None:
    tx.add(permit_key(queue, number), id_)


def give_permit_back(tx: Transaction, queue: str, number: int) -> None:
    tx.delete(permit_key(queue, number))


def _not_long_ago(next_ms: float, now_ms: int) -> float:
    # Unused quota expires, but only after some slack. Otherwise a worker that is always a little
    # late would never reach the full rate.
    return next_ms if next_ms > now_ms - limits.RATE_SLACK_MS else float(now_ms)
