"""Meters: in-memory counters and histograms of a node."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from onceward import limits

Labels = tuple[tuple[str, str], ...]

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
"""The bounds of histograms of durations."""


class Histogram:
    """Counts of values by upper bound; the last count has values above all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, fraction: float, since: Sequence[int] = ()) -> float | None:
        """A quantile of all values, or of those since the counts `since`; None without values.

        Values are assumed to be evenly distributed within a bucket. Values above the last bound
        count as that bound.
        """
        before = since or [0] * len(self.counts)
        counts = [now - then for now, then in zip(self.counts, before, strict=True)]
        rank, low = fraction * sum(counts), 0.0
        if not rank:
            return None
        for high, count in zip(self.bounds, counts, strict=False):
            if count >= rank:
                return low + (high - low) * rank / count
            rank, low = rank - count, high
        return low


class Counter:
    """A number that grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Meters:
    """The meters of one process, by name and labels. Labels include names of queues, which callers
    choose. Above a limit, further label values are counted under the label `other`."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, Counter]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self.counter(name, **labels).value += by

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of that name, for callers that add to it often."""
        counters = self._counters.setdefault(name, {})
        key = _key(counters, labels)
        counter = counters.get(key)
        if counter is None:
            counter = counters[key] = Counter()
        return counter

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The histogram of that name, to observe values with."""
        histograms = self._histograms.setdefault(name, {})
        key = _key(histograms, labels)
        histogram = histograms.get(key)
        if histogram is None:
            histogram = histograms[key] = Histogram()
        return histogram

    def total(self, name: str, **labels: str) -> float:
        """The sum of the counters of a name that have these labels."""
        wanted = labels.items()
        counters = self._counters.get(name, {}).items()
        return sum(n.value for key, n in counters if all(pair in key for pair in wanted))

    def labelled(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """The counters of a name, each with its labels."""
        for key, counter in self._counters.get(name, {}).items():
            yield dict(key), counter.value

    def counters(self) -> Iterator[tuple[str, dict[Labels, float]]]:
        for name, counters in sorted(self._counters.items()):
            yield name, {key: counter.value for key, counter in counters.items()}

    def histograms(self) -> Iterator[tuple[str, dict[Labels, Histogram]]]:
        yield from sorted(self._histograms.items())


def _key(known: Mapping[Labels, object], labels: dict[str, str]) -> Labels:
    key = tuple(labels.items())
    if key in known or len(known) < limits.METERS_MAX:
        return key
    return tuple((name, "other") for name in labels)
