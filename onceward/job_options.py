"""Job options: order key, limit key, priority and attempts of one job.

This is the only declaration. Senders pass options as keyword arguments (`JobKeywords`); jobs,
claims and timers hold them as one `JobOptions`. To add an option, add it to both classes, and its
checks to `admit_options`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

import msgspec
from msgspec import Meta

from onceward import keys, limits
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.quantities import is_whole

PRIORITY_DEFAULT: Final = 5


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a job."""

    order_key: str | None = None
    """Jobs of one queue with the same order key run one after the other, in order."""
    limit_key: str | None = None
    """Jobs with the same limit key share the limit `limit_per_key` of the queue."""
    priority: Annotated[int, Meta(ge=0, le=limits.PRIORITY_MAX)] = PRIORITY_DEFAULT
    """The priority: 0 runs first."""
    attempts_max: Annotated[int, Meta(ge=0)] | None = None
    """The number of attempts after which a failure is final. 0: no limit; None: the setting of
    the queue."""

    @property
    def shared(self) -> bool:
        """Whether the job shares a record with others: the head of its order key, or the counter
        of its limit key."""
        return self.order_key is not None or self.limit_key is not None


NO_OPTIONS: Final = JobOptions()
"""Records omit their options if they are this object."""
OPTION_NAMES: Final = frozenset(JobOptions.__struct_fields__)
_DEFAULTS: Final = tuple(msgspec.structs.asdict(NO_OPTIONS).items())


class JobKeywords(TypedDict, total=False):
    """The options of a job as keyword arguments. None: not specified."""

    order_key: str | None
    limit_key: str | None
    priority: int | None
    attempts_max: int | None


class SendKeywords(JobKeywords, total=False):
    """The options of `send`: those of the job, its due time and the sender."""

    delay_s: float
    due_ms: int
    caller: Caller | str


def job_options(keywords: Mapping[str, Any]) -> JobOptions:
    """The options among keyword arguments, unchecked; other names are ignored."""
    given = {
        name: value
        for name, value in keywords.items()
        if name in OPTION_NAMES and value is not None
    }
    return JobOptions(**given) if given else NO_OPTIONS


def given_options(options: JobOptions) -> dict[str, Any]:
    """The options that differ from their defaults, by name."""
    return {
        name: value for name, default in _DEFAULTS if (value := getattr(options, name)) != default
    }


def admit_options(options: JobOptions) -> None:
    """Check options. Raises `BadInput`."""
    if options.order_key is not None:
        _admit_key("an order key", options.order_key)
    if options.limit_key is not None:
        _admit_key("a limit key", options.limit_key)
    priority, attempts_max = options.priority, options.attempts_max
    if not is_whole(priority) or not 0 <= priority <= limits.PRIORITY_MAX:
        raise BadInput(f"a priority is 0 (first) to {limits.PRIORITY_MAX}, not {priority!r}")
    if attempts_max is not None and (not is_whole(attempts_max) or attempts_max < 0):
        raise BadInput(
            f"the number of attempts is 1 or more, or 0 for no end, not {attempts_max!r}"
        )


def _admit_key(what: str, key: Any) -> None:
    keys.admit_text(key, what)
    key_bytes = len(key.encode())
    if not 0 < key_bytes <= limits.ORDER_KEY_BYTES_MAX:
        raise BadInput(
            f"{what} has 1 to {limits.ORDER_KEY_BYTES_MAX} bytes, not {key_bytes}", code="bad_key"
        )
