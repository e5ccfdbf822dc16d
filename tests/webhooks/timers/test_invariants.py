"""The check of a database finds timers whose records do not agree."""

from typing import Any

import msgspec
import pytest

from onceward.engine.base import Record
from onceward.keys import Key
from onceward.webhooks.timers.invariants import RULES

TIMER: Key = ("timer#0000000000000003", "ann#daily")
ENTRY: Key = ("due#0003", "0000000000000050#ann#daily#0000000000000002#timer")


def timer(**changes: Any) -> dict[str, Any]:
    spec = {"target": {"type": "queue", "queue": "q"}, "due_ms": 50}
    sound = {"spec": spec, "due_ms": 50, "created_ms": 1, "mark": "m", "generation": 2}
    return {**sound, **changes}


def problems(values: dict[Key, Any]) -> list[str]:
    """What the rules say of these records."""
    records = {key: Record(key, msgspec.json.encode(value), 1) for key, value in values.items()}
    return [
        problem
        for key, record in records.items()
        for rule in RULES
        if rule.kind == key[0].partition("#")[0]
        for problem in rule.judge(record, records.get)
    ]


def test_an_active_timer_and_its_entry_agree() -> None:
    assert problems({TIMER: timer(), ENTRY: "timer"}) == []


@pytest.mark.parametrize("state", ["fired", "skipped", "cancelled", "ended"])
def test_one_that_is_over_has_no_entry(state: str) -> None:
    assert problems({TIMER: timer(state=state)}) == []
    [problem] = problems({TIMER: timer(state=state), ENTRY: "timer"})
    assert problem == f"timer 'daily' has another due entry: it is {state}"


def test_an_active_timer_without_an_entry_is_found() -> None:
    [problem] = problems({TIMER: timer()})
    assert problem == f"the timer is active but its due entry {ENTRY[0]}/{ENTRY[1]} is missing"


@pytest.mark.parametrize("changes", [{"due_ms": 51}, {"generation": 1}])
def test_an_entry_for_another_time_or_change_is_found(changes: Any) -> None:
    missing, other = sorted(problems({TIMER: timer(**changes), ENTRY: "timer"}))
    assert other.startswith("timer 'daily' has another due entry: it is active")
    assert missing.startswith("the timer is active but its due entry due#0003/")


def test_an_entry_of_another_slot_is_found() -> None:
    entry = ("due#0004", ENTRY[1])
    found = problems({TIMER: timer(), ENTRY: "timer", entry: "timer"})
    assert found == ["timer 'daily' does not exist"]


@pytest.mark.parametrize("key", [("timer#0000000000000003", "bob#daily"), None])
def test_an_entry_without_its_timer_is_found(key: Key | None) -> None:
    others = {} if key is None else {key: timer(state="ended")}
    assert problems({**others, ENTRY: "timer"}) == ["timer 'daily' does not exist"]


def test_a_record_that_is_something_else_is_found() -> None:
    assert problems({TIMER: 5}) == ["not a timer"]
    assert problems({TIMER: timer(), ENTRY: "timer"} | {TIMER: 5}) == [
        "not a timer",
        "timer 'daily' does not exist",
    ]


@pytest.mark.parametrize(
    "sort",
    [
        "0000000000000050#ann#daily#0000000000000002#job",
        "0000000000000050#daily#timer",
        "0000000000000050#ann#daily#x#0000000000000002#timer",
    ],
)
def test_entries_of_others_are_none_of_its_business(sort: str) -> None:
    assert problems({("due#0003", sort): 1}) == []


def test_names_are_read_as_they_were_written() -> None:
    key = ("timer#0000000000000003", "a$23b#c$24d")
    entry = ("due#0003", "0000000000000050#a$23b#c$24d#0000000000000002#timer")
    assert problems({key: timer(), entry: "timer"}) == []
    assert problems({entry: "timer"}) == ["timer 'c$d' does not exist"]
