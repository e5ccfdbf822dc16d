"""The record of an outbox: which node reads it, and which rows it has accepted."""

from typing import Any

import msgspec

from onceward import keys, limits
from onceward.keys import Key


class Drain(msgspec.Struct, frozen=True):
    """The lease of the node that reads an outbox. Each commit that accepts rows writes it."""

    token: str
    """Differs for each node and start."""
    node: str
    until_ms: int
    accepted: tuple[tuple[int, str], ...] = ()
    """Id and message of accepted rows whose deletion is not confirmed. Any node deletes them before
    it reads on, so that a row is accepted once, even after its idempotency key has expired."""


def drain_key(name: str) -> Key:
    return "outbox", keys.join(name)


def admit_name(name: Any) -> None:
    """Raise `BadInput` for an invalid name of an outbox."""
    keys.admit_name(name, "the name of an outbox", limits.OUTBOX_NAME_BYTES_MAX)
