"""Samples of a node's activity: events in each of the last seconds."""

from collections import deque
from collections.abc import Callable, Mapping

from onceward import limits
from onceward.api.server import Sample, Totals
from onceward.meters import Histogram
from onceward.observe.counts import Counts
from onceward.store import Store


class Samples:
    """Takes a sample every second, and keeps those of the last minutes."""

    def __init__(
        self, store: Store, counts: Counts, gauges: Callable[[], Mapping[str, float]]
    ) -> None:
        self.last = 0
        """The number of the last sample."""
        self._store = store
        self._counts = counts
        self._gauges = gauges
        self._samples: deque[Sample] = deque(maxlen=limits.ACTIVITY_SAMPLES)
        self._before = self.totals()
        self._commits = _Span(store.meters.histogram("commit_seconds"))
        self._lateness = _Span(store.meters.histogram("lateness_seconds"))

    async def run(self) -> None:
        """Take samples until cancelled."""
        clock, lag = self._store.clock, self._store.meters.histogram("loop_lag_seconds")
        while True:
            begun_ns = clock.elapsed_ns()
            await clock.sleep(limits.ACTIVITY_S)
            lag.observe(max((clock.elapsed_ns() - begun_ns) / 1e9 - limits.ACTIVITY_S, 0.0))
            self.sample()

    def sample(self) -> None:
        """Take a sample of the time since the previous one."""
        now, before = self.totals(), self._before
        self._before = now
        self._samples.append(
            Sample(
                self._store.clock.now_ms(),
                now.accepted - before.accepted,
                now.repeats - before.repeats,
                now.succeeded - before.succeeded,
                now.failed - before.failed,
                *self._commits.end(),
                *self._lateness.end(),
                now.connections,
                now.members,
                self.age_ms(),
            )
        )
        self.last += 1

    def since(self, number: int) -> list[Sample]:
        """The retained samples after that number."""
        count = min(max(self.last - number, 0), len(self._samples))
        return list(self._samples)[len(self._samples) - count :]

    def totals(self) -> Totals:
        meters, gauges = self._store.meters, self._gauges()
        ended, succeeded = meters.total("ended"), meters.total("ended", state="succeeded")
        return Totals(
            meters.total("accepted", duplicate="no"),
            meters.total("accepted", duplicate="yes"),
            succeeded,
            ended - succeeded - meters.total("ended", state="scheduled"),
            gauges["connections"],
            gauges["room_members"],
        )

    def age_ms(self) -> int:
        """The age of the oldest job that waits for a worker."""
        created_ms = [
            q.oldest_queued_ms for q in self._counts.queues.values() if q.oldest_queued_ms
        ]
        return max(self._store.clock.now_ms() - min(created_ms), 0) if created_ms else 0


class _Span:
    """The changes of a histogram since the last sample."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._counts = list(histogram.counts)

    def end(self) -> tuple[float | None, float | None]:
        """The median and 99th percentile in milliseconds; then a new span starts."""
        median, high = [self._histogram.quantile(part, self._counts) for part in (0.5, 0.99)]
        self._counts = list(self._histogram.counts)
        return _ms(median), _ms(high)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1_000, 3)
