"""Adaptive concurrency limit of one receiver, as pure functions.

The limit starts low and grows by one with each response, so it doubles in each round trip. Errors,
and responses that are much slower than the fastest ones, end that phase and lower the limit to a
fraction. From there it grows by about 2% in each round trip. A request that began before the limit
was lowered does not lower it again.
"""

from math import log2

from onceward import limits

_AFTER_ERRORS = 0.7
_AFTER_DELAYS = 0.8
_PER_ROUND = 0.02
_PER_ROUND_MIN = 0.5
# The factor of growth near the limit at which errors occurred last.
_CAREFULLY = 0.1
# Responses are slow if they exceed the fastest ones by this ratio and this difference.
_SLOW_RATIO = 2.0
_SLOW_S = 0.05


class Concurrency:
    """Measurements of one receiver."""

    __slots__ = (
        *("_ceiling", "_good", "_limit", "_lowered", "_max", "_started", "_threshold"),
        *("best_s", "time_s"),
    )

    def __init__(self, limit_max: int) -> None:
        self._max = max(limit_max, 1)
        self._limit = float(min(limits.HOST_REQUESTS_FIRST, self._max))
        self._threshold = float(self._max)
        """Below this threshold, the limit doubles in each round trip."""
        self._ceiling = 0.0
        """The limit at which errors occurred last."""
        self._started = 0
        self._lowered = 0
        """The number of the first request after the limit was lowered."""
        self._good = True
        """Whether one of these requests succeeded."""
        self.time_s = 0.0
        """The duration of requests, as a moving average."""
        self.best_s = 0.0
        """The duration of the fastest requests, or of all requests while few run at once."""

    @property
    def limit(self) -> int:
        """The maximum number of concurrent requests."""
        return int(self._limit)

    def start(self) -> int:
        """Count a request; returns its number."""
        self._started += 1
        return self._started

    def learn_time(self, time_s: float) -> None:
        """Record the duration of a request, with or without a response."""
        self.time_s += (time_s - self.time_s) / (8 if self.time_s else 1)

    def answered(self, number: int, time_s: float, under_way: int) -> None:
        """Record a successful response; `under_way` includes it."""
        if not self.best_s or time_s < self.best_s:
            self.best_s = time_s
        elif self._limit <= limits.HOST_REQUESTS_BASE:  # then our requests are not the cause
            self.best_s += (time_s - self.best_s) / 64
        if number < self._lowered:
            return
        self._good = True
        if self._is_slow and self._limit > limits.HOST_REQUESTS_BASE:
            self._threshold = max(self._limit * _AFTER_DELAYS, limits.HOST_REQUESTS_BASE)
            self._lower(self._threshold)
        # A limit that is not used gives no information about the receiver.
        elif 2 * under_way >= self._limit or self._limit < limits.HOST_REQUESTS_BASE:
            self._limit = min(self._limit + self._growth, self._max)

    def failed(self, number: int) -> None:
        """Record an error or a missing response."""
        if number < self._lowered:
            return
        if self._good:  # otherwise it fails permanently, independent of the number of requests
            self._threshold = max(self._limit * _AFTER_ERRORS, 1.0)
            self._ceiling = self._limit
        self._good = False
        self._lower(max(self._limit * _AFTER_ERRORS, 1.0))

    @property
    def doubles(self) -> bool:
        """Whether the limit doubles in each round trip."""
        return self._limit < self._threshold

    def turn_s(self, count: int) -> float:
        """Estimate the time until `count` more requests have started, including the growth of the
        limit."""
        if not self.doubles:
            return count * self.time_s / self._limit
        doubled = (
            self._threshold - self._limit
        )  # the number of requests that start until the limit reaches its threshold
        if count <= doubled:
            return self.time_s * log2(1 + count / self._limit)
        rounds = log2(self._threshold / self._limit) + (count - doubled) / self._threshold
        return self.time_s * rounds

    @property
    def _growth(self) -> float:
        """The growth of the limit with one response."""
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
