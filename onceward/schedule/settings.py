"""Queue settings: one record for each queue, shared by all nodes.

Each node keeps a copy of all settings. A change takes effect immediately on the node that makes it,
and after a moment on the others. Correctness does not depend on the copy: limits are counted in
separate records, in the commits that they limit.
"""

from typing import Protocol

from onceward import keys, limits
from onceward.api.queues import QueueSettings
from onceward.errors import BadInput
from onceward.keys import Key

SETTINGS = "queue"
"""The partition of the settings, with the names of the queues as sort keys."""

OWN_QUEUES = "onceward."
"""The prefix of the names of Onceward's internal queues."""

DEFAULT = QueueSettings()


class Lookup(Protocol):
    """Finds the settings of a queue."""

    def __call__(self, queue: str, /) -> QueueSettings: ...


def default_settings(queue: str, /) -> QueueSettings:
    """The settings of a queue without a settings record."""
    return DEFAULT


def is_internal(queue: str, settings: QueueSettings) -> bool:
    """Whether only code of the application may send to a queue. That is always true for Onceward's
    own queues, whose jobs name the caller they act for."""
    return settings.internal or queue.startswith(OWN_QUEUES)


def settings_key(queue: str) -> Key:
    return SETTINGS, keys.join(queue)


def admit_settings(settings: QueueSettings) -> None:
    """Raise `BadInput` for invalid settings."""
    for name, most in (
        ("limit", limits.QUEUE_LIMIT_MAX),
        ("limit_per_key", limits.QUEUE_LIMIT_MAX),
        ("rate", limits.QUEUE_RATE_MAX),
        ("attempts_max", limits.KEY_NUMBER_MAX),
        ("depth_max", limits.QUEUE_DEPTH_MAX),
    ):
        if not 0 <= getattr(settings, name) <= most:
            raise BadInput(f"{name} must be 0 to {most}, not {getattr(settings, name)}")
    if 0 < settings.rate < limits.QUEUE_RATE_MIN:
        # The time of the next job would exceed the range of numbers.
        raise BadInput(
            f"rate must be 0 (unlimited) or at least {limits.QUEUE_RATE_MIN}, not {settings.rate}"
        )
    if not 0 < settings.retry_first_ms <= settings.retry_max_ms <= limits.LEASE_MS_MAX:
        raise BadInput(
            "retry_first must be at least 1 ms and at most retry_max, and retry_max at most "
            f"{limits.LEASE_MS_MAX} ms, not {settings.retry_first_ms} and {settings.retry_max_ms}"
        )
    for name in ("key_retention_ms", "job_retention_ms"):
        retention_ms = getattr(settings, name)
        if retention_ms is not None and not 0 <= retention_ms <= limits.RETENTION_MS_MAX:
            raise BadInput(
                f"{name[:-3]} must be 0 to {limits.RETENTION_MS_MAX} ms, or None for unlimited, "
                f"not {retention_ms}"
            )


def retry_pause_ms(settings: QueueSettings, attempt: int, fraction: float) -> int:
    """The backoff after the `attempt`-th failure. It doubles each time, with a random jitter of up
    to half, so that jobs that failed together are retried at different times."""
    doublings = min(max(attempt - 1, 0), 40)
    pause_ms = min(settings.retry_first_ms << doublings, settings.retry_max_ms)
    return pause_ms // 2 + int(fraction * (pause_ms - pause_ms // 2))


def kept_until_ms(now_ms: int, retention_ms: int | None) -> int | None:
    """When a record expires; None: never."""
    return None if retention_ms is None else now_ms + retention_ms
