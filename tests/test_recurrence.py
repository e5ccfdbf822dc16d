"""When something that repeats is due, and what was missed of it."""

from itertools import pairwise
from typing import Any
from zoneinfo import available_timezones

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.errors import BadInput
from onceward.recurrence import (
    CatchUp,
    Cron,
    Interval,
    Repeat,
    admit,
    admit_catch_up,
    missed,
    next_ms,
)
from tests.recurrences import BERLIN, ms, times

NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
CENTURY_MS = NEW_YEAR_MS + limits.RETENTION_MS_MAX


# Intervals.


def test_an_interval_comes_at_its_anchor_and_from_then_on() -> None:
    every = Interval(250, 1_000)
    assert next_ms(every, 0) == 1_000
    assert next_ms(every, 999) == 1_000
    assert next_ms(every, 1_000) == 1_250
    assert next_ms(every, 1_249) == 1_250
    assert next_ms(every, 10**12 + 1) == 10**12 + 250


@pytest.mark.parametrize(
    ("every", "words"),
    [
        (Interval(limits.RECUR_MS_MIN - 1, 0), "not 99"),
        (Interval(limits.RETENTION_MS_MAX + 1, 0), "an interval must have"),
        (Interval(0, 0), "not 0"),
        (Interval(-1_000, 0), "not -1000"),
        (Interval(1_000, -1), "an interval must start"),
        (Interval(1_000, limits.RECUR_END_MS + 1), "an interval must start"),
        (Interval(1_000.5, 0), "whole number"),  # type: ignore[arg-type]
        (Interval(1_000, True), "whole number"),
    ],
)
def test_an_interval_out_of_bounds_is_refused(every: Interval, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        admit(every)


# What an expression may say.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", ["2026-01-01 00:01:00", "2026-01-01 00:02:00"]),
        ("* * * * * *", ["2026-01-01 00:00:01", "2026-01-01 00:00:02"]),
        ("*/20 * * * * *", ["2026-01-01 00:00:20", "2026-01-01 00:00:40"]),
        ("15 30 9 * * *", ["2026-01-01 09:30:15", "2026-01-02 09:30:15"]),
        ("30 9 * * *", ["2026-01-01 09:30:00", "2026-01-02 09:30:00"]),
        ("0 9-11 * * *", ["2026-01-01 09:00:00", "2026-01-01 10:00:00"]),
        ("0 9-17/4 * * *", ["2026-01-01 09:00:00", "2026-01-01 13:00:00"]),
        ("0,30 9 * * *", ["2026-01-01 09:00:00", "2026-01-01 09:30:00"]),
        ("0 0 * * mon-Tue", ["2026-01-05 00:00:00", "2026-01-06 00:00:00"]),
        ("0 0 * * 7", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("0 0 1 feb,APR *", ["2026-02-01 00:00:00", "2026-04-01 00:00:00"]),
        ("0 0 L * *", ["2026-01-31 00:00:00", "2026-02-28 00:00:00"]),
        ("0 0 LW * *", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 * * MON#2", ["2026-01-12 00:00:00", "2026-02-09 00:00:00"]),
        ("0 0 * * 5L", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 31 * *", ["2026-01-31 00:00:00", "2026-03-31 00:00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("0 0 31 12 *", ["2026-12-31 00:00:00", "2027-12-31 00:00:00"]),
        ("0 0 3 * FRI", ["2026-01-02 00:00:00", "2026-01-03 00:00:00"]),
        ("  0   0 * * *  ", ["2026-01-02 00:00:00", "2026-01-03 00:00:00"]),
        ("@yearly", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ("@annually", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ("@monthly", ["2026-02-01 00:00:00", "2026-03-01 00:00:00"]),
        ("@weekly", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("@daily", ["2026-01-02 00:00:00", "2026-01-03 00:00:00"]),
        ("@Midnight", ["2026-01-02 00:00:00", "2026-01-03 00:00:00"]),
        ("@hourly", ["2026-01-01 01:00:00", "2026-01-01 02:00:00"]),
    ],
)
def test_an_expression_comes_when_it_says(text: str, expected: list[str]) -> None:
    admit(Cron(text))
    assert times(Cron(text), "2026-01-01T00:00Z", 2) == [f"{time}+0000" for time in expected]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "5 fields, or 6 with the second first, or 7 with second and year"),
        ("* * * *", "has 4"),
        ("* * * * * * * *", "has 8"),
        ("60 * * * *", "the minute of"),
        ("60 * * * * *", "the second of"),
        ("* 24 * * *", "the hour of"),
        ("* * 0 * *", "the day-of-month of"),
        ("* * 32 * *", "the day-of-month of"),
        ("* * * 13 *", "the month of"),
        ("* * * * 8", "the day-of-week of"),
        ("* * * * MON#6", "the day-of-week of"),
        ("* * * * funday", "the day-of-week of"),
        ("5-1 * * * *", "the minute of"),
        ("*/0 * * * *", "the minute of"),
        ("-1 * * * *", "the minute of"),
        ("1,,2 * * * *", "the minute of"),
        ("٣ * * * *", "the minute of"),
        ("\x00 * * * *", "the minute of"),
        ("\ud800 * * * *", "the minute of"),
        ("0 0 30 2 *", "never matches"),
        ("0 0 31 2,4,6,9,11 *", "never matches"),
        ("0 0 */31 * MON#5", "never matches"),
        ("0 0 */15 2 MON#5", "never matches"),
        ("@reboot", "use one of @yearly"),
        ("@every 5m", "use one of @yearly"),
        ("1" * 257, "at most 256 characters, not 257"),
    ],
)
def test_what_is_no_expression_or_never_comes_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words.replace("*", r"\*")):
        admit(Cron(text))
    with pytest.raises(BadInput, match=words.replace("*", r"\*")):
        next_ms(Cron(text), 0)


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Mars/Olympus",
        "europe/berlin",
        "Europe",
        "../etc/passwd",
        "/etc/localtime",
        "a" * 9_999,
        "\x00",
        "\ud800",
        "CET-1CEST",
        "tzdata.zi",
        "leapseconds",
        "localtime",
        "posixrules",
        "Factory",
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
    ],
)
def test_a_time_zone_that_there_is_not_is_refused(zone: str) -> None:
    with pytest.raises(BadInput, match="unknown time zone"):
        admit(Cron("@daily", zone))


@pytest.mark.parametrize("cron", [Cron(5), Cron("@daily", None)])  # type: ignore[arg-type]
def test_what_is_no_text_is_refused(cron: Cron) -> None:
    with pytest.raises(BadInput, match="must be text, not"):
        admit(cron)


@pytest.mark.parametrize("repeat", [None, 5, "@daily", {"every_ms": 5}])
def test_what_is_no_way_to_repeat_is_refused(repeat: Any) -> None:
    with pytest.raises(BadInput, match=f"or a `Cron`, not {type(repeat).__name__}"):
        admit(repeat)


def test_a_policy_is_one_of_three() -> None:
    for policy in ("all", "last", "none"):
        admit_catch_up(policy)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="one of all, last, none, not 'some'"):
        admit_catch_up("some")  # type: ignore[arg-type]


def test_every_time_zone_that_there_is_will_do() -> None:
    zones = available_timezones()
    assert len(zones) > 400
    for zone in zones - {"Factory", "localtime"}:
        admit(Cron("@daily", zone))


@given(st.text(max_size=30), st.text(max_size=10))
def test_any_text_is_an_expression_or_bad_input(text: str, zone: str) -> None:
    for cron in (Cron(text), Cron("@daily", zone)):
        try:
            admit(cron)
        except BadInput:
            continue
        assert next_ms(cron, NEW_YEAR_MS) is not None


def test_what_repeats_can_be_stored_and_is_told_apart() -> None:
    for repeat in (Interval(1_000, 5), Cron("@daily"), Cron("* * * * *", BERLIN)):
        assert msgspec.json.decode(msgspec.json.encode(repeat), type=Repeat) == repeat
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"type":"cron","text":"@daily","zones":"UTC"}', type=Repeat)


# Whatever repeats.

STEPS = st.sampled_from(["*", "*/7", "3", "1,5,6", "2-4", "*/2"])
DAYS = st.sampled_from(["*", "L", "LW", "29", "31", "1-7", "*/28"])
WEEKDAYS = st.sampled_from(["*", "MON", "1#5", "5L", "SAT,SUN"])
ZONES = st.sampled_from(["UTC", BERLIN, "Australia/Lord_Howe", "America/Santiago"])


@st.composite
def crons(draw: st.DrawFn) -> Cron:
    parts = [STEPS, STEPS, STEPS, DAYS, STEPS, WEEKDAYS][draw(st.integers(0, 1)) :]
    cron = Cron(" ".join(draw(part) for part in parts), draw(ZONES))
    try:
        admit(cron)
    except BadInput:  # it never comes
        return Cron("@monthly", cron.zone)
    return cron


REPEATS = st.one_of(
    crons(),
    st.builds(
        Interval,
        st.integers(limits.RECUR_MS_MIN, limits.RETENTION_MS_MAX),
        st.integers(0, CENTURY_MS),
    ),
)


@given(REPEATS, st.integers(0, CENTURY_MS))
def test_the_next_time_is_later_and_the_same_until_it_comes(repeat: Repeat, after_ms: int) -> None:
    found_ms = next_ms(repeat, after_ms)
    assert found_ms is not None
    assert found_ms > after_ms
    for later_ms in (after_ms + 1, (after_ms + found_ms) // 2, found_ms - 1):
        if after_ms <= later_ms < found_ms:
            assert next_ms(repeat, later_ms) == found_ms


@given(
    REPEATS,
    st.integers(NEW_YEAR_MS, NEW_YEAR_MS + 366 * 86_400_000),
    st.lists(st.integers(0, 40_000_000), min_size=1, max_size=6),
    st.integers(1, 7),
)
def test_whatever_the_calls_all_loses_and_doubles_nothing(
    repeat: Repeat, start_ms: int, pauses: list[int], limit: int
) -> None:
    due_ms, now_ms, acted = next_ms(repeat, start_ms), start_ms, []
    for pause_ms in pauses:
        now_ms += pause_ms
        for _ in range(3):  # the limit leaves some for later
            assert due_ms is not None
            found = missed(repeat, due_ms, now_ms, "all", limit)
            assert len(found) <= limit
            acted += found
            due_ms = next_ms(repeat, found[-1] if found else max(now_ms, due_ms - 1))
    expected, time_ms = [], next_ms(repeat, start_ms)
    while time_ms is not None and len(expected) < len(acted):
        expected.append(time_ms)
        time_ms = next_ms(repeat, time_ms)
    assert acted == expected
    assert due_ms == time_ms  # and with that it goes on
    assert all(time_ms <= now_ms for time_ms in acted)


@given(REPEATS, st.integers(NEW_YEAR_MS, CENTURY_MS), st.integers(0, 100_000_000))
def test_last_is_the_latest_that_was_missed(repeat: Repeat, start_ms: int, passed_ms: int) -> None:
    first_ms = next_ms(repeat, start_ms)
    assert first_ms is not None
    now_ms = first_ms + passed_ms
    (latest_ms,) = missed(repeat, first_ms, now_ms, "last", 10)
    assert first_ms <= latest_ms <= now_ms
    assert latest_ms == first_ms or next_ms(repeat, latest_ms - 1) == latest_ms
    after_ms = next_ms(repeat, latest_ms)
    assert after_ms is not None
    assert after_ms > now_ms


@given(REPEATS, st.integers(NEW_YEAR_MS, CENTURY_MS), st.integers(0, 20_000))
def test_none_leaves_out_what_is_older_than_the_grace_and_only_that(
    repeat: Repeat, start_ms: int, passed_ms: int
) -> None:
    first_ms = next_ms(repeat, start_ms)
    assert first_ms is not None
    now_ms = first_ms + passed_ms
    every = missed(repeat, first_ms, now_ms, "all", 1_000)
    fresh = [time_ms for time_ms in every if time_ms >= now_ms - limits.RECUR_GRACE_MS]
    assert missed(repeat, first_ms, now_ms, "none", 1_000) == fresh
    assert missed(repeat, first_ms, now_ms, "none", 3) == fresh[:3]


@pytest.mark.parametrize("policy", ["all", "last", "none"])
def test_nothing_is_missed_before_it_is_due_and_what_is_just_due_is_acted_on(
    policy: CatchUp,
) -> None:
    for repeat in (Cron("@daily"), Interval(1_000, NEW_YEAR_MS)):
        assert missed(repeat, NEW_YEAR_MS, NEW_YEAR_MS - 1, policy, 10) == []
        assert missed(repeat, NEW_YEAR_MS, NEW_YEAR_MS, policy, 10) == [NEW_YEAR_MS]


def test_after_a_day_of_downtime_the_policies_differ_as_stated() -> None:
    hourly, first_ms = Cron("@hourly"), ms("2026-05-01T01:00Z")
    now_ms = ms("2026-05-02T00:30Z")
    every = missed(hourly, first_ms, now_ms, "all", 100)
    assert every == [first_ms + hour * 3_600_000 for hour in range(24)]
    assert missed(hourly, first_ms, now_ms, "last", 100) == every[-1:]
    assert missed(hourly, first_ms, now_ms, "none", 100) == []


def test_the_latest_of_billions_is_found() -> None:
    now_ms = NEW_YEAR_MS + limits.RETENTION_MS_MAX
    assert missed(Cron("* * * * * *", BERLIN), NEW_YEAR_MS, now_ms + 999, "last", 1) == [now_ms]
    assert missed(Interval(100, 0), NEW_YEAR_MS, now_ms + 99, "last", 1) == [now_ms]


def test_a_far_future_is_found() -> None:
    rare = Cron("0 0 * 2 MON#5")
    found = times(rare, "2072-03-01T00:00Z", 3)
    assert [time[:10] for time in found] == ["2112-02-29", "2140-02-29", "2168-02-29"]


@pytest.mark.parametrize("repeat", [Cron("@yearly"), Cron("* * * * *", BERLIN), Interval(500, 0)])
def test_nothing_comes_after_the_end_of_the_calendar(repeat: Repeat) -> None:
    near_ms = limits.RECUR_END_MS - 367 * 86_400_000
    found_ms = next_ms(repeat, near_ms)
    assert found_ms is not None
    assert next_ms(repeat, limits.RECUR_END_MS) is None
    assert next_ms(repeat, limits.KEY_NUMBER_MAX) is None
    assert missed(repeat, limits.RECUR_END_MS, limits.KEY_NUMBER_MAX, "all", 5) == [
        limits.RECUR_END_MS
    ]


def test_what_is_rare_never_comes_again_near_the_end_of_the_calendar() -> None:
    assert next_ms(Cron("0 0 29 2 *"), ms("9996-03-01T00:00Z")) is None
    assert next_ms(Cron("0 * 29 2 *"), ms("9996-03-01T00:00Z")) is None


def test_times_before_the_epoch_are_as_the_epoch() -> None:
    assert next_ms(Cron("@daily"), -1) == 0
    assert next_ms(Cron("@daily"), -(10**18)) == 0
    assert next_ms(Cron("* * * * * *"), -(10**18)) == 0


def test_times_come_in_order_for_years() -> None:
    cron = Cron("*/15 1-3 * * *", BERLIN)
    found = missed(cron, ms("2023-01-01T00:00Z"), ms("2025-01-01T00:00Z"), "all", 10_000)
    assert all(earlier < later for earlier, later in pairwise(found))
    # On two days there is no hour from 2 to 3.
    assert len(found) == 1 + 731 * 12 - 2 * 4
