"""Jobs with unreadable records: moved to the dead-letter queue and reported."""

import logging

from onceward.errors import OncewardError
from onceward.keys import Key
from onceward.schedule import Schedule
from onceward.store import Store

logger = logging.getLogger("onceward.unreadable")


async def quarantine(
    store: Store, schedule: Schedule, entry: Key, error: OncewardError | None = None
) -> bool:
    """Move the job of an entry in ready or due to the dead-letter queue if its record is
    unreadable.

    Returns whether it was moved. Never raises: a job that cannot be moved stays, with an alarm.
    """
    try:
        moved = await store.run(lambda tx: schedule.quarantine_entry(tx, entry))
    except OncewardError as trouble:
        store.alarms.damaged(entry, (error or trouble).message)
        return False
    if moved is None:
        return False
    id_, queue, why = moved
    report(store, id_ or "/".join(entry), queue, why)
    return True


def report(store: Store, id_: str, queue: str, why: str) -> None:
    """Log, count and raise the alarm for a job that was moved to the dead-letter queue."""
    store.meters.count("quarantined", queue=queue)
    store.alarms.damaged(id_, f"job of queue {queue}, moved to the dead-letter queue: {why}")
