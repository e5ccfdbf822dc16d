"""An attempt: runs the handler of one job or a batch, and commits the results.

Within the same attempt, the handler runs again for jobs whose transaction had a conflict, and for
jobs of a batch that failed because of another job. A lost lease or the stop of the worker
interrupts the attempt only while the handler runs. The commit of its result is not interrupted.

A plain function runs in a thread, which cannot be interrupted: the attempt waits for its end, and
rejects its result if the lease was lost.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import CoroutineType
from typing import Any

import msgspec

from onceward import limits, tracing
from onceward.conversion import Converter
from onceward.errors import (
    BadInput,
    Conflict,
    Contention,
    Fail,
    InDoubt,
    NoSuchJob,
    NotDone,
    OncewardError,
    Retry,
    StaleToken,
)
from onceward.functions import name_of
from onceward.job_context import RUNNING, JobContext, about
from onceward.json_values import admit_json
from onceward.keys import shown_key
from onceward.meters import Histogram
from onceward.output_writer import OutputWriter
from onceward.reasons import leaves
from onceward.schedule import (
    COMPLETE_ORDERED_WRITES,
    COMPLETE_WRITES,
    FAMILY_WRITES,
    Claim,
    Schedule,
    job_key,
    milliseconds,
)
from onceward.store import Store
from onceward.store.sharing import SharedCommits
from onceward.store.transaction import Transaction
from onceward.threads import Interrupted, Run, Threads
from onceward.work.asleep import Asleep
from onceward.work.effects import effects_of
from onceward.work.failures import Failure, Failures
from onceward.work.intake import Intake
from onceward.work.job import Job, later_ms
from onceward.work.lease import Lease
from onceward.work.outcome import failures_of, principal, results_of
from onceward.work.steps import Steps
from onceward.work.sync_job import SyncJob
from onceward.work.unawaited import unawaited

logger = logging.getLogger("onceward")

# Log a warning after this number of consecutive conflicts.
_CONFLICTS_TOLD = 8
_JOBS_NAMED = 3


@dataclass(frozen=True, slots=True)
class Handler:
    """The function that runs the jobs of a queue, with its options."""

    queue: str
    fn: Callable[..., Any]
    lease_ms: int
    concurrency: int
    """The maximum number of jobs that a worker runs at once."""
    batch: int = 0
    """The maximum number of jobs per call of `fn`, which gets a list; 0: one job, without a
    list."""
    body: Converter | None = None
    """Converts bodies; None: plain JSON."""
    result: Converter | None = None
    """Converts results; None: plain JSON."""
    plain: bool = False
    """Whether `fn` is a plain function, which runs in a thread."""


@dataclass(eq=False, slots=True)
class Held:
    """A job of this attempt with its lease."""

    claim: Claim
    body: bytes
    """The body as JSON, since the handler may change the decoded one."""
    lease: Lease
    steps: Steps | None = None
    ended: bool = False
    rounds: int = 0
    """How often the handler has run."""
    output: OutputWriter | None = None


class Attempt:
    """One attempt at the jobs of some claims. Run it once, in a separate task."""

    def __init__(
        self,
        store: Store,
        schedule: Schedule,
        intake: Intake,
        sharing: SharedCommits,
        handler: Handler,
        claims: list[Claim],
        threads: Threads,
        failures: Failures,
        took: Histogram,
    ) -> None:
        self.handler = handler
        self._took = took
        self._store = store
        self._schedule = schedule
        self._intake = intake
        self._sharing = sharing
        self._task: asyncio.Task[None] | None = None
        self._threads = threads
        self._failures = failures
        self._run: Run | None = None
        """The run of a plain function."""
        self._handling = False
        self._interrupts = 0
        self._conflict: Conflict | None = None
        self.giving_up = False
        self._held = [
            Held(
                claim,
                msgspec.json.encode(claim.body),
                Lease(store, schedule, claim, handler.lease_ms, self._interrupt),
            )
            for claim in claims
        ]

    @property
    def ids(self) -> list[str]:
        """The ids of its jobs."""
        return [one.claim.id for one in self._held]

    @property
    def name(self) -> str:
        """The handler with its queue and its jobs."""
        jobs = ", ".join(one.claim.id for one in self._held[:_JOBS_NAMED])
        more = " and more" if len(self._held) > _JOBS_NAMED else ""
        return f"{name_of(self.handler.fn)} of {self.handler.queue} (job {jobs}{more})"

    async def run(self) -> None:
        """Run the handler until each job has ended or was released."""
        self._task = asyncio.current_task()
        first = self._held[0].claim
        RUNNING.set(JobContext(first.id, first.queue, first.attempt))
        conflicts = 0
        try:
            if self.handler.body is not None:
                await self._fail_invalid_bodies(self.handler.body)
            while held := [one for one in self._held if self._goes_on(one)]:
                if self.giving_up:
                    await self.give_back()
                    return
                if await self._round(held, conflicts):
                    conflicts = 0
                else:
                    await self._store.pause_before(conflicts)
                    conflicts += 1
                    if conflicts == _CONFLICTS_TOLD:
                        self._tell_of_conflicts(held[0])
        finally:
            for one in self._held:
                one.lease.close()
                if one.output is not None:
                    one.output.close()

    def give_up(self) -> None:
        """Interrupt the handler and release its jobs. Idempotent."""
        if not self.giving_up:
            self.giving_up = True
            self._interrupt()

    async def give_back(self) -> None:
        """Release the remaining jobs to other workers. The attempt does not count."""
        for one in self._held:
            if self._goes_on(one):
                if one.output is not None:
                    await self._quietly(one, one.output.flush())
                await self._quietly(one, self._store.run(self._release(one.claim)))
                one.ended = True
                one.lease.close()

    def _interrupt(self) -> None:
        if not self._handling:
            return
        self._interrupts += 1
        if self._run is not None:
            self._run.interrupt()
        else:
            assert self._task is not None
            self._task.cancel()

    def _goes_on(self, one: Held) -> bool:
        if one.lease.over and not one.ended:
            text = "job %s: lost its lease in attempt %d"
            logger.warning(text, *_name(one), extra=_about(one.claim))
            one.ended = True
        return not one.ended

    async def _round(self, held: list[Held], conflicts: int) -> bool:
        """Run the handler once and commit the results; returns whether any commit succeeded."""
        self._run = Run(self._threads, self.give_up) if self.handler.plain else None
        jobs = [self._job(one) for one in held]
        try:
            results, error, cut_off = await self._handle(held, jobs)
            for one, job in zip(held, jobs, strict=True):
                one.steps, one.output = job.steps, job.output
            if cut_off:
                return True  # the remaining jobs run again or are released
            failures = failures_of(jobs, error)
            if not self.handler.batch:
                results = [results]
            elif error is None:
                failures, results = results_of(jobs, results, failures)
            else:
                results = [None] * len(jobs)
            ends = [
                self._end(one, job, failures.get(job.id), result)
                for one, job, result in zip(held, jobs, results, strict=True)
                if error is None or job.id in failures
            ]
            ended = [await ends[0]] if len(ends) == 1 else await asyncio.gather(*ends)
            if any(ended):
                return True
            if conflicts + 1 >= limits.TRANSACTION_ATTEMPTS_MAX:
                too_many = Contention(
                    f"{conflicts + 1} conflicts in a row: too many jobs write one record; give "
                    "these jobs an order key, or split the record"
                )
                for one in held:
                    await self._fail(one, too_many)
            return False
        finally:
            for job in jobs:
                if job.begun is not None and job.begun.session is not None:
                    job.begun.session.discard()

    async def _fail_invalid_bodies(self, converter: Converter) -> None:
        """Fail jobs permanently whose bodies do not have the type that the handler expects."""
        for one in self._held:
            try:
                converter.read(one.body, "body")
            except BadInput as invalid:
                await self._fail(one, Fail(invalid.message))

    def _job(self, one: Held) -> Job:
        converter = self.handler.body
        if converter is None:
            body = msgspec.json.decode(one.body)
        else:
            body = converter.read(one.body, "body")
        if one.output is not None:
            one.output.close()
        one.rounds += 1
        return Job(
            self._store,
            self._schedule,
            self._intake,
            one.claim,
            body=body,
            steps=one.steps,
            insist=one.lease.insist,
            run=self._run,
            batch=bool(self.handler.batch),
            rounds=one.rounds,
        )

    async def _handle(
        self, held: list[Held], jobs: list[Job]
    ) -> tuple[Any, BaseException | None, bool]:
        """Run the handler; returns its result, its error, and whether it was interrupted."""
        task = self._task
        assert task is not None
        results: Any = None
        error: BaseException | None = None
        cut_off = False
        self._handling = True
        try:
            results = await self._call(held, jobs)
            for job in jobs:
                if job.calls:
                    job.failure = job.failure or unawaited(job.calls)
        except asyncio.CancelledError as cancelled:
            if self._interrupts:
                cut_off = True
            elif task.cancelling():
                raise
            else:
                error = RuntimeError("the handler awaited a task or future that was cancelled")
                error.__cause__ = cancelled
        except Interrupted:
            cut_off = True
        except (Exception, Asleep) as raised:
            error = raised
        except BaseExceptionGroup as group:
            if not all(isinstance(leaf, Exception | Asleep) for leaf in leaves(group)):
                raise
            error = group
        finally:
            self._handling = False
        if self._interrupts:
            cut_off = cut_off or error is not None  # regardless of how the handler reacted
        if self._run is not None:
            cut_off = cut_off or any(one.lease.over for one in held)
        else:
            for _ in range(self._interrupts):
                task.uncancel()
        self._interrupts = 0
        return results, error, cut_off

    async def _call(self, held: list[Held], jobs: list[Job]) -> Any:
        fn, run = self.handler.fn, self._run
        if run is None:
            with self._measured(held):
                results = fn(jobs if self.handler.batch else jobs[0])
                if type(results) is CoroutineType or inspect.isawaitable(results):
                    return await results
                return results
        plain = [SyncJob(job, one.claim, run) for one, job in zip(held, jobs, strict=True)]
        try:
            async with run:
                with self._measured(held):
                    results = await run.run(fn, plain if self.handler.batch else plain[0])
        except SystemExit as exit_:
            raise RuntimeError(f"the handler called sys.exit({exit_.code!r})") from exit_
        if inspect.isawaitable(results):
            if inspect.iscoroutine(results):
                results.close()
            raise Fail(
                f"the plain function {name_of(fn)} returned {type(results).__name__}: declare the "
                "handler with `async def`, or annotate its result as `Awaitable`"
            )
        return results

    @contextmanager
    def _measured(self, held: list[Held]) -> Iterator[None]:
        """Measure a run of the handler, in a span."""
        queue, clock = self.handler.queue, self._store.clock
        claims = [(one.claim.id, one.claim.attempt, one.claim.trace) for one in held]
        begun_ns = clock.elapsed_ns()
        try:
            with tracing.processing(queue, claims, batch=bool(self.handler.batch)) or nullcontext():
                yield
        finally:
            self._took.observe((clock.elapsed_ns() - begun_ns) / 1e9)

    async def _end(self, one: Held, job: Job, error: BaseException | None, result: Any) -> bool:
        """Commit the handler's result for a job; False if the handler must run again."""
        try:
            if job.output is not None:
                await job.output.flush()
            if error is None:
                await self._complete(job, one.claim, result)
                one.ended = True
                one.lease.close()
                return True
            if job.begun is not None:
                # An error caused by outdated reads does not count: check them first.
                await self._store.end(job.begun, write=False, error=error)
        except Conflict as conflict:
            self._conflict = conflict
            if job_key(job.id) in conflict.details.get("keys", ()):  # type: ignore[operator]
                return await self._moved_on(one)
            return False
        except (StaleToken, NoSuchJob) as stale:
            return self._over(one, stale)
        except BadInput as refused:
            error = error or _refusal(refused, result)
        except OncewardError as trouble:
            # The outcome is unknown: the lease expires, and the next attempt continues.
            return self._over(one, trouble)
        except Exception as bug:
            error = error or bug
        await self._fail(one, error)
        return True

    async def _complete(self, job: Job, claim: Claim, result: Any) -> None:
        tx = job.begun
        effects = []
        if self.handler.result is not None:
            result = self.handler.result.plain(result, "result")
        if job.steps or tx is not None:
            effects = effects_of(job.steps or {}, tx.written if tx is not None else [])
        if tx is not None:
            await self._schedule.complete(tx, claim.id, claim.token, result, effects)
            await self._store.end(tx)
        else:  # without writes, many jobs share a commit
            writes = COMPLETE_ORDERED_WRITES if claim.options.order_key else COMPLETE_WRITES
            if claim.related or job.families or job.output:
                writes += FAMILY_WRITES
            await self._sharing.run(
                lambda tx: self._schedule.complete(tx, claim.id, claim.token, result, effects),
                writes=writes,
                reads=self._schedule.read_to_complete(claim),
            )
        self._store.meters.count("ended", queue=claim.queue, state="succeeded")

    async def _moved_on(self, one: Held) -> bool:
        """Whether the attempt has lost the job, so that another run is useless."""
        claim = one.claim
        try:
            await self._store.run(lambda tx: self._schedule.held(tx, claim.id, claim.token))
        except Exception as stale:
            return self._over(one, stale)
        return False

    def _tell_of_conflicts(self, one: Held) -> None:
        """Log which records cause the handler to run repeatedly."""
        found: Any = self._conflict.details.get("keys", ()) if self._conflict is not None else ()
        logger.warning(
            "job %s in attempt %d: its handler has run %d times because records that it read "
            "changed before each commit: %s",
            *_name(one),
            _CONFLICTS_TOLD,
            [shown_key(key) for key in found],
            extra=_about(one.claim),
        )

    def _over(self, one: Held, why: Exception) -> bool:
        one.ended = True
        one.lease.close()
        level = logging.INFO if isinstance(why, StaleToken | NoSuchJob) else logging.WARNING
        text = "job %s in attempt %d: %s"
        logger.log(level, text, *_name(one), why, extra=_about(one.claim))
        return True

    async def _fail(self, one: Held, error: BaseException) -> None:
        error = principal(error)
        failure = self._failures.describe(error)
        try:
            state = await self._store.run(self._failure(one.claim, error, failure))
        except (StaleToken, NoSuchJob) as stale:
            self._over(one, stale)
            return
        except BadInput as refused:
            if isinstance(error, Asleep | Retry | NotDone):  # its time is invalid
                await self._fail(one, refused)
            else:
                self._over(one, refused)
            return
        except Exception as trouble:
            self._over(one, trouble)
            return
        one.ended = True
        one.lease.close()
        self._store.meters.count("ended", queue=one.claim.queue, state=state)
        if state == "scheduled":
            return
        self._failures.log(one.claim, state, failure, error)

    def _failure(
        self, claim: Claim, error: BaseException, failure: Failure
    ) -> Callable[[Transaction], Awaitable[str]]:
        id_, token, reason = claim.id, claim.token, failure.reason
        schedule, details = self._schedule, failure.details

        async def fail(tx: Transaction) -> str:
            if isinstance(error, Asleep):
                await error.release(tx, self._schedule, id_, token)
                return "scheduled"
            if isinstance(error, InDoubt):
                await schedule.hold(tx, id_, token, reason, details=details)
                return "in_doubt"
            if isinstance(error, Fail):
                return await schedule.fail(tx, id_, token, reason, None, details=details)
            when = self._when(error) if isinstance(error, Retry | NotDone) else {}
            return await schedule.fail(tx, id_, token, reason, **when, details=details)

        return fail

    def _when(self, retry: Retry | NotDone) -> dict[str, int]:
        """The time of the retry, if the error specifies one. Raises `BadInput`."""
        at_ms = retry.at_ms if isinstance(retry, Retry) else None
        if retry.after_s is not None:
            return {"retry_ms": later_ms(self._store, milliseconds(retry.after_s, "after_s"))}
        if at_ms is not None:
            if not isinstance(at_ms, int):
                raise BadInput(f"at_ms must be a number of ms since 1970, not {at_ms!r}")
            return {"retry_ms": at_ms}
        if retry.not_before_s is None:
            return {}
        least_ms = milliseconds(retry.not_before_s, "not_before_s")
        return {"not_before_ms": later_ms(self._store, least_ms)}

    def _release(self, claim: Claim) -> Callable[[Transaction], Awaitable[None]]:
        return lambda tx: self._schedule.release(tx, claim.id, claim.token)

    async def _quietly(self, one: Held, work: Awaitable[None]) -> None:
        """Run a transaction that may fail: then the lease expires, or has expired."""
        try:
            await work
        except OncewardError as error:
            self._over(one, error)


def _about(claim: Claim) -> dict[str, object]:
    return about(claim.id, claim.queue, claim.attempt)


def _name(one: Held) -> tuple[str, int]:
    return f"{one.claim.id} of {one.claim.queue}", one.claim.attempt


def _refusal(refused: BadInput, result: Any) -> BadInput:
    """Why a commit was refused: that of the result, if its type cannot be stored."""
    try:
        admit_json(result, "result")
    except BadInput as error:
        return error
    return refused
