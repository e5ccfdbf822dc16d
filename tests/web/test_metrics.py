"""Metrics in the form that Prometheus reads."""

import platform
import re
from pathlib import Path

import pytest

import onceward
from onceward import limits
from onceward.errors import LockHeld, LockLost
from onceward.meters import Meters
from onceward.metric_table import METRICS
from onceward.observe.counts import Counts, Queue
from onceward.web import metrics
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.web.asgi import serving
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


def parsed(text: str) -> dict[str, float]:
    """All samples of a text, checked by the rules of the format: each family once, with its type
    before its samples, each series once, and histograms that add up."""
    families: dict[str, str] = {}
    samples: dict[str, float] = {}
    name = kind = ""
    for line in text.splitlines():
        words = line.split(" ")
        if words[:2] == ["#", "HELP"]:
            assert words[2] not in families, line
            name = words[2]
            families[name] = ""
        elif words[:2] == ["#", "TYPE"]:
            assert (words[2], families[name]) == (name, ""), line
            kind = families[name] = words[3]
        else:
            series, value = line.rsplit(" ", 1)
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert series.partition("{")[0] in [name + suffix for suffix in suffixes], line
            assert series not in samples, line
            samples[series] = float(value)
    for name in [name for name, kind in families.items() if kind == "histogram"]:
        so_far: dict[str, float] = {}
        for series, value in samples.items():
            if series.startswith(f"{name}_bucket{{"):
                labels = re.sub(r',?le="[^"]*"', "", series.partition("{")[2])
                assert value >= so_far.get(labels, 0), series
                so_far[labels] = value
        for labels, value in so_far.items():
            assert samples[f"{name}_count" + ("{" + labels).replace("{}", "")] == value
    return samples


def test_counters_are_shown_with_their_labels() -> None:
    meters = Meters()
    meters.count("requests", 3, route="/a", method="GET", status="200")
    meters.count("conflicts")
    shown = lines(meters)
    assert [*shown[3:], *shown[:3]] == [
        f"# HELP onceward_requests_total {METRICS['requests'].help}",
        "# TYPE onceward_requests_total counter",
        'onceward_requests_total{route="/a",method="GET",status="200"} 3',
        f"# HELP onceward_conflicts_total {METRICS['conflicts'].help}",
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
    meters.count("parcels", size='a"b\\c\nd')
    assert lines(meters)[-1] == r'onceward_parcels_total{size="a\"b\\c\nd"} 1'


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
        f"# HELP onceward_counted_seconds {METRICS['counted_seconds'].help}",
        "# TYPE onceward_counted_seconds gauge",
        "onceward_counted_seconds 1.5",
        f"# HELP onceward_jobs {METRICS['jobs'].help}",
        "# TYPE onceward_jobs gauge",
        'onceward_jobs{queue="q",state="queued"} 2',
        'onceward_jobs{queue="q",state="succeeded"} 1',
        f"# HELP onceward_oldest_queued_seconds {METRICS['oldest_queued_seconds'].help}",
        "# TYPE onceward_oldest_queued_seconds gauge",
        'onceward_oldest_queued_seconds{queue="q"} 2.0',
    ]
    # The clock may have been set back meanwhile.
    assert lines(Meters(), found, 500)[-1].endswith(" 0.0")


def test_queues_above_the_limit_are_shown_together() -> None:
    meters, found = Meters(), counts()
    found.counted_ms = 1
    for number in range(limits.METERED_QUEUES_MAX + 3):
        queue = found.queues[f"q{number:03}"] = Queue(oldest_queued_ms=1_000 * number)
        queue.jobs.update(["queued"])
    shown = lines(meters, found, 1_000_000)
    assert 'onceward_jobs{queue="other",state="queued"} 3' in shown
    oldest_s = 1_000.0 - limits.METERED_QUEUES_MAX
    assert f'onceward_oldest_queued_seconds{{queue="other"}} {oldest_s}' in shown
    queues = [line for line in shown if line.startswith("onceward_jobs{")]
    assert len(queues) == limits.METERED_QUEUES_MAX + 1


def test_standard_metrics_of_a_process_have_their_standard_names() -> None:
    gauges = {"process_cpu_seconds": 1.5, "process_open_fds": 3, "disk_free_bytes": 9}
    shown = metrics.text(Meters(), counts(), 0, gauges).decode().splitlines()
    assert [line for line in shown if not line.startswith("# HELP")] == [
        "# TYPE process_cpu_seconds_total counter",
        "process_cpu_seconds_total 1.5",
        "# TYPE process_open_fds gauge",
        "process_open_fds 3",
        "# TYPE onceward_disk_free_bytes gauge",
        "onceward_disk_free_bytes 9",
    ]


def test_the_build_is_shown_as_labels() -> None:
    line = metrics.build_info().decode().splitlines()[-1]
    assert line == (
        f'onceward_build_info{{version="{onceward.__version__}",'
        f'python="{platform.python_version()}"}} 1'
    )


def test_all_that_the_dashboard_shows_is_explained_and_nothing_else() -> None:
    text = DASHBOARD.read_text()
    shown = set(re.findall(r"\b(?:onceward_|(?=process_))([a-z_]+?)(?:_total|_bucket)?\b", text))
    assert shown == set(METRICS)


@virtual
async def test_everything_that_is_measured_is_explained() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.send("q", 1, key="k")
        await app.claim("q", "w", lease_s=1)
        await apps.sleep(2 * limits.CENSUS_S)
        names = {name for name, _ in [*app.store.meters.counters(), *app.store.meters.histograms()]}
    assert {"accepted", "claimed", "commit_seconds"} <= names <= set(METRICS)


@virtual
async def test_waits_and_handlers_are_measured_by_queue() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("mails", attempts_max=2, retry_first_s=5)
    async def send(job: Job) -> None:
        await apps.sleep(3)
        if job.attempt == 1:
            raise ValueError("no")

    async with app:
        meters = app.store.meters
        waited = meters.histogram("wait_seconds", queue="mails")
        assert waited.count == 0
        receipt = await app.send("mails", 1, delay_s=60)
        assert (await app.wait(receipt.id)).state == "succeeded"
        took = meters.histogram("handler_seconds", queue="mails")
        assert (took.count, took.sum) == (2, pytest.approx(6, abs=0.1))
        # Neither the delay nor the pause before the retry counts.
        assert (waited.count, waited.sum) == (2, pytest.approx(0, abs=0.1))
        late = await app.send("slow", 1)
        await apps.sleep(40)
        [claim] = await app.claim("slow", "w", lease_s=10)
        slow = meters.histogram("wait_seconds", queue="slow")
        assert (slow.count, slow.sum) == (1, pytest.approx(40, abs=0.1))
        await app.fail(claim.id, claim.token, "no", final=True)
        await apps.sleep(1_000)
        await app.store.run(lambda tx: app.node.schedule.retry(tx, late.id))
        await app.claim("slow", "w", lease_s=10)
        assert slow.count == 1  # a retry by an operator has no due time


@virtual
async def test_a_server_shows_counters_before_their_first_event() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    app.queue("mails")
    async with serving(app) as caller:
        shown = (await caller("GET", "/metrics")).body.decode()
    parsed(shown)
    for line in (
        'onceward_accepted_total{queue="mails",duplicate="no"} 0',
        'onceward_ended_total{queue="mails",state="failed"} 0',
        'onceward_requests_total{route="/v1/inbox/{queue}",method="POST",status="202"} 0',
        'onceward_requests_total{route="/v1/inbox/{queue}",method="POST",status="500"} 0',
        "onceward_conflicts_total 0",
        'onceward_room_closes_total{code="slow_reader"} 0',
    ):
        assert line in shown.splitlines(), line


@virtual
async def test_locks_are_measured() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        async with app.locks.hold("printer"):
            with pytest.raises(LockHeld):
                async with app.locks.hold("printer", wait_s=2):
                    pass
            counted = Counts(app.store, app.node.schedule.slots)
            await counted.count()
            assert counted.gauges["lock_holders"] == 1
            assert counted.gauges["lock_waiters"] == 0
        meters = app.store.meters
        assert meters.total("lock_requests", outcome="granted") == 1
        assert meters.total("lock_requests", outcome="refused") == 1
        assert meters.total("locks_lost") == 0
        hold = app.locks.hold("printer")
        lock = await hold.__aenter__()
        await app.store.run(lambda tx: app.locks.table.release(tx, lock.id))
        with pytest.raises(LockLost):
            await hold.__aexit__(None, None, None)
        assert meters.total("locks_lost") == 1
        assert meters.histogram("lock_wait_seconds").count == 2


@virtual
async def test_tables_are_measured() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.tables.create("t", policy={"seats": ["x", "o"]})
        for user in ("ann", "bob", "cleo"):
            await app.tables.join("t", user)
        counted = Counts(app.store, app.node.schedule.slots)
        await counted.count()
        assert {name: value for name, value in counted.gauges.items() if "table" in name} == {
            "tables": 1,
            "table_games": 1,
            "table_players": 2,
            "table_waiters": 1,
        }
        await app.tables.result("t", ["ann"])
        await app.tables.close("t")
        meters = app.store.meters
        assert meters.total("table_joins", role="seated") == 2
        assert meters.total("table_joins", role="waiting") == 1
        assert meters.total("table_games_started") == 2
        assert meters.total("table_games_ended", reason="result") == 1
        assert meters.total("table_games_ended", reason="void") == 1
