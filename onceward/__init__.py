"""Onceward: once, in order, on time.

A coordination backend for applications that many people and unreliable senders
use at the same time. Everything is records, a schedule and a log, changed only
by atomic commits.
"""

from typing import TYPE_CHECKING, Any

from onceward.callers import Caller
from onceward.errors import Fail, InDoubt, NotDone, OncewardError, Retry

if TYPE_CHECKING:
    from onceward.app import App
    from onceward.store.user_records import UserTransaction as Transaction
    from onceward.webhooks.delivery import Outward
    from onceward.work.job import Job

__version__ = "0.1.0"
__all__ = [
    "App",
    "Caller",
    "Fail",
    "InDoubt",
    "Job",
    "NotDone",
    "OncewardError",
    "Outward",
    "Retry",
    "Transaction",
]


def __getattr__(name: str) -> Any:
    # Only when asked for: whoever needs an error or a clock need not load all of it.
    if name == "App":
        from onceward.app import App

        return App
    if name == "Job":
        from onceward.work.job import Job

        return Job
    if name == "Outward":
        from onceward.webhooks.delivery import Outward

        return Outward
    if name == "Transaction":
        from onceward.store.user_records import UserTransaction

        return UserTransaction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
