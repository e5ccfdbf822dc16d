import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceward import limits
from onceward.errors import AddressRefused, BadInput, Conflict, OncewardError, Unreachable
from onceward.webhooks.answers import Answer, Outcome, judge, read_retry_after

NOW_MS = 784_111_777_000
NOW = "Sun, 06 Nov 1994 08:49:37 GMT"
IN_A_MINUTE = "Sun, 06 Nov 1994 08:50:37 GMT"


def answer(
    status: int, body: bytes = b"", took_s: float = 0.012, retry_after_s: float | None = None
) -> Answer:
    return Answer(status, retry_after_s, body, took_s)


@given(status=st.integers(100, 999))
@example(status=199)
@example(status=200)
@example(status=299)
@example(status=300)
def test_2xx_is_delivered_410_is_gone_and_all_else_is_tried_again(status: int) -> None:
    verdict = judge(answer(status))
    assert verdict.answered
    if status // 100 == 2:
        assert verdict.outcome is Outcome.DELIVERED
    elif status == 410:
        assert verdict.outcome is Outcome.GONE
    else:
        assert verdict.outcome is Outcome.AGAIN


def test_outcomes_are_told_by_the_words_that_logs_are_searched_for() -> None:
    assert [*Outcome] == ["delivered", "again", "gone", "never"]


@pytest.mark.parametrize("status", [301, 404, 429, 500, 503])
def test_an_endpoint_is_left_alone_as_long_as_it_asks(status: int) -> None:
    assert judge(answer(status, retry_after_s=7.0)).not_before_s == 7.0
    assert judge(answer(status)).not_before_s is None


@pytest.mark.parametrize("status", [200, 410])
def test_what_is_not_called_again_has_no_time_for_it(status: int) -> None:
    assert judge(answer(status, retry_after_s=7.0)).not_before_s is None


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("no answer within 10 s", sent=1),
        AddressRefused("example.com leads to 10.0.0.1"),
        Conflict("of whatever kind"),
    ],
)
def test_what_may_be_better_the_next_time_is_tried_again(error: OncewardError) -> None:
    verdict = judge(error)
    assert verdict.outcome is Outcome.AGAIN
    assert verdict.answered is False
    assert verdict.line == error.message


def test_what_is_our_own_fault_says_nothing_of_the_host() -> None:
    verdict = judge(Unreachable("too many open files", ours=True))
    assert verdict.outcome is Outcome.AGAIN
    assert verdict.answered is None


@pytest.mark.parametrize("code", ["bad_url", "bad_header"])
def test_what_cannot_be_called_at_all_is_never_tried_again(code: str) -> None:
    assert judge(BadInput("it is wrong", code=code)).outcome is Outcome.NEVER


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (answer(200), "200 OK in 12 ms"),
        (answer(599, took_s=0.0), "599 in 0 ms"),
        (answer(204, took_s=1.25), "204 No Content in 1.2 s"),
        (answer(200, took_s=0.999), "200 OK in 999 ms"),
        (answer(200, took_s=1.0), "200 OK in 1.0 s"),
        (
            answer(503, b"<h1>Over\r\n capacity</h1>\n"),
            "503 Service Unavailable in 12 ms: <h1>Over capacity</h1>",
        ),
        (answer(500, b"a\x00b\x1b[31m\xff"), "500 Internal Server Error in 12 ms: a�b�[31m�"),
        (answer(500, "a\u202eb\u2028c é".encode()), "500 Internal Server Error in 12 ms: a�b c é"),
        (answer(400, b"x" * 200), "400 Bad Request in 12 ms: " + "x" * 200),
        (answer(400, b"x" * 201), "400 Bad Request in 12 ms: " + "x" * 200 + "…"),
        (Answer(202, None, b"ok", 0.3, sent=2), "202 Accepted in 300 ms, sent twice: ok"),
        (Unreachable("it was refused", sent=2), "it was refused, sent twice"),
        (Unreachable("TLS: \x1b[31m\n"), "TLS: �[31m"),
    ],
)
def test_a_person_can_read_what_happened(result: Answer | OncewardError, line: str) -> None:
    assert judge(result).line == line


@given(status=st.integers(100, 999), body=st.binary(max_size=2_000) | st.text().map(str.encode))
def test_a_line_is_printable_and_short_whatever_was_answered(status: int, body: bytes) -> None:
    line = judge(answer(status, body)).line
    assert line.isprintable()
    assert len(line) < limits.ANSWER_TEXT_CHARS + 100


@pytest.mark.parametrize(
    ("value", "date", "after_s"),
    [
        ("0", None, 0.0),
        ("120", None, 120.0),
        ("000000000120", None, 120.0),
        (" 120 ", NOW, 120.0),
        ("9" * 1_000, None, limits.RETRY_AFTER_S_MAX),
        ("86401", None, limits.RETRY_AFTER_S_MAX),
        (IN_A_MINUTE, None, 60.0),
        (IN_A_MINUTE, "what?", 60.0),
        (IN_A_MINUTE, "Sun, 06 Nov 1994 08:50:07 GMT", 30.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", None, 60.0),
        ("Sun Nov  6 08:50:37 1994", None, 60.0),
        (NOW, IN_A_MINUTE, 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None, limits.RETRY_AFTER_S_MAX),
        ("", None, None),
        ("-1", None, None),
        ("1.5", None, None),
        ("soon", None, None),
        ("\u0661", None, None),
        ("Sun, 99 Nov 1994 08:50:37 GMT", None, None),
        ("Sun, 06 Nov 99999999 08:50:37 GMT", None, None),
    ],
)
def test_retry_after_is_seconds_or_a_time(
    value: str, date: str | None, after_s: float | None
) -> None:
    assert read_retry_after(value, date, NOW_MS) == after_s


def test_a_time_without_a_zone_does_not_depend_on_where_we_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert read_retry_after("Sun Nov  6 08:50:37 1994", None, NOW_MS) == 60.0
    finally:
        monkeypatch.undo()
        time.tzset()


@given(ahead_s=st.integers(-(10**8), 10**8), off_s=st.integers(-(10**8), 10**8))
def test_a_time_is_read_by_the_clock_of_the_one_who_wrote_it(ahead_s: int, off_s: int) -> None:
    theirs_s = NOW_MS // 1000 + off_s
    date, at = (
        format_datetime(datetime.fromtimestamp(s, UTC), usegmt=True)
        for s in (theirs_s, theirs_s + ahead_s)
    )
    after_s = read_retry_after(at, date, NOW_MS)
    assert after_s == max(0.0, min(ahead_s, limits.RETRY_AFTER_S_MAX))


@given(value=st.text(), date=st.none() | st.text())
def test_no_header_breaks_it(value: str, date: str | None) -> None:
    after_s = read_retry_after(value, date, NOW_MS)
    assert after_s is None or 0 <= after_s <= limits.RETRY_AFTER_S_MAX
