"""Metrics in the Prometheus text format."""

from collections.abc import Iterator, Mapping

from onceward.meters import Histogram, Labels, Meters
from onceward.observe.counts import Counts

KIND = b"text/plain; version=0.0.4; charset=utf-8"

HELP = {
    "accepted": "Messages accepted, by queue and whether they were duplicates",
    "claimed": "Jobs claimed by workers, by queue",
    "quarantined": "Jobs whose record could not be read, moved to the dead-letter queue, by queue",
    "ended": "Attempts that ended, by queue and the state of the job afterwards",
    "timers_set": "Timers requested over HTTP, by whether they already existed",
    "webhooks": "Webhook calls, by outcome",
    "webhooks_postponed": "Webhook calls postponed because their receiver was paused or busy",
    "webhook_lateness_seconds": "Delay of webhook calls after the due time of their timers",
    "requests": "HTTP requests, by route, method and status",
    "throttled": "HTTP requests rejected by the rate limit of their caller",
    "conflicts": "Transactions that were retried because of a conflict",
    "database_incarnations": "Restores and failovers of the database under this node",
    "commit_seconds": "Time until commits were durable",
    "lateness_seconds": "Delay of due entries",
    "request_seconds": "Duration of HTTP requests, by route",
    "room_connections": "WebSocket connections accepted",
    "room_closes": "WebSocket connections closed by the server, by reason",
    "room_steps": "Steps of rooms sent to members",
    "rooms": "Rooms in memory",
    "connections": "Open WebSocket connections",
    "room_members": "Connections in rooms, each counted for every room it is in",
    "jobs": "Jobs by queue and state, as of the last count",
    "oldest_queued_seconds": "Age of the oldest queued job, by queue",
    "alarm": "1 while an alarm of this code is active, 0 after it was cleared",
    "counted_seconds": "Time of the last count of jobs, in seconds since 1970",
}


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


def _alarms(alarms: Mapping[str, int]) -> Iterator[str]:
    if alarms:
        yield from _head("alarm", "alarm", "gauge")
        for code, held in alarms.items():
            yield _line("alarm", (("code", code),), held)


def _lines(
    meters: Meters, counts: Counts, now_ms: int, gauges: Mapping[str, float]
) -> Iterator[str]:
    for name, value in gauges.items():
        yield from _head(name, name, "gauge")
        yield _line(name, (), value)
    for name, values in meters.counters():
        yield from _head(f"{name}_total", name, "counter")
        for labels, value in values.items():
            yield _line(f"{name}_total", labels, value)
    for name, histograms in meters.histograms():
        yield from _head(name, name, "histogram")
        for labels, histogram in histograms.items():
            yield from _histogram(name, labels, histogram)
    if counts.counted_ms is not None:
        yield from _head("counted_seconds", "counted_seconds", "gauge")
        yield _line("counted_seconds", (), counts.counted_ms / 1000)
        yield from _head("jobs", "jobs", "gauge")
        for name, queue in sorted(counts.queues.items()):
            for state, count in sorted(queue.jobs.items()):
                yield _line("jobs", (("queue", name), ("state", state)), count)
        yield from _head("oldest_queued_seconds", "oldest_queued_seconds", "gauge")
        for name, queue in sorted(counts.queues.items()):
            if queue.oldest_queued_ms is not None:
                age_s = max(now_ms - queue.oldest_queued_ms, 0) / 1000
                yield _line("oldest_queued_seconds", (("queue", name),), age_s)


def _head(name: str, help_: str, kind: str) -> Iterator[str]:
    yield f"# HELP onceward_{name} {HELP.get(help_, help_)}\n"
    yield f"# TYPE onceward_{name} {kind}\n"


def _histogram(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    so_far = 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        so_far += count
        yield _line(f"{name}_bucket", (*labels, ("le", str(bound))), so_far)
    yield _line(f"{name}_sum", labels, histogram.sum)
    yield _line(f"{name}_count", labels, so_far)


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"onceward_{name}{{{shown}}} {value}\n" if shown else f"onceward_{name} {value}\n"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


_ESCAPES: Mapping[int, str] = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n"}
