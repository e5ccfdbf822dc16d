"""Savepoints: all-or-nothing sections within a transaction."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from onceward.store.transaction import Transaction

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")

Method = Callable[Concatenate[S, Transaction, P], Coroutine[Any, Any, T]]


def whole(fn: Method[S, P, T]) -> Method[S, P, T]:
    """Discard all writes of a method if it raises, so that the caller can continue the
    transaction."""

    @wraps(fn)
    async def wrapped(self: S, tx: Transaction, /, *args: P.args, **options: P.kwargs) -> T:
        mark = tx.mark()
        try:
            return await fn(self, tx, *args, **options)
        except Exception:
            tx.undo(mark)
            raise

    return wrapped
