"""A synchronous class. Written by `make generate` from `onceward.work.handlers`."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, overload

from onceward.sync.handlers import HandlerFunction
from onceward.work.handlers import Batch, Result
from onceward.work.job import Job
from onceward.work.job_fields import Body
from onceward.work.sync_job import SyncJob


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
