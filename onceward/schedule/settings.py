"""Queue settings: one record for each queue, shared by all nodes.

A node keeps a copy of all of them and works by that copy: on the node that changes a
setting it holds at once, on others after a moment. Nothing that must never go wrong
depends on it: a limit counts in records of its own, in the commits that it limits.
"""

from typing import Protocol

from onceward import keys, limits
from onceward.api.queues import QueueSettings
from onceward.errors import BadInput
from onceward.keys import Key

SETTINGS = "queue"
"""The partition of the settings, with the names of the queues as sort keys."""

OWN_QUEUES = "onceward."
"""How the names of the queues begin that Onceward itself works on."""

DEFAULT = QueueSettings()


class Lookup(Protocol):
    """Finds the settings of a queue."""

    def __call__(self, queue: str, /) -> QueueSettings: ...


def default_settings(queue: str, /) -> QueueSettings:
    """The settings of every queue where nobody has set any."""
    return DEFAULT


def is_internal(queue: str, settings: QueueSettings) -> bool:
    """Whether only code of the application sends to a queue. Queues of Onceward's own are: a job
    there says in whose name it acts."""
    return settings.internal or queue.startswith(OWN_QUEUES)


def settings_key(queue: str) -> Key:
    return SETTINGS, keys.join(queue)


def admit_settings(settings: QueueSettings) -> None:
    """Raise `BadInput` for settings that cannot be meant."""
    for name, most in (
        ("limit", limits.QUEUE_LIMIT_MAX),
        ("limit_per_key", limits.QUEUE_LIMIT_MAX),
        ("rate", limits.QUEUE_RATE_MAX),
        ("attempts_max", limits.KEY_NUMBER_MAX),
        ("depth_max", limits.QUEUE_DEPTH_MAX),
    ):
        if not 0 <= getattr(settings, name) <= most:
            raise BadInput(f"{name} is 0 to {most}, not {getattr(settings, name)}")
    if 0 < settings.rate < limits.QUEUE_RATE_MIN:
        # The time of the next job would be beyond all numbers.
        raise BadInput(
            f"rate is {limits.QUEUE_RATE_MIN} or more, or 0 for any, not {settings.rate}"
        )
    if not 0 < settings.retry_first_ms <= settings.retry_max_ms <= limits.LEASE_MS_MAX:
        raise BadInput(
            "retry_first is at least 1 ms and at most retry_max, and retry_max is at most "
            f"{limits.LEASE_MS_MAX} ms, not {settings.retry_first_ms} and {settings.retry_max_ms}"
        )
    for name in ("key_retention_ms", "job_retention_ms"):
        retention_ms = getattr(settings, name)
        if retention_ms is not None and not 0 <= retention_ms <= limits.RETENTION_MS_MAX:
            raise BadInput(
                f"{name[:-3]} is 0 to {limits.RETENTION_MS_MAX} ms, or None for ever, "
                f"not {retention_ms}"
            )


def retry_pause_ms(settings: QueueSettings, attempt: int, fraction: float) -> int:
    """How long a job rests after its `attempt`-th failure: between half of the pause, which
    doubles each time, and all of it, so that jobs that failed together do not come back so."""
    doublings = min(max(attempt - 1, 0), 40)
    pause_ms = min(settings.retry_first_ms << doublings, settings.retry_max_ms)
    return pause_ms // 2 + int(fraction * (pause_ms - pause_ms // 2))
