"""Calls of a job's methods that a handler did not await."""

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from onceward.errors import Fail

M = TypeVar("M", bound=Callable[..., Coroutine[Any, Any, Any]])
# Ended calls are forgotten when a job has made this number of calls.
_CALLS_KEPT = 64


def noted(method: M) -> M:
    """A coroutine method of a job. The job keeps its calls until the handler ends."""

    @wraps(method)
    def call(job: Any, *args: Any, **options: Any) -> Any:
        made = method(job, *args, **options)
        if len(job.calls) >= _CALLS_KEPT:
            job.calls = [one for one in job.calls if one.cr_frame is not None]
        job.calls.append(made)
        return made

    return call  # type: ignore[return-value]


def unawaited(calls: list[Any]) -> Fail | None:
    """The error of a handler that has ended without awaiting some of these calls, if any."""
    left = [one for one in calls if inspect.getcoroutinestate(one) == inspect.CORO_CREATED]
    names = [_shown(one) for one in left]
    for one in left:
        one.close()
    if not left:
        return None
    return Fail(f"the handler did not await {', '.join(names[:5])}: write `await {names[0]}`")


def _shown(call: Any) -> str:
    first = list(call.cr_frame.f_locals.values())[1:2]
    named = repr(first[0])[:100] + ", " if first and isinstance(first[0], str) else ""
    return f"job.{call.__name__}({named}…)"
