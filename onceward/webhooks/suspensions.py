"""Suspended callers: their timers and webhook calls are paused.

A caller is suspended when its last API key is removed. A new key for it resumes it. An operator can
transfer its timers and endpoints to another caller instead.
"""

import msgspec

from onceward import keys
from onceward.keys import Key
from onceward.store.transaction import Transaction

PARTITION = "suspended"


class Suspension(msgspec.Struct, frozen=True, omit_defaults=True):
    """Since when a caller is suspended, by whom, and the new owner of its timers and endpoints."""

    since_ms: int
    by: str
    """Id of the caller that suspended it."""
    to: str = ""
    """Id of the caller to which its timers and endpoints were transferred."""


def suspension_key(caller: str) -> Key:
    return PARTITION, keys.join(caller)


async def get(tx: Transaction, caller: str) -> Suspension | None:
    """Return the suspension of a caller, or None. The application itself is never suspended."""
    return await tx.get(suspension_key(caller), Suspension) if caller else None


async def suspend(tx: Transaction, caller: str, by: str) -> None:
    """Suspend a caller. Idempotent."""
    if await get(tx, caller) is None:
        tx.put(suspension_key(caller), Suspension(tx.now_ms, by))


async def transfer(tx: Transaction, caller: str, to: str, by: str) -> None:
    """Record that another caller owns its timers and endpoints. Idempotent."""
    known = await get(tx, caller)
    since_ms = tx.now_ms if known is None else known.since_ms
    tx.put(suspension_key(caller), Suspension(since_ms, by, to))


async def resume(tx: Transaction, caller: str) -> bool:
    """End a suspension. Returns whether the caller was suspended. Idempotent."""
    known = await get(tx, caller)
    if known is not None:
        tx.delete(suspension_key(caller))
    return known is not None
