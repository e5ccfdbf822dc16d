"""Job options: order key, limit key, priority, attempts and tags of one job.

`JobOptions` is the only declaration. Jobs, claims and timers store one. Requests derive from
`RequestedOptions` and responses from `JobOptionsView`, so clients, commands and the OpenAPI
document have every option. Senders in Python pass options as keyword arguments (`JobKeywords`), and
handlers read them from their job (`OptionAttributes`).
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, TypedDict

import msgspec
from msgspec import Meta

from onceward import keys, limits
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.quantities import is_whole

PRIORITY_DEFAULT: Final = 5
# For the OpenAPI document. `admit_options` checks it, so that a limit is not part of the records.
_TAGS: Final = {
    "maxItems": limits.TAGS_MAX,
    "uniqueItems": True,
    "items": {"type": "string", "minLength": 1, "maxLength": limits.TAG_BYTES_MAX},
}


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
    tags: Annotated[tuple[str, ...], Meta(extra_json_schema=_TAGS)] = ()
    """Tags by which jobs can be found: up to 10, of 1 to 64 bytes each."""

    @property
    def shared(self) -> bool:
        """Whether the job shares a record with others: the head of its order key, or the counter
        of its limit key."""
        return self.order_key is not None or self.limit_key is not None


NO_OPTIONS: Final = JobOptions()
"""Records omit their options if they are this object."""
OPTION_NAMES: Final = frozenset(JobOptions.__struct_fields__)


class OptionalOptions(JobOptions, frozen=True, kw_only=True):
    """Options that may be missing. None: not specified."""

    priority: int | None = None  # type: ignore[assignment]
    """The priority: 0 runs first; default: 5."""


class RequestedOptions(OptionalOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of request bodies with the options of a job."""

    priority: Annotated[int, Meta(ge=0, le=limits.PRIORITY_MAX)] | None = None
    """The priority: 0 runs first; default: 5."""


class JobOptionsView(JobOptions, frozen=True, kw_only=True):
    """The base of responses about a job, without bounds that a newer server may move."""

    priority: int
    """The priority: 0 runs first."""
    attempts_max: int
    """The number of attempts after which a failure is final, by the options of the job or the
    settings of its queue. 0: no limit."""


class OptionAttributes:
    """The options of a job as attributes of the object that has them.

    `attempts_max` is missing, because it can come from the settings of the queue.
    """

    __slots__ = ()
    options: JobOptions

    @property
    def order_key(self) -> str | None:
        """Jobs of one queue with the same order key run one after the other, in order."""
        return self.options.order_key

    @property
    def limit_key(self) -> str | None:
        """Jobs with the same limit key share the limit `limit_per_key` of the queue."""
        return self.options.limit_key

    @property
    def priority(self) -> int:
        """The priority: 0 runs first."""
        return self.options.priority

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags by which jobs can be found."""
        return self.options.tags


class JobKeywords(TypedDict, total=False):
    """The options of a job as keyword arguments. None: not specified."""

    order_key: str | None
    limit_key: str | None
    priority: int | None
    attempts_max: int | None
    tags: Sequence[str] | None


class MergeKeywords(TypedDict, total=False):
    """The options that make one job of several messages. None: not specified."""

    debounce_key: str | None
    """A later message with this key replaces the body of the job and postpones its start."""
    debounce_s: float | None
    """The time from the last message to the start."""
    debounce_max_s: float | None
    """The longest time from the first message to the start. Default: no limit."""
    batch_key: str | None
    """A later message with this key is added to the body of the job, which is a list."""
    batch_s: float | None
    """The time from the first message to the start."""
    batch_size: int | None
    """The number of messages with which the job starts at once. Default: 1,000."""


MERGE_NAMES: Final = tuple(MergeKeywords.__annotations__)


class SendKeywords(JobKeywords, MergeKeywords, total=False):
    """The options of `send`: those of the job, its due time and the sender."""

    delay_s: float
    """When the job is due: after some seconds. Default: now."""
    due_ms: int
    """When the job is due: at a time in ms since 1970. Default: now."""
    caller: Caller | str
    """The name of the sender. Each sender has its own keys. Default: the application."""


def job_options(keywords: Mapping[str, Any]) -> JobOptions:
    """The options among keyword arguments, unchecked; other names are ignored."""
    given: dict[str, Any] = {
        name: tuple(value) if type(value) is list else value
        for name, value in keywords.items()
        if name in OPTION_NAMES and value is not None
    }
    return JobOptions(**given) if given else NO_OPTIONS


def given_options(options: JobOptions) -> dict[str, Any]:
    """The options that differ from the defaults of their class, by name."""
    if options is NO_OPTIONS:
        return {}
    return {
        name: value
        for name, default in _defaults(type(options))
        if (value := getattr(options, name)) != default
    }


def shown_options(options: JobOptions, attempts_max: int) -> dict[str, Any]:
    """The members of a `JobOptionsView`. `attempts_max` is that of the job, which may come from the
    settings of its queue."""
    return given_options(options) | {"priority": options.priority, "attempts_max": attempts_max}


@cache
def _defaults(type_: type[JobOptions]) -> tuple[tuple[str, Any], ...]:
    fields = msgspec.structs.fields(type_)
    return tuple((field.name, field.default) for field in fields if field.name in OPTION_NAMES)


def admit_options(options: JobOptions) -> None:
    """Check options. Raises `BadInput`."""
    if options.order_key is not None:
        admit_shared_key("an order key", options.order_key)
    if options.limit_key is not None:
        admit_shared_key("a limit key", options.limit_key)
    priority, attempts_max = options.priority, options.attempts_max
    if not is_whole(priority) or not 0 <= priority <= limits.PRIORITY_MAX:
        raise BadInput(f"a priority must be 0 (first) to {limits.PRIORITY_MAX}, not {priority!r}")
    if attempts_max is not None and (not is_whole(attempts_max) or attempts_max < 0):
        raise BadInput(
            f"the number of attempts must be 1 or more, or 0 for no end, not {attempts_max!r}"
        )
    if options.tags is not NO_OPTIONS.tags:
        _admit_tags(options.tags)


def _admit_tags(tags: Any) -> None:
    if type(tags) is not tuple:
        hint = f"; for one tag, use [{tags[:100]!r}]" if isinstance(tags, str) else ""
        raise BadInput(f"tags must be a list of texts, not {type(tags).__name__}{hint}")
    if len(tags) > limits.TAGS_MAX:
        raise BadInput(f"a job must have at most {limits.TAGS_MAX} tags, not {len(tags)}")
    for tag in tags:
        keys.admit_name(tag, "a tag", limits.TAG_BYTES_MAX)
        if tags.count(tag) > 1:
            raise BadInput(f"the tag {tag!r} is given twice; give each tag once")


def admit_shared_key(what: str, key: Any) -> None:
    """Check a key that several jobs or messages have. Raises `BadInput`."""
    keys.admit_text(key, what)
    key_bytes = len(key.encode())
    if not 0 < key_bytes <= limits.ORDER_KEY_BYTES_MAX:
        raise BadInput(
            f"{what} must have 1 to {limits.ORDER_KEY_BYTES_MAX} bytes, not {key_bytes}",
            code="bad_key",
        )
