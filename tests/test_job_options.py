"""Job options: declared once, checked once, the same as keywords and as a struct."""

from typing import Any

import msgspec
import pytest

from onceward import limits
from onceward.api.arguments import as_tuple
from onceward.api.jobs import ClaimedJob, Job, JobSummary
from onceward.api.messages import Message
from onceward.api.timers import CreateTimer, Timer
from onceward.errors import BadInput
from onceward.job_options import (
    NO_OPTIONS,
    OPTION_NAMES,
    JobKeywords,
    JobOptions,
    JobOptionsView,
    OptionAttributes,
    RequestedOptions,
    admit_options,
    given_options,
    job_options,
)
from onceward.schedule import Claim
from onceward.schedule import Job as JobRecord


def refused(message: str, code: str, admit: Any, *args: Any) -> None:
    with pytest.raises(BadInput, match=message) as raised:
        admit(*args)
    assert raised.value.code == code


def test_keywords_and_struct_declare_the_same_options() -> None:
    assert list(JobKeywords.__annotations__) == list(JobOptions.__struct_fields__)


def test_handlers_have_every_option_as_an_attribute() -> None:
    declared = {name for name, one in vars(OptionAttributes).items() if isinstance(one, property)}
    assert declared | {"attempts_max"} == OPTION_NAMES
    options = JobOptions(priority=3, order_key="o", limit_key="l", tags=("t",))
    for holder in (JobRecord("q", 1, "", 0, 0, options), Claim("1", "q", 1, 1, "t", 0, options)):
        for name in declared:
            assert getattr(holder, name) == getattr(options, name)


def test_every_request_and_response_about_a_job_has_its_options() -> None:
    for request in (Message, CreateTimer):
        assert issubclass(request, RequestedOptions)
    for response in (Job, JobSummary, ClaimedJob):
        assert issubclass(response, JobOptionsView)
    assert issubclass(Timer, JobOptions)


def test_given_options_of_a_request_include_given_defaults() -> None:
    message = msgspec.json.decode(b'{"body": 1, "priority": 5, "order_key": null}', type=Message)
    assert given_options(message) == {"priority": 5}
    assert given_options(msgspec.json.decode(b'{"body": 1}', type=Message)) == {}


def test_options_that_are_not_specified_take_no_room_in_a_record() -> None:
    class Record(msgspec.Struct, omit_defaults=True):
        options: JobOptions = NO_OPTIONS

    nothing = job_options({"order_key": None, "priority": None, "body": 1})
    assert nothing is NO_OPTIONS
    assert msgspec.json.encode(Record(nothing)) == b"{}"
    assert msgspec.json.decode(b"{}", type=Record).options is NO_OPTIONS
    assert job_options({"priority": 0, "attempts_max": 0}) == JobOptions(priority=0, attempts_max=0)


def test_given_options_are_those_that_differ_from_their_defaults() -> None:
    assert given_options(NO_OPTIONS) == given_options(JobOptions(priority=5)) == {}
    every: dict[str, Any] = {"order_key": "o", "limit_key": "l", "priority": 0, "attempts_max": 0}
    every["tags"] = ("t",)
    assert given_options(JobOptions(**every)) == every


def test_a_job_with_an_order_or_limit_key_shares_records_with_others() -> None:
    assert JobOptions(order_key="o").shared
    assert JobOptions(limit_key="l").shared
    assert not JobOptions(priority=1, attempts_max=1).shared


def test_a_priority_is_whole_and_within_its_bounds() -> None:
    for priority in (0, 9):
        admit_options(JobOptions(priority=priority))
    for wrong in (-1, 10, 0.0, 9.0, True, "9", None):
        options = JobOptions(priority=wrong)  # type: ignore[arg-type]
        refused(r"a priority must be 0 \(first\) to 9", "bad_request", admit_options, options)


def test_tags_are_a_list_of_different_short_texts() -> None:
    for tags in ([], ["a"], ("b", "a"), ["é" * 32, "x" * 64, "#/ ,"], list("abcdefghij")):
        options = job_options({"tags": tags})
        admit_options(options)
        assert options.tags == tuple(tags), "in the order given"
    for wrong in ("", "red", b"red", 5, True, {}, {"red"}, {"red": 1}, iter(["red"])):
        refused(
            "tags must be a list",
            "bad_request",
            admit_options,
            job_options({"tags": wrong}),
        )
    refused("use \\['red'\\]", "bad_request", admit_options, job_options({"tags": "red"}))
    eleven = job_options({"tags": list("abcdefghijk")})
    refused("at most 10 tags, not 11", "bad_request", admit_options, eleven)
    refused(
        "'a' is given twice", "bad_request", admit_options, job_options({"tags": ["a", "b", "a"]})
    )
    for tag in ("", "x" * 65, "é" * 33, "a\n", "\x00", "\ud800", None, 5, ["a"]):
        refused("a tag ", "bad_name", admit_options, job_options({"tags": ["ok", tag]}))


def test_a_job_without_tags_stores_nothing_for_them() -> None:
    for tags in ([], ()):
        assert msgspec.json.encode(job_options({"priority": 1, "tags": tags})) == b'{"priority":1}'
    stored = msgspec.json.encode(job_options({"tags": ["b", "a"]}))
    assert stored == b'{"tags":["b","a"]}'
    assert msgspec.json.decode(stored, type=JobOptions).tags == ("b", "a")


def test_a_client_sends_no_tags_if_none_are_given() -> None:
    # An older server would reject the member.
    assert msgspec.json.encode(Message(body=1, tags=as_tuple("tags", ()))) == b'{"body":1}'
    assert b"tags" not in msgspec.json.encode(CreateTimer(tags=as_tuple("tags", [])))


def test_there_may_be_any_number_of_attempts() -> None:
    for attempts_max in (0, 1, 1 << 70):
        admit_options(JobOptions(attempts_max=attempts_max))
    for wrong in (-1, 0.0, 1.5, True, "1"):
        options = JobOptions(attempts_max=wrong)  # type: ignore[arg-type]
        refused("attempts must be 1 or more, or 0", "bad_request", admit_options, options)


@pytest.mark.parametrize(("name", "what"), [("order_key", "an order"), ("limit_key", "a limit")])
def test_a_key_that_spreads_jobs_has_a_bounded_number_of_bytes(name: str, what: str) -> None:
    for key in (None, "k", "#", "é" * 128, "x" * limits.ORDER_KEY_BYTES_MAX):
        admit_options(job_options({name: key}))
    for key in ("", "é" * 128 + "x"):
        refused(
            f"{what} key must have 1 to 256 bytes",
            "bad_key",
            admit_options,
            job_options({name: key}),
        )
    for key, message in ((7, f"{what} key must be text, not int"), ("\ud800", "surrogates")):
        refused(message, "bad_key", admit_options, job_options({name: key}))
