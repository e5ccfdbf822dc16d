"""Context variables that are set within a coroutine."""

from contextlib import suppress
from contextvars import ContextVar, Token
from typing import TypeVar

T = TypeVar("T")


def restore(variable: ContextVar[T], token: Token[T]) -> None:
    """Set a variable to its value before `token`. A coroutine that the garbage collector closes
    runs in another context, where nothing is to be restored and `reset` would raise an error."""
    with suppress(ValueError):
        variable.reset(token)
