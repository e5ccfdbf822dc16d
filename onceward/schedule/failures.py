"""What happens in the commit in which a job fails permanently."""

from collections.abc import Awaitable, Callable
from typing import Any

from onceward.schedule.records import Job
from onceward.store.transaction import Transaction

OnFailed = Callable[[Transaction, str, Job], Awaitable[None]]
"""Called with the id and the record of a job of one queue."""


async def send_notice(
    add: Callable[..., Awaitable[Any]], tx: Transaction, id_: str, job: Job, queue: str
) -> None:
    """Send a job to the failure queue."""
    body = {"id": id_, "queue": job.queue, "state": job.state, "reason": job.reason}
    await add(tx, queue, {**body, "attempts": job.attempt}, trace=job.trace)
