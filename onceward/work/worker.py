"""A worker: takes jobs of one queue and runs their handler.

It renews the lease while the handler runs. If the lease is lost, because it could not be renewed in
time or the job was cancelled, the handler is interrupted and its commit rejected. A handler's
writes and the end of its job are one commit.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import copy_context

from onceward import limits
from onceward.errors import EngineStopped
from onceward.node import Node
from onceward.schedule import Claim
from onceward.schedule.local_workers import Capacity
from onceward.threads import Threads
from onceward.work.attempt import Attempt, Handler
from onceward.work.failures import Failures
from onceward.work.intake import Intake
from onceward.work.quarantine import Quarantine

logger = logging.getLogger("onceward")


class Worker:
    """Runs one handler on one node."""

    def __init__(
        self,
        node: Node,
        intake: Intake,
        handler: Handler,
        name: str,
        quarantine: Quarantine,
        threads: Threads,
        failures: Failures,
    ) -> None:
        self.name = name
        self.handler = handler
        self.running: dict[asyncio.Task[None], Attempt] = {}
        self._node = node
        self._intake = intake
        self._quarantine = quarantine
        self._threads = threads
        self._failures = failures
        self._took = node.store.meters.histogram("handler_seconds", queue=handler.queue)
        self._hurry = asyncio.Event()
        # Senders start the tasks of jobs: their context variables are not for handlers.
        self._context = copy_context()
        self._capacity = Capacity(
            name,
            handler.lease_ms,
            free=self._free,
            take=self._begin,
            failed=self._failed,
            batch=handler.batch,
        )
        self._resting = False
        self._pause_s = limits.CLAIM_PAUSE_S
        self._leave: Callable[[], None] | None = None

    def start(self) -> None:
        self._leave = self._node.claims.enrol(self.handler.queue, self._capacity)
        self._quarantine.on_open(self._capacity.freed)
        if self.handler.plain:
            self._threads.on_free(self._capacity.freed)

    def hurry(self) -> None:
        """End the wait of `stop` for handlers."""
        self._hurry.set()

    async def stop(self, drain_s: float) -> None:
        """Stop claiming jobs and wait up to `drain_s` for running ones. Then interrupt them and
        release their jobs. Idempotent."""
        if self._leave is not None:
            self._leave()
        await self._drain(drain_s)
        for attempt in self.running.values():
            attempt.give_up()
        self._quarantine.look()
        if self.running:
            await asyncio.wait(self.running, timeout=limits.HANDLER_END_S)
        for task, attempt in list(self.running.items()):
            what = "runs in a thread" if self.handler.plain else "ignores its cancellation"
            logger.error("%s: %s %s, and is released", self.name, task.get_name(), what)
            await attempt.give_back()

    async def _drain(self, drain_s: float) -> None:
        if self.running:
            ended = asyncio.wait(list(self.running))
            drained = asyncio.create_task(ended, name="onceward-drain")
            hurried = asyncio.create_task(self._hurry.wait(), name="onceward-hurry")
            await asyncio.wait(
                [drained, hurried], timeout=drain_s, return_when=asyncio.FIRST_COMPLETED
            )
            drained.cancel()
            hurried.cancel()

    def _free(self) -> int:
        """The number of jobs that the worker can take now."""
        if self._resting or self._quarantine.closed:
            return 0
        batch = max(self.handler.batch, 1)
        free = self.handler.concurrency - len(self.running) * batch
        return min(free, self._threads.room * batch) if self.handler.plain else free

    def _failed(self, error: Exception) -> None:
        """Retry a failed claim after a pause that grows each time."""
        if isinstance(error, EngineStopped):
            self._resting = True
            return
        logger.warning("%s could not claim jobs: %s", self.name, error)
        self._resting = True
        asyncio.get_running_loop().call_later(self._pause_s, self._rested)
        self._pause_s = min(2 * self._pause_s, limits.POLL_S)

    def _rested(self) -> None:
        self._resting = False
        self._capacity.freed()

    def _begin(self, claims: list[Claim]) -> None:
        self._pause_s = limits.CLAIM_PAUSE_S
        suspect = next((claim for claim in claims if claim.suspect), None)
        if suspect is not None or self._quarantine.closed:
            # A suspect runs alone, so that a crash does not affect the other jobs.
            mine = None if self._quarantine.closed else suspect
            others = [claim for claim in claims if claim is not mine]
            if others:
                self._spawn(others).give_up()
            if mine is not None:
                self._quarantine.close(mine.token)
                self._spawn([mine], alone=True)
        elif self.handler.batch and claims:
            self._spawn(claims)
        else:
            for claim in claims:
                self._spawn([claim])

    def _spawn(self, claims: list[Claim], *, alone: bool = False) -> Attempt:
        node = self._node
        attempt = Attempt(
            node.store,
            node.schedule,
            self._intake,
            node.sharing,
            self.handler,
            claims,
            self._threads,
            self._failures,
            self._took,
        )
        run = self._run_alone(attempt, claims[0]) if alone else attempt.run()
        task = asyncio.create_task(
            run, name=f"onceward-job-{claims[0].id}", context=self._context.copy()
        )
        self.running[task] = attempt
        self._quarantine.begun()
        task.add_done_callback(self._ended)
        return attempt

    async def _run_alone(self, attempt: Attempt, claim: Claim) -> None:
        try:
            await self._quarantine.alone(lambda: attempt.giving_up)
            await attempt.run()
        finally:
            self._quarantine.open(claim.token)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self.running[task]
        self._quarantine.ended()
        self._capacity.freed()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: %s", self.name, error, exc_info=error)
