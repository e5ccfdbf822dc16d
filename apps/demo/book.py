"""What was acknowledged, and what came of it: counted where messages are sent and where effects
arrive, outside the server. Pure.

Everything has a key. It is acknowledged when its sender has an answer, and in effect when something
has come of it at the other end, which has an id of its own. One key with two such ids is an effect
that happened twice. The same id twice is a repeat, which the other end knows by that id: it happens
when whoever brought it was killed before it could say so.
"""

from collections.abc import Iterator
from itertools import islice

import msgspec

_KEPT_MAX = 20_000


class Counts(msgspec.Struct, frozen=True):
    """How it stands."""

    acknowledged: int = 0
    in_effect: int = 0
    """Of those that are acknowledged."""
    under_way: int = 0
    lost: int = 0
    """Acknowledged, and nothing will come of it any more."""
    doubled: int = 0
    stopped: int = 0
    """Messages that came again, and were answered as such."""
    repeated: int = 0
    """Effects that came again under the id they had."""


class Book:
    """All of one kind. What has been in effect for long is forgotten, and stays counted."""

    def __init__(self, kept_max: int = _KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._waiting: dict[str, tuple[str, int]] = {}
        """Acknowledged and not in effect: what the server calls it, and since when."""
        self._effects: dict[str, str] = {}
        """The id of the first effect."""
        self._heard: set[str] = set()
        """Keys in effect that are acknowledged, too."""
        self._doubled: set[str] = set()
        self._lost: set[str] = set()
        self._acknowledged = self._in_effect = self._stopped = self._repeated = 0
        self._forgotten_doubled = 0

    def acknowledge(self, key: str, id_: str, now_ms: int, *, duplicate: bool = False) -> None:
        """A sender has its answer. A key is acknowledged once, however many answers there are;
        `duplicate` says that this one tells of a repeat."""
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
        """Something has come of a key, maybe before its sender had an answer."""
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
        """Nothing will come of a key any more. If something does, it was not lost."""
        if self._waiting.pop(key, None) is not None:
            self._lost.add(key)

    def overdue(self, before_ms: int) -> Iterator[tuple[str, str]]:
        """What was acknowledged before a time and is not in effect: its key, and what the server
        calls it."""
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
        """Forget the oldest effects, so that memory has a bound."""
        for key in list(islice(self._effects, max(len(self._effects) - self._kept_max, 0))):
            del self._effects[key]
            self._heard.discard(key)
            if key in self._doubled:
                self._doubled.discard(key)
                self._forgotten_doubled += 1
