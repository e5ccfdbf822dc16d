"""Recurrence: due times of an interval or a cron expression.

These are pure functions on values. Times are milliseconds since the epoch.

A cron expression has five fields (minute, hour, day of month, month, day of week), or six with
the second *first*. Each field is a list of numbers, names (JAN, MON), ranges and steps. The last
day of a month is `L`, its last weekday `LW`, its second Monday `MON#2` and its last Friday `5L`.
If both day fields are given, a day must match one of them; if one starts with a star, it must match
both, as in other cron implementations. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are
shorthands.

The fields refer to the local time of the expression's time zone. At changes of daylight saving
time:

- An expression with fixed hours fires once for each local time. A local time that occurs twice
  fires the first time. Local times that are skipped fire together, at the moment of the change.
- An expression for every hour follows elapsed time: it fires in both of two repeated hours,
  but not in a skipped hour.

cronsim parses expressions and handles the calendar. Time zones are handled here, since cronsim
treats them differently in expressions with seconds.
"""

import re
from calendar import monthrange
from copy import copy
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import get_args
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from onceward import limits
from onceward.api.timers import CatchUp
from onceward.errors import BadInput

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SECOND = timedelta(seconds=1)
# Changes of the UTC offset are further apart than this, and smaller than half of it.
_WHILE_S = 3 * 86_400
# One year of each kind: all first weekdays, with and without 29 February.
_YEARS = (*range(2000, 2028, 4), 2001, 2002, 2003, 2005, 2006, 2009, 2010)
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
# Entries of the time zone database that are not time zones.
_NO_ZONES = ("localtime", "posixrules", "Factory", "posix", "right")


class Interval(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="interval"):
    """At the anchor, and at regular intervals after it."""

    every_ms: int
    anchor_ms: int


class Cron(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="cron"):
    """The times that match a cron expression, in the local time of a time zone."""

    text: str
    zone: str = "UTC"


Repeat = Interval | Cron


def admit(repeat: Repeat) -> None:
    """Raise `BadInput` for an invalid recurrence.

    That is an invalid cron expression or one that never matches, an unknown time zone, or an
    interval that is too short or too long.
    """
    if isinstance(repeat, Cron):
        for text in (repeat.text, repeat.zone):
            if type(text) is not str:
                raise BadInput(f"a cron expression and its time zone must be text, not {text!r}")
        _parsed(repeat.text)
        _zone(repeat.zone)
        return
    if not isinstance(repeat, Interval):
        raise BadInput(f"a repeat must be an `Interval` or a `Cron`, not {type(repeat).__name__}")
    if not limits.RECUR_MS_MIN <= _whole(repeat.every_ms) <= limits.RETENTION_MS_MAX:
        raise BadInput(
            f"an interval must have {limits.RECUR_MS_MIN} to {limits.RETENTION_MS_MAX} ms, "
            f"not {repeat.every_ms}"
        )
    if not 0 <= _whole(repeat.anchor_ms) <= limits.RECUR_END_MS:
        raise BadInput(
            f"an interval must start 0 to {limits.RECUR_END_MS} ms after the epoch, "
            f"not {repeat.anchor_ms}"
        )


def admit_catch_up(policy: CatchUp) -> None:
    """Raise `BadInput` for an unknown policy."""
    if policy not in get_args(CatchUp):
        raise BadInput(f"catch_up must be one of {', '.join(get_args(CatchUp))}, not {policy!r}")


def next_ms(repeat: Repeat, after_ms: int) -> int | None:
    """The first time after `after_ms`; None after the end of the calendar, in the year 9999.

    Raises `BadInput` for values that `admit` rejects.
    """
    if isinstance(repeat, Interval):
        found_ms = repeat.anchor_ms
        if after_ms >= found_ms:
            found_ms += ((after_ms - found_ms) // repeat.every_ms + 1) * repeat.every_ms
    else:
        found_s = _cron_s(repeat, max(after_ms // 1_000, -1))
        if found_s is None:
            return None
        found_ms = found_s * 1_000
    return found_ms if found_ms <= limits.RECUR_END_MS else None


def missed(repeat: Repeat, first_ms: int, now_ms: int, policy: CatchUp, limit: int) -> list[int]:
    """The times to process now, in order and at most `limit`. `first_ms` is the first unprocessed
    time.

    - `all`: all times from the first until now. The next call returns those beyond the limit.
    - `last`: the latest time until now.
    - `none`: the times of the last `limits.RECUR_GRACE_MS`, which count as late and not as missed.

    The next due time is the first one after the last of these, or after now if there are none.
    """
    if first_ms > now_ms:
        return []
    if policy == "last":
        return [_latest_ms(repeat, first_ms, now_ms)]
    time_ms: int | None = first_ms
    if policy == "none" and first_ms < now_ms - limits.RECUR_GRACE_MS:
        time_ms = next_ms(repeat, now_ms - limits.RECUR_GRACE_MS - 1)
    times: list[int] = []
    while time_ms is not None and time_ms <= now_ms and len(times) < limit:
        times.append(time_ms)
        time_ms = next_ms(repeat, time_ms)
    return times


def _latest_ms(repeat: Repeat, first_ms: int, now_ms: int) -> int:
    """The latest time until now, by binary search, since there may be millions. `latest_ms` is
    always such a time, and none is between `bound_ms` and now."""
    latest_ms, bound_ms = first_ms, now_ms
    middle_ms = first_ms  # usually there is only one
    while latest_ms < bound_ms:
        found_ms = next_ms(repeat, middle_ms)
        if found_ms is not None and found_ms <= now_ms:
            latest_ms = found_ms
        else:
            bound_ms = middle_ms
        middle_ms = (latest_ms + bound_ms) // 2
    return latest_ms


def _whole(value: int) -> int:
    if type(value) is not int:
        raise BadInput(f"a time must be a whole number of milliseconds, not {value!r}")
    return value


# Parsing.


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> CronSim:
    """The parsed expression. Copy it before use."""
    if len(text) > limits.CRON_CHARS_MAX:
        raise BadInput(
            f"a cron expression has at most {limits.CRON_CHARS_MAX} characters, not {len(text)}"
        )
    fields = _NAMED.get(text.strip().lower(), text).split()
    if fields and fields[0].startswith("@"):
        raise BadInput(f"unknown cron shorthand {text!r}; use one of {', '.join(_NAMED)}")
    if len(fields) not in (5, 6):
        raise BadInput(
            f"a cron expression must have 5 fields, or 6 with the second first; {text!r} has "
            f"{len(fields)}"
        )
    try:
        expression = _read(fields)
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        # The parser also reports days that do not exist in the given months.
        if field == "day-of-month" and _readable([*fields[:-2], "*", fields[-1]]):
            raise BadInput(
                f"the cron expression {text!r} never matches; check the day and the month"
            ) from None
        raise BadInput(
            f"the {field} of the cron expression {text!r} is not valid, as in 0 9 * * mon-fri"
        ) from None
    if not _ever(expression):
        raise BadInput(f"the cron expression {text!r} never matches; check the day and the month")
    return expression


def _read(fields: list[str]) -> CronSim:
    return CronSim(" ".join(fields), datetime.fromtimestamp(0, UTC))


def _readable(fields: list[str]) -> bool:
    try:
        _read(fields)
    except CronSimError:
        return False
    return True


def _ever(expression: CronSim) -> bool:
    """Whether it matches a day in any kind of year."""
    return any(
        expression.match_day(day)
        for year in _YEARS
        for month in sorted(expression.months)
        for day in _days(year, month)
    )


def _days(year: int, month: int) -> list[date]:
    return [date(year, month, day) for day in range(1, monthrange(year, month)[1] + 1)]


@lru_cache(maxsize=1_000)
def _zone(name: str) -> ZoneInfo:
    name_max = limits.CRON_CHARS_MAX
    if len(name) <= name_max and _ZONE.fullmatch(name) and name.split("/")[0] not in _NO_ZONES:
        try:
            return ZoneInfo(name)
        except (KeyError, OSError, ValueError):
            pass
    raise BadInput(
        f"unknown time zone {name[:name_max]!r}; use a name such as Europe/Berlin or UTC"
    )


# Local times. Here, times are whole seconds since the epoch.


def _cron_s(cron: Cron, after_s: int) -> int | None:
    expression, zone = _parsed(cron.text), _zone(cron.zone)
    try:
        if len(expression.hours) == 24:
            return _in_every_hour_s(expression, zone, after_s + 1)
        return _at_its_hours_s(expression, zone, after_s)
    except (OverflowError, StopIteration, ValueError):  # the year 9999 has ended
        return None


def _at_its_hours_s(expression: CronSim, zone: ZoneInfo, after_s: int) -> int:
    here = datetime.fromtimestamp(after_s, zone)
    wall = here.replace(tzinfo=None)
    if here.fold:
        # The local time is repeated after a change: continue after its first occurrence.
        first_s = _stamp_s(wall, zone, 0)
        wall += timedelta(seconds=_set_s(zone, first_s, after_s) - first_s - 1)
    found = _next(expression, wall)
    found_s, other_s = _stamp_s(found, zone, 0), _stamp_s(found, zone, 1)
    if other_s < found_s:  # this local time is skipped
        return _set_s(zone, other_s, found_s)
    return found_s


def _in_every_hour_s(expression: CronSim, zone: ZoneInfo, since_s: int) -> int:
    while True:
        wall = _shown(zone, since_s)
        found_s = since_s + (_next(expression, wall - _SECOND) - wall) // _SECOND
        until_s = since_s + _WHILE_S
        if _offset(zone, since_s) != _offset(zone, until_s):
            # The offset changes soon, and the result is valid until then.
            set_s = _set_s(zone, since_s, until_s)
            if found_s < set_s:
                return found_s
            since_s = set_s
        elif found_s <= until_s:
            return found_s
        else:
            since_s = found_s - _WHILE_S // 2


def _next(expression: CronSim, wall: datetime) -> datetime:
    """The next local time that matches, ignoring changes of the offset."""
    expression = copy(expression)
    expression.dt = wall
    return next(expression)


def _set_s(zone: ZoneInfo, before_s: int, after_s: int) -> int:
    """The time of the change between two times with different offsets."""
    offset = _offset(zone, before_s)
    while after_s - before_s > 1:
        middle_s = (before_s + after_s) // 2
        if _offset(zone, middle_s) == offset:
            before_s = middle_s
        else:
            after_s = middle_s
    return after_s


def _offset(zone: ZoneInfo, at_s: int) -> timedelta | None:
    return datetime.fromtimestamp(at_s, zone).utcoffset()


def _shown(zone: ZoneInfo, at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, zone).replace(tzinfo=None)


def _stamp_s(wall: datetime, zone: ZoneInfo, fold: int) -> int:
    return int(wall.replace(tzinfo=zone, fold=fold).timestamp())
