"""Declared handlers: the objects that `App.handler` and `App.outbox` return in synchronous code."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, Unpack

from onceward.job_options import JobKeywords, SendKeywords
from onceward.store.user_records import SyncTransaction
from onceward.sync.app.transaction import Transaction
from onceward.sync.bridge import Root, target
from onceward.work.children import ChildJob
from onceward.work.handlers import Given, Result, Returned
from onceward.work.handlers import HandlerFunction as AsyncHandlerFunction
from onceward.work.inbox import Receipt
from onceward.work.job_fields import Body


class HandlerFunction(Generic[Body, Result, Given, Returned]):
    """A handler of an application. Calling it calls the function itself, as tests do."""

    __wrapped__: Callable[..., Any]

    def __init__(
        self, app: Root[Any], handler: AsyncHandlerFunction[Body, Result, Given, Returned]
    ) -> None:
        # First: it copies all attributes of a callable object.
        update_wrapper(self, handler.__wrapped__)
        self.queue = handler.queue
        """The name of its queue."""
        self._app = app
        self._handler = handler

    def __call__(self, job: Given, /) -> Returned:
        return self._handler(job)

    def __repr__(self) -> str:
        return repr(self._handler)

    def enqueue(
        self,
        body: Body,
        *,
        key: str | None = None,
        tx: Transaction | SyncTransaction | None = None,
        **options: Unpack[SendKeywords],
    ) -> Receipt:
        """Send a job to the queue. Arguments, result and errors are those of `App.send`.

        Also raises `BadInput` if the body does not match the type in the handler's annotation.
        """
        return self._app.portal.run(self._handler.enqueue(body, key=key, tx=target(tx), **options))

    def result(self, id_: str, *, timeout_s: float | None = None) -> Result:
        """Wait for the end of a job of this queue, and return its result. Errors are those of
        `App.result`, and `BadInput` for a job of another queue."""
        return self._app.portal.run(self._handler.result(id_, timeout_s=timeout_s))

    def child(self, body: Body, **options: Unpack[JobKeywords]) -> ChildJob[Result]:
        """A job of this queue for `job.gather` and `job.wait_any`. Options are those of `App.send`,
        without `key`. Raises `BadInput`."""
        return self._handler.child(body, **options)


def declares(app: Root[Any], declare: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of the asynchronous application as one of the synchronous application."""

    def declared(fn: Any) -> HandlerFunction[Any, Any, Any, Any]:
        if isinstance(fn, HandlerFunction):  # the handler of several queues
            fn = fn.__wrapped__
        return HandlerFunction(app, declare(fn))

    return declared
