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
        app: bool = False,
        after: str = "",
        limit: int = 100,
    ) -> api.TimerPage:
        """List your timers, or the application's."""
        return self._portal.run(
            self._target.list(prefix=prefix, state=state, app=app, after=after, limit=limit)
        )

    def iterate(
        self,
        *,
        prefix: str = "",
        state: api.TimerState | Literal[""] = "",
        app: bool = False,
        after: str = "",
        limit: int = 100,
    ) -> Iterator[api.Timer]:
        """Iterate over the entries of all pages of `list`."""
        return self._portal.iterate(
            self._target.iterate(prefix=prefix, state=state, app=app, after=after, limit=limit)
        )

    def get(self, id: str, *, app: bool = False, caller: str | UnsetType = UNSET) -> api.Timer:
        """Show a timer."""
        return self._portal.run(self._target.get(id, app=app, caller=caller))

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

    def resend(self, id: str, *, app: bool = False, caller: str | UnsetType = UNSET) -> api.Timer:
        """Resend the last firing, with the same id."""
        return self._portal.run(self._target.resend(id, app=app, caller=caller))

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
