"""Onceward: durable jobs, locks, timers, live rooms and tables for Python.

This package and `onceward.client`, `onceward.sync`, `onceward.sql`, `onceward.web`,
`onceward.testing` and `onceward.tokens` are the public surface: applications import from these
modules only, and only names in their `__all__`.
"""

from typing import TYPE_CHECKING

from onceward import keys, limits
from onceward.callers import Caller
from onceward.errors import (
    AddressRefused,
    AlreadyEnded,
    BadInput,
    CannotOpen,
    ChildFailed,
    Conflict,
    Contention,
    Damaged,
    EngineStopped,
    Fail,
    HistoryGone,
    InDoubt,
    JobFailed,
    KeyReused,
    LockHeld,
    LockLost,
    NoSuchEndpoint,
    NoSuchJob,
    NoSuchMatch,
    NoSuchRoom,
    NoSuchTable,
    NoSuchTimer,
    NotDone,
    NotEnded,
    NotFailed,
    OncewardError,
    OutcomeUnknown,
    QueueFull,
    Retry,
    SecretUnreadable,
    StaleToken,
    StorageFull,
    TooLarge,
    TooManyWaiters,
    Unavailable,
    Unreachable,
    register_error,
)
from onceward.lazy import lazy

if TYPE_CHECKING:
    from onceward.api.matches import Outcome
    from onceward.api.rooms import Schemas
    from onceward.app import App
    from onceward.clock import Clock
    from onceward.ids import Ids
    from onceward.store.user_records import SyncTransaction
    from onceward.store.user_records import UserTransaction as Transaction
    from onceward.tables.games.match import Match
    from onceward.tables.games.rules import DRAW, Rules, drawn, shuffled, won
    from onceward.webhooks.delivery import Outward
    from onceward.work.children import ChildJob
    from onceward.work.handlers import HandlerFunction
    from onceward.work.inbox import Receipt
    from onceward.work.job import Job
    from onceward.work.sync_job import SyncJob

__version__ = "0.1.0a1"
__all__ = [
    "DRAW",
    "AddressRefused",
    "AlreadyEnded",
    "App",
    "BadInput",
    "Caller",
    "CannotOpen",
    "ChildFailed",
    "ChildJob",
    "Clock",
    "Conflict",
    "Contention",
    "Damaged",
    "EngineStopped",
    "Fail",
    "HandlerFunction",
    "HistoryGone",
    "Ids",
    "InDoubt",
    "Job",
    "JobFailed",
    "KeyReused",
    "LockHeld",
    "LockLost",
    "Match",
    "NoSuchEndpoint",
    "NoSuchJob",
    "NoSuchMatch",
    "NoSuchRoom",
    "NoSuchTable",
    "NoSuchTimer",
    "NotDone",
    "NotEnded",
    "NotFailed",
    "OncewardError",
    "Outcome",
    "OutcomeUnknown",
    "Outward",
    "QueueFull",
    "Receipt",
    "Retry",
    "Rules",
    "Schemas",
    "SecretUnreadable",
    "StaleToken",
    "StorageFull",
    "SyncJob",
    "SyncTransaction",
    "TooLarge",
    "TooManyWaiters",
    "Transaction",
    "Unavailable",
    "Unreachable",
    "drawn",
    "keys",
    "limits",
    "register_error",
    "shuffled",
    "won",
]

# Loaded on first use, so that clients and tools do not load the store and the engine.
__getattr__ = lazy(
    __name__,
    {
        "App": "onceward.app",
        "ChildJob": "onceward.work.children",
        "Clock": "onceward.clock",
        "DRAW": "onceward.tables.games.rules",
        "drawn": "onceward.tables.games.rules",
        "HandlerFunction": "onceward.work.handlers",
        "Ids": "onceward.ids",
        "Job": "onceward.work.job",
        "Match": "onceward.tables.games.match",
        "Outcome": "onceward.api.matches",
        "Outward": "onceward.webhooks.delivery",
        "Receipt": "onceward.work.inbox",
        "Rules": "onceward.tables.games.rules",
        "Schemas": "onceward.api.rooms",
        "shuffled": "onceward.tables.games.rules",
        "SyncJob": "onceward.work.sync_job",
        "SyncTransaction": "onceward.store.user_records",
        "Transaction": "onceward.store.user_records:UserTransaction",
        "won": "onceward.tables.games.rules",
    },
)
