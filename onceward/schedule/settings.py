"""The settings of queues: a record each, which all nodes follow.

A node keeps a copy of all of them and works by that copy: on the node that changes a
setting it holds at once, on others after a moment. Nothing that must never go wrong
depends on it: a limit counts in records of its own, in the commits that it limits.
"""

from typing import Literal, Protocol

import msgspec

from onceward import keys, limits
from onceward.errors import BadInput
from onceward.keys import Key

SETTINGS = "queue"
"""The partition of the settings, with the names of the queues as sort keys."""

OWN_QUEUES = "onceward."
"""How the names of the queues begin that Onceward itself works on."""

DAY_MS = 24 * 3_600_000


class Settings(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the jobs of one queue are treated."""

    paused: bool = False
    """While it is, no job is handed out."""
    limit: int = 0
    """How many of its jobs may be worked on at once, on all nodes together; 0: any number."""
    limit_per_key: int = 0
    """How many jobs of one `limit_key` may be ready or worked on at once; 0: any number."""
    rate: float = 0.0
    """How many jobs a second are handed out at the most; 0: any number."""
    attempts_max: int = 5
    """After how many attempts a failure is final; 0: never."""
    retry_first_ms: int = 1_000
    """The pause after the first failure; it doubles each time, up to `retry_max_ms`."""
    retry_max_ms: int = 3_600_000
    dead_blocks: bool = False
    """Whether a dead job holds up its order key until it is redriven or discarded."""
    notice: str = ""
    """The queue that gets a job for each job that died here."""
    key_fields: tuple[str, ...] = ()
    """The fields of the body that make up the dedupe key, if the sender gives none."""
    fingerprint: tuple[str, ...] | None = None
    """The fields that must be the same for the same key; None: the whole body."""
    mismatch: Literal["refuse", "record"] = "refuse"
    """What happens to another body under a known key."""
    key_retention_ms: int | None = 7 * DAY_MS
    """How long a dedupe key is known after its job has ended; None: for ever."""
    job_retention_ms: int | None = 7 * DAY_MS
    """How long a job that has ended is kept, with its result; None: for ever."""
    depth_max: int = 0
    """How many jobs it may hold that have not ended; 0: any number. A full queue refuses further
    messages (`queue_full`); jobs of timers and notices are still added."""
    fair: bool = False
    """Whether senders take turns: a backlog of one sender does not delay jobs of another one. The
    sender is the `caller` of a message."""
    internal: bool = False
    """Whether only code of the application sends to it: no caller over HTTP does, whatever the
    scopes, and none claims its jobs. Set by the application's code, not over HTTP."""
    remote_work: bool = False
    """Whether callers with the scope `work` may claim jobs of an internal queue over HTTP."""


DEFAULT = Settings()


class Lookup(Protocol):
    """Finds the settings of a queue."""

    def __call__(self, queue: str, /) -> Settings: ...


def default_settings(queue: str, /) -> Settings:
    """The settings of every queue where nobody has set any."""
    return DEFAULT


def is_internal(queue: str, settings: Settings) -> bool:
    """Whether only code of the application sends to a queue. Queues of Onceward's own are: a job
    there says in whose name it acts."""
    return settings.internal or queue.startswith(OWN_QUEUES)


def settings_key(queue: str) -> Key:
    return SETTINGS, keys.join(queue)


def admit_settings(settings: Settings) -> None:
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
            f"retry_first_ms is 1 or more and retry_max_ms at least that, up to "
            f"{limits.LEASE_MS_MAX}, not {settings.retry_first_ms} and {settings.retry_max_ms}"
        )
    for name in ("key_retention_ms", "job_retention_ms"):
        retention_ms = getattr(settings, name)
        if retention_ms is not None and not 0 <= retention_ms <= limits.RETENTION_MS_MAX:
            raise BadInput(
                f"{name} is 0 to {limits.RETENTION_MS_MAX} ms, or None for ever, not {retention_ms}"
            )


def retry_pause_ms(settings: Settings, attempt: int, fraction: float) -> int:
    """How long a job rests after its `attempt`-th failure: between half of the pause, which
    doubles each time, and all of it, so that jobs that failed together do not come back so."""
    doublings = min(max(attempt - 1, 0), 40)
    pause_ms = min(settings.retry_first_ms << doublings, settings.retry_max_ms)
    return pause_ms // 2 + int(fraction * (pause_ms - pause_ms // 2))
