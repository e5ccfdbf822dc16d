"""Responses as text: times, durations, tables that fit the terminal, and empty lists."""

from typing import Any

import msgspec
import pytest

from onceward.api import OPERATIONS
from onceward.api.jobs import JobPage, JobSummary
from onceward.api.queues import FailedJobs, QueueList
from onceward.api.timers import Firing, TimerAttempt, TimerPage
from onceward.cli import display, main, views
from onceward.cli.display import print_facts, print_table
from onceward.cli.views import facts, show, shown_duration, shown_time

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "width", lambda: 200)
    monkeypatch.setattr(views, "width", lambda: 200)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "width", lambda: 40)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (250, "250 ms"),
        (1_500, "1.5 s"),
        (59_000, "59 s"),
        (60_000, "1 min"),
        (90_000, "1 min 30 s"),
        (5_400_000, "1 h 30 min"),
        (86_400_000, "1 d"),
        (90_061_000, "1 d 1 h"),
        (365 * 86_400_000, "365 d"),
    ],
)
def test_durations_have_units(duration_ms: int, text: str) -> None:
    assert shown_duration(duration_ms) == text


def test_times_are_in_utc() -> None:
    assert shown_time(2_000_000_000_000) == "2033-05-18 03:33:20Z"
    assert shown_time(10**18) == f"{10**18} ms"


class Part(msgspec.Struct):
    n: int


class Thing(msgspec.Struct):
    id: str
    created_ms: int
    every_ms: int
    ended_ms: int
    count: int
    token: int
    fine: bool
    reason: str
    key: str | None
    tags: list[str]
    meta: dict[str, Any]
    parts: list[Part]


THING = Thing(
    "a",
    2_000_000_000_000,
    5_400_000,
    0,
    1_234,
    1_234,
    False,
    "",
    None,
    ["x", "y"],
    {"k": 1},
    [Part(1)],
)


def test_a_struct_is_names_and_values() -> None:
    assert dict(facts(THING)) == {
        "id": "a",
        "created": "2033-05-18 03:33:20Z",
        "every": "1 h 30 min",
        "count": "1234",
        "token": "1234",
        "fine": "no",
        "tags": "x, y",
        "meta": "k: 1",
    }


@pytest.mark.usefixtures("wide")
def test_a_table_has_numbers_to_the_right(capsys: Capture) -> None:
    print_table(("name", "count"), [("a", 1_234), ("long name", 5)])
    assert capsys.readouterr().out == "NAME       COUNT\na          1,234\nlong name      5\n"


def test_another_program_gets_tabs_and_whole_values(capsys: Capture) -> None:
    long = "why " * 100
    print_table(("id", "count", "reason"), [("a", 1_234, f"{long}\n\tend\x1b"), ("longer", 5, "")])
    print_facts([("reason", "one\ntwo"), ("empty", ""), ("longer", long)])
    assert capsys.readouterr().out == (
        f"ID\tCOUNT\tREASON\na\t1234\t{long}\\n\\tend\\x1b\nlonger\t5\t\n"
        f"reason\tone\n\ttwo\nlonger\t{long}\n"
    )


def test_another_program_gets_every_column_and_no_sentences(capsys: Capture) -> None:
    time_ms = 2_000_000_000_000
    times = {"created_ms": time_ms, "due_ms": time_ms, "ended_ms": time_ms}
    said = {"id": "a", "queue": "q", "state": "failed", "key": None, "caller": ""}
    options = {"priority": 5, "attempts_max": 5}
    job = JobSummary(**said, **times, **options, attempt=1, worker="", reason="")
    for given in ({}, {"queue": "q", "state": "failed"}):
        show(OPERATIONS["jobs.list"], JobPage([job], 1, "c"), given)
        out, err = capsys.readouterr()
        heads, row = (line.split("\t") for line in out.splitlines())
        assert (heads[:4], row[:4]) == (["ID", "STATE", "QUEUE", "KEY"], ["a", "failed", "q", ""])
        assert len(heads) == len(row)
        assert err == "There are more. Use --limit, or continue with --after c\n"


@pytest.mark.usefixtures("narrow")
def test_the_last_column_is_cut_to_fit_the_terminal(capsys: Capture) -> None:
    print_table(("id", "reason"), [("0123456789", "why " * 20)])
    assert capsys.readouterr().out == (
        "ID          REASON\n0123456789  why why why why why why why…\n"
    )


@pytest.mark.usefixtures("narrow")
def test_a_table_that_does_not_fit_is_printed_row_by_row(capsys: Capture) -> None:
    long = "x" * 50
    print_table(("id", "state", "reason"), [(long, "failed", "because of a timeout of the bank")])
    assert capsys.readouterr().out == (
        f"{long}\n  state   failed\n  reason  because of a timeout of the\n          bank\n"
    )


@pytest.mark.usefixtures("narrow")
def test_long_values_are_folded(capsys: Capture) -> None:
    print_facts([("body", "y" * 60), ("empty", ""), ("reason", "one\ntwo")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"body    {'y' * 32}", f"        {'y' * 28}", "reason  one", "        two"]


@pytest.mark.usefixtures("wide")
def test_data_cannot_control_the_terminal(capsys: Capture) -> None:
    print_facts([("key", "\x1b[2Jgone\b")])
    print_table(("key",), [("\x1b]0;title\x07",)])
    assert capsys.readouterr().out == "key  \\x1b[2Jgone\\x08\nKEY\n\\x1b]0;title\\x07\n"


@pytest.mark.usefixtures("wide")
def test_wide_letters_are_counted_as_two_columns(capsys: Capture) -> None:
    print_table(("name", "count"), [("東京", 1), ("ann", 2)])
    assert capsys.readouterr().out == "NAME  COUNT\n東京      1\nann       2\n"


@pytest.mark.parametrize(
    ("name", "response", "given", "text"),
    [
        ("jobs.list", JobPage([], 0, None), {}, "No jobs."),
        (
            "jobs.list",
            JobPage([], 0, None),
            {"queue": "orders", "state": "failed", "limit": 5},
            "No failed jobs in 'orders'.",
        ),
        ("queues.failed", FailedJobs([], None), {"queue": "q"}, "No failed jobs in 'q'."),
        ("jobs.list", JobPage([], 0, None), {"text": "x"}, "No jobs with text 'x'."),
        ("queues.list", QueueList([]), {}, "No queues."),
        (
            "timers.list",
            TimerPage([], None),
            {"prefix": "r-", "state": "active"},
            "No active timers with prefix 'r-'. Use --app for timers of the application, or "
            "`onceward timers list-all`.",
        ),
    ],
)
def test_an_empty_list_says_what_was_looked_for(
    name: str, response: Any, given: dict[str, Any], text: str, capsys: Capture
) -> None:
    show(OPERATIONS[name], response, given)
    assert capsys.readouterr() == ("", f"{text}\n")


def test_firings_are_a_table_with_the_last_response(wide: None, capsys: Capture) -> None:
    past = [
        TimerAttempt(1, "2033-05-18T03:33:21.000Z", 2_000_000_001_000, "failed", "500"),
        TimerAttempt(2, "2033-05-18T03:33:22.000Z", 2_000_000_002_000, "failed", "timeout"),
    ]
    failed = Firing(
        "01A", 2, 2_000_000_000_000, "retrying", past, next_attempt_ms=2_000_000_009_000
    )
    views.show_items([failed, Firing("01B", 1, 1_900_000_000_000, "queued", [])], {})
    heads, first, second = capsys.readouterr().out.splitlines()
    assert heads.split() == [
        "NUMBER",
        "ID",
        "STATE",
        "FIRED",
        "NEXT",
        "ATTEMPT",
        "ATTEMPTS",
        "RESPONSE",
    ]
    assert "retrying  2033-05-18 03:33:20Z  2033-05-18 03:33:29Z" in first
    assert first.endswith("2  timeout")
    assert second.split()[1:3] == ["01B", "queued"]


def test_the_help_of_dev_has_the_default_of_dev(capsys: Capture) -> None:
    assert main(["dev", "--help"]) == 0
    help_ = capsys.readouterr().out
    assert "[3.0]" in help_
    assert "[30.0]" not in help_
