"""Declared handlers: the objects that `App.handler` and `App.outbox` return."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import update_wrapper
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Protocol,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    overload,
)

from onceward.api.jobs import result_of
from onceward.conversion import Converter, converter
from onceward.errors import BadInput
from onceward.job_options import JobKeywords, SendKeywords
from onceward.schedule import Job as JobRecord
from onceward.store.user_records import AnyTransaction
from onceward.work.annotations import (
    NO_TYPE,
    Undefined,
    annotations,
    awaited,
    evaluated,
    is_coroutine,
)
from onceward.work.children import ChildJob
from onceward.work.inbox import Receipt
from onceward.work.job import Job
from onceward.work.job_fields import Body
from onceward.work.sync_job import SyncJob

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    Result = DefaultTypeVar("Result", default=Any)
    Given = DefaultTypeVar("Given", default=Any)
    Returned = DefaultTypeVar("Returned", default=Any)
else:
    Result, Given, Returned = TypeVar("Result"), TypeVar("Given"), TypeVar("Returned")


class Application(Protocol):
    """The application of a handler."""

    async def send(
        self,
        queue: str,
        body: Any,
        *,
        key: str | None = None,
        tx: AnyTransaction | None = None,
        **options: Unpack[SendKeywords],
    ) -> Receipt: ...

    async def wait(self, id_: str, timeout_s: float | None = None) -> JobRecord: ...


class HandlerFunction(Generic[Body, Result, Given, Returned]):
    """A handler of an application. Calling it calls the function itself, as tests do.

    Type parameters: the body and the result of its jobs, then the argument and the return type of
    the function.
    """

    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        app: Application,
        queue: str,
        fn: Callable[..., Any],
        body: Converter | None,
        result: Converter | None,
    ) -> None:
        update_wrapper(self, fn)  # first: it copies all attributes
        self.queue = queue
        """The name of its queue."""
        self._app = app
        self._body = body
        self._result = result

    def __call__(self, job: Given, /) -> Returned:
        returned: Returned = self.__wrapped__(job)
        return returned

    def __repr__(self) -> str:
        name = getattr(self.__wrapped__, "__qualname__", repr(self.__wrapped__))
        return f"<handler {name} of {self.queue!r}>"

    async def enqueue(
        self,
        body: Body,
        *,
        key: str | None = None,
        tx: AnyTransaction | None = None,
        **options: Unpack[SendKeywords],
    ) -> Receipt:
        """Send a job to the queue. Arguments, result and errors are those of `App.send`.

        Also raises `BadInput` if the body does not match the type in the handler's annotation. With
        a `batch_key`, the body is one item of the list that the handler gets.
        """
        given: Any = body
        if self._body is not None and options.get("batch_key") is not None:
            [given] = self._body.plain([body], "body")
        elif self._body is not None:
            given = self._body.plain(body, "body")
        return await self._app.send(self.queue, given, key=key, tx=tx, **options)

    async def result(self, id_: str, *, timeout_s: float | None = None) -> Result:
        """Wait for the end of a job of this queue, and return its result. Errors are those of
        `App.result`, and `BadInput` for a job of another queue."""
        job = await self._app.wait(id_, timeout_s)
        if job.queue != self.queue:
            raise BadInput(
                f"job {id_} is a job of {job.queue!r}, not of {self.queue!r}; use the handler "
                "of that queue"
            )
        result: Result = result_of(id_, job, self._result)
        return result

    def child(self, body: Body, **options: Unpack[JobKeywords]) -> ChildJob[Result]:
        """A job of this queue for `job.gather` and `job.wait_any`. Options are those of `App.send`,
        without `key`. Raises `BadInput`."""
        given = body if self._body is None else self._body.plain(body, "body")
        return ChildJob(self.queue, given, result=self._result, **options)


Batch = Sequence[Result] | None


class Declare(Protocol):
    """A decorator that declares a handler: a coroutine or plain function, of one job or a list."""

    @overload
    def __call__(
        self, fn: Callable[[Job[Body]], Coroutine[Any, Any, Result]], /
    ) -> HandlerFunction[Body, Result, Job[Body], Coroutine[Any, Any, Result]]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[Job[Body]]], Coroutine[Any, Any, Batch[Result]]], /
    ) -> HandlerFunction[Body, Result, list[Job[Body]], Coroutine[Any, Any, Batch[Result]]]: ...
    @overload
    def __call__(
        self, fn: Callable[[Job[Body]], Awaitable[Result]], /
    ) -> HandlerFunction[Body, Result, Job[Body], Awaitable[Result]]: ...
    @overload
    def __call__(
        self, fn: Callable[[SyncJob[Body]], Result], /
    ) -> HandlerFunction[Body, Result, SyncJob[Body], Result]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[SyncJob[Body]]], Batch[Result]], /
    ) -> HandlerFunction[Body, Result, list[SyncJob[Body]], Batch[Result]]: ...


def handler_types(
    fn: Callable[..., Any], queue: str, *, batch: bool
) -> tuple[Converter | None, Converter | None]:
    """The converters of bodies and results; None for plain JSON.

    Raises `BadInput` for types that cannot be converted, and for undefined names in the annotations
    of a typed handler.
    """
    parameter, returned = annotations(fn)
    try:
        try:
            job = evaluated(fn, parameter, Job=Job, SyncJob=SyncJob)
        except Undefined:
            if "[" in str(parameter):
                raise
            return None, None  # a name that is imported for type checkers only
        job = _item(job) if batch else job
        _admit_kind(fn, queue, job)
        typed = get_origin(job) in (Job, SyncJob)
        try:
            result = awaited(evaluated(fn, returned))
        except Undefined:
            if typed:
                raise
            return None, None
    except Undefined as error:
        raise BadInput(
            f"the handler of {queue!r} has an annotation that cannot be evaluated: {error}. Define "
            "its types at the top level of the module, and import them without TYPE_CHECKING"
        ) from error
    if batch:
        result = _item(result) | None if NoneType in get_args(result) else _item(result)
    try:
        body_converter = converter(get_args(job)[0]) if typed else None
        return body_converter, None if result in NO_TYPE else converter(result)
    except BadInput as error:
        raise BadInput(f"the handler of {queue!r}: {error.message}") from error


def _admit_kind(fn: Callable[..., Any], queue: str, job: Any) -> None:
    """Raise `BadInput` for a plain function of a `Job`, or a coroutine function of a `SyncJob`."""
    wrong, right = (SyncJob, Job) if is_coroutine(fn) else (Job, SyncJob)
    if (get_origin(job) or job) is wrong:
        kind = "an `async def` function" if wrong is SyncJob else "a plain function"
        raise BadInput(
            f"the handler of {queue!r} is {kind} and gets a `{right.__name__}`, not a "
            f"`{wrong.__name__}`: change its annotation, or "
            f"{'remove `async`' if wrong is SyncJob else 'add `async`'}"
        )


def _item(listed: Any) -> Any:
    """The type of the items of a list, or of None and a list; `Any` for any other type."""
    if get_origin(listed) in (Union, UnionType):
        options = [one for one in get_args(listed) if one is not NoneType]
        return _item(options[0]) if len(options) == 1 else Any
    arguments = get_args(listed)
    return arguments[0] if len(arguments) == 1 else Any
