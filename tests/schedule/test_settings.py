"""The settings of queues: what counts where nothing is said, what can be meant, and pauses."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.api.queues import QueueSettings
from onceward.errors import BadInput
from onceward.schedule.settings import (
    DEFAULT,
    admit_settings,
    default_settings,
    retry_pause_ms,
    settings_key,
)

DAY_MS = 86_400_000


def test_what_a_record_does_not_say_is_what_it_was_when_it_was_written() -> None:
    assert msgspec.to_builtins(msgspec.json.decode(b"{}", type=QueueSettings)) == {}
    assert {name: getattr(DEFAULT, name) for name in QueueSettings.__struct_fields__} == {
        "paused": False,
        "limit": 0,
        "limit_per_key": 0,
        "rate": 0.0,
        "attempts_max": 5,
        "retry_first_ms": 1_000,
        "retry_max_ms": 3_600_000,
        "failed_blocks": False,
        "failure_queue": "",
        "key_fields": (),
        "fingerprint": None,
        "mismatch": "reject",
        "key_retention_ms": 7 * DAY_MS,
        "job_retention_ms": 7 * DAY_MS,
        "depth_max": 0,
        "fair": False,
        "internal": False,
        "remote_work": False,
    }


def test_every_queue_has_the_default_until_someone_says_otherwise() -> None:
    assert default_settings("q") is DEFAULT
    admit_settings(DEFAULT)


def test_settings_stand_under_the_name_of_their_queue() -> None:
    assert settings_key("mail") == ("queue", "mail")
    assert settings_key("mail#1") == ("queue", "mail$231")


WEEK_MS = 7 * DAY_MS
HUNDRED_YEARS_MS = 100 * 366 * DAY_MS


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("limit", 0, limits.QUEUE_LIMIT_MAX),
        ("limit_per_key", 0, limits.QUEUE_LIMIT_MAX),
        ("rate", 0, limits.QUEUE_RATE_MAX),
        ("attempts_max", 0, limits.KEY_NUMBER_MAX),
        ("key_retention_ms", 0, HUNDRED_YEARS_MS),
        ("job_retention_ms", 0, HUNDRED_YEARS_MS),
        ("retry_first_ms", 1, DEFAULT.retry_max_ms),
        ("retry_max_ms", DEFAULT.retry_first_ms, WEEK_MS),
    ],
)
def test_numbers_have_bounds(name: str, least: int, most: int) -> None:
    for value in (least, least + 1, most - 1, most):
        admit_settings(msgspec.structs.replace(DEFAULT, **{name: value}))
    for value in (least - 1, most + 1):
        with pytest.raises(BadInput, match=f"{name.removesuffix('_ms')} .*{value}"):
            admit_settings(msgspec.structs.replace(DEFAULT, **{name: value}))


@pytest.mark.parametrize("name", ["key_retention_ms", "job_retention_ms"])
def test_what_has_ended_may_be_kept_for_ever(name: str) -> None:
    admit_settings(msgspec.structs.replace(DEFAULT, **{name: None}))


def test_a_rate_is_none_or_one_that_can_be_counted_with() -> None:
    admit_settings(QueueSettings(rate=limits.QUEUE_RATE_MIN))
    admit_settings(QueueSettings(rate=0.5))
    for rate in (limits.QUEUE_RATE_MIN * 0.999, 5e-324, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="rate must be"):
            admit_settings(QueueSettings(rate=rate))


@pytest.mark.parametrize(
    ("options", "admitted"),
    [
        ({"retry_first_ms": 1, "retry_max_ms": 1}, True),
        ({"retry_first_ms": WEEK_MS, "retry_max_ms": WEEK_MS}, True),
        ({"retry_first_ms": 2, "retry_max_ms": 1}, False),
        ({"retry_first_ms": 0, "retry_max_ms": 0}, False),
    ],
)
def test_the_longest_pause_is_not_shorter_than_the_first(options: Any, admitted: bool) -> None:
    if admitted:
        admit_settings(QueueSettings(**options))
    else:
        with pytest.raises(BadInput, match="at most retry_max"):
            admit_settings(QueueSettings(**options))


@pytest.mark.parametrize(
    ("attempt", "least_ms", "most_ms"),
    [
        (0, 500, 1_000),
        (1, 500, 1_000),
        (2, 1_000, 2_000),
        (3, 2_000, 4_000),
        (12, 1_024_000, 2_048_000),
        (13, 1_800_000, 3_600_000),
        (10**9, 1_800_000, 3_600_000),
    ],
)
def test_pauses_double_up_to_the_longest_and_spread_over_their_second_half(
    attempt: int, least_ms: int, most_ms: int
) -> None:
    assert retry_pause_ms(DEFAULT, attempt, 0.0) == least_ms
    assert retry_pause_ms(DEFAULT, attempt, 0.5) == (least_ms + most_ms) // 2
    assert retry_pause_ms(DEFAULT, attempt, 1.0) == most_ms


@given(
    st.integers(1, WEEK_MS),
    st.integers(1, WEEK_MS),
    st.integers(1, 100),
    st.floats(0, 1, exclude_max=True),
)
def test_a_pause_is_never_longer_than_the_longest_nor_shorter_than_half(
    first_ms: int, max_ms: int, attempt: int, fraction: float
) -> None:
    settings = QueueSettings(retry_first_ms=min(first_ms, max_ms), retry_max_ms=max_ms)
    whole_ms = min(settings.retry_first_ms * 2 ** (attempt - 1), max_ms)
    assert whole_ms // 2 <= retry_pause_ms(settings, attempt, fraction) <= whole_ms


def test_an_odd_pause_is_spread_over_its_larger_half() -> None:
    settings = QueueSettings(retry_first_ms=5, retry_max_ms=5)
    pauses = {retry_pause_ms(settings, 1, hundredth / 100) for hundredth in range(101)}
    assert pauses == {2, 3, 4, 5}
