"""Whose failure an error is, and which of several counts."""

import pytest

from onceward.errors import Fail, InDoubt
from onceward.service.job import Asleep
from onceward.service.outcome import leaves, principal, reason_of

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
