"""Mistakes planted in the rate limiter are found by its model."""

from collections.abc import Callable
from random import Random

import pytest

from onceward.rate_limits import part
from onceward.rate_limits.records import Bucket, Limit
from tests.rate_limits.buckets import Step, follow


def _not_refilled(bucket: Bucket | None, limit: Limit, now_ms: int) -> int:
    return limit.burst if bucket is None else bucket.microtokens


def _starts_empty(bucket: Bucket | None, limit: Limit, now_ms: int) -> int:
    if bucket is None:
        return 0
    return bucket.microtokens + (now_ms - bucket.at_ms) * limit.rate // 1_000


def _rounded_down(microtokens: int, limit: Limit) -> int:
    return microtokens * 1_000 // limit.rate


def _never_full(microtokens: int, limit: Limit) -> int:
    return -(-microtokens * 1_000 // limit.rate) + 1


PLANTED: list[tuple[str, Callable[..., int]]] = [
    ("_level", _not_refilled),
    ("_level", _starts_empty),
    ("_refill_ms", _rounded_down),
    ("_refill_ms", _never_full),
]


async def judge() -> None:
    """Follow some random courses. Raises AssertionError."""
    random = Random(1)
    for _ in range(30):
        steps: list[Step] = [
            ("take", random.randrange(6))
            if random.random() < 0.6
            else ("pass", random.randrange(3_000))
            for _ in range(20)
        ]
        await follow(random.randrange(1, 5_000), random.randrange(5, 10), steps)


async def test_without_a_mistake_nothing_is_found() -> None:
    await judge()


@pytest.mark.parametrize(
    ("name", "mistake"), PLANTED, ids=lambda one: getattr(one, "__name__", one)
)
async def test_a_planted_mistake_is_found_by_the_model(
    name: str, mistake: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, name, mistake)
    with pytest.raises(AssertionError):
        await judge()
