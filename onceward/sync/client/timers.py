"""Synchronous classes. Written by `make generate` from `onceward.client.operations.timers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from onceward.api import timers as api
from onceward.api.retries import RetryPolicy
from onceward.client.operations.timers import TimersOperations as AsyncTimersOperations
from onceward.sync.bridge import Facade


class TimersOperations(Facade[AsyncTimersOperations]):
    """Operations on timers: webhook calls and jobs at a time, once or recurring."""

    def create(
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
        """Create a timer, once for its id or key."""
        return self._portal.run(
            self._target.create(
                id=id,
                key=key,
                url=url,
                endpoint=endpoint,
                queue=queue,
                at=at,
                delay_s=delay_s,
                every_s=every_s,
                cron=cron,
                zone=zone,
                catch_up=catch_up,
                until=until,
                times=times,
                overlap=overlap,
                method=method,
                on_failure=on_failure,
                headers=headers,
                body=body,
                append_id=append_id,
                retry=retry,
                due_ms=due_ms,
                order_key=order_key,
                limit_key=limit_key,
                priority=priority,
                attempts_max=attempts_max,
                tags=tags,
            )
        )

    def list(
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
        """List your timers, or the application's."""
        return self._portal.run(
            self._target.list(
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
        )

    def iterate(
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
    ) -> Iterator[api.Timer]:
        """Iterate over the entries of all pages of `list`."""
        return self._portal.iterate(
            self._target.iterate(
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
        )

    def get(self, id: str, *, app: bool = False, caller: str | UnsetType = UNSET) -> api.Timer:
        """Show a timer."""
        return self._portal.run(self._target.get(id, app=app, caller=caller))

    def update(
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
        """Change a timer."""
        return self._portal.run(
            self._target.update(
                id,
                url=url,
                endpoint=endpoint,
                queue=queue,
                at=at,
                delay_s=delay_s,
                every_s=every_s,
                cron=cron,
                zone=zone,
                catch_up=catch_up,
                until=until,
                times=times,
                overlap=overlap,
                method=method,
                on_failure=on_failure,
                headers=headers,
                body=body,
                append_id=append_id,
                retry=retry,
                order_key=order_key,
                limit_key=limit_key,
                priority=priority,
                attempts_max=attempts_max,
                tags=tags,
                app=app,
                caller=caller,
            )
        )

    def pause(self, id: str, *, app: bool = False, caller: str | UnsetType = UNSET) -> api.Timer:
        """Pause a timer until it is resumed."""
        return self._portal.run(self._target.pause(id, app=app, caller=caller))

    def resume(self, id: str, *, app: bool = False, caller: str | UnsetType = UNSET) -> api.Timer:
        """Resume a paused timer with its next time."""
        return self._portal.run(self._target.resume(id, app=app, caller=caller))

    def move(
        self,
        id: str,
        *,
        at: int | datetime | str | None = None,
        delay_s: float | None = None,
        app: bool = False,
        caller: str | UnsetType = UNSET,
    ) -> api.Timer:
        """Move a timer to another time."""
        return self._portal.run(
            self._target.move(id, at=at, delay_s=delay_s, app=app, caller=caller)
        )

    def cancel(self, id: str, *, app: bool = False, caller: str | UnsetType = UNSET) -> api.Timer:
        """Cancel a timer."""
        return self._portal.run(self._target.cancel(id, app=app, caller=caller))

    def resend(
        self,
        id: str,
        *,
        firing: str = "",
        key: str = "",
        app: bool = False,
        caller: str | UnsetType = UNSET,
    ) -> api.Timer:
        """Resend a firing, with the same id."""
        return self._portal.run(
            self._target.resend(id, firing=firing, key=key, app=app, caller=caller)
        )

    def firings(
        self,
        id: str,
        *,
        app: bool = False,
        caller: str | UnsetType = UNSET,
        after: str = "",
        limit: int = 50,
    ) -> api.FiringPage:
        """List the firings of a timer, the latest first."""
        return self._portal.run(
            self._target.firings(id, app=app, caller=caller, after=after, limit=limit)
        )

    def iterate_firings(
        self,
        id: str,
        *,
        app: bool = False,
        caller: str | UnsetType = UNSET,
        after: str = "",
        limit: int = 50,
    ) -> Iterator[api.Firing]:
        """Iterate over the entries of all pages of `firings`."""
        return self._portal.iterate(
            self._target.iterate_firings(id, app=app, caller=caller, after=after, limit=limit)
        )

    def due(self, *, limit: int = 50) -> api.DueTimers:
        """List the timers of all callers that are due next."""
        return self._portal.run(self._target.due(limit=limit))

    def list_all(
        self,
        *,
        state: api.TimerState | UnsetType = UNSET,
        text: str = "",
        after: str = "",
        limit: int = 50,
    ) -> api.AllTimersPage:
        """List the timers of all callers."""
        return self._portal.run(
            self._target.list_all(state=state, text=text, after=after, limit=limit)
        )

    def iterate_all(
        self,
        *,
        state: api.TimerState | UnsetType = UNSET,
        text: str = "",
        after: str = "",
        limit: int = 50,
    ) -> Iterator[api.Timer]:
        """Iterate over the entries of all pages of `list_all`."""
        return self._portal.iterate(
            self._target.iterate_all(state=state, text=text, after=after, limit=limit)
        )
