"""Client methods for queues, from `onceward.api.queues`. Written by `make generate`."""

import builtins
from collections.abc import AsyncIterator, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from onceward.api import queues as api
from onceward.api.arguments import as_tuple, given, in_ms
from onceward.api.jobs import Job
from onceward.client.operations.base import Operations


class QueuesOperations(Operations):
    """Operations on queues: settings, dead letters and bulk changes of jobs."""

    async def list(self) -> builtins.list[api.Queue]:
        """List queues."""
        return (await self._transport.run(api.LIST)).queues

    async def get(self, queue: str) -> api.Queue:
        """Show a queue.

        - `queue`: The name of the queue.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(api.GET, queue)

    async def configure(
        self,
        queue: str,
        *,
        paused: bool | UnsetType = UNSET,
        limit: int | UnsetType = UNSET,
        limit_per_key: int | UnsetType = UNSET,
        rate: float | UnsetType = UNSET,
        attempts_max: int | UnsetType = UNSET,
        retry_first_s: float | UnsetType = UNSET,
        retry_max_s: float | UnsetType = UNSET,
        failed_blocks: bool | UnsetType = UNSET,
        failure_queue: str | UnsetType = UNSET,
        key_fields: Sequence[str] | UnsetType = UNSET,
        fingerprint: Sequence[str] | UnsetType | None = UNSET,
        mismatch: Literal["reject", "record"] | UnsetType = UNSET,
        key_retention_s: float | UnsetType | None = UNSET,
        job_retention_s: float | UnsetType | None = UNSET,
        depth_max: int | UnsetType = UNSET,
        fair: bool | UnsetType = UNSET,
    ) -> api.Queue:
        """Change some settings of a queue.

        - `queue`: The name of the queue.
        - `paused`: Whether the queue is paused: workers get no jobs.
        - `limit`: The maximum number of running jobs, on all nodes together; 0: no limit.
        - `limit_per_key`: The maximum number of ready and running jobs with the same `limit_key`;
          0: no limit.
        - `rate`: The maximum number of jobs that start per second; 0: no limit.
        - `attempts_max`: The number of attempts after which a failure is final; 0: no limit.
        - `retry_first_s`: The pause after the first failure; it doubles each time, up to
          `retry_max_s`.
        - `retry_max_s`: The longest pause between two attempts.
        - `failed_blocks`: Whether a failed job blocks its order key until it is retried or
          cancelled.
        - `failure_queue`: The queue that gets a job for each job that fails permanently in this
          queue.
        - `key_fields`: The fields of the body that form the idempotency key of messages without
          one.
        - `fingerprint`: The fields that must be equal in messages with the same key; None: the
          whole body.
        - `mismatch`: Whether a message with a known key and another body is rejected, or only
          counted.
        - `key_retention_s`: How long an idempotency key is kept after the end of its job; None:
          forever.
        - `job_retention_s`: How long a job is kept with its result after its end; None: forever.
        - `depth_max`: The maximum number of jobs that have not ended; 0: no limit. A full queue
          rejects further messages (`queue_full`), but accepts jobs of timers and of failure queues.
        - `fair`: Whether senders take turns, so that the backlog of one sender does not delay the
          jobs of another one. The sender is the `caller` of a message.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.CONFIGURE,
            queue,
            body=given(
                paused=paused,
                limit=limit,
                limit_per_key=limit_per_key,
                rate=rate,
                attempts_max=attempts_max,
                retry_first_ms=in_ms("retry_first_s", retry_first_s),
                retry_max_ms=in_ms("retry_max_s", retry_max_s),
                failed_blocks=failed_blocks,
                failure_queue=failure_queue,
                key_fields=as_tuple("key_fields", key_fields),
                fingerprint=as_tuple("fingerprint", fingerprint),
                mismatch=mismatch,
                key_retention_ms=in_ms("key_retention_s", key_retention_s),
                job_retention_ms=in_ms("job_retention_s", job_retention_s),
                depth_max=depth_max,
                fair=fair,
            ),
        )

    async def pause(self, queue: str) -> api.Queue:
        """Pause a queue.

        - `queue`: The name of the queue.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(api.PAUSE, queue)

    async def resume(self, queue: str) -> api.Queue:
        """Resume a queue.

        - `queue`: The name of the queue.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(api.RESUME, queue)

    async def failed(self, queue: str, *, after: str = "", limit: int = 100) -> api.FailedJobs:
        """List failed jobs and jobs in doubt.

        - `queue`: The name of the queue.
        - `after`: The member `next` of the last page.
        - `limit`: The maximum number of entries in the response.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.FAILED, queue, query=api.FailedJobsQuery(after=after, limit=limit)
        )

    async def iterate_failed(
        self, queue: str, *, after: str = "", limit: int = 100
    ) -> AsyncIterator[Job]:
        """Iterate over the entries of all pages of `failed`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.failed(queue, after=after, limit=limit)
            for one in page.jobs:
                yield one
            if page.next is None:
                return
            after = page.next

    async def redrive(
        self,
        queue: str,
        *,
        after: str = "",
        reason: str | None = None,
        order_key: str | None = None,
        since_ms: int | None = None,
    ) -> api.ChangedJobs:
        """Retry failed jobs.

        - `queue`: The name of the queue.
        - `after`: Where to continue: the member `next` of the last response.
        - `reason`: A part of the error of the last attempt.
        - `order_key`: The order key of the jobs.
        - `since_ms`: The earliest time of the failure.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.REDRIVE,
            queue,
            body=api.RedriveJobs(
                after=after, reason=reason, order_key=order_key, since_ms=since_ms
            ),
        )

    async def purge(self, queue: str, *, after: str = "") -> api.ChangedJobs:
        """Cancel all waiting jobs of a queue.

        - `queue`: The name of the queue.
        - `after`: The member `next` of the last response.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(api.PURGE, queue, body=api.PurgeJobs(after=after))
