"""What is counted while it runs."""

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.errors import BadInput
from onceward.meters import Histogram, Meters
from onceward.metric_table import LONG_SECONDS, METRICS, SECONDS, full_name


def test_a_counter_counts_by_its_labels() -> None:
    meters = Meters()
    meters.count("sent", queue="a")
    meters.count("sent", 2, queue="a")
    meters.count("sent", queue="b")
    meters.count("arrived")
    assert list(meters.counters()) == [
        ("arrived", {(): 1}),
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
        getattr(meters, kind)("seen", topic=f"t{number}", state="read")
    getattr(meters, kind)("seen", topic="t0", state="read")
    [(_, found)] = meters.counters() if kind == "count" else meters.histograms()
    assert len(found) == limits.METERS_MAX + 1
    if kind == "count":
        assert found[(("topic", "other"), ("state", "other"))] == 100
        assert found[(("topic", "t0"), ("state", "read"))] == 2


def test_only_the_first_queues_have_their_own_series() -> None:
    meters = Meters()
    for number in range(limits.METERED_QUEUES_MAX + 100):
        meters.count("accepted", queue=f"q{number}", duplicate="no")
        meters.histogram("wait_seconds", queue=f"q{number}").observe(1)
    meters.count("ended", state="failed", queue="q0")
    assert meters.queue_label("new") == "other"
    found = dict(meters.counters())
    assert found["accepted"][(("queue", "other"), ("duplicate", "no"))] == 100
    assert found["ended"][(("queue", "q0"), ("state", "failed"))] == 1
    queues = limits.METERED_QUEUES_MAX + 1
    assert {name: len(series) for name, series in found.items()} == {
        name: queues * math.prod(len(values) for values in metric.labels.values() if values)
        for name, metric in METRICS.items()
        if metric.kind == "counter" and "queue" in metric.labels
    }
    [(_, histograms)] = meters.histograms()
    assert len(histograms) == queues
    assert histograms[(("queue", "other"),)].count == 100


def test_counters_with_known_labels_exist_before_their_first_event() -> None:
    meters = Meters()
    meters.prepare()
    meters.count("accepted", queue="q", duplicate="no")
    found = dict(meters.counters())
    assert found["conflicts"] == {(): 0}
    assert found["webhooks_postponed"] == {(("reason", "paused"),): 0, (("reason", "busy"),): 0}
    assert found["accepted"] == {
        (("queue", "q"), ("duplicate", "no")): 1,
        (("queue", "q"), ("duplicate", "yes")): 0,
    }
    assert found["ended"][(("queue", "q"), ("state", "failed"))] == 0
    # The server knows the routes of requests, and the application the names of its outboxes.
    missing = {name for name, metric in METRICS.items() if metric.kind == "counter"} - found.keys()
    assert missing == {"requests", "outbox_rows", "process_cpu_seconds"}
    meters.prepare_queue("q")
    queues = {name for name, series in meters.histograms() if (("queue", "q"),) in series}
    assert queues == {"handler_seconds", "wait_seconds"}


def test_histograms_have_the_bounds_of_the_table() -> None:
    meters = Meters()
    assert meters.histogram("wait_seconds", queue="q").bounds == LONG_SECONDS
    assert meters.histogram("commit_seconds").bounds == SECONDS
    assert meters.histogram("parcel_seconds").bounds == SECONDS
    assert tuple(sorted(LONG_SECONDS)) == LONG_SECONDS


@pytest.mark.parametrize("name", ["", "two words", "1st", "für", "a-b", "a{b}"])
def test_names_that_prometheus_rejects_are_refused(name: str) -> None:
    meters = Meters()
    for refused in (lambda: meters.count(name), lambda: meters.count("seen", **{name: "x"})):
        with pytest.raises(BadInput) as error:
            refused()
        assert error.value.code == "bad_name"
    assert not any(series for _, series in meters.counters())


def test_labels_must_be_text_and_those_of_the_table() -> None:
    meters = Meters()
    with pytest.raises(BadInput, match="must be text, not int"):
        meters.count("parcels", size=1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="choose another name"):
        meters.count("conflicts", size="large")


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, metric in METRICS.items():
        full = full_name(name, metric.kind)
        assert full.startswith(("onceward_", "process_"))
        assert (metric.kind == "counter") == full.endswith("_total"), full
        if metric.kind == "histogram":
            assert full.endswith("_seconds"), full
        assert not {"ms", "millis", "kb"} & set(full.split("_")), full
        assert metric.help[0].isupper() or metric.help[0].isdigit()
        assert not metric.help.endswith(".")
