"""Timers as their callers see them."""

import json
from typing import Any

import msgspec
import pytest

from onceward.api.timers import Firing
from onceward.api.timers import Timer as TimerView
from onceward.api.timers import TimerAttempt as Attempt
from onceward.job_options import PRIORITY_DEFAULT, JobOptions
from onceward.recurrence import Cron, Interval, Repeat
from onceward.schedule import Job
from onceward.schedule.records import Attempt as Past
from onceward.web.api.timer_views import moment
from onceward.web.api.timer_views import shown as shown_to
from onceward.webhooks.timers import WEBHOOKS, Call, Send, Spec, Timer, View
from onceward.webhooks.timers.records import Target


def shown(view: View, now_ms: int, **options: Any) -> TimerView:
    """As its owner sees it."""
    return shown_to(view, now_ms, view.caller, **options)


def test_a_time_is_written_as_a_person_reads_it() -> None:
    assert moment(0) == "1970-01-01T00:00:00.000Z"
    assert moment(2_000_000_000_123) == "2033-05-18T03:33:20.123Z"
    assert moment(10**16 - 1) == "9999999999999999 ms after 1970"


def test_times_to_come_are_told_from_when_it_is_due_on() -> None:
    timer = Timer(Spec(Send("q"), repeat=Interval(500, 0)), 1_250, 0, "")
    found = shown(View("a", "", timer, "active"), 1_000, times=3)
    assert found.next == [moment(time_ms) for time_ms in (1_250, 1_750, 2_250)]
    assert found.left_ms == 250
    timer.spec = Spec(Send("q"), repeat=Cron("0 0 1 1 *"))
    timer.due_ms = 0
    found = shown(View("a", "", timer, "active"), 1_000, times=2)
    assert found.next == ["1970-01-01T00:00:00.000Z", "1971-01-01T00:00:00.000Z"]
    assert found.left_ms == 0


def test_a_calendar_that_ends_has_fewer_times_to_come() -> None:
    timer = Timer(Spec(Send("q"), repeat=Cron("0 0 1 1 *")), 253_339_228_800_000, 0, "")
    found = shown(View("a", "", timer, "active"), 0, times=5)
    assert isinstance(found.next, list)
    assert len(found.next) < 5


def test_a_firing_that_is_known_no_more_is_forgotten() -> None:
    timer = Timer(Spec(Call("https://a.example")), 5, 0, "", "fired", 1, 2, "job-1", 6)
    found = shown(View("a", "", timer, "success"), 9)
    assert found.last
    assert (found.last.id, found.last.number, found.last.state) == ("job-1", 2, "forgotten")
    assert found.left_ms == 0


def webhook(state: str, **more: Any) -> Job:
    return Job(WEBHOOKS, {"timer": "a", "due_ms": 5, "number": 2}, state, 6, **more)


def last(job: Job) -> Firing:
    """What is shown of the last firing of a timer whose job this is."""
    timer = Timer(Spec(Call("https://a.example")), 5, 0, "", "fired", 1, 2, "job-1", 6)
    found = shown(View("a", "", timer, "firing", job), 9).last
    assert isinstance(found, Firing)
    return found


def test_a_timer_is_shown_as_it_is() -> None:
    timer = Timer(Spec(Send("q"), catch_up="last"), 1_250, 7, "", fired=3)
    found = shown(View("a", "ann", timer, "active"), 1_000)
    assert found == TimerView(
        "a",
        "active",
        moment(1_250),
        1_250,
        250,
        7,
        3,
        queue="q",
        priority=PRIORITY_DEFAULT,
        catch_up="last",
    )


def test_what_is_not_said_is_not_shown() -> None:
    timer = Timer(Spec(Call("https://a.example")), 5, 0, "")
    assert json.loads(msgspec.json.encode(shown(View("a", "ann", timer, "active"), 9))) == {
        "id": "a",
        "state": "active",
        "due": "1970-01-01T00:00:00.005Z",
        "due_ms": 5,
        "left_ms": 0,
        "created_ms": 0,
        "fired": 0,
        "url": "https://a.example",
    }


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (Send("q"), {"queue": "q", "priority": PRIORITY_DEFAULT}),
        (
            Send(
                "q",
                0,
                JobOptions(order_key="", limit_key="", priority=0, attempts_max=0),
            ),
            {
                "queue": "q",
                "body": 0,
                "order_key": "",
                "limit_key": "",
                "priority": 0,
                "attempts_max": 0,
            },
        ),
        (
            Send(
                "q", {"a": 1}, JobOptions(order_key="o", limit_key="l", priority=9, attempts_max=3)
            ),
            {
                "queue": "q",
                "body": {"a": 1},
                "order_key": "o",
                "limit_key": "l",
                "priority": 9,
                "attempts_max": 3,
            },
        ),
        (Call("https://a.example"), {"url": "https://a.example"}),
        (
            Call("https://a.example", body=False, attempts_max=0),
            {"url": "https://a.example", "body": False, "attempts_max": 0},
        ),
        (
            Call("", "mail", {"a": "b"}, [1], True, 3),
            {
                "endpoint": "mail",
                "headers": {"a": "b"},
                "body": [1],
                "append_id": True,
                "attempts_max": 3,
            },
        ),
    ],
)
def test_it_is_shown_what_a_timer_does(target: Target, told: dict[str, Any]) -> None:
    found = shown(View("a", "", Timer(Spec(target), 5, 0, ""), "active"), 9)
    names = (
        *("url", "endpoint", "queue", "headers", "body", "append_id", "attempts_max"),
        *("order_key", "limit_key", "priority"),
    )
    values = {name: getattr(found, name) for name in names}
    unset = {"headers": {}, "append_id": False}
    told_of = {name: value for name, value in values.items() if value != unset.get(name)}
    assert told_of == told


def test_it_is_shown_how_a_timer_repeats() -> None:
    def repeating(repeat: Repeat | None) -> list[Any]:
        found = shown(View("a", "", Timer(Spec(Send("q"), repeat=repeat), 5, 0, ""), "active"), 9)
        count = len(found.next) if isinstance(found.next, list) else 0
        return [found.every_ms, found.cron, found.zone, count]

    assert repeating(Interval(500, 0)) == [500, None, None, 5]
    assert repeating(Cron("0 0 1 1 *", "Asia/Tokyo")) == [None, "0 0 1 1 *", "Asia/Tokyo", 5]
    assert repeating(None) == [None, None, None, 0]


def test_times_to_come_are_told_only_of_what_goes_on_and_where_they_are_asked_for() -> None:
    timer = Timer(Spec(Send("q"), repeat=Interval(500, 0)), 1_250, 0, "")
    assert shown(View("a", "", timer, "active"), 0, times=0).next == []
    timer.state = "cancelled"
    found = shown(View("a", "", timer, "cancelled"), 0)
    assert (found.next, found.left_ms, found.every_ms) == ([], 0, 500)


def test_a_timer_that_has_not_fired_has_no_last_firing() -> None:
    timer = Timer(Spec(Send("q")), 5, 0, "")
    assert shown(View("a", "", timer, "active", webhook("due")), 9).last is None


def test_a_call_is_shown_with_its_attempts_and_when_it_is_tried_again() -> None:
    past = [Past(1, 1_500, "w", "500 Oh"), Past(2, 2_500, "w", "no answer")]
    job = webhook("due", due_ms=4_000, attempt=2, history=past)
    log = [
        Attempt(1, "1970-01-01T00:00:01.500Z", 1_500, "failed", "500 Oh"),
        Attempt(2, "1970-01-01T00:00:02.500Z", 2_500, "failed", "no answer"),
    ]
    assert last(job) == Firing("job-1", 2, 6, "retrying", log, 5, 4_000)
    job = webhook("failed", due_ms=4_000, attempt=2, history=past)
    assert last(job) == Firing("job-1", 2, 6, "failed", log, 5)


def test_the_attempt_that_went_well_comes_last_with_what_was_answered() -> None:
    past = [Past(1, 1_500, "w", "500 Oh")]
    job = webhook("succeeded", attempt=2, history=past, result={"said": "200 OK"}, ended_ms=3_000)
    assert [(one.attempt, one.outcome, one.said) for one in last(job).attempts] == [
        (1, "failed", "500 Oh"),
        (2, "succeeded", "200 OK"),
    ]
    assert last(job).attempts[1].at == "1970-01-01T00:00:03.000Z"
    assert last(job).attempts[1].at_ms == 3_000


def test_what_a_handler_of_a_queue_got_and_said_is_not_shown() -> None:
    result = {"said": "for who may look at the job"}
    found = last(Job("q", {"due_ms": 7}, "succeeded", 6, attempt=1, result=result, ended_ms=8))
    assert found == Firing("job-1", 2, 6, "succeeded", [Attempt(1, moment(8), 8, "succeeded", "")])


@pytest.mark.parametrize("made_up", [None, 5, "said", ["due_ms"], {}, {"said": 5, "due_ms": "x"}])
def test_a_call_that_others_have_made_up_or_completed_is_shown(made_up: Any) -> None:
    found = last(Job(WEBHOOKS, made_up, "succeeded", 6, attempt=1, result=made_up, ended_ms=8))
    assert found == Firing("job-1", 2, 6, "succeeded", [Attempt(1, moment(8), 8, "succeeded", "")])
