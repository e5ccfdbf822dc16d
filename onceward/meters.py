"""Meters: what is counted while it runs, for whoever watches."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from onceward import limits

Labels = tuple[tuple[str, str], ...]

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
"""The bounds of what takes time."""


class Histogram:
    """How often values up to each bound came; the last one counts the rest."""

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


class Meters:
    """The meters of one process, by name and labels. Callers make up names of queues: where there
    are too many, what is new is counted together, under labels that say `other`."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        counters = self._counters.setdefault(name, {})
        key = _key(counters, labels)
        counters[key] = counters.get(key, 0) + by

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The histogram of that name, to observe values with."""
        histograms = self._histograms.setdefault(name, {})
        key = _key(histograms, labels)
        histogram = histograms.get(key)
        if histogram is None:
            histogram = histograms[key] = Histogram()
        return histogram

    def counters(self) -> Iterator[tuple[str, dict[Labels, float]]]:
        yield from sorted(self._counters.items())

    def histograms(self) -> Iterator[tuple[str, dict[Labels, Histogram]]]:
        yield from sorted(self._histograms.items())


def _key(known: Mapping[Labels, object], labels: dict[str, str]) -> Labels:
    key = tuple(labels.items())
    if key in known or len(known) < limits.METERS_MAX:
        return key
    return tuple((name, "other") for name in labels)
