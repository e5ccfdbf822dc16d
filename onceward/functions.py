"""Functions of applications: clear errors for a plain function where an async one is needed."""

import inspect
from collections.abc import Awaitable
from functools import partial
from typing import Any, TypeVar

from onceward.errors import BadInput

T = TypeVar("T")


def admit_async(fn: Any, what: str) -> None:
    """Raise `BadInput` if `fn` is not callable, or is declared with `def` in place of `async def`.
    A lambda may return an awaitable."""
    if not callable(fn):
        raise BadInput(f"{what} must be an async function, not {type(fn).__name__}")
    found = inspect.unwrap(fn)
    routine = inspect.isfunction(found) or inspect.ismethod(found)
    if routine and not inspect.iscoroutinefunction(found) and found.__name__ != "<lambda>":
        raise BadInput(not_async(fn, what))


def admit_awaitable(result: Awaitable[T], fn: Any, what: str) -> Awaitable[T]:
    """The result of `fn` if it can be awaited. Raises `BadInput`."""
    if not inspect.isawaitable(result):
        raise BadInput(not_async(fn, what))
    return result


def not_async(fn: Any, what: str) -> str:
    """The message for a function that returned no awaitable."""
    name = getattr(fn, "__qualname__", type(fn).__name__).rpartition("<locals>.")[2]
    if inspect.isasyncgenfunction(fn):
        return f"{what} must be an async function, but {name} is a generator; remove its `yield`"
    return f"{what} must be an async function, but {name} is a plain one; use `async def`"


def admit_function(fn: Any, what: str) -> None:
    """Raise `BadInput` if `fn` is no function, or a generator. It may be plain or async."""
    if not callable(fn) or inspect.isclass(fn):
        raise BadInput(f"{what} must be a function, `async def` or `def`, not {fn!r:.100}")
    inner = fn.func if isinstance(fn, partial) else fn
    for function in (inner, getattr(inner, "__call__", None)):  # noqa: B004
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise BadInput(f"{what} must return its result, but {name_of(fn)} is a generator")


def admit_handler(fn: Any, what: str) -> None:
    """Raise `BadInput` if `fn` is no function of one argument, the job."""
    admit_function(fn, what)
    try:
        signature = inspect.signature(fn, follow_wrapped=False)
    except ValueError:  # a function in C
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise BadInput(
            f"{what} takes one argument, the job, but {name_of(fn)} is declared with {signature}"
        ) from error


def is_async(fn: Any) -> bool:
    """Whether a callable is a coroutine function: also as a partial, as an object with `async def
    __call__`, and behind decorators that use `functools.wraps`."""
    while isinstance(fn, partial):
        fn = fn.func
    if inspect.iscoroutinefunction(fn) or inspect.isclass(fn):
        return inspect.iscoroutinefunction(fn)
    fn = inspect.unwrap(fn)
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004
    )


def name_of(fn: Any) -> str:
    """The name of a function in messages, with its module."""
    while isinstance(fn, partial):
        fn = fn.func
    if not hasattr(fn, "__qualname__"):
        fn = type(fn)
    return f"{fn.__module__}.{fn.__qualname__}"
