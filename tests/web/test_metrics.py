"""Metrics in the form that Prometheus reads."""

import re
from pathlib import Path

from onceward import limits
from onceward.meters import Meters
from onceward.observe.counts import Counts, Queue
from onceward.web import metrics
from onceward.web.metrics import HELP
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
LINE = re.compile(r'onceward_[a-z_]+(\{([a-z]+="([^"\\\n]|\\[n"\\])*",?)+\})? [0-9.e+-]+')


def counts() -> Counts:
    return Counts(None, 4)  # type: ignore[arg-type]


def lines(meters: Meters, found: Counts | None = None, now_ms: int = 0) -> list[str]:
    text = metrics.text(meters, found or counts(), now_ms).decode()
    assert text == "" or text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith(("# HELP onceward_", "# TYPE onceward_")) or LINE.fullmatch(line)
    return text.splitlines()


def test_counters_are_shown_with_their_labels() -> None:
    meters = Meters()
    meters.count("accepted", 3, queue="a", duplicate="no")
    meters.count("conflicts")
    assert lines(meters) == [
        f"# HELP onceward_accepted_total {HELP['accepted']}",
        "# TYPE onceward_accepted_total counter",
        'onceward_accepted_total{queue="a",duplicate="no"} 3',
        f"# HELP onceward_conflicts_total {HELP['conflicts']}",
        "# TYPE onceward_conflicts_total counter",
        "onceward_conflicts_total 1",
    ]


def test_gauges_are_shown_as_they_are() -> None:
    shown = metrics.text(Meters(), counts(), 0, {"rooms": 2}).decode().splitlines()
    assert shown[-2:] == ["# TYPE onceward_rooms gauge", "onceward_rooms 2"]


def test_the_type_is_the_one_that_prometheus_asks_for() -> None:
    assert metrics.KIND == b"text/plain; version=0.0.4; charset=utf-8"


def test_what_an_application_counts_is_shown_by_its_name() -> None:
    meters = Meters()
    meters.count("parcels", size="large")
    assert lines(meters) == [
        "# HELP onceward_parcels_total parcels",
        "# TYPE onceward_parcels_total counter",
        'onceward_parcels_total{size="large"} 1',
    ]


def test_labels_are_escaped() -> None:
    meters = Meters()
    meters.count("accepted", queue='a"b\\c\nd')
    assert lines(meters)[-1] == r'onceward_accepted_total{queue="a\"b\\c\nd"} 1'


def test_histograms_are_cumulative() -> None:
    meters = Meters()
    for took_s in (0.0001, 0.003, 100):
        meters.histogram("request_seconds", route="/a").observe(took_s)
    shown = lines(meters)
    assert shown[1] == "# TYPE onceward_request_seconds histogram"
    assert shown[2] == 'onceward_request_seconds_bucket{route="/a",le="0.0005"} 1'
    assert shown[5] == 'onceward_request_seconds_bucket{route="/a",le="0.005"} 2'
    assert shown[-3] == 'onceward_request_seconds_bucket{route="/a",le="+Inf"} 3'
    assert shown[-2].startswith('onceward_request_seconds_sum{route="/a"} 100.0031')
    assert shown[-1] == 'onceward_request_seconds_count{route="/a"} 3'


def test_jobs_are_shown_once_they_are_counted() -> None:
    found = counts()
    assert lines(Meters(), found) == []
    found.counted_ms = 1_500
    queue = found.queues["q"] = Queue(oldest_queued_ms=1_000)
    queue.jobs.update(["queued", "queued", "succeeded"])
    found.queues["idle"] = Queue()
    assert lines(Meters(), found, 3_000) == [
        f"# HELP onceward_counted_seconds {HELP['counted_seconds']}",
        "# TYPE onceward_counted_seconds gauge",
        "onceward_counted_seconds 1.5",
        f"# HELP onceward_jobs {HELP['jobs']}",
        "# TYPE onceward_jobs gauge",
        'onceward_jobs{queue="q",state="queued"} 2',
        'onceward_jobs{queue="q",state="succeeded"} 1',
        f"# HELP onceward_oldest_queued_seconds {HELP['oldest_queued_seconds']}",
        "# TYPE onceward_oldest_queued_seconds gauge",
        'onceward_oldest_queued_seconds{queue="q"} 2.0',
    ]
    # The clock may have been set back meanwhile.
    assert lines(Meters(), found, 500)[-1].endswith(" 0.0")


def test_all_that_the_dashboard_shows_is_explained_and_nothing_else() -> None:
    shown = set(re.findall(r"\bonceward_([a-z_]+?)(?:_total|_bucket)?\b", DASHBOARD.read_text()))
    assert shown == set(HELP)


@virtual
async def test_everything_that_is_measured_is_explained() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.send("q", 1, key="k")
        await app.claim("q", "w", lease_s=1)
        await apps.sleep(2 * limits.CENSUS_S)
        names = {name for name, _ in [*app.store.meters.counters(), *app.store.meters.histograms()]}
    assert {"accepted", "claimed", "commit_seconds"} <= names <= set(HELP)
