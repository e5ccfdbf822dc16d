"""Retry policies say when a call that failed is attempted again."""

from typing import Any

import pytest

from onceward import limits
from onceward.errors import BadInput
from onceward.webhooks.retries import (
    ATTEMPTS,
    PAUSES_S,
    RetryPolicy,
    admit_policy,
    pauses_of,
    read_policy,
)


def test_what_a_policy_leaves_open_comes_from_the_one_behind_it() -> None:
    server = RetryPolicy((5_000, 30_000), 9, 15_000)
    assert RetryPolicy().over(server) == server
    assert RetryPolicy().over(None) == RetryPolicy()
    own = RetryPolicy(timeout_ms=1_000).over(RetryPolicy((100,))).over(server)
    assert own == RetryPolicy((100,), 2, 1_000)
    assert RetryPolicy((100,), 0).over(server).attempts == 0


def test_the_last_pause_repeats_and_all_of_them_vary() -> None:
    policy = RetryPolicy((1_000, 10_000), 5)
    assert [policy.pause_s(attempt, 0.5) for attempt in (1, 2, 3, 4)] == [1.0, 10.0, 10.0, 10.0]
    assert policy.pause_s(1, 0.0) == pytest.approx(0.8)
    assert policy.pause_s(1, 1.0) == pytest.approx(1.2)
    assert RetryPolicy((), 1).pause_s(1, 0.5) == limits.RETRY_PAUSE_MS_MIN / 1_000


def test_attempts_end_with_the_last_one_unless_there_is_no_limit() -> None:
    policy = RetryPolicy((1_000, 1_000))
    assert [policy.is_last(attempt) for attempt in (1, 2, 3, 4)] == [False, False, True, True]
    assert not RetryPolicy((1_000,), 0).is_last(10_000)
    assert RetryPolicy(()).is_last(1)


def test_by_default_attempts_last_most_of_a_day() -> None:
    assert 17 * 3_600 < sum(PAUSES_S) < 24 * 3_600
    admit_policy(RetryPolicy(pauses_of(PAUSES_S), ATTEMPTS))


def test_a_policy_is_given_in_seconds() -> None:
    assert read_policy(None) is None
    given = {"pauses_s": [0.1, 60], "attempts_max": 7, "timeout_s": 2.5}
    assert read_policy(given) == RetryPolicy((100, 60_000), 7, 2_500)
    assert read_policy(RetryPolicy((100,))) == RetryPolicy((100,))


@pytest.mark.parametrize(
    "retry",
    [
        "5,30",
        {"pauses": [5]},
        {"pauses_s": "5"},
        {"pauses_s": [0]},
        {"pauses_s": [0.01]},
        {"pauses_s": [86_401]},
        {"pauses_s": [5] * 33},
        {"pauses_s": [None]},
        {"pauses_s": [], "attempts_max": 2},
        {"attempts_max": -1},
        {"attempts_max": True},
        {"attempts_max": 1_001},
        {"timeout_s": 0},
        {"timeout_s": 121},
        {"timeout_s": float("nan")},
        RetryPolicy(pauses_ms=[5]),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_policy_is_refused(retry: Any) -> None:
    with pytest.raises(BadInput):
        read_policy(retry)
