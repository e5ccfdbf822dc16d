"""Operators' actions on queues and on many jobs."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Unpack

import msgspec

from onceward import limits
from onceward.api.arguments import in_milliseconds
from onceward.api.jobs import FindJobs, JobPage
from onceward.api.queues import QueueKeywords
from onceward.errors import BadInput
from onceward.observe import search
from onceward.schedule import Job, QueueSettings, Schedule
from onceward.schedule.settings_cache import SettingsCache
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.store.user_records import AnyTransaction, admit_tx
from onceward.work import bulk as queue_part
from onceward.work import steps as steps_part
from onceward.work.bulk import FailedJob, Page
from onceward.work.depths import Depths


class Queues:
    """The queues of a database."""

    def __init__(
        self,
        store: Store,
        schedule: Schedule,
        queue_settings: SettingsCache,
        depths: Depths | None = None,
    ) -> None:
        self._store = store
        self._schedule = schedule
        self._queue_settings = queue_settings
        self._depths = depths

    async def configure(self, queue: str, **settings: Unpack[QueueKeywords]) -> QueueSettings:
        """Change some settings of a queue, on all nodes; the others stay. Idempotent.

        The names are those of `QueueSettings`, with durations in seconds: `retry_first_s=0.5` sets
        `retry_first_ms`. This node uses them when this returns, other nodes a moment later.
        Raises `BadInput`.
        """
        return await self.change(queue, in_milliseconds(QueueSettings, settings))

    async def change(self, queue: str, changes: dict[str, Any]) -> QueueSettings:
        """Like `configure`, with settings in the units of `QueueSettings`."""
        wanted = await self._store.run(lambda tx: queue_part.configure(tx, queue, **changes))
        if self._queue_settings(queue) != wanted:
            # Another node has made the same change, which has not reached this node yet.
            await self._queue_settings.load()
        if self._depths is not None:
            await self._depths.follow()
        return wanted

    async def pause(self, queue: str) -> None:
        """Start no further jobs of a queue. Running jobs continue. Idempotent."""
        await self.configure(queue, paused=True)

    async def resume(self, queue: str) -> None:
        """Start jobs of a paused queue again. Idempotent."""
        await self.configure(queue, paused=False)

    async def jobs(
        self,
        *,
        queue: str | None = None,
        state: str | None = None,
        text: str = "",
        after: str = "",
        limit: int = 50,
    ) -> JobPage:
        """The jobs of a queue and in a state, the newest first; those with `text` in their id, key
        or order key. `after` is `next` of the previous page. A page ends after half a second, so it
        may have few jobs and a `next`. Raises `BadInput`."""
        given = {"queue": queue, "state": state, "text": text, "limit": limit}
        try:
            asked = msgspec.convert({n: v for n, v in given.items() if v is not None}, FindJobs)
        except msgspec.ValidationError as error:
            raise BadInput(
                f"this does not select jobs: {error}; see the members of a selection"
            ) from error
        store = self._store
        page = await search.newest(
            store,
            self._schedule.slots,
            asked.fits,
            before=after or None,
            most=asked.limit,
            until_ns=store.clock.elapsed_ns() + limits.PAGE_MS * 1_000_000,
        )
        found = await search.summaries(store, page.found)
        return JobPage(found, page.scanned, page.next)

    async def failed(self, queue: str, *, after: str = "", limit: int = 100) -> list[FailedJob]:
        """The failed jobs of a queue and those in doubt, the oldest failure first; continue with
        `after=jobs[-1].place`."""
        return await self._store.run(
            lambda tx: queue_part.failed_jobs(tx, queue, after=after, limit=limit)
        )

    async def retry(self, id_: str) -> None:
        """Retry a failed job, at the end of its order key. Raises `NotFailed`."""
        await self._store.run(lambda tx: self._schedule.retry(tx, id_))

    async def redrive(
        self,
        queue: str,
        *,
        where: Callable[[Job], bool] = lambda job: True,
        progress: Callable[[int], None] = lambda done: None,
    ) -> int:
        """Retry the failed jobs of a queue, or those that `where` selects; returns their number.

        Jobs that fail again during the call stay failed. It takes several commits, and calls
        `progress` after each with the number of jobs.
        """
        before_ms = self._store.clock.now_ms() + 1
        return await self._pages(
            lambda start, tx: queue_part.redrive(
                tx, self._schedule, queue, start=start, before_ms=before_ms, chosen=where
            ),
            progress,
        )

    async def purge(
        self, queue: str, *, progress: Callable[[int], None] = lambda done: None
    ) -> int:
        """Cancel all waiting jobs of a queue; returns their number. Running jobs continue."""
        return await self._pages(
            lambda start, tx: queue_part.purge(tx, self._schedule, queue, start=start), progress
        )

    async def settle(
        self,
        id_: str,
        step: str,
        *,
        result: Any = None,
        done: bool,
        token: str | None = None,
        by: str = "",
        reason: str = "",
        tx: AnyTransaction | None = None,
    ) -> None:
        """Record the outcome of a step in doubt. The job continues from there.

        Args:
            result: The result of the step, if it is done.
            done: Whether the step is done.
            token: The `job.token` of an attempt that got the outcome late. The call takes effect
                only if no other attempt has started.
            by, reason: Who settles it, and why. The job keeps both with the time.
            tx: The transaction that this becomes part of.

        Raises `NotFailed` if the step is not in doubt, or not by that attempt, and `BadInput` for
        an unknown step.
        """

        async def settle(tx: Transaction) -> None:
            await steps_part.settle(
                tx,
                self._schedule,
                id_,
                step,
                result=result,
                done=done,
                token=token,
                by=by,
                reason=reason,
            )

        await (self._store.run(settle) if tx is None else settle(admit_tx(tx)))

    async def _pages(
        self,
        page: Callable[[str, Transaction], Awaitable[Page]],
        progress: Callable[[int], None],
    ) -> int:
        if not callable(progress):
            raise BadInput(f"`progress` must be a function, not {type(progress).__name__}")
        done, start = 0, ""
        while True:
            found = await self._store.run(partial(page, start))
            done += found.done
            progress(done)
            if found.next is None:
                return done
            start = found.next
