"""Meters: in-memory counters and histograms of a node."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from onceward import limits
from onceward.errors import BadInput
from onceward.metric_table import METRICS, SECONDS

Labels = tuple[tuple[str, str], ...]

OTHER = "other"
"""The label of everything above a limit."""


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
    """The meters of one process, by name and labels.

    Callers choose names of queues. The first ones get their own series; all further queues are
    counted together as `other`, and so are further labels of an application's own meters.
    """

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, Counter]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}
        self._queues: set[str] = set()

    def prepare(self) -> None:
        """Create the counters and histograms whose labels are known, with the value 0."""
        for name, metric in METRICS.items():
            if metric.kind != "gauge" and not name.startswith("process_"):
                make = self.counter if metric.kind == "counter" else self.histogram
                for labels in product(*metric.labels.values()):
                    make(name, **dict(zip(metric.labels, labels, strict=True)))

    def prepare_queue(self, queue: str) -> None:
        """Create all meters of a queue, with the value 0."""
        for name, metric in METRICS.items():
            if metric.kind == "histogram" and "queue" in metric.labels:
                self.histogram(name, queue=queue)

    def queue_label(self, queue: str) -> str:
        """The label of a queue: its name, or `other`. A new name gets its counters."""
        if queue in self._queues:
            return queue
        if len(self._queues) >= limits.METERED_QUEUES_MAX:
            queue = OTHER
            if queue in self._queues:
                return queue
        self._queues.add(queue)
        for name, metric in METRICS.items():
            if metric.kind == "counter" and "queue" in metric.labels:
                for labels in product(*[values or (queue,) for values in metric.labels.values()]):
                    self.counter(name, **dict(zip(metric.labels, labels, strict=True)))
        return queue

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        self.counter(name, **labels).value += by

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of that name; with the value 0 if it is new."""
        counters = self._counters.setdefault(name, {})
        counter = counters.get(tuple(labels.items()))
        if counter is None:
            counter = counters.setdefault(self._key(name, counters, labels), Counter())
        return counter

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The histogram of that name, to observe values with."""
        histograms = self._histograms.setdefault(name, {})
        histogram = histograms.get(tuple(labels.items()))
        if histogram is None:
            bounds = METRICS[name].bounds if name in METRICS else SECONDS
            key = self._key(name, histograms, labels)
            histogram = histograms.setdefault(key, Histogram(bounds))
        return histogram

    def _key(self, name: str, known: Mapping[Labels, object], labels: dict[str, str]) -> Labels:
        metric = METRICS.get(name)
        if metric is None:
            _admit(name, labels)
        elif labels.keys() != metric.labels.keys():
            raise BadInput(
                f"the metric {name!r} is one of Onceward's, with the labels "
                f"{list(metric.labels)}, not {list(labels)}; choose another name"
            )
        elif "queue" in metric.labels:
            labels = {**labels, "queue": self.queue_label(labels["queue"])}
            return tuple((label, labels[label]) for label in metric.labels)
        key = tuple(labels.items())
        if key in known or len(known) < limits.METERS_MAX:
            return key
        return tuple((name, OTHER) for name in labels)

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


def _admit(name: str, labels: Mapping[str, str]) -> None:
    """Raise `BadInput` for names that Prometheus rejects, since it would reject all metrics."""
    for one in (name, *labels):
        if not one.isascii() or not one.isidentifier():
            raise BadInput(
                f"the name of a metric or label must have letters, digits and _, not {one!r}",
                code="bad_name",
            )
    for label, value in labels.items():
        if type(value) is not str:
            raise BadInput(
                f"the label {label!r} must be text, not {type(value).__name__}", code="wrong_type"
            )
