"""Whose failure an error is, and which of several counts."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onceward.errors import BadInput, Fail, InDoubt
from onceward.reasons import leaves, reason_of
from onceward.work.asleep import Asleep
from onceward.work.job import Job
from onceward.work.outcome import failures_of, principal, results_of

ASLEEP = Asleep("sleep 1", 5)
DOUBT = InDoubt("who knows")
ERROR = ValueError("no")


@pytest.mark.parametrize(
    ("errors", "counts"),
    [
        ([ASLEEP], ASLEEP),
        ([ASLEEP, ERROR], ERROR),
        ([ASLEEP, ERROR, DOUBT], DOUBT),
        ([ERROR, DOUBT], DOUBT),
        ([ERROR], ERROR),
    ],
)
def test_doubt_counts_for_most_and_sleep_for_least(
    errors: list[BaseException], counts: BaseException
) -> None:
    nested = BaseExceptionGroup("g", [BaseExceptionGroup("h", errors)])
    assert principal(nested) is counts
    assert list(leaves(nested)) == errors


def test_several_errors_count_together_and_all_say_why() -> None:
    group = ExceptionGroup("g", [ERROR, Fail("for good")])
    assert principal(group) is group
    assert reason_of(group) == "ValueError: no; for good"


def job(id_: str, failure: BaseException | None = None, raised: BaseException | None = None) -> Job:
    errors = [] if raised is None else [raised]
    return cast(Job, SimpleNamespace(id=id_, failure=failure, raised=errors))


def test_a_handler_that_returns_has_failed_for_those_it_said_so_of() -> None:
    assert failures_of([job("a"), job("b", raised=ERROR)], None) == {}
    assert failures_of([job("a"), job("b", ERROR)], None) == {"b": ERROR}


def test_what_the_step_of_a_job_has_raised_is_its_own_failure() -> None:
    jobs = [job("a"), job("b", raised=ERROR), job("c", raised=DOUBT)]
    assert failures_of(jobs, ERROR) == {"b": ERROR}
    assert failures_of(jobs, BaseExceptionGroup("g", [DOUBT, ERROR])) == {"b": ERROR, "c": DOUBT}
    assert failures_of([*jobs, job("d", ASLEEP)], ERROR) == {"b": ERROR, "d": ASLEEP}


def test_any_other_error_is_the_failure_of_all() -> None:
    jobs = [job("a"), job("b", raised=ERROR)]
    other = ValueError("no")
    assert failures_of(jobs, other) == {"a": other, "b": other}
    group = ExceptionGroup("g", [ERROR, other])
    assert failures_of(jobs, group) == {"a": group, "b": group}


def test_what_the_handler_has_said_of_a_job_counts_for_more_than_what_it_raised() -> None:
    jobs = [job("a", DOUBT), job("b", DOUBT, raised=ERROR), job("c")]
    assert failures_of(jobs, ERROR) == {"a": DOUBT, "b": DOUBT}
    other = ValueError("x")
    assert failures_of(jobs, other) == {"a": DOUBT, "b": DOUBT, "c": other}


@pytest.mark.parametrize(
    ("results", "each"), [(None, [None, None]), ([1, 2], [1, 2]), ((1, None), [1, None])]
)
def test_a_batch_has_a_result_for_each_job_or_none_at_all(results: Any, each: list[Any]) -> None:
    failures = {"a": ERROR}
    assert results_of([job("a"), job("b")], results, failures) == (failures, each)


@pytest.mark.parametrize("results", [[1], [1, 2, 3], [], 5, "ab", {"a": 1, "b": 2}, {1, 2}])
def test_other_results_are_a_failure_of_all_that_have_not_failed_before(results: Any) -> None:
    failures, each = results_of([job("a"), job("b")], results, {"a": ERROR})
    assert failures["a"] is ERROR
    assert isinstance(failures["b"], BadInput)
    assert "2 jobs" in failures["b"].message
    assert each == [None, None]
