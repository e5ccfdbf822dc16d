"""Functions of applications: clear errors where a plain function stands in for an async one."""

import inspect
from collections.abc import Awaitable
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
