"""Adaptive concurrency limit of one receiver, as pure functions.

The limit starts low and grows by one with each answer, so it doubles in the time of a request.
Errors, and answers that take much longer than the fastest ones, end that growth. They lower the
limit to a part of itself; from there it grows by about 2% in the time of a request. A request that
began before the limit was lowered does not lower it again.
"""

from math import log2

from onceward import limits

_AFTER_ERRORS = 0.7
_AFTER_DELAYS = 0.8
_PER_ROUND = 0.02
_PER_ROUND_MIN = 0.5
# The limit grows so much more slowly where errors came the last time.
_CAREFULLY = 0.1
# Answers are slow if they take so many times as long as the fastest ones, and so much longer.
_SLOW_RATIO = 2.0
_SLOW_S = 0.05


class Concurrency:
    """What is learned about one receiver."""

    __slots__ = (
        *("_ceiling", "_good", "_limit", "_lowered", "_max", "_started", "_threshold"),
        *("best_s", "time_s"),
    )

    def __init__(self, limit_max: int) -> None:
        self._max = max(limit_max, 1)
        self._limit = float(min(limits.HOST_REQUESTS_FIRST, self._max))
        self._threshold = float(self._max)
        """Below it, the limit doubles in the time of a request."""
        self._ceiling = 0.0
        """Where errors came the last time."""
        self._started = 0
        self._lowered = 0
        """The number of the first request since the limit was lowered."""
        self._good = True
        """Whether one of these was answered well."""
        self.time_s = 0.0
        """How long a request takes, the last ones counting more."""
        self.best_s = 0.0
        """How long the fastest ones take, or any of them while there are few at once."""

    @property
    def limit(self) -> int:
        """How many requests there may be at once."""
        return int(self._limit)

    def start(self) -> int:
        """Count a request; returns its number."""
        self._started += 1
        return self._started

    def learn_time(self, time_s: float) -> None:
        """Learn how long a request took, answered or not."""
        self.time_s += (time_s - self.time_s) / (8 if self.time_s else 1)

    def answered(self, number: int, time_s: float, under_way: int) -> None:
        """A request was answered well; `under_way` includes it."""
        if not self.best_s or time_s < self.best_s:
            self.best_s = time_s
        elif self._limit <= limits.HOST_REQUESTS_BASE:  # then it is not because of our requests
            self.best_s += (time_s - self.best_s) / 64
        if number < self._lowered:
            return
        self._good = True
        if self._is_slow and self._limit > limits.HOST_REQUESTS_BASE:
            self._threshold = max(self._limit * _AFTER_DELAYS, limits.HOST_REQUESTS_BASE)
            self._lower(self._threshold)
        # A limit that is not used says nothing about the receiver.
        elif 2 * under_way >= self._limit or self._limit < limits.HOST_REQUESTS_BASE:
            self._limit = min(self._limit + self._growth, self._max)

    def failed(self, number: int) -> None:
        """A request was answered by an error, or not at all."""
        if number < self._lowered:
            return
        if self._good:  # else it fails all the time, which says nothing about how many it takes
            self._threshold = max(self._limit * _AFTER_ERRORS, 1.0)
            self._ceiling = self._limit
        self._good = False
        self._lower(max(self._limit * _AFTER_ERRORS, 1.0))

    @property
    def doubles(self) -> bool:
        """Whether the limit doubles in the time of a request."""
        return self._limit < self._threshold

    def turn_s(self, count: int) -> float:
        """How long it takes until so many more requests have begun, at the pace that the limit
        will have by then: each doubling takes as long as a request."""
        if not self.doubles:
            return count * self.time_s / self._limit
        doubled = self._threshold - self._limit  # so many begin until the limit is at its highest
        if count <= doubled:
            return self.time_s * log2(1 + count / self._limit)
        rounds = log2(self._threshold / self._limit) + (count - doubled) / self._threshold
        return self.time_s * rounds

    @property
    def _growth(self) -> float:
        """By how much the limit grows with an answer."""
        if self.doubles:
            return 1.0
        per_round = max(_PER_ROUND_MIN, self._limit * _PER_ROUND)
        if self._ceiling - 1 <= self._limit <= self._ceiling:
            per_round *= _CAREFULLY
        return per_round / self._limit

    @property
    def _is_slow(self) -> bool:
        return self.time_s > self.best_s * _SLOW_RATIO + _SLOW_S

    def _lower(self, limit: float) -> None:
        self._limit = limit
        self._lowered = self._started + 1
