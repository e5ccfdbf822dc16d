"""The table of all metrics: kind, description and labels of each.

`/metrics`, the reference and the tests of the dashboard are made from it. Counters with known
labels exist from the start, so that `rate()` in Prometheus sees their first event.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
"""The bounds of histograms of durations."""
LONG_SECONDS = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 21_600)
"""The bounds of histograms of durations that can last hours."""


class Metric(NamedTuple):
    """A metric of a node."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, tuple[str, ...]] = {}
    """The known values of each label; further values can follow. Empty: chosen by users."""
    bounds: tuple[float, ...] = SECONDS


_STATES = ("succeeded", "failed", "in_doubt", "retrying", "queued", "scheduled")
_QUEUE: dict[str, tuple[str, ...]] = {"queue": ()}
_DUPLICATE = {"duplicate": ("no", "yes")}
_CLOSES = (
    *("node_stopped", "room_moved", "slow_reader", "too_slow", "token_expired", "no_credentials"),
    "internal",
)

METRICS: dict[str, Metric] = {
    # The process and the node.
    "build_info": Metric(
        "gauge", "1, with the versions of Onceward and Python", {"version": (), "python": ()}
    ),
    "process_cpu_seconds": Metric("counter", "CPU time of the process"),
    "process_resident_memory_bytes": Metric("gauge", "Memory of the process"),
    "process_open_fds": Metric("gauge", "Open files of the process"),
    "process_max_fds": Metric("gauge", "Limit on open files of the process"),
    "process_start_time_seconds": Metric("gauge", "Start of the process, in seconds since 1970"),
    "loop_lag_seconds": Metric("histogram", "Delay of the event loop, sampled every second"),
    "loop_blocked": Metric(
        "counter", "Times that code blocked the event loop for more than a second"
    ),
    "database_bytes": Metric("gauge", "Size of the SQLite file with its journal"),
    "disk_free_bytes": Metric("gauge", "Free space on the disk of the SQLite file"),
    "alarm": Metric(
        "gauge", "1 while an alarm of this code is active, 0 after it was cleared", {"code": ()}
    ),
    # Messages and jobs.
    "accepted": Metric(
        "counter",
        "Messages accepted, by queue and whether they were duplicates",
        {**_QUEUE, **_DUPLICATE},
    ),
    "claimed": Metric("counter", "Jobs claimed by workers, by queue", _QUEUE),
    "ended": Metric(
        "counter",
        "Attempts that ended, by queue and the state of the job afterwards",
        {**_QUEUE, "state": _STATES},
    ),
    "quarantined": Metric(
        "counter",
        "Jobs whose record could not be read, moved to the dead-letter queue, by queue",
        _QUEUE,
    ),
    "wait_seconds": Metric(
        "histogram",
        "Time from the due time of jobs to the start of their attempts, by queue",
        _QUEUE,
        LONG_SECONDS,
    ),
    "handler_seconds": Metric("histogram", "Duration of handlers, by queue", _QUEUE, LONG_SECONDS),
    "jobs": Metric(
        "gauge", "Jobs by queue and state, as of the last count", {**_QUEUE, "state": ()}
    ),
    "oldest_queued_seconds": Metric("gauge", "Age of the oldest queued job, by queue", _QUEUE),
    "counted_seconds": Metric("gauge", "Time of the last count of jobs, in seconds since 1970"),
    # Timers and webhooks.
    "lateness_seconds": Metric("histogram", "Delay of due entries"),
    "timers_set": Metric(
        "counter", "Timers requested over HTTP, by whether they already existed", _DUPLICATE
    ),
    "webhooks": Metric(
        "counter",
        "Webhook calls, by outcome",
        {"outcome": ("delivered", "again", "gone", "never")},
    ),
    "webhooks_postponed": Metric(
        "counter",
        "Webhook calls postponed because their receiver was paused or busy",
        {"reason": ("paused", "busy")},
    ),
    "webhook_lateness_seconds": Metric(
        "histogram", "Delay of webhook calls after the due time of their timers"
    ),
    # Storage.
    "commit_seconds": Metric("histogram", "Time until commits were durable"),
    "conflicts": Metric("counter", "Transactions that were retried because of a conflict"),
    "database_incarnations": Metric(
        "counter", "Restores and failovers of the database under this node"
    ),
    "outbox_rows": Metric(
        "counter",
        "Rows of SQL outboxes, by outbox and verdict",
        {"outbox": (), "verdict": ("accepted", "failed")},
    ),
    # HTTP and connections.
    "requests": Metric(
        "counter",
        "HTTP requests, by route, method and status",
        {"route": (), "method": (), "status": ()},
    ),
    "request_seconds": Metric("histogram", "Duration of HTTP requests, by route", {"route": ()}),
    "throttled": Metric("counter", "HTTP requests rejected by the rate limit of their caller"),
    "connections_limited": Metric(
        "counter",
        "Connections closed or refused at a limit, by limit and outcome",
        {"limit": ("address", "total", "files"), "outcome": ("closed", "refused")},
    ),
    # Rooms.
    "connections": Metric("gauge", "Open WebSocket connections"),
    "rooms": Metric("gauge", "Rooms in memory"),
    "room_members": Metric("gauge", "Connections in rooms, each counted for every room it is in"),
    "room_connections": Metric("counter", "WebSocket connections accepted"),
    "room_closes": Metric(
        "counter", "WebSocket connections closed by the server, by reason", {"code": _CLOSES}
    ),
    "room_steps": Metric("counter", "Steps of rooms sent to members"),
    # Locks.
    "lock_requests": Metric(
        "counter", "Requests for locks, by outcome", {"outcome": ("granted", "refused")}
    ),
    "lock_wait_seconds": Metric("histogram", "Time until locks were granted", bounds=LONG_SECONDS),
    "locks_lost": Metric("counter", "Locks that were lost while they were held on this node"),
    "lock_holders": Metric("gauge", "Holders of locks, as of the last count"),
    "lock_waiters": Metric("gauge", "Waiters for locks, as of the last count"),
    # Tables.
    "table_joins": Metric(
        "counter",
        "Users who joined a table, by their role afterwards",
        {"role": ("seated", "waiting")},
    ),
    "table_games_started": Metric("counter", "Games started at tables"),
    "table_games_ended": Metric(
        "counter",
        "Games ended at tables, by reason",
        {"reason": ("result", "left", "idle", "lost", "void")},
    ),
    "tables": Metric("gauge", "Open tables, as of the last count"),
    "table_games": Metric("gauge", "Running games at tables, as of the last count"),
    "table_players": Metric("gauge", "Seated players, as of the last count"),
    "table_waiters": Metric("gauge", "Users on waitlists of tables, as of the last count"),
}


def full_name(name: str, kind: str = "gauge") -> str:
    """The name in `/metrics`. Metrics that are standard for all processes have no prefix."""
    prefix = "" if name.startswith("process_") else "onceward_"
    return f"{prefix}{name}_total" if kind == "counter" else f"{prefix}{name}"
