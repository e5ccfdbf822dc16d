"""Expressions on clocks that are set: judged by looking at such a clock in every minute."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.recurrence import Cron, missed, next_ms
from tests.recurrences import BERLIN, ms, times

# In Berlin 02:00 becomes 03:00 on 29 March 2026, and 03:00 becomes 02:00
# on 25 October.


def test_a_time_is_that_of_the_zone_in_summer_and_in_winter() -> None:
    assert times(Cron("0 9 28-30 3 *", BERLIN), "2026-01-01T00:00Z", 3) == [
        "2026-03-28 09:00:00+0100",
        "2026-03-29 09:00:00+0200",
        "2026-03-30 09:00:00+0200",
    ]


@pytest.mark.parametrize("text", ["30 2 * * *", "0 30 2 * * *", "*/10 2 * * *", "* 0-59 2 * * *"])
def test_a_time_that_is_left_out_comes_once_when_the_clock_is_set_forward(text: str) -> None:
    cron = Cron(text, BERLIN)
    first, second = times(cron, "2026-03-29T00:30Z", 2)
    assert first == "2026-03-29 03:00:00+0200"
    assert second.startswith("2026-03-30 02:")


@pytest.mark.parametrize("text", ["30 2 * * *", "0 30 2 * * *"])
def test_a_time_that_there_is_twice_comes_at_the_first(text: str) -> None:
    cron = Cron(text, BERLIN)
    expected = ["2026-10-25 02:30:00+0200", "2026-10-26 02:30:00+0100"]
    assert times(cron, "2026-10-24T22:00Z", 2) == expected
    # Also when asked between the two, and after.
    for between in ("2026-10-25T00:30Z", "2026-10-25T01:10Z", "2026-10-25T01:30Z"):
        assert times(cron, between, 1) == expected[1:]


def test_what_comes_in_every_hour_keeps_to_the_time_that_passes() -> None:
    assert times(Cron("30 * * * *", BERLIN), "2026-10-24T23:30Z", 3) == [
        "2026-10-25 02:30:00+0200",
        "2026-10-25 02:30:00+0100",
        "2026-10-25 03:30:00+0100",
    ]
    assert times(Cron("30 * * * *", BERLIN), "2026-03-28T23:30Z", 2) == [
        "2026-03-29 01:30:00+0100",
        "2026-03-29 03:30:00+0200",
    ]
    seconds = Cron("* * * * * *", BERLIN)
    for start in ("2026-03-29T00:59:50Z", "2026-10-25T00:59:50Z", "2026-10-25T01:59:50Z"):
        assert missed(seconds, ms(start), ms(start) + 20_000, "all", 100) == list(
            range(ms(start), ms(start) + 20_001, 1_000)
        )


def test_what_comes_in_every_hour_of_a_day_comes_in_the_hour_after_which_it_ends_twice() -> None:
    # In Santiago the 4th of April 2026 has the hour from 23:00 on twice.
    cron = Cron("30 * 4 4 *", "America/Santiago")
    assert times(cron, "2026-04-05T02:00Z", 2) == [
        "2026-04-04 23:30:00-0300",
        "2026-04-04 23:30:00-0400",
    ]


def test_a_day_that_a_zone_left_out_comes_when_the_next_one_starts() -> None:
    assert times(Cron("0 12 30 12 *", "Pacific/Apia"), "2011-12-01T00:00Z", 1) == [
        "2011-12-31 00:00:00+1400"
    ]


# Days on which clocks were set: by an hour, by half an hour, at midnight, and by a whole day.
CHANGES = [
    (BERLIN, "2026-03-29"),
    (BERLIN, "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("America/Santiago", "2026-04-04"),
    ("America/Santiago", "2026-09-05"),
    ("America/Havana", "2026-03-08"),
    ("America/Havana", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Pacific/Apia", "2011-12-30"),
    ("Asia/Kathmandu", "2026-06-01"),
]


@st.composite
def fields(draw: st.DrawFn) -> tuple[str, set[int], set[int], set[int]]:
    """An expression, and its minutes, hours and weekdays (0 is Monday)."""
    minutes = draw(st.sets(st.integers(0, 59), min_size=1, max_size=4))
    hours = draw(st.one_of(st.just(set(range(24))), st.sets(st.integers(0, 23), min_size=1)))
    weekdays = draw(st.one_of(st.just(set(range(7))), st.sets(st.integers(0, 6), min_size=1)))
    lists = [sorted(minutes), sorted(hours)]
    text = " ".join(",".join(map(str, numbers)) for numbers in lists)
    text += " * * " + ",".join(str(day + 1) for day in sorted(weekdays))
    return draw(st.sampled_from(["", "0 "])) + text, minutes, hours, weekdays


def walk(
    zone: ZoneInfo, start: datetime, minutes: set[int], hours: set[int], weekdays: set[int]
) -> Iterator[int]:
    """The times on three days, by looking at the clock in every minute."""

    def meets(shown: datetime) -> bool:
        return shown.minute in minutes and shown.hour in hours and shown.weekday() in weekdays

    minute = timedelta(minutes=1)
    before = (start - minute).astimezone(zone).replace(tzinfo=None)
    latest = before
    for number in range(3 * 24 * 60):
        time = start + number * minute
        shown = time.astimezone(zone).replace(tzinfo=None)
        if len(hours) == 24:
            due = meets(shown)
        else:
            skipped = (shown - latest) // minute
            due = any(meets(shown - passed * minute) for passed in range(max(skipped, 0)))
        latest = max(latest, shown)
        if due:
            yield int(time.timestamp()) * 1_000


@settings(max_examples=50)
@given(st.sampled_from(CHANGES), fields())
def test_the_times_are_those_of_a_walk_through_the_days(
    change: tuple[str, str], cron: tuple[str, set[int], set[int], set[int]]
) -> None:
    zone, day = change
    text, minutes, hours, weekdays = cron
    start = datetime.fromisoformat(f"{day}T00:00Z") - timedelta(days=1)
    expected = list(walk(ZoneInfo(zone), start, minutes, hours, weekdays))
    start_ms = int(start.timestamp()) * 1_000
    found: list[int] = []
    time_ms = next_ms(Cron(text, zone), start_ms - 1)
    while time_ms is not None and time_ms < start_ms + 3 * 86_400_000:
        found.append(time_ms)
        time_ms = next_ms(Cron(text, zone), time_ms)
    assert found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30 2 * * *", ["02:30+0200"]),
        ("*/20 2 * * *", ["02:00+0200", "02:20+0200", "02:40+0200"]),
        (
            "*/20 * * * *",
            [f"02:{minute}+0{offset}00" for offset in (2, 1) for minute in ("00", "20", "40")],
        ),
    ],
)
def test_the_examples_of_the_documentation_hold_when_the_clock_is_set_back(
    text: str, expected: list[str]
) -> None:
    found = times(Cron(text, BERLIN), "2026-10-24T23:59Z", len(expected) + 1)
    assert [f"{one[11:16]}{one[19:]}" for one in found[:-1]] == expected
    assert not found[-1].startswith("2026-10-25 02:")
