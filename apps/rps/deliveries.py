"""Delivery status of replies, as reported by a provider.

A provider reports a status more than once and out of order. So a status replaces another only if it
is later in the life cycle of a message.
"""

from typing import Any

import msgspec

from apps.rps import limits
from onceward import Transaction, keys

_STAGES = (
    ("accepted", "scheduled"),
    ("queued",),
    ("sending",),
    ("sent",),
    ("delivered", "undelivered", "failed", "canceled"),
    ("read",),
)
STAGE = {status: stage for stage, statuses in enumerate(_STAGES) for status in statuses}
"""Every status of Twilio for outgoing texts, and its position in the life cycle of a message."""
NOT_DELIVERED = ("undelivered", "failed")


class Delivery(msgspec.Struct, frozen=True):
    """A reply that a provider has accepted."""

    sid: str
    """The provider's id of the message."""
    status: str
    error: str
    """The provider's code, if the reply was not delivered."""
    sent_ms: int
    at_ms: int
    """When the status was reported."""


def delivery_key(to: str, id_: str) -> keys.Key:
    """The key of a reply's delivery. Ids sort by time."""
    return keys.join("rps-delivery", to), id_


async def record(
    tx: Transaction, to: str, id_: str, sid: str, status: str, error: str = ""
) -> Delivery | None:
    """Record a status. Returns the delivery if it has changed. Idempotent."""
    key = delivery_key(to, id_)
    known = await tx.get(key, Delivery)
    if known is not None and STAGE[status] <= STAGE[known.status]:
        return None
    sent_ms = tx.now_ms if known is None else known.sent_ms
    delivery = Delivery(sid, status, error, sent_ms, tx.now_ms)
    tx.put(key, delivery, expires_at_ms=tx.now_ms + limits.DELIVERY_KEPT_MS)
    return delivery


async def newest(tx: Transaction, to: str) -> list[dict[str, Any]]:
    """The last replies to a phone, the newest first."""
    partition, _ = delivery_key(to, "")
    rows = await tx.scan(partition, Delivery, limit=limits.DELIVERIES_MAX, reverse=True)
    return [{"id": row.key[1], **msgspec.to_builtins(row.value)} for row in rows]
