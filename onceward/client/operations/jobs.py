"""Client methods for jobs, from `onceward.api.jobs`. Written by `make generate`."""

import builtins
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from onceward.api import jobs as api
from onceward.api.arguments import as_dict, as_list, in_ms
from onceward.api.job_history import JobChild, JobChildCounts
from onceward.api.job_output import JobOutput, ReadOutput, ReportOutput
from onceward.api.messages import Wait
from onceward.client.operations.base import Operations


class JobsOperations(Operations):
    """Operations on jobs: find, follow, retry, cancel, settle, claim and complete."""

    async def claim(
        self,
        queue: str,
        *,
        max: int = 1,
        lease_s: float = 30.0,
        wait_s: float = 0.0,
        worker: str = "",
    ) -> builtins.list[api.ClaimedJob]:
        """Claim jobs, or wait for some.

        - `queue`: The name of the queue.
        - `max`: The maximum number of jobs.
        - `lease_s`: The length of the lease.
        - `wait_s`: How long to wait for a job.
        - `worker`: The name of the worker, shown with the job.

        Raises `BadInput` (bad_name).
        """
        return (
            await self._transport.run(
                api.CLAIM,
                queue,
                body=api.ClaimJobs(
                    max=max,
                    lease_ms=in_ms("lease_s", lease_s),
                    wait_ms=in_ms("wait_s", wait_s),
                    worker=worker,
                ),
            )
        ).jobs

    async def complete(self, id: str, token: str, *, result: Any = None) -> api.JobOutcome:
        """Complete a job.

        - `id`: The id of the job.
        - `token`: The token of the claimed job.
        - `result`: The result of the job.

        Raises `NoSuchJob`, `StaleToken`.
        """
        return await self._transport.run(
            api.COMPLETE, id, body=api.CompleteJob(token=token, result=result)
        )

    async def fail(
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
        """Fail an attempt of a job.

        - `id`: The id of the job.
        - `token`: The token of the claimed job.
        - `reason`: The error, for people.
        - `retry_after_s`: The pause before the next attempt. By default, the backoff of the queue.
        - `not_before_s`: The shortest pause before the next attempt.
        - `final`: Whether the job fails without further attempts.
        - `type`: The type of the error, such as `ValueError`.
        - `traceback`: The traceback of the error; its end is stored.

        Raises `NoSuchJob`, `StaleToken`.
        """
        return await self._transport.run(
            api.FAIL,
            id,
            body=api.FailJob(
                token=token,
                reason=reason,
                retry_after_ms=in_ms("retry_after_s", retry_after_s),
                not_before_ms=in_ms("not_before_s", not_before_s),
                final=final,
                type=type,
                traceback=traceback,
            ),
        )

    async def extend(self, id: str, token: str, lease_s: float) -> int:
        """Renew the lease of a job.

        - `id`: The id of the job.
        - `token`: The token of the claimed job.
        - `lease_s`: The length of the lease, from now.

        Raises `NoSuchJob`, `StaleToken`.
        """
        return (
            await self._transport.run(
                api.EXTEND, id, body=api.ExtendJob(token=token, lease_ms=in_ms("lease_s", lease_s))
            )
        ).lease_until_ms

    async def get(self, id: str, *, wait_s: float = 0.0) -> api.Job:
        """Show a job, or wait for its end.

        - `id`: The id of the job.
        - `wait_s`: How long to wait for the end of the job.

        Raises `NoSuchJob`.
        """
        return await self._transport.run(api.GET, id, query=Wait(wait_ms=in_ms("wait_s", wait_s)))

    async def cancel(self, id: str) -> api.JobOutcome:
        """Cancel a job.

        - `id`: The id of the job.

        Raises `NoSuchJob`, `AlreadyEnded`.
        """
        return await self._transport.run(api.CANCEL, id)

    async def retry(self, id: str, *, key: str = "") -> api.JobOutcome:
        """Retry a failed job.

        - `id`: The id of the job.
        - `key`: The idempotency key: a repeated request retries the job once, even if it has failed
          again.

        Raises `NoSuchJob`, `NotFailed`.
        """
        return await self._transport.run(api.RETRY, id, body=api.RetryJob(key=key))

    async def report(
        self,
        id: str,
        token: str,
        *,
        progress: float | None = None,
        text: str = "",
        chunks: Sequence[Any] = (),
        first: int = 0,
    ) -> int:
        """Report progress and output of a running job.

        - `id`: The id of the job.
        - `token`: The token of the claimed job.
        - `progress`: The progress, 0 to 1. By default, it stays as it is.
        - `text`: What the job does at the moment, for people; with `progress`.
        - `chunks`: Chunks to append to the stream of the job: any JSON values.
        - `first`: How many chunks this attempt has sent before. A repeated request appends chunks
          once.

        Raises `NoSuchJob`, `StaleToken`, `BadInput` (stream_full, value_too_large).
        """
        return (
            await self._transport.run(
                api.REPORT,
                id,
                body=ReportOutput(
                    token=token,
                    progress=progress,
                    text=text,
                    chunks=as_list("chunks", chunks),
                    first=first,
                ),
            )
        ).bytes

    async def output(
        self, id: str, *, after: int = 0, state: str = "", wait_s: float = 0.0
    ) -> JobOutput:
        """Read progress and output of a job, or wait for news.

        - `id`: The id of the job.
        - `after`: The position of the reader: `seq` of the answer before; 0: the beginning.
        - `state`: The state that the reader knows. Another one is news.
        - `wait_s`: How long to wait for news.

        Raises `NoSuchJob`.
        """
        return await self._transport.run(
            api.OUTPUT,
            id,
            query=ReadOutput(after=after, state=state, wait_ms=in_ms("wait_s", wait_s)),
        )

    async def emit(
        self, id: str, event: str, *, value: Any = None, key: str = ""
    ) -> api.JobOutcome:
        """Send an event to a job.

        - `id`: The id of the job.
        - `event`: The name of the event.
        - `value`: The value that the handler receives.
        - `key`: The idempotency key: a repeated request sends the event once.

        Raises `NoSuchJob`, `AlreadyEnded`, `BadInput` (too_many_events).
        """
        return await self._transport.run(
            api.EMIT, id, body=api.EmitEvent(event=event, value=value, key=key)
        )

    async def event_link(
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
        """Create a link that sends an event once.

        A person opens the link and presses a button, without credentials.

        - `id`: The id of the job.
        - `event`: The name of the event.
        - `value`: The value that the handler receives.
        - `choices`: In place of a value: the labels of several buttons, with their values.
        - `text`: What the page asks.
        - `expires_s`: How long the link works.
        - `base_url`: The address of the server for browsers. Without it, the link is a path.

        Raises `NoSuchJob`, `AlreadyEnded`, `OncewardError`, `BadInput` (value_too_large).
        """
        return (
            await self._transport.run(
                api.EVENT_LINK,
                id,
                body=api.CreateEventLink(
                    event=event,
                    value=value,
                    choices=as_dict("choices", choices),
                    text=text,
                    expires_ms=in_ms("expires_s", expires_s),
                    base_url=base_url,
                ),
            )
        ).url

    async def children(
        self,
        id: str,
        *,
        after: str = "",
        limit: int = 50,
        state: Literal["succeeded", "failed", "cancelled", "open"] | UnsetType = UNSET,
    ) -> api.JobChildren:
        """List the children of a job.

        - `id`: The id of the job.
        - `after`: The cursor of the next page.
        - `limit`: The maximum number of entries in the response.
        - `state`: The state of the children: one in which they ended, or `open`; default: any.

        Raises `NoSuchJob`.
        """
        return await self._transport.run(
            api.CHILDREN, id, query=api.ListChildren(after=after, limit=limit, state=state)
        )

    async def iterate_children(
        self,
        id: str,
        *,
        after: str = "",
        limit: int = 50,
        state: Literal["succeeded", "failed", "cancelled", "open"] | UnsetType = UNSET,
    ) -> AsyncIterator[JobChild]:
        """Iterate over the entries of all pages of `children`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.children(id, after=after, limit=limit, state=state)
            for one in page.children:
                yield one
            if page.next is None:
                return
            after = page.next

    async def count_children(self, id: str) -> JobChildCounts:
        """Count the children of a job.

        - `id`: The id of the job.

        Raises `NoSuchJob`.
        """
        return await self._transport.run(api.COUNT_CHILDREN, id)

    async def settle(
        self, id: str, step: str, done: bool, *, result: Any = None, reason: str = "", key: str = ""
    ) -> api.JobOutcome:
        """Settle a step in doubt.

        - `id`: The id of the job.
        - `step`: The name of the step.
        - `done`: Whether the step was done. If not, it runs again.
        - `result`: The result of the step, if it was done.
        - `reason`: How the outcome was found out. It is stored with the job, the caller and the
          time.
        - `key`: The idempotency key: a repeated request settles the step once, even if the step is
          in doubt again.

        Raises `NoSuchJob`, `NotFailed`, `KeyReused`.
        """
        return await self._transport.run(
            api.SETTLE,
            id,
            body=api.SettleJob(step=step, done=done, result=result, reason=reason, key=key),
        )

    async def list(
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
        """List jobs, the newest first.

        - `queue`: The queue; default: all queues of the caller.
        - `state`: The state of the jobs; default: any.
        - `tag`: A tag of the jobs; default: any.
        - `key`: The idempotency key of the job.
        - `text`: A part of the id, the key or the order key.
        - `after`: The cursor of the next page.
        - `limit`: The maximum number of entries in the response.

        Raises `BadInput` (bad_key).
        """
        return await self._transport.run(
            api.LIST,
            query=api.FindJobs(
                queue=queue, state=state, tag=tag, key=key, text=text, after=after, limit=limit
            ),
        )

    async def iterate(
        self,
        *,
        queue: str | UnsetType = UNSET,
        state: api.State | UnsetType = UNSET,
        tag: str | UnsetType = UNSET,
        key: str | UnsetType = UNSET,
        text: str = "",
        after: str = "",
        limit: int = 50,
    ) -> AsyncIterator[api.JobSummary]:
        """Iterate over the entries of all pages of `list`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.list(
                queue=queue, state=state, tag=tag, key=key, text=text, after=after, limit=limit
            )
            for one in page.jobs:
                yield one
            if page.next is None:
                return
            after = page.next

    async def count(
        self,
        *,
        queue: str | UnsetType = UNSET,
        state: api.State | UnsetType = UNSET,
        tag: str | UnsetType = UNSET,
        after: str = "",
    ) -> api.JobCount:
        """Count jobs.

        - `queue`: The queue; default: all queues of the caller.
        - `state`: The state of the jobs; default: any.
        - `tag`: A tag of the jobs; default: any.
        - `after`: The cursor of a count that was not complete.
        """
        return await self._transport.run(
            api.COUNT, query=api.CountJobs(queue=queue, state=state, tag=tag, after=after)
        )

    async def history(self, id: str) -> api.JobHistory:
        """Show a job with its steps and effects.

        - `id`: The id of the job.

        Raises `NoSuchJob`.
        """
        return await self._transport.run(api.HISTORY, id)
