"""Counts of acknowledged messages and their effects, kept outside the server. Pure.

Every message has a key. It is acknowledged when its sender has a response, and in effect when its
effect has arrived at the external service, with an id. A key with two effect ids is a duplicate
effect. The same id twice is a repeat, which the service deduplicates; it occurs when a worker is
killed before it reports success.
"""

from collections.abc import Iterator
from itertools import islice

import msgspec

_KEPT_MAX = 20_000


class Counts(msgspec.Struct, frozen=True):
    """The current counts."""

    acknowledged: int = 0
    in_effect: int = 0
    """Acknowledged messages with an effect."""
    under_way: int = 0
    lost: int = 0
    """Acknowledged messages that will have no effect."""
    doubled: int = 0
    stopped: int = 0
    """Repeated messages that were recognized as duplicates."""
    repeated: int = 0
    """Effects that were repeated with the same id."""


class Book:
    """The counts of one kind. Old effects are removed from memory but stay counted."""

    def __init__(self, kept_max: int = _KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._waiting: dict[str, tuple[str, int]] = {}
        """Acknowledged without an effect: the server's id, and since when."""
        self._effects: dict[str, str] = {}
        """The id of the first effect, by key."""
        self._heard: set[str] = set()
        """Keys that are acknowledged and in effect."""
        self._doubled: set[str] = set()
        self._lost: set[str] = set()
        self._acknowledged = self._in_effect = self._stopped = self._repeated = 0
        self._forgotten_doubled = 0

    def acknowledge(self, key: str, id_: str, now_ms: int, *, duplicate: bool = False) -> None:
        """Record the response to a sender. A key counts once; `duplicate` marks the response to a
        repeat."""
        self._stopped += duplicate
        if key in self._waiting or key in self._heard or key in self._lost:
            return
        self._acknowledged += 1
        if key in self._effects:
            self._heard.add(key)
            self._in_effect += 1
        else:
            self._waiting[key] = id_, now_ms

    def effect(self, key: str, id_: str) -> None:
        """Record an effect of a key, possibly before the response to its sender."""
        first = self._effects.get(key)
        if first is not None:
            self._repeated += first == id_
            if first != id_:
                self._doubled.add(key)
            return
        self._effects[key] = id_
        if self._waiting.pop(key, None) is not None or key in self._lost:
            self._lost.discard(key)
            self._heard.add(key)
            self._in_effect += 1
        self._forget()

    def lose(self, key: str) -> None:
        """Record a key as lost. A later effect reverts that."""
        if self._waiting.pop(key, None) is not None:
            self._lost.add(key)

    def overdue(self, before_ms: int) -> Iterator[tuple[str, str]]:
        """Yield keys and server ids that were acknowledged before a time and have no effect."""
        for key, (id_, since_ms) in list(self._waiting.items()):
            if since_ms < before_ms:
                yield key, id_

    def counts(self) -> Counts:
        return Counts(
            acknowledged=self._acknowledged,
            in_effect=self._in_effect,
            under_way=len(self._waiting),
            lost=len(self._lost),
            doubled=self._forgotten_doubled + len(self._doubled),
            stopped=self._stopped,
            repeated=self._repeated,
        )

    def _forget(self) -> None:
        """Remove the oldest effects, to bound memory."""
        for key in list(islice(self._effects, max(len(self._effects) - self._kept_max, 0))):
            del self._effects[key]
            self._heard.discard(key)
            if key in self._doubled:
                self._doubled.discard(key)
                self._forgotten_doubled += 1
