"""Synchronous classes. Written by `make generate` from `onceward.client.jobs`."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, overload

from msgspec import UNSET, UnsetType

from onceward.api import jobs as api
from onceward.api.job_history import JobChild, JobChildCounts
from onceward.api.job_output import JobOutput
from onceward.api.job_updates import JobUpdate
from onceward.api.jobs import Job
from onceward.client.jobs import Jobs as AsyncJobs
from onceward.client.jobs import T
from onceward.sync.bridge import Facade


class Jobs(Facade[AsyncJobs]):
    """Operations on jobs."""

    def wait(self, id: str, timeout_s: float | None = None) -> Job:
        """Wait until a job has ended."""
        return self._portal.run(self._target.wait(id, timeout_s))

    def follow(self, id: str, *, after: int = 0) -> Iterator[JobUpdate]:
        """Follow a job until it ends: its states, its progress, and the chunks of its stream."""
        return self._portal.iterate(self._target.follow(id, after=after))

    @overload
    def result(self, id: str, *, timeout_s: float | None = None) -> Any: ...
    @overload
    def result(self, id: str, type: type[T], *, timeout_s: float | None = None) -> T: ...
    def result(self, id: str, type: Any = None, *, timeout_s: float | None = None) -> Any:
        """Wait until a job has ended, and return its result, as plain JSON or of a type."""
        return self._portal.run(self._target.result(id, type, timeout_s=timeout_s))

    def claim(
        self,
        queue: str,
        *,
        max: int = 1,
        lease_s: float = 30.0,
        wait_s: float = 0.0,
        worker: str = "",
    ) -> builtins.list[api.ClaimedJob]:
        """Claim jobs, or wait for some."""
        return self._portal.run(
            self._target.claim(queue, max=max, lease_s=lease_s, wait_s=wait_s, worker=worker)
        )

    def complete(self, id: str, token: str, *, result: Any = None) -> api.JobOutcome:
        """Complete a job."""
        return self._portal.run(self._target.complete(id, token, result=result))

    def fail(
        self,
        id: str,
        token: str,
        reason: str,
        *,
        retry_after_s: float | None = None,
        not_before_s: float = 0.0,
        final: bool = False,
        type: str = "",
        traceback: str = "",
    ) -> api.JobOutcome:
        """Fail an attempt of a job."""
        return self._portal.run(
            self._target.fail(
                id,
                token,
                reason,
                retry_after_s=retry_after_s,
                not_before_s=not_before_s,
                final=final,
                type=type,
                traceback=traceback,
            )
        )

    def extend(self, id: str, token: str, lease_s: float) -> int:
        """Renew the lease of a job."""
        return self._portal.run(self._target.extend(id, token, lease_s))

    def get(self, id: str, *, wait_s: float = 0.0) -> api.Job:
        """Show a job, or wait for its end."""
        return self._portal.run(self._target.get(id, wait_s=wait_s))

    def cancel(self, id: str) -> api.JobOutcome:
        """Cancel a job."""
        return self._portal.run(self._target.cancel(id))

    def retry(self, id: str, *, key: str = "") -> api.JobOutcome:
        """Retry a failed job."""
        return self._portal.run(self._target.retry(id, key=key))

    def report(
        self,
        id: str,
        token: str,
        *,
        progress: float | None = None,
        text: str = "",
        chunks: Sequence[Any] = (),
        first: int = 0,
    ) -> int:
        """Report progress and output of a running job."""
        return self._portal.run(
            self._target.report(id, token, progress=progress, text=text, chunks=chunks, first=first)
        )

    def output(self, id: str, *, after: int = 0, state: str = "", wait_s: float = 0.0) -> JobOutput:
        """Read progress and output of a job, or wait for news."""
        return self._portal.run(self._target.output(id, after=after, state=state, wait_s=wait_s))

    def emit(self, id: str, event: str, *, value: Any = None, key: str = "") -> api.JobOutcome:
        """Send an event to a job."""
        return self._portal.run(self._target.emit(id, event, value=value, key=key))

    def event_link(
        self,
        id: str,
        event: str,
        *,
        value: Any = None,
        choices: Mapping[str, Any] | None = None,
        text: str = "",
        expires_s: float = 604800.0,
        base_url: str = "",
    ) -> str:
        """Create a link that sends an event once."""
        return self._portal.run(
            self._target.event_link(
                id,
                event,
                value=value,
                choices=choices,
                text=text,
                expires_s=expires_s,
                base_url=base_url,
            )
        )

    def children(
        self,
        id: str,
        *,
        after: str = "",
        limit: int = 50,
        state: Literal["succeeded", "failed", "cancelled", "open"] | UnsetType = UNSET,
    ) -> api.JobChildren:
        """List the children of a job."""
        return self._portal.run(self._target.children(id, after=after, limit=limit, state=state))

    def iterate_children(
        self,
        id: str,
        *,
        after: str = "",
        limit: int = 50,
        state: Literal["succeeded", "failed", "cancelled", "open"] | UnsetType = UNSET,
    ) -> Iterator[JobChild]:
        """Iterate over the entries of all pages of `children`."""
        return self._portal.iterate(
            self._target.iterate_children(id, after=after, limit=limit, state=state)
        )

    def count_children(self, id: str) -> JobChildCounts:
        """Count the children of a job."""
        return self._portal.run(self._target.count_children(id))

    def settle(
        self, id: str, step: str, done: bool, *, result: Any = None, reason: str = "", key: str = ""
    ) -> api.JobOutcome:
        """Settle a step in doubt."""
        return self._portal.run(
            self._target.settle(id, step, done, result=result, reason=reason, key=key)
        )

    def list(
        self,
        *,
        queue: str | UnsetType = UNSET,
        state: api.State | UnsetType = UNSET,
        tag: str | UnsetType = UNSET,
        key: str | UnsetType = UNSET,
        text: str = "",
        after: str = "",
        limit: int = 50,
    ) -> api.JobPage:
        """List jobs, the newest first."""
        return self._portal.run(
            self._target.list(
                queue=queue, state=state, tag=tag, key=key, text=text, after=after, limit=limit
            )
        )

    def iterate(
        self,
        *,
        queue: str | UnsetType = UNSET,
        state: api.State | UnsetType = UNSET,
        tag: str | UnsetType = UNSET,
        key: str | UnsetType = UNSET,
        text: str = "",
        after: str = "",
        limit: int = 50,
    ) -> Iterator[api.JobSummary]:
        """Iterate over the entries of all pages of `list`."""
        return self._portal.iterate(
            self._target.iterate(
                queue=queue, state=state, tag=tag, key=key, text=text, after=after, limit=limit
            )
        )

    def count(
        self,
        *,
        queue: str | UnsetType = UNSET,
        state: api.State | UnsetType = UNSET,
        tag: str | UnsetType = UNSET,
        after: str = "",
    ) -> api.JobCount:
        """Count jobs."""
        return self._portal.run(self._target.count(queue=queue, state=state, tag=tag, after=after))

    def history(self, id: str) -> api.JobHistory:
        """Show a job with its steps and effects."""
        return self._portal.run(self._target.history(id))
