"""Timers as their callers see them."""

from onceward.parts.recurrence import Cron, Interval
from onceward.parts.timers import Call, Send, Spec, Timer, View
from onceward.web.api.timer_views import moment, shown


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
