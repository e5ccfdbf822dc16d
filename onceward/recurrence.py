"""Recurrence: due times of an interval or a cron expression.

These are pure functions on values. Times are milliseconds since the epoch.

A cron expression has five fields (minute, hour, day of month, month, day of week), or six with
the second *first*. Each field is a list of numbers, names (JAN, MON), ranges and steps. The last
day of a month is `L`, its last weekday `LW`, its second Monday `MON#2` and its last Friday `5L`.
If both day fields are given, a day must match one of them; if one starts with a star, it must match
both, as in other cron implementations. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are
shorthands. `15W` is the weekday nearest to the 15th, and `L-3` three days before the last day.

Two other spellings are recognized, in which `?` marks the unused day field and 1 is Sunday: Quartz
with the second first and perhaps a year as the seventh field, and EventBridge with the year as the
sixth field. The position of `?` tells them apart.

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
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_WEEKDAY_TERM = re.compile(r"([1-7]|[A-Z]{3})(?:-([1-7]|[A-Z]{3}))?(L|#[0-9]+|/[0-9]+)?")
_NAMED_LAST = re.compile(r"([A-Z]{3})L")
_NEAREST = re.compile(r"([0-9]{1,2})W")
_BEFORE_LAST = re.compile(r"L-([0-9]{1,2})")
_YEAR_TERM = re.compile(r"(\*|[0-9]{4})(?:-([0-9]{4}))?(?:/([0-9]{1,4}))?")
_YEAR_MIN, _YEAR_MAX = 1970, 2199
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


class _Expression(CronSim):
    """An expression with the fields that its parser lacks: `15W`, `L-3` and years."""

    def __init__(self, fields: list[str], years: frozenset[int] | None) -> None:
        self.years = years
        days = fields[-3].upper().split(",")
        self._nearest = [int(found[1]) for day in days if (found := _NEAREST.fullmatch(day))]
        self._before = [int(found[1]) for day in days if (found := _BEFORE_LAST.fullmatch(day))]
        if not all(1 <= day <= 31 for day in self._nearest) or any(b > 30 for b in self._before):
            raise CronSimError("Bad day-of-month")
        left = [d for d in days if not _NEAREST.fullmatch(d) and not _BEFORE_LAST.fullmatch(d)]
        field = ",".join(left) or "1"
        epoch = datetime.fromtimestamp(0, UTC)
        super().__init__(" ".join([*fields[:-3], field, *fields[-2:]]), epoch)
        if not left:
            self.days = set()

    def match_dom(self, d: date) -> bool:
        if super().match_dom(d):
            return True
        if not self._nearest and not self._before:
            return False
        last = monthrange(d.year, d.month)[1]
        if last - d.day in self._before:
            return True
        return any(d.day == _nearest_weekday(d.year, d.month, day, last) for day in self._nearest)


def _nearest_weekday(year: int, month: int, day: int, last: int) -> int | None:
    """The weekday of a month that is nearest to a day; None if the month has no such day."""
    if day > last:
        return None
    weekday = date(year, month, day).weekday()
    if weekday == 5:
        return day - 1 if day > 1 else day + 2
    if weekday == 6:
        return day + 1 if day < last else day - 2
    return day


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> _Expression:
    """The parsed expression. Copy it before use."""
    if len(text) > limits.CRON_CHARS_MAX:
        raise BadInput(
            f"a cron expression must have at most {limits.CRON_CHARS_MAX} characters, not "
            f"{len(text)}"
        )
    fields, years = _fields(text)
    try:
        expression = _Expression(fields, years)
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        # The parser also reports days that do not exist in the given months.
        if field == "day-of-month" and _readable([*fields[:-2], "*", fields[-1]]):
            raise BadInput(
                f"the cron expression {text!r} never matches; check the day and the month"
            ) from None
        raise BadInput(
            f"the {field} of the cron expression {text!r} is not valid; write five fields, "
            "as in 0 9 * * mon-fri"
        ) from None
    if not _ever(expression):
        raise BadInput(f"the cron expression {text!r} never matches; check the day and the month")
    return expression


def _fields(text: str) -> tuple[list[str], frozenset[int] | None]:
    """The five or six fields of an expression with Sunday as 0, and its years; None for all."""
    fields, wrapped = _words(text)
    count = len(fields)
    marked = [number for number, field in enumerate(fields) if field == "?"]
    if count == 5 or (count == 6 and not marked and not wrapped):
        return _plain_fields(text, fields, marked), None
    eventbridge = wrapped or (count == 6 and set(marked) <= {2, 4})
    day = 2 if eventbridge else 3
    if not set(marked) <= {day, day + 2} or len(marked) > 1:
        raise _misplaced(text)
    if not marked and "*" not in (fields[day], fields[day + 2]):
        raise BadInput(
            f"the cron expression {text!r} gives both the day of the month and of the week; write "
            "? for one of them"
        )
    found = ["*" if field == "?" else field for field in fields[: day + 3]]
    found[-1] = _from_sunday_1(text, found[-1])
    return found, _years(text, fields[day + 3]) if count > day + 3 else None


def _words(text: str) -> tuple[list[str], bool]:
    """The fields of an expression as they are written, and whether `cron(…)` encloses them."""
    fields = _NAMED.get(text.strip().lower(), text).split()
    if fields and fields[0].startswith("@"):
        raise BadInput(f"unknown cron shorthand {text!r}; use one of {', '.join(_NAMED)}")
    kind, _, rest = text.strip().partition("(")
    if kind.lower() in ("rate", "at") and rest:
        member = "an interval" if kind.lower() == "rate" else "the time `at`"
        raise BadInput(f"{text!r} is not a cron expression; use {member} instead")
    wrapped = kind.lower() == "cron" and rest.endswith(")")
    if wrapped:
        fields = rest[:-1].split()
    if len(fields) not in ((6,) if wrapped else (5, 6, 7)):
        raise BadInput(
            "a cron expression must have 5 fields, or 6 with the second first, or 7 with second "
            f"and year, or cron(…) with 6 and the year last; {text!r} has {len(fields)}"
        )
    return fields, wrapped


def _plain_fields(text: str, fields: list[str], marked: list[int]) -> list[str]:
    """The fields of an expression that is of neither of the other spellings."""
    if not set(marked) <= {2, 4} or len(marked) > 1:
        raise _misplaced(text)
    if marked and re.search(r"(^|[,-])[0-7]", fields[4]):
        raise BadInput(
            f"the cron expression {text!r} is ambiguous: with ?, some programs count days of the "
            "week from 1; use their names (MON), or * in place of ?"
        )
    if len(fields) == 6 and re.fullmatch(r"[0-9]{4}([-,/][0-9]+)*", fields[5]):
        raise BadInput(
            f"the cron expression {text!r} has a year as its last field, as in EventBridge; "
            "write ? for the day field that it does not use"
        )
    weekdays = _NAMED_LAST.sub(_last_of, fields[-1].upper())
    return ["*" if field == "?" else field for field in [*fields[:-1], weekdays]]


def _misplaced(text: str) -> BadInput:
    return BadInput(
        f"the cron expression {text!r} has ? at the wrong place: it stands for one of "
        "the day of the month and the day of the week; use ? for only one of them"
    )


def _last_of(found: re.Match[str]) -> str:
    name = found[1]
    return f"{_WEEKDAYS.index(name)}L" if name in _WEEKDAYS else found[0]


def _from_sunday_1(text: str, field: str) -> str:
    """Days of the week in which Sunday is 1, with Sunday as 0."""
    terms = []
    for term in field.upper().split(","):
        if term == "L":
            terms.append("6")
            continue
        if term.startswith("*"):
            terms.append(term)
            continue
        found = _WEEKDAY_TERM.fullmatch(term)
        days = [one for one in found.groups()[:2] if one] if found else []
        if found is None or any(one.isalpha() and one not in _WEEKDAYS for one in days):
            raise BadInput(
                f"the day of the week {field!r} of the cron expression {text!r} is not valid; use "
                "1 (Sunday) to 7, or SUN to SAT"
            )
        numbers = [_WEEKDAYS.index(one) if one.isalpha() else int(one) - 1 for one in days]
        first, last = numbers[0], numbers[-1]
        if last < first:  # through the end of the week
            terms += [str(day % 7) for day in range(first, last + 8)]
        else:
            terms.append("-".join(map(str, numbers)) + (found[3] or ""))
    return ",".join(terms)


def _years(text: str, field: str) -> frozenset[int] | None:
    """The years of a field; None for all."""
    if field == "*":
        return None
    years: set[int] = set()
    for term in field.split(","):
        found = _YEAR_TERM.fullmatch(term)
        if found is not None:
            first, last, step = found.groups()
            start = _YEAR_MIN if first == "*" else int(first)
            end = int(last) if last else _YEAR_MAX if first == "*" or step else start
            if _YEAR_MIN <= start <= end <= _YEAR_MAX and step != "0":
                years.update(range(start, end + 1, int(step or 1)))
                continue
        raise BadInput(
            f"the year {field!r} of the cron expression {text!r} is not valid; use {_YEAR_MIN} to "
            f"{_YEAR_MAX}, as in 2030 or 2030-2035"
        )
    return frozenset(years)


def _readable(fields: list[str]) -> bool:
    try:
        _Expression(fields, None)
    except CronSimError:
        return False
    return True


def _ever(expression: _Expression) -> bool:
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


def _at_its_hours_s(expression: _Expression, zone: ZoneInfo, after_s: int) -> int:
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


def _in_every_hour_s(expression: _Expression, zone: ZoneInfo, since_s: int) -> int:
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


def _next(expression: _Expression, wall: datetime) -> datetime:
    """The next local time that matches, ignoring changes of the offset."""
    years = expression.years
    while True:
        expression = copy(expression)
        expression.dt = wall
        found = next(expression)
        if years is None or found.year in years:
            return found
        # Raises ValueError after the last of the years.
        year = min(year for year in years if year > found.year)
        wall = found.replace(year=year, month=1, day=1, hour=0, minute=0, second=0) - _SECOND


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
