"""What is counted while it runs."""

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_what_takes_time_is_told_apart_from_half_a_millisecond_to_a_minute() -> None:
    *bounds, last = SECONDS
    steps = {round(bound / 10 ** math.floor(math.log10(bound)), 9) for bound in bounds}
    assert steps == {1, 2.5, 5}
    assert (bounds[0], last, len(bounds)) == (0.0005, 60, 14)


def test_totals_are_of_all_counters_that_have_the_labels() -> None:
    meters = Meters()
    meters.count("ended", queue="a", state="succeeded")
    meters.count("ended", 2, queue="b", state="succeeded")
    meters.count("ended", 4, queue="b", state="failed")
    assert meters.total("ended") == 7
    assert meters.total("ended", state="succeeded") == 3
    assert meters.total("ended", state="succeeded", queue="b") == 2
    assert meters.total("ended", state="other") == meters.total("nothing") == 0
    assert [labels["queue"] for labels, count in meters.labelled("ended") if count == 4] == ["b"]


def test_a_quantile_lies_within_its_bounds() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    assert histogram.quantile(0.5) is None
    for value in (0.5, 1.5, 1.5, 3.0):
        histogram.observe(value)
    assert histogram.quantile(0.25) == 1.0
    assert histogram.quantile(0.5) == 1.5
    assert histogram.quantile(1.0) == 4.0
    before = list(histogram.counts)
    assert histogram.quantile(0.5, before) is None
    histogram.observe(100.0)
    assert histogram.quantile(0.5, before) == 4.0
    with pytest.raises(ValueError, match="shorter"):
        histogram.quantile(0.5, before[1:])  # of another histogram


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=50),
    st.floats(0.01, 1),
)
def test_quantiles_are_no_further_off_than_a_bound(values: list[float], fraction: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    exact = sorted(values)[max(math.ceil(fraction * len(values)) - 1, 0)]
    found = histogram.quantile(fraction)
    assert found is not None
    # The value itself lies between the same two bounds.
    number = min(bisect_left(SECONDS, exact), len(SECONDS) - 1)
    assert (0.0, *SECONDS)[number] <= found <= SECONDS[number] or exact > SECONDS[-1] == found


@pytest.mark.parametrize("kind", ["count", "histogram"])
def test_labels_that_callers_make_up_do_not_fill_the_memory(kind: str) -> None:
    meters = Meters()
    for number in range(limits.METERS_MAX + 100):
        getattr(meters, kind)("seen", queue=f"q{number}", state="succeeded")
    getattr(meters, kind)("seen", queue="q0", state="succeeded")
    [(_, found)] = meters.counters() if kind == "count" else meters.histograms()
    assert len(found) == limits.METERS_MAX + 1
    if kind == "count":
        assert found[(("queue", "other"), ("state", "other"))] == 100
        assert found[(("queue", "q0"), ("state", "succeeded"))] == 2
