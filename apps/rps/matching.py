"""Matches messages of a provider with replies, for a provider without idempotency keys.

It records the message of each reply, and replies whose outcome is unknown. A message that could be
two replies is assigned to neither.
"""

import hashlib
import unicodedata
from typing import Any

import msgspec

from apps.rps import limits
from apps.rps.provider import Reply
from onceward import Transaction, keys
from onceward import limits as core_limits


def message_key(sid: str) -> keys.Key:
    """The key of the reply of a message."""
    return "rps-twilio", sid


class Open(msgspec.Struct, frozen=True):
    """A reply whose outcome at the provider is unknown."""

    sendings: int
    words: str
    """A digest of its words."""


def _open_key(to: str, id_: str) -> keys.Key:
    return keys.join("rps-twilio-open", to), id_


def _digest(reply: Reply) -> str:
    return hashlib.sha256("\n".join([reply.ours, *_words(reply.text)]).encode()).hexdigest()


def _put(tx: Transaction, key: keys.Key, value: Any) -> None:
    tx.put(key, value, expires_at_ms=tx.now_ms + limits.DELIVERY_KEPT_MS)


async def open_(tx: Transaction, id_: str, reply: Reply) -> None:
    """Record that a reply may be at the provider from now on."""
    key = _open_key(reply.to, id_)
    known = await tx.get(key, Open)
    _put(tx, key, Open(1 if known is None else known.sendings + 1, _digest(reply)))


async def settle(tx: Transaction, id_: str, to: str, sid: str) -> None:
    """Record the message of a reply. Idempotent."""
    if await tx.get(message_key(sid)) is None:
        _put(tx, message_key(sid), id_)
        await close(tx, id_, to)


async def close(tx: Transaction, id_: str, to: str) -> None:
    """Record that the outcome of one more sending of a reply is known."""
    key = _open_key(to, id_)
    known = await tx.get(key, Open)
    if known is not None and known.sendings > 1:
        _put(tx, key, Open(known.sendings - 1, known.words))
    else:
        tx.delete(key)


async def choose(tx: Transaction, id_: str, reply: Reply, found: dict[str, bool]) -> str | None:
    """Find the message of this reply; `found` has whether each message has its words.

    Raises `RuntimeError` if a message may be this reply or another one.
    """
    sids = list(found)
    owners = dict(
        zip(sids, await tx.get_many([message_key(sid) for sid in sids], str), strict=True)
    )
    for sid, owner in owners.items():
        if owner == id_:
            return sid
    unknown = [sid for sid, owner in owners.items() if owner is None]
    if not unknown:
        return None
    same = [sid for sid in unknown if found[sid]]
    if len(same) != 1:
        raise RuntimeError(
            f"{(same or unknown)[0]} may be this reply, with the same or other words"
        )
    partition, _ = _open_key(reply.to, id_)
    rows = await tx.scan(partition, Open, limit=core_limits.SCAN_RECORDS_MAX)
    if [row.key[1] for row in rows if row.value.words == _digest(reply)] != [id_]:
        raise RuntimeError(f"{same[0]} may be another reply with the same words")
    return same[0]


def is_same(body: Any, text: str) -> bool:
    """Whether a message has the words of a reply. Providers add words before them, as Twilio does
    for trial accounts, and replace characters outside the SMS alphabet."""
    wanted = _words(text)
    return isinstance(body, str) and _words(body)[-len(wanted) :] == wanted


def _words(text: str) -> list[str]:
    """The words of a text by their letters and digits, without accents, case and punctuation."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    words = ("".join(c for c in w if unicodedata.category(c)[0] in "LN") for w in plain.split())
    return [word for word in words if word]
