"""The records of the schedule: where they stand, what is let in, and what is kept of long texts."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.api.jobs import State
from onceward.errors import BadInput, NoSuchJob
from onceward.job_options import JobOptions
from onceward.schedule import records
from onceward.schedule.records import (
    STAGES,
    Accepted,
    Attempt,
    Claim,
    Dedupe,
    Effect,
    Gate,
    Intent,
    Job,
    Order,
    admit_id,
    admit_job,
    admit_lease,
    admit_queue,
    admit_reason,
    admit_time,
    admit_worker,
    latest,
    slot_of,
    state_of,
)

ID = "0123456789abcdefghjkmnpqrs"
JOB = f"{ID}4d2"


def refused(message: str, code: str, admit: Any, *args: Any, **named: Any) -> None:
    with pytest.raises(BadInput, match=message) as raised:
        admit(*args, **named)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ('["step","charge"]', Effect("step", "charge", "")),
        ('{"id":"j","fingerprint":"f"}', Accepted("j", "f", "", 0)),
        (
            '{"queue":"q","body":1,"stage":"due","created_ms":7}',
            Job(
                queue="q",
                body=1,
                stage="due",
                created_ms=7,
                due_ms=0,
                options=JobOptions(order_key=None, limit_key=None, priority=5, attempts_max=None),
                attempts_max=0,
                place="",
                attempt=0,
                token="",
                worker="",
                reason="",
                gated=False,
                permit=None,
                dedupe=None,
                result=None,
                ended_ms=0,
                history=[],
                stepped=False,
                cut_off=False,
                caller="",
                ended_by="",
                cause=None,
                effects=[],
            ),
        ),
        ("{}", Intent(0, False)),
        ('{"head":"j"}', Order("j", 0, 0)),
        ("{}", Gate(0, 0, 0)),
        (
            '{"id":"j","queue":"q","body":1,"attempt":2,"token":"t","lease_until_ms":3}',
            Claim(
                id="j",
                queue="q",
                body=1,
                attempt=2,
                token="t",
                lease_until_ms=3,
                options=JobOptions(),
                due_ms=0,
                created_ms=0,
                reason="",
                stepped=False,
                suspect=False,
                dedupe=None,
            ),
        ),
    ],
)
def test_what_a_record_does_not_say_is_what_it_was_when_it_was_written(
    text: str, record: Any
) -> None:
    assert msgspec.json.decode(text, type=type(record)) == record


@pytest.mark.parametrize(
    ("stage", "state", "after_a_failure"),
    [
        ("blocked", "queued", "queued"),
        ("due", "scheduled", "retrying"),
        ("parked", "queued", "queued"),
        ("ready", "queued", "queued"),
        ("running", "running", "running"),
        ("succeeded", "succeeded", "succeeded"),
        ("failed", "failed", "failed"),
        ("in_doubt", "in_doubt", "in_doubt"),
        ("cancelled", "cancelled", "cancelled"),
    ],
)
def test_every_stage_has_a_public_state(stage: str, state: str, after_a_failure: str) -> None:
    assert stage in STAGES
    assert {state, after_a_failure} <= set(get_args(State))
    assert (state_of(stage, 0), state_of(stage, 1)) == (state, after_a_failure)
    assert Job("q", None, stage, 0, attempt=1).state == after_a_failure


def test_records_stand_where_they_always_stood() -> None:
    assert records.job_key(JOB) == ("job#1234", f"{JOB}#job")
    assert records.lease_key(JOB) == ("job#1234", f"{JOB}#lease")
    assert records.steps_key(JOB) == ("job#1234", f"{JOB}#steps")
    assert records.job_partition(7) == "job#0007"
    assert records.due_partition(7) == "due#0007"
    assert records.ready_partition(7, "mail") == "ready#0007#mail"
    assert records.order_head_key(7, "mail", "a#b") == ("order#0007", "mail#a$23b")
    assert records.line_partition(7, "mail", "a#b") == "line#0007#mail#a$23b"
    assert records.gate_key("mail", "ann") == ("limit#3d", "mail#ann")
    assert records.gate_key("mail", "a#b") == ("limit#e6", "mail#a$23b")
    assert records.parked_partition("mail", "a#b") == "parked#mail#a$23b"
    assert records.permit_partition("mail") == "permit#mail"
    assert records.permit_key("mail", 3) == ("permit#mail", "0000000000000003")
    assert records.rate_key("mail") == ("rate", "mail")
    assert records.failed_partition("mail") == "failed#mail"
    assert (records.JOB_DUE, records.LEASE_DUE) == ("job", "lease")


@given(st.integers(0, 4095), st.from_regex(r"[A-Za-z0-9._:-]{1,128}", fullmatch=True))
def test_a_slot_is_found_again_in_an_id_and_in_a_partition(slot: int, queue: str) -> None:
    assert slot_of(f"{ID}{slot:03x}") == slot
    assert records.slot_of_ready(records.ready_partition(slot, queue)) == slot


@pytest.mark.parametrize(
    "id_",
    ["", ID, f"{ID}00", f"{ID}0000", f"{ID}00g", f"{ID}-01", f"{ID}0_1", f"{ID[:-1]}é001", 5, None],
)
def test_what_is_no_id_of_a_job_is_in_no_slot(id_: Any) -> None:
    refused("is not a job id", "no_such_job", slot_of, id_)


@pytest.mark.parametrize("id_", [None, 5, True, b"x", ["x"], {}, {"x"}])
def test_what_is_no_text_is_no_id(id_: Any) -> None:
    refused("is not a job id", "no_such_job", admit_id, id_)
    admit_id("")  # text: whether it is one is found out where it is looked up


@pytest.mark.parametrize("reason", [None, 5, b"x", ["x"], {}])
def test_a_reason_is_text(reason: Any) -> None:
    told = f"a reason must be text, not {type(reason).__name__}"
    refused(told, "bad_request", admit_reason, reason)
    admit_reason("")


def test_of_what_is_no_id_only_the_beginning_is_told() -> None:
    with pytest.raises(NoSuchJob) as raised:
        slot_of("0" * 1_000_000)
    assert raised.value.details == {"id": "0" * 100}


@pytest.mark.parametrize(
    ("sort", "number"),
    [
        ("0000000000000050#x#job", 50),
        ("9999999999999999", 9_999_999_999_999_999),
        ("", 0),
        ("soon", 0),
    ],
)
def test_a_sort_key_says_when_it_is_due_or_how_urgent_it_is(sort: str, number: int) -> None:
    assert records.due_ms_of(sort) == number
    assert records.priority_of(sort) == number


def test_the_key_of_a_duplicate_is_told_as_it_was_sent_if_it_is_there() -> None:
    assert Dedupe("inbox#00#q", "ann#order$2317", "f").key == "order#17"
    assert Dedupe("inbox#00#q", "!0123abcd", "f").key is None


@pytest.mark.parametrize("queue", ["q", "0", "AZaz09._:-", "x" * limits.QUEUE_CHARS_MAX])
def test_letters_digits_and_some_signs_make_the_name_of_a_queue(queue: str) -> None:
    admit_queue(queue)
    admit_job(queue, None)


@pytest.mark.parametrize(
    "queue", ["", "x" * (limits.QUEUE_CHARS_MAX + 1), "a b", "a#b", "é", "q\n", 5, None, ["q"]]
)
def test_nothing_else_is_the_name_of_a_queue(queue: Any) -> None:
    refused("a queue name must have 1 to 128 letters", "bad_name", admit_queue, queue)
    refused("a queue name must have 1 to 128 letters", "bad_name", admit_job, queue, None)


def test_a_worker_has_a_name_of_a_bounded_length() -> None:
    for worker in ("w", "é" * limits.WORKER_CHARS_MAX, "a worker #1"):
        admit_worker(worker)
    for worker in ("", "w" * (limits.WORKER_CHARS_MAX + 1)):
        refused("1 to 256 characters", "bad_request", admit_worker, worker)


@pytest.mark.parametrize(("worker", "message"), [(7, "text, not int"), ("\ud800", "surrogates")])
def test_what_no_record_can_hold_is_no_name_of_a_worker(worker: Any, message: str) -> None:
    refused(message, "bad_key", admit_worker, worker)


@pytest.mark.parametrize(
    ("admit", "least", "most", "message"),
    [
        (admit_lease, 1, limits.LEASE_MS_MAX, "a lease must last 1 to"),
        (admit_time, 0, limits.KEY_NUMBER_MAX, "a time must be 0 to"),
        (lambda n: admit_job("q", 1, due_ms=n), 0, limits.KEY_NUMBER_MAX, "a time must be 0 to"),
    ],
)
def test_numbers_are_whole_and_within_their_bounds(
    admit: Any, least: int, most: int, message: str
) -> None:
    for number in (least, most):
        admit(number)
    for wrong in (least - 1, most + 1, float(least), float(most), True, str(most), None):
        refused(message, "bad_request", admit, wrong)


def test_a_body_has_a_bounded_number_of_bytes_as_json() -> None:
    admit_job("q", "x" * (limits.BODY_BYTES_MAX - 2))
    large = "x" * (limits.BODY_BYTES_MAX - 1)
    refused("at most 350000 bytes", "value_too_large", admit_job, "q", large)


@pytest.mark.parametrize("body", [float("nan"), [float("inf")], object()])
def test_a_body_that_json_cannot_say_is_refused(body: Any) -> None:
    refused(r"the value for \('q', 'body'\)", "bad_value", admit_job, "q", body)


def failed(number: int, size_bytes: int = 0) -> Attempt:
    """An attempt that failed, of a size in bytes as JSON."""
    empty_bytes = len(msgspec.json.encode(Attempt(number, 0, "w", "")))
    return Attempt(number, 0, "w", "x" * (size_bytes - empty_bytes))


def test_the_last_attempts_of_a_history_are_kept_in_their_order() -> None:
    assert latest([]) == []
    few = [failed(number) for number in range(3)]
    assert latest(few) == few
    many = [failed(number) for number in range(limits.HISTORY_MAX + 2)]
    assert latest(many) == many[2:]


def test_as_many_attempts_are_kept_as_there_is_room_for() -> None:
    history = [failed(number, limits.HISTORY_BYTES_MAX // 4) for number in range(6)]
    assert latest(history) == history[2:]
    history[2] = failed(2, limits.HISTORY_BYTES_MAX // 4 + 1)
    assert latest(history) == history[3:]
    history[5] = failed(5, limits.HISTORY_BYTES_MAX + 1)
    assert latest(history) == []
