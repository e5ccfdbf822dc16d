"""What repeats, at its bounds: the first and last that will do, and times to the very second."""

import pytest

from onceward import limits
from onceward.recurrence import Cron, Interval, Repeat, admit, missed, next_ms
from tests.recurrences import BERLIN, ms, times

END_MS, GRACE_MS = limits.RECUR_END_MS, limits.RECUR_GRACE_MS


@pytest.mark.parametrize(
    "repeat",
    [
        Interval(limits.RECUR_MS_MIN, 0),
        Interval(limits.RETENTION_MS_MAX, END_MS),
        Cron("@daily".ljust(limits.CRON_CHARS_MAX)),
    ],
)
def test_what_is_just_within_its_bounds_is_let_in(repeat: Repeat) -> None:
    admit(repeat)


@pytest.mark.parametrize("weekday", range(7))
@pytest.mark.parametrize("text", ["0 0 * 2 {}#5", "0 0 */21 2 {}L"])
def test_a_day_that_only_one_kind_of_year_has_is_let_in(text: str, weekday: int) -> None:
    """A fifth Monday in a February is its 29th, and a last one that is the 22nd is in a year that
    has no 29th."""
    cron = Cron(text.format(weekday))
    admit(cron)
    assert next_ms(cron, 0) is not None


@pytest.mark.parametrize("repeat", [Interval(1_000, END_MS), Cron("@yearly"), Cron("* * * * *")])
def test_the_end_of_the_calendar_is_the_last_time_that_comes(repeat: Repeat) -> None:
    assert next_ms(repeat, END_MS - 1) == END_MS
    assert next_ms(repeat, END_MS) is None


# The grace for what is late.


def test_what_is_as_old_as_the_grace_is_late_and_what_is_older_is_missed() -> None:
    every, now_ms = Interval(100, 0), 20_000
    assert missed(every, 0, now_ms, "none", 1) == [now_ms - GRACE_MS]
    between = Interval(GRACE_MS + 1, now_ms - GRACE_MS - 1)
    assert missed(between, between.anchor_ms, now_ms, "none", 9) == [now_ms]


def test_a_first_time_that_is_none_of_the_others_counts_within_the_grace() -> None:
    daily, first_ms = Cron("@daily"), ms("2026-05-01T12:00Z")
    assert missed(daily, first_ms, first_ms + GRACE_MS, "none", 9) == [first_ms]
    assert missed(daily, first_ms, first_ms + GRACE_MS + 1, "none", 9) == []


# Clocks that are set back: in Berlin, 03:00 becomes 02:00 on 25 October 2026.


def test_between_two_times_that_look_alike_the_next_is_the_first_that_does_not() -> None:
    between = "2026-10-25T01:10Z"
    assert times(Cron("0 3 * * *", BERLIN), between, 1) == ["2026-10-25 03:00:00+0100"]
    assert times(Cron("59 59 2 * * *", BERLIN), between, 1) == ["2026-10-26 02:59:59+0100"]
