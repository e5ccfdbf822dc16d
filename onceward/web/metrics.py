"""Metrics in the Prometheus text format."""

import platform
from collections import Counter
from collections.abc import Iterator, Mapping

from onceward import __version__
from onceward.meters import Histogram, Labels, Meters
from onceward.metric_table import METRICS, full_name
from onceward.observe.counts import Counts

KIND = b"text/plain; version=0.0.4; charset=utf-8"


def text(
    meters: Meters,
    counts: Counts,
    now_ms: int,
    gauges: Mapping[str, float] | None = None,
    alarms: Mapping[str, int] | None = None,
) -> bytes:
    """Render all metrics of this process. Gauges have current values; alarms are 0 or 1 by code."""
    lines = [*_alarms(alarms or {}), *_lines(meters, counts, now_ms, gauges or {})]
    return "".join(lines).encode()


def build_info() -> bytes:
    """The versions of Onceward and Python."""
    labels = (("version", __version__), ("python", platform.python_version()))
    return "".join(
        [*_head("build_info", "gauge"), _line(full_name("build_info"), labels, 1)]
    ).encode()


def _alarms(alarms: Mapping[str, int]) -> Iterator[str]:
    if alarms:
        yield from _head("alarm", "gauge")
        for code, held in alarms.items():
            yield _line(full_name("alarm"), (("code", code),), held)


def _lines(
    meters: Meters, counts: Counts, now_ms: int, gauges: Mapping[str, float]
) -> Iterator[str]:
    for name, value in gauges.items():
        kind = METRICS[name].kind
        yield from _head(name, kind)
        yield _line(full_name(name, kind), (), value)
    for name, values in meters.counters():
        yield from _head(name, "counter")
        for labels, value in values.items():
            yield _line(full_name(name, "counter"), labels, value)
    for name, histograms in meters.histograms():
        yield from _head(name, "histogram")
        for labels, histogram in histograms.items():
            yield from _histogram(name, labels, histogram)
    if counts.counted_ms is None:
        return
    for name, value in {"counted_seconds": counts.counted_ms / 1000, **counts.gauges}.items():
        yield from _head(name, "gauge")
        yield _line(full_name(name), (), value)
    jobs, oldest_ms = _by_queue(meters, counts)
    yield from _head("jobs", "gauge")
    for labels, count in sorted(jobs.items()):
        yield _line(full_name("jobs"), labels, count)
    yield from _head("oldest_queued_seconds", "gauge")
    for labels, queued_ms in sorted(oldest_ms.items()):
        age_s = max(now_ms - queued_ms, 0) / 1000
        yield _line(full_name("oldest_queued_seconds"), labels, age_s)


def _by_queue(meters: Meters, counts: Counts) -> tuple[Counter[Labels], dict[Labels, int]]:
    """The number of jobs by queue and state, and the time of the oldest queued job by queue."""
    jobs, oldest_ms = Counter[Labels](), dict[Labels, int]()
    for name, queue in sorted(counts.queues.items()):
        label = ("queue", meters.queue_label(name))
        for state, count in queue.jobs.items():
            jobs[label, ("state", state)] += count
        if queue.oldest_queued_ms is not None:
            known_ms = oldest_ms.get((label,), queue.oldest_queued_ms)
            oldest_ms[label,] = min(known_ms, queue.oldest_queued_ms)
    return jobs, oldest_ms


def _head(name: str, kind: str) -> Iterator[str]:
    full = full_name(name, kind)
    yield f"# HELP {full} {METRICS[name].help if name in METRICS else name}\n"
    yield f"# TYPE {full} {kind}\n"


def _histogram(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    full, so_far = full_name(name), 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        so_far += count
        yield _line(f"{full}_bucket", (*labels, ("le", str(bound))), so_far)
    yield _line(f"{full}_sum", labels, histogram.sum)
    yield _line(f"{full}_count", labels, so_far)


def _line(full: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{full}{{{shown}}} {value}\n" if shown else f"{full} {value}\n"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


_ESCAPES: Mapping[int, str] = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n"}
