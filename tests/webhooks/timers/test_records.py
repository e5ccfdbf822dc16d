"""The records of timers: where they stand, what can be one, and when it is due first."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.errors import BadInput
from onceward.job_options import JobOptions
from onceward.recurrence import Cron, Interval
from onceward.webhooks.timers.records import (
    TIMER_DUE,
    WEBHOOKS,
    Call,
    Send,
    Spec,
    Target,
    Timer,
    View,
    Webhook,
    admit,
    admit_due,
    entry_in,
    first_ms,
    id_for,
    mark_of,
    timer_entry,
    timer_key,
    timer_partition,
    timer_slot,
)

NOW_MS = 1_000_000_000_000
HUNDRED_YEARS_MS = 100 * 366 * 86_400_000
URL = "https://a.example"
SPEC = Spec(Send("q"), due_ms=50)


def refused(message: str, call: Any, *args: Any, code: str = "bad_request") -> None:
    with pytest.raises(BadInput, match=message) as raised:
        call(*args)
    assert raised.value.code == code


def test_what_a_record_does_not_say_is_what_it_was_when_it_was_written() -> None:
    text = b'{"spec":{"target":{"type":"queue","queue":"q"}},"due_ms":5,"created_ms":1,"mark":"m"}'
    timer = msgspec.json.decode(text, type=Timer)
    spec = Spec(Send("q", None, JobOptions()), None, None, None, "all")
    assert timer == Timer(spec, 5, 1, "m", "active", 0, 0, "", 0)
    text = b'{"timer":"t","due_ms":5,"number":1,"call":{"type":"url"}}'
    call = Call("", "", {}, None, False, None)
    assert msgspec.json.decode(text, type=Webhook) == Webhook("t", 5, 1, call, "")


@pytest.mark.parametrize("target", [Send("q", {"a": 1}, JobOptions(attempts_max=3)), Call(url=URL)])
@pytest.mark.parametrize("state", ["active", "fired", "skipped", "cancelled", "ended"])
def test_a_timer_is_read_as_it_was_written(target: Target, state: Any) -> None:
    timer = Timer(Spec(target, due_ms=5), 5, 1, "m", state, 2, 3, "j", 4)
    assert msgspec.json.decode(msgspec.json.encode(timer), type=Timer) == timer
    said = {**msgspec.to_builtins(timer), "state": state}  # also where it need not be
    assert msgspec.convert(said, Timer) == timer


@pytest.mark.parametrize(
    "status", ["active", "firing", "success", "failed", "skipped", "cancelled", "ended"]
)
def test_a_timer_is_seen_in_one_of_these_ways(status: Any) -> None:
    view = View("t", "ann", Timer(SPEC, 50, 1, "m"), status)
    assert msgspec.json.decode(msgspec.json.encode(view), type=View) == view


def test_records_stand_where_they_always_stood() -> None:
    assert (TIMER_DUE, WEBHOOKS) == ("timer", "onceward.webhooks")
    assert timer_partition(7) == "timer#0000000000000007"
    assert timer_slot("ann", "daily#1", 64) == 27
    assert timer_key("ann", "daily#1", 64) == ("timer#0000000000000027", "ann#daily$231")
    timer = Timer(SPEC, 50, 1, "m", generation=2)
    sort = "0000000000000050#ann#daily$231#0000000000000002#timer"
    assert timer_entry("ann", "daily#1", timer, 64) == ("due#0027", sort)
    assert entry_in(3, "ann", "daily#1", timer) == ("due#0003", sort)


NAMES = st.characters(exclude_categories=["Cc", "Cs"])


@given(st.text(max_size=20), st.text(NAMES, min_size=1, max_size=20), st.integers(1, 4096))
def test_a_timer_waits_in_the_slot_where_it_stands(caller: str, id_: str, slots: int) -> None:
    slot = timer_slot(caller, id_, slots)
    assert 0 <= slot < slots
    assert timer_key(caller, id_, slots)[0] == timer_partition(slot)
    assert timer_entry(caller, id_, Timer(SPEC, 50, 1, "m"), slots)[0] == f"due#{slot:04d}"


def test_an_id_has_a_bounded_number_of_bytes() -> None:
    for id_ in ("t", "é" * 128, "#" * limits.TIMER_ID_BYTES_MAX):
        timer_key("", id_, 1)
    for id_ in ("", "é" * 128 + "x"):
        refused("a timer's id must have 1 to 256 bytes", timer_key, "", id_, 1, code="bad_name")
    refused("surrogates", timer_key, "", "\ud800", 1, code="bad_name")


@pytest.mark.parametrize("name", [None, 5, True, b"t", ["t"], {}])
def test_an_id_is_text(name: Any) -> None:
    refused("a timer's id must be text", timer_key, "ann", name, 1, code="bad_name")


def test_an_idempotency_key_leads_to_the_same_id_for_ever() -> None:
    assert id_for("ann", "k") == "59f30e4e9b0dafc4a5063609908dfb6a"
    assert id_for("", "k#1") == "f4205f2959afaaa17a6deaec7926b6a7"


def test_the_same_timer_has_the_same_mark_for_ever_in_whatever_order_it_was_said() -> None:
    marks = [
        mark_of(Spec(Call(url=URL, headers=headers), due_ms=5))
        for headers in ({"a": "2", "b": "1"}, {"b": "1", "a": "2"})
    ]
    assert marks == ["bf328492c52925b754d487ea7297124d"] * 2
    assert mark_of(Spec(Call(url=URL), due_ms=5)) != mark_of(Spec(Call(url=URL), due_ms=6))


def test_what_json_cannot_say_has_no_mark() -> None:
    message = r"the value for \('timer', 'spec'\) cannot be stored"
    refused(message, mark_of, Spec(Send("q", object()), due_ms=5), code="bad_value")


GOOD = [
    Spec(Send("q"), due_ms=0),
    Spec(Send("q"), delay_ms=0),
    Spec(Send("q"), delay_ms=HUNDRED_YEARS_MS),
    Spec(Send("q"), due_ms=NOW_MS + HUNDRED_YEARS_MS),
    Spec(Send("q", 1, JobOptions(order_key="order", limit_key="limit", priority=9)), delay_ms=1),
    Spec(Send("q", options=JobOptions(attempts_max=0)), delay_ms=1),
    Spec(Call(url=URL, attempts_max=3), delay_ms=1),
    Spec(Call(endpoint="e", attempts_max=0), delay_ms=1),
    Spec(Send("q"), repeat=Interval(1_000, 0)),
    Spec(Send("q"), due_ms=5, repeat=Cron("* * * * *")),
    Spec(Send("q"), delay_ms=5, repeat=Cron("* * * * *"), catch_up="none"),
]


@pytest.mark.parametrize("spec", GOOD)
def test_what_can_be_a_timer_is_let_in_and_can_be_read_again(spec: Spec) -> None:
    admit("ann", "t", spec, NOW_MS)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=Spec) == spec


LARGE = "x" * limits.BODY_BYTES_MAX
ANY: Any = object()
BAD = [
    (Send("no such name"), "a queue name"),
    (Send("q", options=JobOptions(order_key="")), "an order key must have"),
    (Send("q", options=JobOptions(limit_key="")), "a limit key must have"),
    (Send("q", options=JobOptions(priority=10)), "a priority must be"),
    (Send("q", options=JobOptions(attempts_max=-1)), "the number of attempts"),
    (Send("q", options=JobOptions(attempts_max=False)), "the number of attempts .* not False"),
    (Send("q", LARGE), "a job body must have"),
    (Send("q", ANY), "cannot be stored"),
    (Call(), "either a url or an endpoint"),
    (Call(url=URL, endpoint="e"), "either a url or an endpoint"),
    (Call(url=URL, attempts_max=-1), "the number of attempts"),
    (Call(url=URL, attempts_max=False), "the number of attempts .* not False"),
    (Call(url=URL, body=LARGE), "a job body must have"),
    (Call(url=URL, body=ANY), "cannot be stored"),
    (Call(url=ANY), "the url and endpoint of a timer must be text"),
    (Call(url=URL, endpoint=ANY), "the url and endpoint of a timer must be text"),
    (Call(endpoint=ANY), "the url and endpoint of a timer must be text"),
    (Call(url=URL, append_id=ANY), "append_id must be true or false, not <object"),
    (ANY, "a timer needs a `Send` or a `Call`, not object"),
]


@pytest.mark.parametrize(("target", "message"), BAD)
def test_what_could_not_be_sent_when_it_is_due_is_refused_at_once(
    target: Target, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        admit("ann", "t", Spec(target, delay_ms=1), NOW_MS)


def test_the_body_of_a_call_leaves_room_for_what_stands_around_it_in_a_job() -> None:
    most = limits.KEY_NUMBER_MAX
    around = Webhook("t", most, most, Call(url=URL, body=""), "ann")
    room = limits.BODY_BYTES_MAX - len(msgspec.json.encode(around))
    admit("ann", "t", Spec(Call(url=URL, body="x" * room), delay_ms=1), NOW_MS)
    for caller, id_, chars in (("ann", "t", room + 1), ("anna", "t", room), ("ann", "t2", room)):
        with pytest.raises(BadInput, match="a job body must have at most 350000 bytes"):
            admit(caller, id_, Spec(Call(url=URL, body="x" * chars), delay_ms=1), NOW_MS)


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({}, "needs a time, a delay or a repetition"),
        ({"due_ms": 1, "delay_ms": 1}, "either a time or a delay, not both 1 and 1 ms"),
        (
            {"due_ms": 1, "delay_ms": 1, "repeat": Cron("* * * * *")},
            "either a time or a delay, not both 1 and 1 ms",
        ),
        ({"due_ms": -1}, "must be due 0 to"),
        ({"due_ms": NOW_MS + HUNDRED_YEARS_MS + 1}, "must be due 0 to"),
        ({"due_ms": 1.0}, r"a whole number of milliseconds, not 1\.0"),
        ({"due_ms": True}, "a whole number of milliseconds, not True"),
        ({"delay_ms": -1}, "a delay must be a whole number of ms, 0 or more, not -1"),
        ({"delay_ms": HUNDRED_YEARS_MS + 1}, "must be due 0 to"),
        ({"delay_ms": 1.5}, r"a delay must be a whole number of ms, 0 or more, not 1\.5"),
        ({"delay_ms": True}, "a delay must be a whole number of ms, 0 or more, not True"),
        ({"delay_ms": "1"}, "a delay must be a whole number of ms, 0 or more, not '1'"),
        ({"repeat": Interval(1, 0)}, "an interval must have"),
        ({"due_ms": 1, "repeat": Cron("nonsense")}, "nonsense"),
        (
            {"delay_ms": 1, "catch_up": "some"},
            "catch_up must be one of all, last, none, not 'some'",
        ),
    ],
)
def test_a_time_that_cannot_be_is_refused(when: dict[str, Any], message: str) -> None:
    refused(message, admit, "ann", "t", Spec(Send("q"), **when), NOW_MS)


def test_a_time_is_at_most_a_hundred_years_ahead() -> None:
    for due_ms in (0, NOW_MS, NOW_MS + HUNDRED_YEARS_MS):
        admit_due(due_ms, NOW_MS)
    for due_ms in (-1, NOW_MS + HUNDRED_YEARS_MS + 1):
        refused(f"0 to {NOW_MS + HUNDRED_YEARS_MS} ms", admit_due, due_ms, NOW_MS)


@pytest.mark.parametrize(
    ("when", "first"),
    [
        ({"due_ms": 0}, 0),
        ({"due_ms": 7, "repeat": Interval(1_000, 0)}, 7),
        ({"delay_ms": 0}, 100_000),
        ({"delay_ms": 1}, 100_002),
        ({"delay_ms": 5, "repeat": Interval(1_000, 0)}, 100_006),
        ({"repeat": Interval(1_000, 0)}, 101_001),
        ({"repeat": Cron("* * * * *")}, 120_000),
    ],
)
def test_a_timer_is_due_first_when_it_says_and_a_delay_is_never_too_short(
    when: dict[str, Any], first: int
) -> None:
    assert first_ms(Spec(Send("q"), **when), 100_000, 100_001) == first


def test_what_never_comes_again_has_no_first_time() -> None:
    end_ms = limits.RECUR_END_MS
    spec = Spec(Send("q"), repeat=Cron("* * * * *"))
    refused("no future times", first_ms, spec, end_ms, end_ms)
    refused("no future times", first_ms, Spec(Send("q")), NOW_MS, NOW_MS)
