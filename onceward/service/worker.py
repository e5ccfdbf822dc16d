"""A worker: claims the jobs of one queue and runs their handler on them.

While a handler runs its lease is renewed. A lease that is lost, because it could not be
renewed in time or somebody cancelled the job, ends the handler; and whatever it would
still commit is refused. A handler's effects and the end of its job are one commit.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from onceward import limits
from onceward.errors import (
    BadInput,
    Conflict,
    EngineStopped,
    Fail,
    InDoubt,
    NoSuchJob,
    OncewardError,
    Retry,
    StaleToken,
    Unavailable,
)
from onceward.parts import steps as steps_part
from onceward.parts.inbox import Inbox
from onceward.parts.schedule import Claim, steps_key
from onceward.parts.steps import Step, Steps
from onceward.service.job import Asleep, Job
from onceward.service.lease import Lease
from onceward.service.node import Node
from onceward.transaction import Transaction

logger = logging.getLogger("onceward")


@dataclass(frozen=True, slots=True)
class Handler:
    """What to run on the jobs of a queue, and how."""

    queue: str
    fn: Callable[..., Awaitable[Any]]
    lease_ms: int
    concurrency: int
    """How many jobs this worker has at hand at once."""
    batch: int = 0
    """How many jobs `fn` gets at once, as a list; 0: one, by itself."""


class Worker:
    """Runs one handler on one node."""

    def __init__(self, node: Node, inbox: Inbox, handler: Handler, name: str) -> None:
        self.name = name
        self.handler = handler
        self.running: set[asyncio.Task[None]] = set()
        self._node = node
        self._store = node.store
        self._schedule = node.schedule
        self._inbox = inbox
        self._free = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._claiming = asyncio.create_task(self._claim(), name=f"onceward-{self.name}")

    async def stop(self, drain_s: float) -> None:
        """Take no more jobs, and wait for those at hand; those that take longer are ended, and
        given back for others. Twice is once."""
        if self._claiming is not None:
            self._claiming.cancel()
            await asyncio.wait([self._claiming])
        if self.running:
            await asyncio.wait(self.running, timeout=drain_s)
        for task in self.running:
            task.cancel()
        if self.running:
            await asyncio.wait(self.running)

    async def _claim(self) -> None:
        """Claim jobs as long as there are hands for them. Trouble is waited out."""
        handler, pause_s = self.handler, 0.05
        while True:
            free = handler.concurrency - len(self.running) * max(handler.batch, 1)
            if free <= 0:
                self._free.clear()
                await self._free.wait()
                continue
            try:
                claims = await self._node.claims.claim(
                    handler.queue,
                    self.name,
                    lease_ms=handler.lease_ms,
                    most=min(free, handler.batch) if handler.batch else free,
                    wait_s=limits.CLAIM_WAIT_S,
                )
                pause_s = 0.05
            except EngineStopped:
                return
            except OncewardError as error:
                if error.code == "node_stopped":
                    return
                logger.warning("%s could not claim jobs: %s", self.name, error)
                await self._store.clock.sleep(pause_s)
                pause_s = min(2 * pause_s, limits.POLL_S)
                continue
            if handler.batch and claims:
                self._spawn(claims)
            else:
                for claim in claims:
                    self._spawn([claim])

    def _spawn(self, claims: list[Claim]) -> None:
        task = asyncio.create_task(self._attempt(claims), name=f"onceward-job-{claims[0].id}")
        self.running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        self._free.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: %s", self.name, error, exc_info=error)

    async def _attempt(self, claims: list[Claim]) -> None:
        """Run the handler on jobs until each has ended in some way; each for itself."""
        task = asyncio.current_task()
        assert task is not None
        leases = [
            Lease(self._store, self._schedule, c, self.handler.lease_ms, task) for c in claims
        ]
        known: dict[str, Steps | None] = {claim.id: None for claim in claims}
        try:
            left, conflicts = claims, 0
            while left:
                left = await self._run(left, known, conflicts)
                conflicts += 1
        except asyncio.CancelledError:
            # Whoever lost a lease can do nothing more; what is still held goes to others.
            for lease in leases:
                lease.close()
            for lease in leases:
                if not lease.lost:
                    await self._quietly(lease.claim, self._give_back(lease.claim))
        finally:
            for lease in leases:
                lease.close()

    async def _run(
        self, claims: list[Claim], known: dict[str, Steps | None], conflicts: int
    ) -> list[Claim]:
        """Run the handler once; returns the jobs that it must run again on, since what it read
        for them has changed."""
        jobs = [Job(self._store, self._schedule, self._inbox, c, known[c.id]) for c in claims]
        argument: Any = jobs if self.handler.batch else jobs[0]
        error: BaseException | None = None
        results: Any = None
        try:
            results = await self.handler.fn(argument)
        except asyncio.CancelledError:
            raise
        except (Exception, Asleep) as raised:
            error = raised
        again: list[Claim] = []
        for number, (job, claim) in enumerate(zip(jobs, claims, strict=True)):
            known[claim.id] = job.steps
            outcome = error or job.failure
            result = results
            if self.handler.batch:
                result = results[number] if isinstance(results, Sequence) else None
            try:
                await self._finish(job, claim, outcome, result, conflicts)
            except Conflict:
                again.append(claim)
        if again:
            await self._store.pause_before(conflicts)
        return again

    async def _finish(
        self, job: Job, claim: Claim, error: BaseException | None, result: Any, conflicts: int
    ) -> None:
        """Commit how an attempt ended. Raises `Conflict` if the handler must run again."""
        if error is None:
            try:
                await self._complete(job, claim, result)
                return
            except Conflict:
                if conflicts + 1 < limits.TRANSACTION_ATTEMPTS_MAX:
                    raise
                error = BadInput(f"{conflicts + 1} conflicts in a row: too many write one record")
            except (StaleToken, NoSuchJob):
                logger.info("%s: job %s moved on meanwhile", self.name, claim.id)
                return
            except BadInput as refused:
                error = refused
            except OncewardError as trouble:
                # The lease runs out, and another attempt finds out what became of this one.
                logger.warning("%s: job %s: %s", self.name, claim.id, trouble)
                return
        elif job.begun is not None and not isinstance(error, Asleep):
            # An error that comes from what has changed meanwhile is no error.
            await _to_its_end(self._store.end(job.begun, write=False))
        await self._quietly(claim, self._fail(job, claim, error))

    async def _complete(self, job: Job, claim: Claim, result: Any) -> None:
        tx = job.tx
        await self._schedule.complete(tx, claim.id, claim.token, result)
        if job.steps:
            tx.delete(steps_key(claim.id))
        # Not to be cut off halfway: whoever waits for the result must hear of it.
        await _to_its_end(self._store.end(tx))

    async def _fail(self, job: Job, claim: Claim, error: BaseException) -> None:
        id_, token = claim.id, claim.token
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, OncewardError):
            reason = error.message
        now_ms = self._store.clock.now_ms()

        async def end(tx: Transaction) -> str:
            if isinstance(error, Asleep):
                step = Step(until_ms=error.until_ms)
                await steps_part.record(tx, self._schedule, id_, token, error.name, step)
                await self._schedule.release(tx, id_, token, error.until_ms)
                return "asleep"
            if isinstance(error, InDoubt):
                await self._schedule.hold(tx, id_, token, reason)
                return "doubt"
            if isinstance(error, Fail):
                return await self._schedule.fail(tx, id_, token, reason, None)
            if isinstance(error, Retry) and error.at_ms is not None:
                return await self._schedule.fail(tx, id_, token, reason, error.at_ms)
            if isinstance(error, Retry) and error.after_s is not None:
                at_ms = now_ms + int(error.after_s * 1000)
                return await self._schedule.fail(tx, id_, token, reason, at_ms)
            return await self._schedule.fail(tx, id_, token, reason)

        state = await self._store.run(end)
        if state == "asleep":
            return
        level = logging.ERROR if state in ("dead", "doubt") else logging.WARNING
        expected = isinstance(error, OncewardError)
        logger.log(
            level,
            "job %s of %s failed in attempt %d and is %s: %s",
            id_,
            claim.queue,
            claim.attempt,
            state,
            reason,
            exc_info=None if expected else error,
        )

    async def _give_back(self, claim: Claim) -> None:
        async def release(tx: Transaction) -> None:
            await self._schedule.release(tx, claim.id, claim.token)

        await self._store.run(release)

    async def _quietly(self, claim: Claim, work: Coroutine[Any, Any, None]) -> None:
        """Do what may come too late: then the lease runs out, or has."""
        try:
            await _to_its_end(work)
        except (StaleToken, NoSuchJob, Unavailable, EngineStopped) as error:
            logger.info("%s: job %s: %s", self.name, claim.id, error)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await it, and if this is cancelled meanwhile still wait for how it ends."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # whoever cancelled does not want to know
        raise
