"""Synchronous classes. Written by `make generate` from `onceward.webhooks.timers.server`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Unpack, overload

from onceward.api.retries import RetryPolicy
from onceward.api.timers import CatchUp, FailureTarget, Method, Overlap
from onceward.callers import Caller
from onceward.job_options import JobKeywords
from onceward.store.user_records import SyncTransaction
from onceward.sync.app.transaction import Transaction
from onceward.sync.bridge import Facade, target
from onceward.webhooks.timers import Spec, View
from onceward.webhooks.timers.server import Timers as AsyncTimers


class Timers(Facade[AsyncTimers]):
    """The timers of one application. With `tx`, each call is part of that transaction."""

    def set(
        self,
        id_: str | None = None,
        *,
        queue: str | None = None,
        url: str | None = None,
        endpoint: str | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        append_id: bool = False,
        at_ms: int | None = None,
        delay_s: float | None = None,
        every_s: float | None = None,
        cron: str | None = None,
        zone: str | None = None,
        catch_up: CatchUp = "all",
        until_ms: int | None = None,
        times: int | None = None,
        overlap: Overlap = "allow",
        retry: Mapping[str, Any] | RetryPolicy | None = None,
        method: Method = "POST",
        on_failure: Mapping[str, str] | FailureTarget | None = None,
        key: str | None = None,
        caller: Caller | str = "",
        replace: bool = True,
        tx: Transaction | SyncTransaction | None = None,
        **options: Unpack[JobKeywords],
    ) -> View:
        """Create or replace a timer: a job in a queue, or a call of a URL or endpoint."""
        return self._portal.run(
            self._target.set(
                id_,
                queue=queue,
                url=url,
                endpoint=endpoint,
                body=body,
                headers=headers,
                append_id=append_id,
                at_ms=at_ms,
                delay_s=delay_s,
                every_s=every_s,
                cron=cron,
                zone=zone,
                catch_up=catch_up,
                until_ms=until_ms,
                times=times,
                overlap=overlap,
                retry=retry,
                method=method,
                on_failure=on_failure,
                key=key,
                caller=caller,
                replace=replace,
                tx=target(tx),
                **options,
            )
        )

    def put(
        self,
        spec: Spec,
        id_: str | None = None,
        *,
        key: str | None = None,
        caller: Caller | str = "",
        replace: bool = True,
        tx: Transaction | SyncTransaction | None = None,
    ) -> View:
        """Like `set`, with a `Spec`."""
        return self._portal.run(
            self._target.put(spec, id_, key=key, caller=caller, replace=replace, tx=target(tx))
        )

    def add(
        self,
        spec: Spec,
        id_: str | None = None,
        *,
        key: str | None = None,
        caller: Caller | str = "",
        replace: bool = False,
        tx: Transaction | SyncTransaction | None = None,
    ) -> tuple[View, bool]:
        """Like `put`; also returns whether the timer already existed."""
        return self._portal.run(
            self._target.add(spec, id_, key=key, caller=caller, replace=replace, tx=target(tx))
        )

    def id_for(self, key: str, *, caller: Caller | str = "") -> str:
        """Return the id of a timer with an idempotency key. Raises `BadInput`."""
        return self._target.id_for(key, caller=caller)

    def get(
        self,
        id_: str,
        *,
        caller: Caller | str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> View:
        """Return a timer with the result of its last firing. Raises `NoSuchTimer`."""
        return self._portal.run(self._target.get(id_, caller=caller, tx=target(tx)))

    def find(
        self, *, prefix: str = "", after: str = "", limit: int = 100, caller: Caller | str = ""
    ) -> list[View]:
        """Return up to `limit` timers whose ids begin with `prefix`, ordered by id, starting after
        `after`."""
        return self._portal.run(
            self._target.find(prefix=prefix, after=after, limit=limit, caller=caller)
        )

    def move(
        self,
        id_: str,
        *,
        at_ms: int | None = None,
        delay_s: float | None = None,
        caller: Caller | str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> View:
        """Change the due time of a timer. Raises `NoSuchTimer`, `AlreadyEnded`."""
        return self._portal.run(
            self._target.move(id_, at_ms=at_ms, delay_s=delay_s, caller=caller, tx=target(tx))
        )

    def update(
        self,
        id_: str,
        changes: Mapping[str, Any],
        *,
        caller: Caller | str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> View:
        """Change members of a timer, which keeps its id, its number of firings and its history."""
        return self._portal.run(self._target.update(id_, changes, caller=caller, tx=target(tx)))

    def unlock(self) -> None:
        """Load the server keys, to store headers."""
        return self._portal.run(self._target.unlock())

    def update_members(
        self,
        id_: str,
        changes: Mapping[str, Any],
        *,
        caller: Caller | str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> View:
        """Like `update`, with the names of `onceward.webhooks.timers.members` and `delay_ms`."""
        return self._portal.run(
            self._target.update_members(id_, changes, caller=caller, tx=target(tx))
        )

    def pause(
        self,
        id_: str,
        *,
        caller: Caller | str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> View:
        """Pause a timer until it is resumed. A running firing continues. Idempotent. Raises
        `NoSuchTimer`, `AlreadyEnded`."""
        return self._portal.run(self._target.pause(id_, caller=caller, tx=target(tx)))

    def resume(
        self,
        id_: str,
        *,
        caller: Caller | str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> View:
        """Resume a paused timer. Idempotent. Raises `NoSuchTimer`, `AlreadyEnded`."""
        return self._portal.run(self._target.resume(id_, caller=caller, tx=target(tx)))

    @overload
    def cancel(
        self,
        id_: str,
        *,
        missing_ok: Literal[False] = False,
        caller: Caller | str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> View: ...
    @overload
    def cancel(
        self,
        id_: str,
        *,
        missing_ok: bool,
        caller: Caller | str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> View | None: ...
    def cancel(
        self,
        id_: str,
        *,
        missing_ok: bool = False,
        caller: Caller | str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> View | None:
        """Cancel a timer. Idempotent."""
        return self._portal.run(
            self._target.cancel(id_, missing_ok=missing_ok, caller=caller, tx=target(tx))
        )

    def resume_caller(self, caller: str) -> int:
        """Resume the suspended timers of a caller, given by its id. Returns their number."""
        return self._portal.run(self._target.resume_caller(caller))

    def transfer(self, caller: str, to: str) -> tuple[int, list[str]]:
        """Transfer the timers of a caller to another one, both given by their ids."""
        return self._portal.run(self._target.transfer(caller, to))
