"""Synchronous classes. Written by `make generate` from `onceward.client.queues`."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from onceward.api import queues as api
from onceward.api.jobs import Job
from onceward.api.queues import ChangedJobs
from onceward.client.queues import Progress
from onceward.client.queues import Queues as AsyncQueues
from onceward.sync.bridge import Facade


class Queues(Facade[AsyncQueues]):
    """Operations on queues."""

    def redrive_all(
        self,
        queue: str,
        *,
        reason: str | None = None,
        order_key: str | None = None,
        since_ms: int | None = None,
        progress: Progress | None = None,
    ) -> ChangedJobs:
        """Retry all failed jobs of a queue, page by page."""
        return self._portal.run(
            self._target.redrive_all(
                queue,
                reason=reason,
                order_key=order_key,
                since_ms=since_ms,
                progress=self._portal.hook(progress),
            )
        )

    def purge_all(self, queue: str, *, progress: Progress | None = None) -> ChangedJobs:
        """Cancel all waiting jobs of a queue, page by page."""
        return self._portal.run(self._target.purge_all(queue, progress=self._portal.hook(progress)))

    def list(self) -> builtins.list[api.Queue]:
        """List queues."""
        return self._portal.run(self._target.list())

    def get(self, queue: str) -> api.Queue:
        """Show a queue."""
        return self._portal.run(self._target.get(queue))

    def configure(
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
        """Change some settings of a queue."""
        return self._portal.run(
            self._target.configure(
                queue,
                paused=paused,
                limit=limit,
                limit_per_key=limit_per_key,
                rate=rate,
                attempts_max=attempts_max,
                retry_first_s=retry_first_s,
                retry_max_s=retry_max_s,
                failed_blocks=failed_blocks,
                failure_queue=failure_queue,
                key_fields=key_fields,
                fingerprint=fingerprint,
                mismatch=mismatch,
                key_retention_s=key_retention_s,
                job_retention_s=job_retention_s,
                depth_max=depth_max,
                fair=fair,
            )
        )

    def pause(self, queue: str) -> api.Queue:
        """Pause a queue."""
        return self._portal.run(self._target.pause(queue))

    def resume(self, queue: str) -> api.Queue:
        """Resume a queue."""
        return self._portal.run(self._target.resume(queue))

    def failed(self, queue: str, *, after: str = "", limit: int = 100) -> api.FailedJobs:
        """List failed jobs and jobs in doubt."""
        return self._portal.run(self._target.failed(queue, after=after, limit=limit))

    def iterate_failed(self, queue: str, *, after: str = "", limit: int = 100) -> Iterator[Job]:
        """Iterate over the entries of all pages of `failed`."""
        return self._portal.iterate(self._target.iterate_failed(queue, after=after, limit=limit))

    def redrive(
        self,
        queue: str,
        *,
        after: str = "",
        reason: str | None = None,
        order_key: str | None = None,
        since_ms: int | None = None,
    ) -> api.ChangedJobs:
        """Retry failed jobs."""
        return self._portal.run(
            self._target.redrive(
                queue, after=after, reason=reason, order_key=order_key, since_ms=since_ms
            )
        )

    def purge(self, queue: str, *, after: str = "") -> api.ChangedJobs:
        """Cancel all waiting jobs of a queue."""
        return self._portal.run(self._target.purge(queue, after=after))
