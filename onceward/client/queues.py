"""The namespace `client.queues`: the operations on queues, and changes of all their jobs."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from onceward.api.queues import ChangedJobs
from onceward.client.operations.queues import QueuesOperations
from onceward.errors import BadInput

Progress = Callable[[int], Any]


class Queues(QueuesOperations):
    """Operations on queues."""

    async def redrive_all(
        self,
        queue: str,
        *,
        reason: str | None = None,
        order_key: str | None = None,
        since_ms: int | None = None,
        progress: Progress | None = None,
    ) -> ChangedJobs:
        """Retry all failed jobs of a queue, page by page.

        The arguments are those of `redrive`. `progress` is called after each page with the number
        of changed jobs. Safe to repeat. Raises `BadInput`.
        """
        page = partial(self.redrive, queue, reason=reason, order_key=order_key, since_ms=since_ms)
        return await _all(page, progress)

    async def purge_all(self, queue: str, *, progress: Progress | None = None) -> ChangedJobs:
        """Cancel all waiting jobs of a queue, page by page.

        `progress` is called after each page with the number of changed jobs. Safe to repeat. Raises
        `BadInput`.
        """
        return await _all(partial(self.purge, queue), progress)


async def _all(
    page: Callable[..., Awaitable[ChangedJobs]], progress: Progress | None
) -> ChangedJobs:
    if progress is not None and not callable(progress):
        raise BadInput(f"`progress` must be a function, not {type(progress).__name__}")
    total = ChangedJobs(0, None)
    after: str | None = ""
    while after is not None:
        found = await page(after=after)
        total.jobs += found.jobs
        total.in_doubt += found.in_doubt
        if progress is not None:
            progress(total.jobs)
        after = found.next
    return total
