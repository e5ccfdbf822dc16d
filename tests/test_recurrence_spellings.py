"""Cron expressions as Quartz and EventBridge spell them, and those that could be either."""

from calendar import monthrange
from datetime import UTC, date, datetime

import pytest

from onceward.errors import BadInput
from onceward.recurrence import Cron, admit, next_ms

START_MS = 1_784_000_000_000  # 14 July 2026, a Tuesday


def dates(text: str, most: int, start_ms: int = START_MS) -> list[datetime]:
    found, time_ms = [], start_ms
    while len(found) < most:
        next_ = next_ms(Cron(text), time_ms)
        if next_ is None:
            break
        time_ms = next_
        found.append(datetime.fromtimestamp(time_ms / 1_000, UTC))
    return found


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("0 0 12 * * ?", "0 12 * * *"),
        ("0 15 10 ? * *", "15 10 * * *"),
        ("0 15 10 * * ? *", "15 10 * * *"),
        ("0 0/5 14,18 * * ?", "*/5 14,18 * * *"),
        ("0 15 10 ? * MON-FRI", "15 10 * * 1-5"),
        ("0 15 10 ? * 2-6", "15 10 * * 1-5"),
        ("0 15 10 ? * 6L", "15 10 * * 5L"),
        ("0 15 10 ? * friL", "15 10 * * 5L"),
        ("0 15 10 ? * 6#3", "15 10 * * 5#3"),
        ("0 15 10 ? * L", "15 10 * * 6"),
        ("0 15 10 ? * FRI-MON", "15 10 * * 5,6,0,1"),
        ("0 15 10 ? * 7-1", "15 10 * * 6,0"),
        ("0 15 10 L * ?", "15 10 L * *"),
        ("0 15 10 LW * ?", "15 10 LW * *"),
        ("5 15 10 ? * 1/2", "5 15 10 * * 0,2,4,6"),
        ("0 10 * * ? *", "0 10 * * *"),
        ("15 12 ? * 1 *", "15 12 * * 0"),
        ("cron(0/10 * ? * MON-FRI *)", "*/10 * * * 1-5"),
        ("cron(0 8 1 * ? *)", "0 8 1 * *"),
        ("cron(0 18 * * 2-6 *)", "0 18 * * 1-5"),
        ("0 9 ? * MON", "0 9 * * 1"),
        ("0 9 1 * ?", "0 9 1 * *"),
        ("0 9 * * FRIL", "0 9 * * 5L"),
    ],
)
def test_other_spellings_have_the_times_of_the_plain_one(text: str, plain: str) -> None:
    admit(Cron(text))
    assert dates(text, 30) == dates(plain, 30)


@pytest.mark.parametrize("day", [1, 2, 15, 28, 30, 31])
def test_the_nearest_weekday_is_in_the_same_month(day: int) -> None:
    found = [one.date() for one in dates(f"0 0 9 {day}W * ?", 24)]
    months = [(2026 + (6 + n) // 12, (6 + n) % 12 + 1) for n in range(40)]
    wanted = []
    for year, month in months:
        last = monthrange(year, month)[1]
        if day <= last:
            weekdays = [n for n in range(1, last + 1) if date(year, month, n).weekday() < 5]
            nearest = min(weekdays, key=lambda n: (abs(n - day), n))
            wanted.append(date(year, month, nearest))
    first = date(2026, 7, 14)
    assert found == [one for one in wanted if one >= first][:24]


@pytest.mark.parametrize("before", [0, 3, 30])
def test_days_before_the_last_of_the_month(before: int) -> None:
    for one in dates(f"0 9 L-{before} * *", 12):
        assert monthrange(one.year, one.month)[1] - one.day == before
    both = dates("0 9 L-3,15W,2 * *", 6)
    assert [one.day for one in both] == [15, 28, 3 - 1, 14, 28, 2]


@pytest.mark.parametrize(
    ("text", "years"),
    [
        ("0 0 12 1 1 ? 2027", [2027]),
        ("0 0 12 1 1 ? 2020-2028", [2027, 2028]),
        ("0 0 12 1 1 ? 2027/3", [2027, 2030, 2033]),
        ("0 12 1 1 ? 2030,2028", [2028, 2030]),
        ("cron(0 12 29 2 ? 2027-2033)", [2028, 2032]),
        ("0 0 12 1 1 ? */50", [2070, 2120, 2170]),
        ("0 0 12 1 1 ? 2020", []),
    ],
)
def test_years_limit_the_times(text: str, years: list[int]) -> None:
    admit(Cron(text))
    assert [one.year for one in dates(text, 3)] == years[:3]
    assert len(dates(text, 200)) == min(len(years), 200) or "/" in text


def test_every_minute_of_a_year_ends_with_it() -> None:
    end_ms = int(datetime(2026, 12, 31, 23, 58, 30, tzinfo=UTC).timestamp() * 1_000)
    assert [one.minute for one in dates("0 * * * * ? 2026", 9, end_ms)] == [59]
    assert dates("0 * * * * ? 2028", 1, end_ms) == [datetime(2028, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 10 * * MON 2026", "year as its last field, as in EventBridge; write \\?"),
        ("0 0 ? ? * MON", "\\? at the wrong place"),
        ("? * * * *", "\\? at the wrong place"),
        ("0 9 ? * ?", "\\? at the wrong place"),
        ("0 0 9 ? ? *", "\\? at the wrong place"),
        ("0 9 ? * 2", "ambiguous.*use their names"),
        ("0 9 ? * MON,6#2", "ambiguous.*use their names"),
        ("0 0 12 1 * MON 2030", "gives both the day of the month and of the week"),
        ("cron(0 12 1 * MON *)", "gives both the day of the month and of the week"),
        ("cron(0 9 * * *)", "cron\\(…\\) with 6"),
        ("cron(0 9 * * ? *", "has 6|not valid|wrong"),
        ("rate(5 minutes)", "use an interval instead"),
        ("at(2030-01-01T00:00:00)", "use the time `at` instead"),
        ("0 0 9 ? * 8", "1 \\(Sunday\\) to 7"),
        ("0 0 9 ? * 0", "1 \\(Sunday\\) to 7"),
        ("0 0 9 ? * FOO", "SUN to SAT"),
        ("0 0 9 ? * MON 1900", "the year '1900'"),
        ("0 0 9 ? * MON 2030-2020", "the year '2030-2020'"),
        ("0 0 9 ? * MON 2030/0", "the year '2030/0'"),
        ("0 0 9 ? * MON soon", "the year 'soon'"),
        ("0 0 9 32W * ?", "the day-of-month of"),
        ("0 0 9 0W * ?", "the day-of-month of"),
        ("0 0 9 L-31 * ?", "the day-of-month of"),
        ("0 0 9 W * ?", "the day-of-month of"),
        ("0 0 9 31W 2 ?", "never matches"),
        ("0 0 9 L-30 4 ?", "never matches"),
    ],
)
def test_ambiguous_and_wrong_spellings_are_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        admit(Cron(text))
