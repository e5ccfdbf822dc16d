"""Targets and schedules from the members by which callers give them, and changes of such members.

Calls in Python, over HTTP and on the command line have the same members.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from onceward.api.retries import RetryPolicy
from onceward.api.timers import FailureTarget
from onceward.errors import BadInput
from onceward.job_options import OPTION_NAMES, given_options, job_options
from onceward.recurrence import Cron, Interval, Repeat
from onceward.webhooks.timers.records import Call, Send, Spec, Target

_PLACES = ("queue", "url", "endpoint")
_CALL = ("headers", "append_id", "retry", "method", "on_failure")
_SCHEDULE = ("due_ms", "every_ms", "cron", "zone")
_ENDS = ("catch_up", "until_ms", "times", "overlap")
_DEFAULTS = {
    "headers": {},
    "append_id": False,
    "retry": None,
    "method": "POST",
    "on_failure": None,
    "catch_up": "all",
    "overlap": "allow",
}
MEMBERS = frozenset((*_PLACES, *_CALL, *_SCHEDULE, *_ENDS, "body", *OPTION_NAMES))
"""The names that `edited` accepts."""


def target_of(
    queue: str | None,
    url: str | None,
    endpoint: str | None,
    *,
    body: Any,
    headers: dict[str, str],
    append_id: bool,
    retry: RetryPolicy | None,
    options: Mapping[str, Any],
    method: str = "POST",
    on_failure: FailureTarget | None = None,
) -> Target:
    """Build the target of a timer. `options` are those of its job by name; None means "not
    specified".

    Raises `BadInput` for conflicting arguments.
    """
    if queue is None:
        # Checks the given arguments, because the resulting options do not show a given default.
        for name in sorted(OPTION_NAMES - {"attempts_max"}):
            if options.get(name) is not None:
                raise BadInput(
                    f"{name} is only for timers with a queue; this one calls a url or endpoint; "
                    "omit it"
                )
        attempts_max = options.get("attempts_max")
        return Call(
            url or "",
            endpoint or "",
            headers,
            body,
            append_id,
            attempts_max,
            retry,
            method,
            on_failure,
        )
    if url is not None or endpoint is not None:
        raise BadInput("a timer needs exactly one of queue, url and endpoint; omit the others")
    if headers or append_id or retry is not None or method != "POST" or on_failure is not None:
        raise BadInput(
            f"{', '.join(_CALL[:-1])} and {_CALL[-1]} are only for timers that call a url "
            "or endpoint; omit them"
        )
    return Send(queue, body, job_options(options))


def repeat_of(every_ms: int | None, cron: str | None, zone: str | None) -> Repeat | None:
    """The repetition of a timer. Raises `BadInput` for conflicting arguments."""
    if every_ms is not None and cron is not None:
        raise BadInput(
            f"a timer repeats either at an interval ({every_ms} ms) or by cron "
            f"({cron[:100]!r}), not both; omit one"
        )
    if cron is not None:
        return Cron(cron, "UTC" if zone is None else zone)
    if zone is not None:
        raise BadInput(f"the zone {zone[:100]!r} is only for timers with cron; omit it")
    return None if every_ms is None else Interval(every_ms, 0)


def edited(spec: Spec, changes: Mapping[str, Any]) -> Spec:
    """A spec with changes of its members, given by name. Other members stay; None means the
    default.

    A `url`, an `endpoint` or a `queue` replaces the other two, and `every_ms` replaces `cron` or
    the reverse. A timer that no longer repeats needs a `due_ms`. Raises `BadInput` for conflicting
    members.
    """
    changes = {
        name: _DEFAULTS.get(name) if value is None else value for name, value in changes.items()
    }
    assert changes.keys() <= MEMBERS, changes.keys() - MEMBERS
    ends = {name: changes[name] for name in _ENDS if name in changes}
    spec = replace(spec, target=_target(spec.target, changes), **ends)
    if changes.keys().isdisjoint(_SCHEDULE):
        return spec
    repeat, due_ms = _repeat(spec.repeat, changes), changes.get("due_ms")
    if repeat == spec.repeat:
        return spec
    if repeat is None and due_ms is None:
        raise BadInput("a timer that no longer repeats needs a time or a delay; add one")
    return replace(spec, due_ms=due_ms, delay_ms=None, repeat=repeat)


def _target(known: Target, changes: Mapping[str, Any]) -> Target:
    given = {name: changes.get(name) for name in _PLACES if changes.get(name) is not None}
    if len(given) > 1:
        raise BadInput("a timer needs exactly one of queue, url and endpoint; omit the others")
    if isinstance(known, Send):
        places: dict[str, Any] = {"queue": known.queue}
        members: dict[str, Any] = {"body": known.body, **given_options(known.options)}
    else:
        places = {"url": known.url or None, "endpoint": known.endpoint or None}
        members = {name: getattr(known, name) for name in (*_CALL, "body", "attempts_max")}
    if given:
        if ("queue" in given) != ("queue" in places):
            members = {name: members.get(name) for name in ("body", "attempts_max")}
        places = given
    members |= {name: value for name, value in changes.items() if name not in _PLACES}
    if members.get("method") == "GET" and "body" not in changes:
        members["body"] = None
    return target_of(
        places.get("queue"),
        places.get("url"),
        places.get("endpoint"),
        body=members.get("body"),
        **{name: members.get(name, _DEFAULTS[name]) for name in _CALL},
        options=members,
    )


def _repeat(known: Repeat | None, changes: Mapping[str, Any]) -> Repeat | None:
    every_ms, cron, zone = changes.get("every_ms"), changes.get("cron"), changes.get("zone")
    if isinstance(known, Cron) and every_ms is None:
        cron = changes.get("cron", known.text)
        zone = changes.get("zone", known.zone) if cron is not None else zone
    elif isinstance(known, Interval) and cron is None:
        every_ms = changes.get("every_ms", known.every_ms)
    return repeat_of(every_ms, cron, zone)
