"""Client methods for timers, from `onceward.api.timers`. Written by `make generate`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from onceward.api import timers as api
from onceward.api.arguments import as_dict, as_struct, as_time, as_tuple, given, in_ms
from onceward.api.retries import RetryPolicy
from onceward.client.operations.base import Operations


class TimersOperations(Operations):
    """Operations on timers: webhook calls and jobs at a time, once or recurring."""

    async def create(
        self,
        *,
        id: str | None = None,
        key: str | None = None,
        url: str | None = None,
        endpoint: str | None = None,
        queue: str | None = None,
        at: int | datetime | str | None = None,
        delay_s: float | None = None,
        every_s: float | None = None,
        cron: str | None = None,
        zone: str | None = None,
        catch_up: api.CatchUp = "all",
        until: int | datetime | str | None = None,
        times: int | None = None,
        overlap: api.Overlap = "allow",
        method: api.Method = "POST",
        on_failure: api.FailureTarget | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        append_id: bool = False,
        retry: RetryPolicy | Mapping[str, Any] | None = None,
        due_ms: int | None = None,
        order_key: str | None = None,
        limit_key: str | None = None,
        priority: int | None = None,
        attempts_max: int | None = None,
        tags: Sequence[str] = (),
    ) -> api.CreatedTimer:
        """Create a timer, once for its id or key.

        - `id`: The id of the timer; by default, the server generates one.
        - `key`: An idempotency key in place of an id. It can come as the header Idempotency-Key
          instead.
        - `url`: The URL to call.
        - `endpoint`: The id of the endpoint to call.
        - `queue`: The queue to send a job to.
        - `at`: The time: milliseconds since 1970, or a text as in RFC 3339. A past time is due at
          once.
        - `delay_s`: The delay from now.
        - `every_s`: The interval of a recurring timer.
        - `cron`: A cron expression: 0 9 * * MON-FRI. The spellings of Quartz and EventBridge work
          as well.
        - `zone`: The time zone of the cron expression [UTC].
        - `catch_up`: Which of the times to catch up on that passed while no server ran.
        - `until`: The end of a recurring timer: milliseconds since 1970, or a text as in RFC 3339.
        - `times`: The number of firings after which a recurring timer ends.
        - `overlap`: What happens at a time when the previous firing is unfinished: fire, skip it,
          or queue.
        - `method`: The HTTP method of the call; a GET request has no body.
        - `on_failure`: Where to report a call that has failed permanently: `queue`, `url` or
          `endpoint`.
        - `headers`: Headers to send with the call.
        - `body`: The body of the call or job: any JSON value.
        - `append_id`: Whether the timer's id is appended to the path of the URL.
        - `retry`: When a failed call is retried: `pauses_s`, `attempts_max`, `timeout_s`.
        - `due_ms`: In place of `at` and `delay_s`: milliseconds since 1970.
        - `order_key`: Jobs of one queue with the same order key run one after the other, in order.
        - `limit_key`: Jobs with the same limit key share the limit `limit_per_key` of the queue.
        - `priority`: The priority: 0 runs first; default: 5.
        - `attempts_max`: The number of attempts after which a failure is final. 0: no limit; None:
          the setting of the queue.
        - `tags`: Tags by which jobs can be found: up to 10, of 1 to 64 bytes each.

        Raises `AddressRefused`, `KeyReused`, `NoSuchEndpoint`, `BadInput` (bad_timer, bad_url,
        bad_name, bad_key, value_too_large).
        """
        return await self._transport.run(
            api.CREATE,
            body=api.CreateTimer(
                id=id,
                key=key,
                url=url,
                endpoint=endpoint,
                queue=queue,
                at=as_time("at", at),
                delay_ms=in_ms("delay_s", delay_s),
                every_ms=in_ms("every_s", every_s),
                cron=cron,
                zone=zone,
                catch_up=catch_up,
                until=as_time("until", until),
                times=times,
                overlap=overlap,
                method=method,
                on_failure=as_struct("on_failure", on_failure, api.FailureTarget),
                headers=as_dict("headers", headers) or {},
                body=body,
                append_id=append_id,
                retry=as_struct("retry", retry, RetryPolicy),
                due_ms=due_ms,
                order_key=order_key,
                limit_key=limit_key,
                priority=priority,
                attempts_max=attempts_max,
                tags=as_tuple("tags", tags),
            ),
        )

    async def list(
        self,
        *,
        prefix: str = "",
        state: api.TimerState | Literal[""] = "",
        endpoint: str = "",
        queue: str = "",
        due_from: int | UnsetType = UNSET,
        due_until: int | UnsetType = UNSET,
        app: bool = False,
        after: str = "",
        limit: int = 100,
    ) -> api.TimerPage:
        """List your timers, or the application's.

        - `prefix`: The beginning of the ids.
        - `state`: The state of the timers; by default, any.
        - `endpoint`: The endpoint that they call.
        - `queue`: The queue that they send to.
        - `due_from`: The earliest due time, in milliseconds since 1970.
        - `due_until`: The latest due time, in milliseconds since 1970.
        - `app`: Whether to list timers of the application itself.
        - `after`: The cursor of the next page.
        - `limit`: The maximum number of entries in the response.
        """
        return await self._transport.run(
            api.LIST,
            query=api.FindTimers(
                prefix=prefix,
                state=state,
                endpoint=endpoint,
                queue=queue,
                due_from=due_from,
                due_until=due_until,
                app=app,
                after=after,
                limit=limit,
            ),
        )

    async def iterate(
        self,
        *,
        prefix: str = "",
        state: api.TimerState | Literal[""] = "",
        endpoint: str = "",
        queue: str = "",
        due_from: int | UnsetType = UNSET,
        due_until: int | UnsetType = UNSET,
        app: bool = False,
        after: str = "",
        limit: int = 100,
    ) -> AsyncIterator[api.Timer]:
        """Iterate over the entries of all pages of `list`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.list(
                prefix=prefix,
                state=state,
                endpoint=endpoint,
                queue=queue,
                due_from=due_from,
                due_until=due_until,
                app=app,
                after=after,
                limit=limit,
            )
            for one in page.timers:
                yield one
            if page.next is None:
                return
            after = page.next

    async def get(
        self, id: str, *, app: bool = False, caller: str | UnsetType = UNSET
    ) -> api.Timer:
        """Show a timer.

        - `id`: The id of the timer.
        - `app`: A timer of the application itself.
        - `caller`: A timer of another caller.

        Raises `NoSuchTimer`, `BadInput` (bad_name).
        """
        return await self._transport.run(api.GET, id, query=api.WhoseTimer(app=app, caller=caller))

    async def update(
        self,
        id: str,
        *,
        url: str | UnsetType | None = UNSET,
        endpoint: str | UnsetType | None = UNSET,
        queue: str | UnsetType | None = UNSET,
        at: int | datetime | str | UnsetType | None = UNSET,
        delay_s: float | UnsetType | None = UNSET,
        every_s: float | UnsetType | None = UNSET,
        cron: str | UnsetType | None = UNSET,
        zone: str | UnsetType | None = UNSET,
        catch_up: api.CatchUp | UnsetType | None = UNSET,
        until: int | datetime | str | UnsetType | None = UNSET,
        times: int | UnsetType | None = UNSET,
        overlap: api.Overlap | UnsetType | None = UNSET,
        method: api.Method | UnsetType | None = UNSET,
        on_failure: api.FailureTarget | Mapping[str, Any] | UnsetType | None = UNSET,
        headers: Mapping[str, str] | UnsetType | None = UNSET,
        body: Any | UnsetType = UNSET,
        append_id: bool | UnsetType | None = UNSET,
        retry: RetryPolicy | Mapping[str, Any] | UnsetType | None = UNSET,
        order_key: str | UnsetType | None = UNSET,
        limit_key: str | UnsetType | None = UNSET,
        priority: int | UnsetType | None = UNSET,
        attempts_max: int | UnsetType | None = UNSET,
        tags: Sequence[str] | UnsetType | None = UNSET,
        app: bool = False,
        caller: str | UnsetType = UNSET,
    ) -> api.Timer:
        """Change a timer.

        - `id`: The id of the timer.
        - `url`: The URL to call.
        - `endpoint`: The id of the endpoint to call.
        - `queue`: The queue to send a job to.
        - `at`: The next time: milliseconds since 1970, or a text as in RFC 3339.
        - `delay_s`: The delay from now.
        - `every_s`: The interval of a recurring timer.
        - `cron`: A cron expression.
        - `zone`: The time zone of the cron expression [UTC].
        - `catch_up`: Which of the times to catch up on that passed while no server ran.
        - `until`: The end of a recurring timer: milliseconds since 1970, or a text as in RFC 3339.
        - `times`: The number of firings after which a recurring timer ends.
        - `overlap`: What happens at a time when the previous firing is unfinished: fire, skip it,
          or queue.
        - `method`: The HTTP method of the call.
        - `on_failure`: Where to report a call that has failed permanently: `queue`, `url` or
          `endpoint`.
        - `headers`: Headers to send with the call, in place of the current ones.
        - `body`: The body of the call or job: any JSON value.
        - `append_id`: Whether the timer's id is appended to the path of the URL.
        - `retry`: When a failed call is retried: `pauses_s`, `attempts_max`, `timeout_s`.
        - `order_key`: The order key of its jobs.
        - `limit_key`: The limit key of its jobs.
        - `priority`: The priority of its jobs: 0 runs first.
        - `attempts_max`: The number of attempts after which a failure is final. 0: no limit.
        - `tags`: The tags of its jobs, in place of the current ones.
        - `app`: A timer of the application itself.
        - `caller`: A timer of another caller.

        Raises `NoSuchTimer`, `AlreadyEnded`, `AddressRefused`, `NoSuchEndpoint`, `BadInput`
        (bad_name, bad_timer, bad_url, value_too_large).
        """
        return await self._transport.run(
            api.UPDATE,
            id,
            body=given(
                url=url,
                endpoint=endpoint,
                queue=queue,
                at=as_time("at", at),
                delay_ms=in_ms("delay_s", delay_s),
                every_ms=in_ms("every_s", every_s),
                cron=cron,
                zone=zone,
                catch_up=catch_up,
                until=as_time("until", until),
                times=times,
                overlap=overlap,
                method=method,
                on_failure=as_struct("on_failure", on_failure, api.FailureTarget),
                headers=as_dict("headers", headers),
                body=body,
                append_id=append_id,
                retry=as_struct("retry", retry, RetryPolicy),
                order_key=order_key,
                limit_key=limit_key,
                priority=priority,
                attempts_max=attempts_max,
                tags=as_tuple("tags", tags),
            ),
            query=api.WhoseTimer(app=app, caller=caller),
        )

    async def pause(
        self, id: str, *, app: bool = False, caller: str | UnsetType = UNSET
    ) -> api.Timer:
        """Pause a timer until it is resumed.

        - `id`: The id of the timer.
        - `app`: A timer of the application itself.
        - `caller`: A timer of another caller.

        Raises `NoSuchTimer`, `AlreadyEnded`, `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.PAUSE, id, query=api.WhoseTimer(app=app, caller=caller)
        )

    async def resume(
        self, id: str, *, app: bool = False, caller: str | UnsetType = UNSET
    ) -> api.Timer:
        """Resume a paused timer with its next time.

        - `id`: The id of the timer.
        - `app`: A timer of the application itself.
        - `caller`: A timer of another caller.

        Raises `NoSuchTimer`, `AlreadyEnded`, `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.RESUME, id, query=api.WhoseTimer(app=app, caller=caller)
        )

    async def move(
        self,
        id: str,
        *,
        at: int | datetime | str | None = None,
        delay_s: float | None = None,
        app: bool = False,
        caller: str | UnsetType = UNSET,
    ) -> api.Timer:
        """Move a timer to another time.

        - `id`: The id of the timer.
        - `at`: The new time: milliseconds since 1970, or a text as in RFC 3339.
        - `delay_s`: The delay from now.
        - `app`: A timer of the application itself.
        - `caller`: A timer of another caller.

        Raises `NoSuchTimer`, `AlreadyEnded`, `BadInput` (bad_name, bad_timer).
        """
        return await self._transport.run(
            api.MOVE,
            id,
            body=api.MoveTimer(at=as_time("at", at), delay_ms=in_ms("delay_s", delay_s)),
            query=api.WhoseTimer(app=app, caller=caller),
        )

    async def cancel(
        self, id: str, *, app: bool = False, caller: str | UnsetType = UNSET
    ) -> api.Timer:
        """Cancel a timer.

        - `id`: The id of the timer.
        - `app`: A timer of the application itself.
        - `caller`: A timer of another caller.

        Raises `NoSuchTimer`, `AlreadyEnded`, `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.CANCEL, id, query=api.WhoseTimer(app=app, caller=caller)
        )

    async def resend(
        self,
        id: str,
        *,
        firing: str = "",
        key: str = "",
        app: bool = False,
        caller: str | UnsetType = UNSET,
    ) -> api.Timer:
        """Resend a firing, with the same id.

        - `id`: The id of the timer.
        - `firing`: The id of the firing, which may have succeeded; by default, the last one, if it
          failed.
        - `key`: The idempotency key: a repeated request sends the firing once.
        - `app`: A timer of the application itself.
        - `caller`: A timer of another caller.

        Raises `NoSuchTimer`, `NotFailed`, `NoSuchFiring`, `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.RESEND,
            id,
            body=api.ResendFiring(firing=firing, key=key),
            query=api.WhoseTimer(app=app, caller=caller),
        )

    async def firings(
        self,
        id: str,
        *,
        app: bool = False,
        caller: str | UnsetType = UNSET,
        after: str = "",
        limit: int = 50,
    ) -> api.FiringPage:
        """List the firings of a timer, the latest first.

        - `id`: The id of the timer.
        - `app`: A timer of the application itself.
        - `caller`: A timer of another caller.
        - `after`: The cursor of the next page.
        - `limit`: The maximum number of entries in the response.

        Raises `NoSuchTimer`, `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.FIRINGS, id, query=api.FindFirings(app=app, caller=caller, after=after, limit=limit)
        )

    async def iterate_firings(
        self,
        id: str,
        *,
        app: bool = False,
        caller: str | UnsetType = UNSET,
        after: str = "",
        limit: int = 50,
    ) -> AsyncIterator[api.Firing]:
        """Iterate over the entries of all pages of `firings`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.firings(id, app=app, caller=caller, after=after, limit=limit)
            for one in page.firings:
                yield one
            if page.next is None:
                return
            after = page.next

    async def due(self, *, limit: int = 50) -> api.DueTimers:
        """List the timers of all callers that are due next.

        - `limit`: The maximum number of entries in the response.
        """
        return await self._transport.run(api.DUE, query=api.DueTimersQuery(limit=limit))

    async def list_all(
        self,
        *,
        state: api.TimerState | UnsetType = UNSET,
        text: str = "",
        after: str = "",
        limit: int = 50,
    ) -> api.AllTimersPage:
        """List the timers of all callers.

        - `state`: The state of the timers; by default, any.
        - `text`: A part of the id.
        - `after`: The cursor of the next page.
        - `limit`: The maximum number of entries in the response.
        """
        return await self._transport.run(
            api.LIST_ALL, query=api.FindAllTimers(state=state, text=text, after=after, limit=limit)
        )

    async def iterate_all(
        self,
        *,
        state: api.TimerState | UnsetType = UNSET,
        text: str = "",
        after: str = "",
        limit: int = 50,
    ) -> AsyncIterator[api.Timer]:
        """Iterate over the entries of all pages of `list_all`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.list_all(state=state, text=text, after=after, limit=limit)
            for one in page.timers:
                yield one
            if page.next is None:
                return
            after = page.next
