"""Synchronous classes. Written by `make generate` from `onceward.work.queues`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from onceward.api.jobs import JobPage
from onceward.api.queues import QueueKeywords
from onceward.schedule import Job, QueueSettings
from onceward.store.user_records import SyncTransaction
from onceward.sync.app.transaction import Transaction
from onceward.sync.bridge import Facade, target
from onceward.work.bulk import FailedJob
from onceward.work.queues import Queues as AsyncQueues


class Queues(Facade[AsyncQueues]):
    """The queues of a database."""

    def configure(self, queue: str, **settings: Unpack[QueueKeywords]) -> QueueSettings:
        """Change some settings of a queue, on all nodes; the others stay. Idempotent."""
        return self._portal.run(self._target.configure(queue, **settings))

    def change(self, queue: str, changes: dict[str, Any]) -> QueueSettings:
        """Like `configure`, with settings in the units of `QueueSettings`."""
        return self._portal.run(self._target.change(queue, changes))

    def pause(self, queue: str) -> None:
        """Start no further jobs of a queue. Running jobs continue. Idempotent."""
        return self._portal.run(self._target.pause(queue))

    def resume(self, queue: str) -> None:
        """Start jobs of a paused queue again. Idempotent."""
        return self._portal.run(self._target.resume(queue))

    def jobs(
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
        return self._portal.run(
            self._target.jobs(queue=queue, state=state, text=text, after=after, limit=limit)
        )

    def failed(self, queue: str, *, after: str = "", limit: int = 100) -> list[FailedJob]:
        """The failed jobs of a queue and those in doubt, the oldest failure first; continue with
        `after=jobs[-1].place`."""
        return self._portal.run(self._target.failed(queue, after=after, limit=limit))

    def retry(self, id_: str) -> None:
        """Retry a failed job, at the end of its order key. Raises `NotFailed`."""
        return self._portal.run(self._target.retry(id_))

    def redrive(
        self,
        queue: str,
        *,
        where: Callable[[Job], bool] = lambda job: True,
        progress: Callable[[int], None] = lambda done: None,
    ) -> int:
        """Retry the failed jobs of a queue, or those that `where` selects; returns their number."""
        return self._portal.run(self._target.redrive(queue, where=where, progress=progress))

    def purge(self, queue: str, *, progress: Callable[[int], None] = lambda done: None) -> int:
        """Cancel all waiting jobs of a queue; returns their number. Running jobs continue."""
        return self._portal.run(self._target.purge(queue, progress=progress))

    def settle(
        self,
        id_: str,
        step: str,
        *,
        result: Any = None,
        done: bool,
        token: str | None = None,
        by: str = "",
        reason: str = "",
        tx: Transaction | SyncTransaction | None = None,
    ) -> None:
        """Record the outcome of a step in doubt. The job continues from there."""
        return self._portal.run(
            self._target.settle(
                id_,
                step,
                result=result,
                done=done,
                token=token,
                by=by,
                reason=reason,
                tx=target(tx),
            )
        )
