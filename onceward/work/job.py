"""The `Job` object that a handler receives."""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    ParamSpec,
    TypedDict,
    TypeVar,
    TypeVarTuple,
    Unpack,
    overload,
)

import msgspec

from onceward import keys, limits, tracing
from onceward.api.arguments import unknown_name
from onceward.callers import caller_id
from onceward.contexts import restore
from onceward.errors import BadInput, Fail, InDoubt, NotDone, OncewardError, TooLarge
from onceward.functions import is_async
from onceward.job_options import (
    MERGE_NAMES,
    OPTION_NAMES,
    JobOptions,
    SendKeywords,
    job_options,
)
from onceward.json_values import decode
from onceward.keys import Key
from onceward.output_writer import Chunk, OutputWriter, Progress
from onceward.quantities import milliseconds
from onceward.schedule import Claim, Schedule
from onceward.schedule.children import Family
from onceward.sql.databases import database_of
from onceward.sql.steps import SqlStep, purge_sometimes
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.store.user_records import UserTransaction, stored_key
from onceward.threads import Run
from onceward.tracing import Trace
from onceward.work import events, output
from onceward.work import steps as steps_part
from onceward.work.annotations import result_converter
from onceward.work.asleep import Asleep, AwaitsChildren, AwaitsEvent
from onceward.work.children import ChildJob, Children, admit_children, children_of
from onceward.work.inbox import Receipt
from onceward.work.job_fields import Body, JobFields
from onceward.work.merging import Merge, merge_of
from onceward.work.steps import Step, Steps, done_step, result_of
from onceward.work.unawaited import noted

if TYPE_CHECKING:
    from onceward.work.intake import Intake

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_SEND_NAMES = OPTION_NAMES.union(MERGE_NAMES, ("key", "caller", "delay_s", "due_ms"))


_STEP: ContextVar[tuple["Job[Any] | None", str]] = ContextVar("onceward_step", default=(None, ""))
"""The step that runs in this context, and its job."""


class SendArguments(TypedDict, total=False):
    """The arguments of `Inbox.accept` that a caller can specify."""

    options: JobOptions
    key: str | None
    caller: str
    due_ms: int
    trace: Trace
    merge: Merge


class Job(JobFields[Body], Generic[Body]):
    """One attempt at a job. `Job[Mail]` is a job whose body is a `Mail`.

    Writes on `tx` commit together with the end of the job. If a record that the handler read has
    changed, it runs again within the same attempt, without the recorded steps. So put every
    external call in a step, and all steps before the first use of `tx`. Read records that steps
    need with `read`.
    """

    def __init__(
        self,
        store: Store,
        schedule: Schedule,
        intake: "Intake",
        claim: Claim,
        *,
        body: Body,
        steps: Steps | None = None,
        insist: Callable[[], int] = lambda: limits.LEASE_MS_MAX,
        run: Run | None = None,
        batch: bool = False,
        rounds: int = 0,
    ) -> None:
        """`steps` are already loaded steps; `insist` raises if the lease has ended, and returns its
        remaining time; `run` has the thread of a plain handler; `rounds` is how often the handler
        has run in this attempt."""
        super().__init__(claim, body)
        self._run_number = claim.number
        self._batch = batch
        self._rounds = rounds
        self.output: OutputWriter | None = None
        """Its progress and its stream, if the handler has reported any."""
        self.steps = {} if steps is None and not claim.stepped else steps
        """The recorded steps; None before they are loaded."""
        self.failure: BaseException | None = None
        self.raised: deque[BaseException] = deque(maxlen=limits.RAISED_MAX)
        """The last exceptions of its steps and waits, which may run at the same time."""
        self.calls: list[Any] = []
        """Calls of its methods; see `unawaited`."""
        self.stepping = 0
        """The number of step functions that run."""
        self._store = store
        self._schedule = schedule
        self._intake = intake
        self._insist = insist
        self._run = run
        self.begun: Transaction | None = None
        """The transaction, if the handler has used it."""
        self._kept: list[str] | None = None
        """The recorded steps at the first chunk of the stream, whose chunks stay."""
        self._user_tx: UserTransaction | None = None
        self._names: set[str] = set()
        self._reads: set[str] = set()
        self._sleeps = 0
        self._waits = 0
        self.families = 0
        """The number of calls that have asked for children in this attempt."""

    @property
    def tx(self) -> UserTransaction:
        """The transaction that ends the job. It starts with its first use, after all steps."""
        if self._user_tx is None or self.stepping:
            self._user_tx = UserTransaction(self._begin())
        return self._user_tx

    def _begin(self) -> Transaction:
        if self.stepping:
            raise BadInput(
                "job.tx was used inside a step. Later attempts skip recorded steps, so its writes "
                "would be lost. Return the value from the step, and write it after all steps."
            )
        if self.begun is None:
            self.begun = self._store.begin()
            self.begun.job = self.id
        return self.begun

    async def sql(self) -> Any:
        """A connection of asyncpg to Onceward's PostgreSQL database: its statements, `job.tx` and
        the end of the job commit together or not at all. See `Transaction.sql`.

        Like `job.tx`, it comes after all steps. In plain handlers, run its methods with `job.call`.
        If the database aborts a statement or the commit because of concurrent transactions, the
        handler runs again. Raises `BadInput` on other databases and in batches.
        """
        if self._batch:
            raise BadInput(f"job {self.id} is part of a batch; omit `batch` to use job.sql")
        return await self._begin().sql()

    def fail(self, error: Exception | str) -> None:
        """Fail this job of a batch. An error has the effect of one that a handler raises, `Retry`
        and `Fail` included. Raises `BadInput`."""
        if not isinstance(error, Exception | str):
            raise BadInput(f"job.fail takes an exception or a text, not {type(error).__name__}")
        self.failure = RuntimeError(error) if isinstance(error, str) else error

    @noted
    async def send(
        self, queue: str, body: Any, *, key: str | None = None, **options: Unpack[SendKeywords]
    ) -> Receipt:
        """Send a message in the commit that ends this job. Arguments, result and errors are those
        of `App.send`."""
        arguments = send_arguments(self._store, options)
        arguments["key"] = key
        return await self._intake.accept_within(self._begin(), queue, body, arguments)

    @overload
    async def step(
        self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def step(
        self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[Unpack[Ts]], Awaitable[T]],
        /,
        *args: *Ts,
        at_most_once: bool = ...,
        ask: Callable[[], Awaitable[T] | T] | None = ...,
    ) -> T: ...
    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[Unpack[Ts]], T],
        /,
        *args: *Ts,
        at_most_once: bool = ...,
        ask: Callable[[], Awaitable[T] | T] | None = ...,
    ) -> T: ...
    @noted  # type: ignore[misc]  # the arguments of two signatures are a type variable
    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        at_most_once: bool = False,
        ask: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run `fn(*args, **kwargs)` and record its result as JSON. Later attempts get the recorded
        result.

        The result has the type in the annotation of `fn`, if it is a dataclass, a TypedDict, a
        msgspec struct, a Pydantic model or a type that contains them, in the first attempt and in
        later ones. Without an annotation it is plain JSON.

        Args:
            at_most_once: Do not repeat an interrupted step. Its intent is recorded first, and an
                intent without a result is in doubt until it is settled. An error of `fn` other than
                `NotDone` leaves the step in doubt as well.
            ask: Finds out the outcome of a step in doubt: returns the result, or raises `NotDone`.
                `NotDone` must be final: a call of an earlier attempt can still be on its way, and
                the receiver must reject it from then on.

        Raises the errors of `fn`, `InDoubt`, `StaleToken` if this attempt is over, and `BadInput`.
        """
        call = partial(fn, **kwargs) if kwargs else fn
        result = await self._step(name, call, *args, at_most_once=at_most_once, ask=ask)
        return self._converted(name, fn, result)

    def _converted(self, name: str, fn: Callable[..., Any], result: Any) -> Any:
        converter = result_converter(fn)
        if converter is None:
            return result
        with self._blamed():
            return converter.read(msgspec.json.encode(result), f"the step {name!r}: result")

    @overload
    async def sql_step(
        self,
        database: Any,
        fn: Callable[[Any, Unpack[Ts]], Awaitable[T]],
        /,
        *args: *Ts,
        name: str | None = None,
    ) -> T: ...
    @overload
    async def sql_step(
        self,
        database: Any,
        fn: Callable[[Any, Unpack[Ts]], T],
        /,
        *args: *Ts,
        name: str | None = None,
    ) -> T: ...
    @noted  # type: ignore[misc]  # as for `step`
    async def sql_step(
        self, database: Any, fn: Callable[..., Any], /, *args: Any, name: str | None = None
    ) -> Any:
        """Run `fn(connection, *args)` in a transaction of your own database, once for the job.

        The record of the step commits in the same transaction. Later attempts, and those after a
        retry of the failed job, get the recorded result. Create the tables with `onceward outbox
        migrate`.

        Args:
            database: An engine, session factory, session or connection of SQLAlchemy,
                `django.db.connection`, a pool or connection of asyncpg or psycopg, a connection of
                sqlite3 or aiosqlite, or a URL. Functions on synchronous ones run in a thread.
            fn: Must not commit or roll back. It can run again if the commit fails.
            name: The name of the step. Default: that of the function.

        Raises the errors of `fn` and of the driver, `StaleToken` if this attempt is over, and
        `BadInput`.
        """
        if not callable(fn):
            raise BadInput(f"a SQL step needs a function, not {type(fn).__name__}")
        name = getattr(fn, "__qualname__", "<lambda>") if name is None else name
        if "<lambda>" in str(name):
            raise BadInput("a SQL step with a lambda needs a name; pass name=…")
        if "\0" in str(name):
            raise BadInput(f"the name of a SQL step has a NUL character: {name!r:.100}; remove it")
        database_of(database)
        kept_ms = self._schedule.settings(self.queue).key_retention_ms
        kept_ms = limits.RETENTION_MS_MAX if kept_ms is None else kept_ms
        kept_ms = max(kept_ms, limits.SQL_STEP_KEPT_MS)
        step = SqlStep(
            *(self.id, name, self._run_number, kept_ms, self._insist),
            *(self._store.clock.elapsed_ns, database, fn, args),
            lambda result: steps_part.admit_result(self.steps or {}, self.id, name, result),
            None if self._run is None else self._run.run,
        )
        result = await self._step(name, step.result, at_most_once=False, ask=None)
        await purge_sometimes(self._store, database)
        return self._converted(name, fn, result)

    async def _step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        at_most_once: bool,
        ask: Callable[[], Any] | None,
    ) -> Any:
        self._admit(name)
        for call in (fn,) if ask is None else (fn, ask):
            if not callable(call):  # checked before an intent is recorded
                raise BadInput(f"the step {name!r} needs a function, not {type(call).__name__}")
        with self._blamed():
            steps = await self._load()
            known = steps.get(name)
            if known is not None and known.done:
                return result_of(known)
            with tracing.step(name, self.id, self.attempt):
                within = _STEP.set((self, name))
                try:
                    if not at_most_once:
                        self._insist()
                        started_ms = self._store.clock.now_ms()
                        return await self._done(name, await self._call(fn, *args), started_ms)
                    if known is not None:
                        with suppress(NotDone):
                            return await self._find_out(name, known, ask)
                    return await self._once(name, ask, fn, *args)
                finally:
                    restore(_STEP, within)

    @overload
    async def read(self, key: Key) -> Any: ...
    @overload
    async def read(self, key: Key, type: type[T]) -> T | None: ...
    @noted
    async def read(self, key: Key, type: Any = Any) -> Any:
        """Return the value of a record of the application, or None, and record it like the result
        of a step: all attempts get the same value, and steps may follow.

        The commit of the job does not check that the record is unchanged. To change the record,
        read it with `tx.get` after all steps.

        Raises `StaleToken` if this attempt is over, `BadInput`, and `Fail` after the first use of
        `tx`.
        """
        stored = stored_key(key)
        name = steps_part.read_name(key)
        if name in self._names - self._reads:
            raise BadInput(f"a step has the name {name!r}, which is used to read {key}: rename it")
        self._names.add(name)
        self._reads.add(name)
        self._must_precede_tx(f"job.read({key!r})")
        with self._blamed():
            steps = await self._load()
            if name not in steps:
                self._insist()
                found = await self._store.run(
                    lambda tx: steps_part.read(
                        tx, self._schedule, self.id, self.token, name, stored
                    )
                )
                steps.setdefault(name, found)
            value = steps[name].result
            return None if value is None else decode(msgspec.json.encode(value), type, stored)

    @noted
    async def reopen(self, name: str, why: str) -> NoReturn:
        """Put a step with a wrong result in doubt, until it is settled again. An operator may have
        entered the result by mistake.

        Raises `InDoubt`, `StaleToken` if this attempt is over, and `BadInput` if the step has no
        result.
        """
        with self._blamed():
            known = (await self._load()).get(name) if type(name) is str else None
            if known is None or not known.done:
                raise BadInput(
                    f"the step {str(name)[:100]!r} has no result to reopen; name a recorded step"
                )
            intent = Step(intent=self.attempt, token=self.token, why=why[: limits.REASON_CHARS_MAX])
            await self._record(name, intent)
            raise InDoubt(f"the step {name!r} must be settled again: {why}")

    @noted
    async def sleep(self, seconds: float) -> None:
        """Sleep without occupying a worker, through restarts. Afterwards the handler starts from
        its beginning, and recorded steps are not run again."""
        sleep_ms = milliseconds(seconds, "a sleep")
        self._sleeps += 1
        name = f"sleep {self._sleeps}"
        self._admit(name)
        now_ms = self._store.clock.now_ms()
        known = (await self._load()).get(name)
        until_ms = now_ms + sleep_ms if known is None else known.until_ms
        if until_ms > now_ms:
            with self._blamed():
                raise Asleep(name, until_ms)

    @noted
    async def wait_for(self, event: str, timeout_s: float | None = None) -> Any:
        """Wait for an event without occupying a worker, through restarts; returns its value.

        `App.emit` sends events. One that arrived earlier counts; each is consumed once, the oldest
        first. Afterwards the handler starts from its beginning, as after `sleep`. Raises
        `TimeoutError` if there is no event in time, and `BadInput`.
        """
        events.admit_event(event)
        timeout_ms = 0 if timeout_s is None else milliseconds(timeout_s, "a time limit")
        self._waits += 1
        name = f"wait {self._waits} for {event}"
        self._admit(name)
        with self._blamed():
            known = (await self._load()).get(name)
            if known is None or not known.done:
                until_ms = later_ms(self._store, timeout_ms) if timeout_s is not None else 0
                until_ms = until_ms if known is None else known.until_ms
                known = await self._store.run(
                    lambda tx: events.take(
                        tx, self._schedule, self.id, self.token, name, event, until_ms
                    )
                )
                if known is None:
                    raise AwaitsEvent(name, event, until_ms)
                (await self._load())[name] = known
            if known.why:
                raise TimeoutError(f"job {self.id} got no event {event!r} in time")
            return result_of(known)

    @noted
    async def gather(
        self, *children: ChildJob[T], keep: bool = False, return_exceptions: bool = False
    ) -> list[T]:
        """Run jobs as children of this one, and return their results in the same order.

        They run in the queues of their handlers, on any node, while this job waits without
        occupying a worker. Afterwards the handler starts from its beginning. Children that have not
        ended are cancelled when this job is cancelled or fails permanently.

        Args:
            keep: Whether they continue when this job is cancelled or has failed.
            return_exceptions: Return a `ChildFailed` in place of the result of a child that failed
                or was cancelled. By default, the first one is raised when all have ended.

        Raises `ChildFailed`, `BadInput`, `QueueFull`, and `Fail` if an earlier attempt asked for
        other children.
        """
        number, family = await self._family(children, any_=False, keep=keep)
        ended = await children_of(self._store, self.id, number, family)
        with self._blamed():
            pairs = zip(children, ended, strict=True)
            return [asked.outcome(child, raises=not return_exceptions) for asked, child in pairs]

    @noted
    async def wait_any(self, *children: ChildJob[T], keep: bool = False) -> tuple[int, T]:
        """Run jobs as children of this one until one of them has ended; returns its position and
        its result. The others are cancelled when this job ends, unless `keep` is true. Raises
        `ChildFailed` if the first child to end has failed, and the errors of `gather`."""
        number, family = await self._family(children, any_=True, keep=keep)
        [child] = await children_of(self._store, self.id, number, family)
        first = family.first or 0
        with self._blamed():
            return first, children[first].outcome(child, raises=True)

    async def _family(
        self, children: Sequence[ChildJob[Any]], *, any_: bool, keep: bool
    ) -> tuple[int, Family]:
        self.families += 1
        number = self.families
        self._admit(f"children {number}")
        admit_children(children, self, number, any_=any_)
        part = Children(self._schedule)
        with self._blamed():
            family = await self._store.run(
                lambda tx: part.begin(
                    tx, self.id, self.token, number, children, any_=any_, keep=keep
                )
            )
            while family.created < family.total:
                self._insist()
                created = family.created
                create = partial(part.create, id_=self.id, token=self.token, number=number)
                family = await self._store.run(partial(create, asked=children, created=created))
            if not family.complete:
                raise AwaitsChildren(number)
        return number, family

    async def progress(self, fraction: float, text: str | None = None) -> None:
        """Report progress, from 0 to 1, with a text for people: `job.progress(0.4, "page 4")`.

        Readers see it in the console, with `App.follow` and in lists of jobs. It does not wait for
        a commit: at most one value in 0.5 s is stored, and always the last one. It stays stored
        while the job is retried, until the next attempt reports its own. Raises `BadInput`, and
        `StaleToken` if this attempt is over.
        """
        with self._blamed():
            self._insist()
            self._written().progress(fraction, text)

    async def stream(self, chunk: Any) -> None:
        """Append a chunk to the stream of the job: a text, or any JSON value.

        Readers follow it with `App.follow`, in order, while the job runs and afterwards. Chunks are
        stored in batches, at the latest before the step or the job ends. If the handler starts
        again, its first chunk replaces the stream, except for chunks of recorded steps.

        Raises `BadInput`, `TooLarge` if the stream is full, and `StaleToken` after the attempt.
        """
        with self._blamed():
            self._insist()
            if self._kept is None:
                self._kept = [name for name, step in (await self._load()).items() if step.done]
            job, step = _STEP.get()
            await self._written().stream(chunk, step if job is self else "")

    def _written(self) -> OutputWriter:
        if self.output is None:
            self.output = OutputWriter(self._write, self._store.clock)
        return self.output

    async def _write(self, first: int, chunks: list[Chunk], progress: Progress | None) -> int:
        run = output.Run(self.token, self._rounds, self._kept or ())
        return await self._store.run(
            lambda tx: output.report(tx, self._schedule, self.id, run, first, chunks, progress)
        )

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Record an exception as the failure of this job only: others of its batch continue."""
        try:
            yield
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.raised.append(error)
            raise

    async def _once(
        self, name: str, ask: Callable[[], Any] | None, fn: Callable[..., Any], *args: Any
    ) -> Any:
        started_ms = self._store.clock.now_ms()
        intent = Step(intent=self.attempt, token=self.token, started_ms=started_ms)
        await self._record(name, intent)
        # An attempt that stalled for longer than its lease stops here. It is not in doubt: the call
        # was not made.
        self._insist()
        try:
            try:
                result = await self._call(fn, *args)
            except NotDone:
                raise
            except Exception as error:
                if ask is not None:
                    return await self._find_out(name, intent, ask)
                why = f"{type(error).__name__}: {error}"[: limits.REASON_CHARS_MAX]
                with suppress(OncewardError):  # the step is in doubt with or without the reason
                    await self._record(name, msgspec.structs.replace(intent, why=why))
                raise InDoubt(
                    f"the step {name!r} may or may not have been done: {why}. Settle it"
                ) from error
        except NotDone:
            await self._record(name, None)
            raise
        return await self._done(name, result, started_ms)

    async def _find_out(self, name: str, known: Step, ask: Callable[[], Any] | None) -> Any:
        if ask is None and known.why:
            raise InDoubt(
                f"the step {name!r} may or may not have been done: {known.why}. Settle it"
            )
        if ask is None:
            raise InDoubt(
                f"attempt {known.intent} was interrupted in the step {name!r}, which may or may "
                "not have been done. Settle it"
            )
        self._insist()
        try:
            result = await self._call(ask)
        except NotDone:
            raise
        except Exception as error:
            raise InDoubt(
                f"the outcome of the step {name!r} could not be determined: "
                f"{type(error).__name__}: {error}. Settle it"
            ) from error
        return await self._done(name, result, known.started_ms)

    async def _call(self, fn: Callable[..., Any], *args: Any) -> Any:
        self.stepping += 1
        try:
            if self._run is not None and not is_async(fn):
                result = await self._run.run(fn, *args)
            else:
                result = fn(*args)
            return await result if inspect.isawaitable(result) else result
        finally:
            self.stepping -= 1

    def _admit(self, name: str) -> None:
        if not isinstance(name, str):
            raise BadInput(f"a step's name must be text, not {type(name).__name__}")
        if not 0 < (size := len(name.encode(errors="replace"))) <= limits.STEP_BYTES_MAX:
            raise BadInput(
                f"a step's name must have 1 to {limits.STEP_BYTES_MAX} bytes, not {size}"
            )
        keys.join(name)  # raises for an invalid key, before the step runs
        self._must_precede_tx(f"the step {name!r}")
        if name in self._names:
            raise BadInput(f"two steps have the name {name!r}: give each step a unique name")
        self._names.add(name)

    def _must_precede_tx(self, what: str) -> None:
        """Fail the job permanently if `tx` was used: further attempts would do the same."""
        if self.begun is not None:
            with self._blamed():
                raise Fail(
                    f"{what} comes after the first use of job.tx, whose reads may be outdated when "
                    "the step is done. Read the records that steps need with "
                    "`await job.read(key)`, and use job.tx after all steps."
                )

    async def _load(self) -> Steps:
        if self.steps is None:
            found = await self._store.run(lambda tx: steps_part.load(tx, self.id))
            if self.steps is None:  # a concurrent step may have loaded them, and recorded more
                self.steps = found
        return self.steps

    async def _done(self, name: str, result: Any, started_ms: int) -> Any:
        step = done_step(result, started_ms, self._store.clock.now_ms())
        if self.output is not None:
            with suppress(TooLarge):  # raised again at the end of the attempt
                await self.output.flush()  # the step does not run again
        await self._record(name, step)
        return result_of(step)

    async def _record(self, name: str, step: Step | None) -> None:
        await self._store.run(
            lambda tx: steps_part.record(tx, self._schedule, self.id, self.token, name, step)
        )
        steps = await self._load()
        if step is None:
            steps.pop(name, None)
        else:
            steps[name] = step


def send_arguments(store: Store, keywords: Mapping[str, Any]) -> SendArguments:
    """The arguments of `Inbox.accept` from the keywords of a caller. Raises `BadInput`."""
    arguments: SendArguments = {}
    if not keywords:
        return arguments
    options = {}
    for name, value in keywords.items():
        if name in OPTION_NAMES:
            options[name] = value
        elif name not in _SEND_NAMES:
            raise unknown_name(name, sorted(_SEND_NAMES))
    if options:
        arguments["options"] = job_options(options)
    if "key" in keywords:
        arguments["key"] = keywords["key"]
    if "caller" in keywords:
        arguments["caller"] = caller_id(keywords["caller"])
    if "due_ms" in keywords:
        arguments["due_ms"] = keywords["due_ms"]
    if "delay_s" in keywords:
        if "due_ms" in keywords:
            raise BadInput(
                f"a job can have a delay_s or a due_ms, not both ({keywords['delay_s']!r} and "
                f"{keywords['due_ms']!r})"[:200]
            )
        delay_ms = milliseconds(keywords["delay_s"], "a delay")
        arguments["due_ms"] = later_ms(store, delay_ms) if delay_ms else 0
    if (merge := merge_of(keywords)) is not None:
        arguments["merge"] = merge
    return arguments


def later_ms(store: Store, delay_ms: int) -> int:
    """The time after a delay, counted from the end of the current millisecond so as not to be
    early."""
    return -(-store.clock.now_ns() // 1_000_000) + delay_ms
