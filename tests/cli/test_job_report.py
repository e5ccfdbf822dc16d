"""A job is shown with its timeline and its children."""

from typing import Any

import pytest

from onceward.api import OPERATIONS
from onceward.api.job_history import JobChild, JobChildCounts, JobEffect, JobSpan
from onceward.api.jobs import Job
from onceward.cli import display
from onceward.cli.job_report import JobReport, waits_for
from onceward.cli.views import show
from onceward.job_options import NO_OPTIONS, shown_options
from tests.cli.commands import Command

pytestmark = pytest.mark.timeout(300)  # for processes on a busy machine

START_MS = 1_900_000_000_000
SPANS = [
    JobSpan("queued", "", START_MS, START_MS + 1_000),
    JobSpan("attempt", "", START_MS + 1_000, START_MS + 3_000, 1, "failed"),
    JobSpan("step", "pay", START_MS + 1_500, START_MS + 3_000, state="intended"),
    JobSpan("backoff", "", START_MS + 3_000, START_MS + 4_000),
    JobSpan("attempt", "", START_MS + 4_000, START_MS + 4_000, 2, "released"),
    JobSpan("children", "1", START_MS + 4_000, 0),
]


def job_of(**values: Any) -> Job:
    options = shown_options(NO_OPTIONS, 3)
    return Job("id-1", "album", "waiting", None, START_MS, 0, 2, **values, **options)


def test_a_timeline_has_starts_durations_and_bars(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "width", lambda: 200)
    counts = JobChildCounts(3_000, {"succeeded": 2_000, "failed": 1, "open": 999})
    child = JobChild("c-1", 1, 7, "page", "failed", "no picture", START_MS, START_MS, START_MS + 50)
    parent = JobEffect("job", "p-1", queue="book", state="waiting")
    report = JobReport(job_of(waits="children 1"), START_MS + 8_000, SPANS, parent, counts, [child])
    show(OPERATIONS["jobs.get"], report, {})
    shown = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "waits for its children (call 1): 999 of 3,000 have not ended" in lines
    assert lines[lines.index("START TIMELINE DURATION BAR") + 1 :][:6] == [
        "+0 ms in the queue 1 s ---",
        "+1 s attempt 1, failed 2 s ######",
        "+1.5 s step 'pay', outcome unknown 1.5 s ####",
        "+3 s pause before the retry 1 s ---",
        "+4 s attempt 2, then waited 0 ms #",
        "+4 s children of call 1 4 s ------------",
    ]
    assert "parent p-1 book waiting" in lines
    assert "children 3,000: 2,000 succeeded, 1 failed, 999 open" in lines
    assert "1.7 c-1 page failed 50 ms no picture" in lines
    assert lines[-1] == "All of them: `onceward jobs children id-1 --limit 1000`"


@pytest.mark.parametrize(
    ("waits", "text"),
    [
        ("event approval of ann", "the event 'approval of ann'"),
        ("children 2", "its children (call 2)"),
    ],
)
def test_a_waiting_job_names_what_it_waits_for(waits: str, text: str) -> None:
    assert waits_for(JobReport(job_of(waits=waits), START_MS)) == text


def test_the_timeline_of_a_job_is_printed_with_it(command: Command) -> None:
    id_ = command.json("send", "report", "1", "--key", "k")["id"]
    shown = command.said("jobs", "get", id_)
    assert "in the queue" in shown
    assert "timeline" not in command.json("jobs", "get", id_), "programs get the response"
    [span] = command.json("jobs", "history", id_)["timeline"]
    assert (span["kind"], span["end_ms"]) == ("queued", 0)
