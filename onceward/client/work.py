"""A worker over HTTP: claims jobs, runs a handler, and reports results."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from onceward import limits, tracing
from onceward.api.jobs import ClaimedJob
from onceward.client.transport import AWAY_S_MAX, WORKER_PATIENCE_S, patient
from onceward.errors import BadInput, Fail, NoSuchJob, OncewardError, Retry, StaleToken, Unavailable
from onceward.functions import admit_function, is_async
from onceward.output_writer import Chunk, OutputWriter, Progress
from onceward.quantities import milliseconds
from onceward.reasons import reason_of, reason_text, traceback_of, traceback_text
from onceward.redaction import redact
from onceward.threads import Run, Threads

if TYPE_CHECKING:
    from onceward.client.client import Client

logger = logging.getLogger("onceward.client")


class WorkerJob(ClaimedJob, frozen=True, dict=True):
    """A job in the handler of a worker."""

    def __post_init__(self) -> None:
        self.__dict__["output"] = None

    async def progress(self, fraction: float, text: str | None = None) -> None:
        """Report progress, from 0 to 1, with a text for people. It does not wait for the server: at
        most one value in 0.5 s is sent, and always the last one. Raises `BadInput`, and
        `StaleToken` if this attempt is over."""
        self.written.progress(fraction, text)

    async def stream(self, chunk: Any) -> None:
        """Append a chunk to the stream of the job: a text, or any JSON value. Chunks are sent in
        batches, at the latest before the job ends. The first chunk of another attempt replaces the
        stream. Raises `BadInput`, `TooLarge` if the stream is full, and `StaleToken`."""
        await self.written.stream(chunk)

    @property
    def written(self) -> OutputWriter:
        output: OutputWriter | None = self.__dict__["output"]
        assert output is not None, "the worker sets it"
        return output


class SyncWorkerJob(WorkerJob, frozen=True, dict=True):
    """A job in a plain `def` handler of a worker, which runs in a thread."""

    def progress(self, fraction: float, text: str | None = None) -> None:  # type: ignore[override]
        """See `WorkerJob.progress`."""
        self.__dict__["run"].call(self.written.progress, fraction, text)

    def stream(self, chunk: Any) -> None:  # type: ignore[override]
        """See `WorkerJob.stream`."""
        self.__dict__["run"].call(self.written.stream, chunk)


Handler = Callable[[WorkerJob], Awaitable[Any]] | Callable[[SyncWorkerJob], Any]

_RENEWALS_PER_LEASE = 3
_TRIES_PER_LEASE = 30
_PAUSE_S_MAX = 5.0
_WAIT_MS_MIN = 1_000  # less would poll the server


class WorkerKeywords(TypedDict, total=False):
    """The options of `Worker`."""

    concurrency: int
    """How many jobs run at once. Default: 16."""
    lease_s: float
    """The lease of a job, which is renewed while the handler runs. Default: 30."""
    wait_s: float
    """How long one request waits for jobs. Default: 20."""
    name: str
    """The name of the worker, shown with its jobs."""


class Worker:
    """Runs a handler on the jobs of a queue, several at once, until it is stopped.

    The return value of the handler is the result of the job. An exception fails the attempt:
    `Retry` sets the time of the next one, `Fail` is final. The lease is renewed while it runs. If
    it is lost, the handler is cancelled, because another worker may have the job.

    A plain `def` handler runs in a thread, and cannot be cancelled: after a lost lease its result
    is dropped, and its thread is busy until it returns.
    """

    def __init__(
        self,
        client: "Client",
        queue: str,
        handler: Handler,
        *,
        concurrency: int = 16,
        lease_s: float = 30.0,
        wait_s: float = 20.0,
        name: str = "",
    ) -> None:
        """Raises `BadInput`. Errors of the server are raised by `run`."""
        if type(concurrency) is not int or not 1 <= concurrency <= limits.LIST_MAX:
            raise BadInput(f"`concurrency` must be 1 to {limits.LIST_MAX}, not {concurrency!r}")
        admit_function(handler, "the handler of a worker")
        milliseconds(lease_s, "lease_s")
        if milliseconds(wait_s, "wait_s", limits.WAIT_MS_MAX / 1000) < _WAIT_MS_MIN:
            raise BadInput(f"wait_s must be 1 or more, not {wait_s}")
        self._client = client
        self._queue = queue
        self._handler = handler
        self._concurrency = concurrency
        self._lease_s = lease_s
        self._wait_s = wait_s
        self._name = name
        self._running: set[asyncio.Task[None]] = set()
        self._free = asyncio.Event()
        self._stopping = asyncio.Event()
        self._threads: Threads | None = None
        if not is_async(handler):
            self._threads = Threads(concurrency, "onceward-worker")
            self._threads.on_free(self._free.set)

    def stop(self) -> None:
        """Stop claiming jobs. `run` returns when the running ones have ended."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until `stop`. If it is cancelled, other workers get the running jobs when the
        leases end."""
        with patient(WORKER_PATIENCE_S):
            await self._work()

    async def _work(self) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        pause_s = 0.1
        try:
            while not self._stopping.is_set():
                free = self._concurrency - len(self._running)
                if self._threads is not None:
                    free = min(free, self._threads.room)
                if free <= 0:
                    self._free.clear()
                    await self._free.wait()
                    continue
                claiming = asyncio.create_task(
                    self._client.jobs.claim(
                        self._queue,
                        max=free,
                        lease_s=self._lease_s,
                        wait_s=self._wait_s,
                        worker=self._name,
                    )
                )
                await asyncio.wait([claiming, stopping], return_when=asyncio.FIRST_COMPLETED)
                if not claiming.done():
                    claiming.cancel()
                    await asyncio.wait([claiming])
                if claiming.cancelled():
                    continue
                try:
                    claims = claiming.result()
                    pause_s = 0.1
                except OncewardError as error:
                    if not error.kind.retry:
                        raise
                    logger.warning("no jobs of %s: %s", self._queue, error)
                    await self._client.clock.sleep(pause_s)
                    away = error.code == Unavailable.default_code
                    pause_s = min(2 * pause_s, AWAY_S_MAX if away else _PAUSE_S_MAX)
                    continue
                for claim in claims:
                    task = asyncio.create_task(self._run(claim))
                    self._running.add(task)
                    task.add_done_callback(self._ended)
            if self._running:
                await asyncio.wait(self._running)
        finally:
            stopping.cancel()
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running)
            if self._threads is not None:
                self._threads.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._free.set()

    async def _run(self, claim: ClaimedJob) -> None:
        output = OutputWriter(partial(self._write, claim), self._client.clock)
        handling = asyncio.create_task(self._handle(claim, output))
        keeping = asyncio.create_task(self._keep(claim, handling))
        try:
            await asyncio.wait([handling])
        except asyncio.CancelledError:
            handling.cancel()
            await asyncio.wait([handling])
            raise
        finally:
            lost = keeping.done()
            keeping.cancel()
            if lost or not handling.done():
                output.close()
        try:
            if lost:
                logger.warning("job %s: its lease was lost in attempt %d", claim.id, claim.attempt)
            elif (refused := await self._refused(output)) is not None:
                await self._fail(claim, refused)
            elif handling.cancelled():
                await self._fail(
                    claim,
                    BadInput("the handler cancelled itself; raise an error instead"),
                )
            elif (error := handling.exception()) is None:
                await self._complete(claim, handling.result())
            else:
                await self._fail(claim, error)
        except (StaleToken, NoSuchJob) as stale:
            logger.info("job %s in attempt %d: %s", claim.id, claim.attempt, stale)
        except OncewardError as trouble:
            # The lease ends, and another attempt finds out the outcome.
            logger.warning("job %s in attempt %d: %s", claim.id, claim.attempt, trouble)

    async def _write(
        self, claim: ClaimedJob, first: int, chunks: list[Chunk], progress: Progress | None
    ) -> int:
        share, text = progress if progress is not None else (None, "")
        values = [chunk.value for chunk in chunks]
        return await self._client.jobs.report(
            claim.id, claim.token, progress=share, text=text, chunks=values, first=first
        )

    async def _refused(self, output: OutputWriter) -> BadInput | None:
        """Send the rest of the output; returns the error if the server has rejected it."""
        try:
            await output.flush()
        except (StaleToken, NoSuchJob):
            raise
        except BadInput as refused:
            return refused
        finally:
            output.close()
        return None

    async def _handle(self, claim: ClaimedJob, output: OutputWriter) -> Any:
        trace = tracing.read(claim.traceparent, claim.tracestate)
        claims = [(claim.id, claim.attempt, trace)]
        with tracing.processing(self._queue, claims) or tracing.NO_SPAN:
            values = {name: getattr(claim, name) for name in claim.__struct_fields__}
            job: WorkerJob
            if self._threads is None:
                job = WorkerJob(**values)
                job.__dict__["output"] = output
                result = self._handler(job)  # type: ignore[arg-type]
            else:
                job, run = SyncWorkerJob(**values), Run(self._threads)
                job.__dict__.update(output=output, run=run)
                result = await run.main(self._handler, job)
            return await result if inspect.isawaitable(result) else result

    async def _complete(self, claim: ClaimedJob, result: Any) -> None:
        try:
            await self._client.jobs.complete(claim.id, claim.token, result=result)
        except (StaleToken, NoSuchJob):
            raise
        except BadInput as refused:
            # The result is too large or not JSON: a mistake of the handler, to report.
            await self._fail(claim, refused)

    async def _fail(self, claim: ClaimedJob, error: BaseException) -> None:
        reason = reason_text(reason_of(error))
        after_s, least_s = None, 0.0
        if isinstance(error, Retry):
            after_s, least_s = error.after_s, error.not_before_s or 0.0
            if error.at_ms is not None:
                after_s = max(error.at_ms - self._client.clock.now_ms(), 0) / 1000
        failed = await self._client.jobs.fail(
            claim.id,
            claim.token,
            reason,
            retry_after_s=after_s,
            not_before_s=least_s,
            final=isinstance(error, Fail),
            type=type(error).__name__[: limits.ERROR_TYPE_CHARS_MAX],
            traceback=traceback_text(redact(traceback_of(error))),
        )
        logger.warning(
            "job %s failed in attempt %d (%s): %s",
            claim.id,
            claim.attempt,
            "no retry" if failed.state == "failed" else failed.state,
            reason,
        )

    async def _keep(self, claim: ClaimedJob, handling: "asyncio.Task[Any]") -> None:
        """Renew a lease until cancelled. If the lease is lost, cancel the handler and return."""
        clock = self._client.clock
        until_ns = clock.elapsed_ns() + int(self._lease_s * 1e9)
        pause_s = self._lease_s / _RENEWALS_PER_LEASE
        while True:
            await clock.sleep(pause_s)
            after_ns = clock.elapsed_ns() + int(self._lease_s * 1e9)
            try:
                async with asyncio.timeout(max(until_ns - clock.elapsed_ns(), 0) / 1e9):
                    await self._client.jobs.extend(claim.id, claim.token, self._lease_s)
                until_ns = after_ns
                pause_s = self._lease_s / _RENEWALS_PER_LEASE
            except (TimeoutError, OncewardError) as error:
                if isinstance(error, OncewardError) and error.kind.retry:
                    pause_s = self._lease_s / _TRIES_PER_LEASE
                    continue
                handling.cancel()
                return
