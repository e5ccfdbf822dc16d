"""What is counted while it runs."""

import pytest

from onceward import limits
from onceward.meters import SECONDS, Histogram, Meters


def test_a_counter_counts_by_its_labels() -> None:
    meters = Meters()
    meters.count("sent", queue="a")
    meters.count("sent", 2, queue="a")
    meters.count("sent", queue="b")
    meters.count("ended")
    assert list(meters.counters()) == [
        ("ended", {(): 1}),
        ("sent", {(("queue", "a"),): 3, (("queue", "b"),): 1}),
    ]


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((1, 10))
    for value in (0, 1, 1.5, 10, 11):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, histogram.sum) == (5, 23.5)


def test_the_same_labels_lead_to_the_same_histogram() -> None:
    meters = Meters()
    first = meters.histogram("took", route="/a")
    assert meters.histogram("took", route="/a") is first
    assert meters.histogram("took", route="/b") is not first
    [(name, histograms)] = meters.histograms()
    assert (name, len(histograms)) == ("took", 2)
    assert first.bounds == SECONDS == tuple(sorted(SECONDS))


@pytest.mark.parametrize("kind", ["count", "histogram"])
def test_labels_that_callers_make_up_do_not_fill_the_memory(kind: str) -> None:
    meters = Meters()
    for number in range(limits.METERS_MAX + 100):
        getattr(meters, kind)("seen", queue=f"q{number}", state="done")
    getattr(meters, kind)("seen", queue="q0", state="done")
    [(_, found)] = meters.counters() if kind == "count" else meters.histograms()
    assert len(found) == limits.METERS_MAX + 1
    if kind == "count":
        assert found[(("queue", "other"), ("state", "other"))] == 100
        assert found[(("queue", "q0"), ("state", "done"))] == 2
