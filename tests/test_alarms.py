"""The list of alarms, and the log line of each change."""

import logging

import pytest

from onceward.alarms import Alarm, Alarms


class Moments:
    def __init__(self) -> None:
        self.now_ms = 1_000


def make() -> tuple[Alarms, Moments]:
    moments = Moments()
    return Alarms(lambda: moments.now_ms), moments


def test_an_alarm_holds_from_when_it_was_raised_until_cleared() -> None:
    alarms, moments = make()
    alarms.raise_("disk", "the disk is slow")
    moments.now_ms = 2_000
    alarms.raise_("disk", "the disk is very slow")
    alarms.raise_("clock", "the clock is wrong")
    assert list(alarms) == [
        Alarm("disk", "the disk is very slow", 1_000),
        Alarm("clock", "the clock is wrong", 2_000),
    ]
    assert alarms.get("clock") == Alarm("clock", "the clock is wrong", 2_000)
    alarms.clear("disk")
    assert [alarm.code for alarm in alarms] == ["clock"]
    assert alarms.get("disk") is None
    assert alarms.gauges() == {"disk": 0, "clock": 1}
    alarms.reset()
    assert (list(alarms), alarms.gauges()) == ([], {})


def test_an_alarm_with_names_holds_for_each_one(caplog: pytest.LogCaptureFixture) -> None:
    alarms, _ = make()
    with caplog.at_level(logging.WARNING, "onceward.alarms"):
        for _ in range(3):
            alarms.raise_("outbox", "a is broken", "a")
            alarms.raise_("outbox", "b is broken", "b")
        alarms.clear("outbox", "a")
        assert alarms.gauges() == {"outbox": 1}
        assert list(alarms) == [alarms.get("outbox")] == [Alarm("outbox", "b is broken", 1_000)]
        alarms.clear("outbox", "b")
    assert alarms.gauges() == {"outbox": 0}
    assert [record.getMessage() for record in caplog.records] == [
        "alarm outbox: a is broken",
        "alarm outbox: b is broken",
        "alarm outbox: cleared (a)",
        "alarm outbox: cleared (b)",
    ]


def test_each_change_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    alarms, _ = make()
    with caplog.at_level(logging.WARNING, "onceward.alarms"):
        alarms.clear("disk")
        for _ in range(3):
            alarms.raise_("disk", "the disk is slow")
        alarms.raise_("disk", "the disk is full")
        for _ in range(2):
            alarms.clear("disk")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("ERROR", "alarm disk: the disk is slow"),
        ("ERROR", "alarm disk: the disk is full"),
        ("WARNING", "alarm disk: cleared"),
    ]
