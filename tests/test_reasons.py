"""Reasons, as text that can be stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.errors import Fail
from onceward.reasons import leaves, reason_of, reason_text


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("", ""),
        ("it broke", "it broke"),
        ("x" * 2_001, "x" * 2_000),
        ("é" * 1_501, "é" * 1_500),
        ("x" + "é" * 1_501, "x" + "é" * 1_499),  # never half a character
        ("a\ud800b", "a\\ud800b"),
    ],
)
def test_a_reason_is_kept_as_far_as_a_record_can_hold_it(reason: str, kept: str) -> None:
    assert reason_text(reason) == kept


@given(st.text(st.characters(codec=None), max_size=3_000))
def test_any_reason_can_be_kept(reason: str) -> None:
    kept = reason_text(reason)
    assert len(kept.encode()) <= limits.REASON_BYTES_MAX
    assert reason_text(kept) == kept


def test_a_group_of_errors_gives_the_reason_of_each_of_them() -> None:
    errors = [ValueError("no"), Fail("for good")]
    nested = ExceptionGroup("g", [ExceptionGroup("h", errors)])
    assert list(leaves(nested)) == errors
    assert reason_of(nested) == "ValueError: no; for good"


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not this either")


def test_every_error_says_something_that_can_be_stored() -> None:
    assert reason_of(Mute()) == "Mute (its message cannot be read)"
    assert reason_of(ValueError("a\ud800b")) == "ValueError: a\\ud800b"
