"""The `SyncJob` object that a plain function receives as a handler."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from onceward.keys import Key
from onceward.schedule import Claim
from onceward.store.user_records import SyncTransaction
from onceward.threads import Run
from onceward.work.children import ChildJob
from onceward.work.job import Job
from onceward.work.job_fields import Body, JobFields

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Waiting(Generic[P, T]):
    """A coroutine method of `Job`, as a method of `SyncJob` that waits for it."""

    def __init__(self, method: Callable[Concatenate[Job, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, job: None, type: type["SyncJob"]) -> "_Waiting[P, T]": ...
    @overload
    def __get__(self, job: "SyncJob", type: type["SyncJob"]) -> Callable[P, T]: ...
    def __get__(self, job: Any, type: Any) -> Any:
        return self if job is None else job.bound(self._method)


class SyncJob(JobFields[Body], Generic[Body]):
    """One attempt at a job, for a plain `def` handler, which runs in a thread.

    `SyncJob[Mail]` is a `Job[Mail]` whose coroutine methods are plain calls. Functions of steps run
    in the same thread if they are plain, and on the event loop if they are `async def`. Use it only
    in that thread, until the handler returns.
    """

    def __init__(self, job: Job[Body], claim: Claim, run: Run) -> None:
        super().__init__(claim, job.body)
        self._job = job
        self._run = run
        self._tx: SyncTransaction | None = None

    @overload
    def step(
        self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[Unpack[Ts]], Awaitable[T]],
        /,
        *args: *Ts,
        at_most_once: bool = ...,
        ask: Callable[[], Awaitable[T] | T] | None = ...,
    ) -> T: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[[Unpack[Ts]], T],
        /,
        *args: *Ts,
        at_most_once: bool = ...,
        ask: Callable[[], Awaitable[T] | T] | None = ...,
    ) -> T: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
        """See `Job.step`."""
        return self._run.call(self._job.step, name, fn, *args, **kwargs)

    @overload
    def read(self, key: Key) -> Any: ...
    @overload
    def read(self, key: Key, type: type[T]) -> T | None: ...
    def read(self, key: Key, type: Any = Any) -> Any:
        """See `Job.read`."""
        return self._run.call(self._job.read, key, type)

    @overload
    def sql_step(
        self,
        database: Any,
        fn: Callable[[Any, Unpack[Ts]], Awaitable[T]],
        /,
        *args: *Ts,
        name: str | None = ...,
    ) -> T: ...
    @overload
    def sql_step(
        self,
        database: Any,
        fn: Callable[[Any, Unpack[Ts]], T],
        /,
        *args: *Ts,
        name: str | None = ...,
    ) -> T: ...
    def sql_step(  # type: ignore[misc]
        self, database: Any, fn: Callable[..., Any], /, *args: Any, name: str | None = None
    ) -> Any:
        """See `Job.sql_step`. With a synchronous database, `fn` runs in the thread of the
        handler."""
        return self._run.call(self._job.sql_step, database, fn, *args, name=name)

    sleep = _Waiting(Job.sleep)
    sql = _Waiting(Job.sql)
    send = _Waiting(Job.send)
    reopen = _Waiting(Job.reopen)
    wait_for = _Waiting(Job.wait_for)
    progress = _Waiting(Job.progress)
    stream = _Waiting(Job.stream)

    def gather(
        self, *children: ChildJob[T], keep: bool = False, return_exceptions: bool = False
    ) -> list[T]:
        """See `Job.gather`."""
        options = {"keep": keep, "return_exceptions": return_exceptions}
        found: list[T] = self._run.call(self._job.gather, *children, **options)
        return found

    def wait_any(self, *children: ChildJob[T], keep: bool = False) -> tuple[int, T]:
        """See `Job.wait_any`."""
        found: tuple[int, T] = self._run.call(self._job.wait_any, *children, keep=keep)
        return found

    @property
    def tx(self) -> SyncTransaction:
        """The transaction that ends the job. It starts with its first use, after all steps."""
        if self._tx is None or self._job.stepping:
            self._run.must_be_here("tx")
            self._tx = SyncTransaction(self._run.call(lambda: self._job.tx), self._run)
        return self._tx

    @property
    def interrupted(self) -> bool:
        """Whether the attempt is over: its lease was lost, or the worker stops. Calls of this
        object then end the handler. Check it in loops without such calls."""
        return self._run.interrupted

    def call(self, fn: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function of the application on the event loop, and return its result:
        `job.call(app.send, "mails", body, tx=job.tx)`. Raises its errors."""
        result: T = self._run.call(fn, *args, **kwargs)
        return result

    def fail(self, error: Exception | str) -> None:
        """See `Job.fail`."""
        self._job.fail(error)

    def bound(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A coroutine method of the job as a plain function."""
        return lambda *args, **kwargs: self._run.call(method, self._job, *args, **kwargs)
