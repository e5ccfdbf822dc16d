"""Rate limits: a bucket never gives more than it has, and is refilled at its rate."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.app import App
from onceward.engine.base import Record
from onceward.errors import BadInput, Unavailable
from onceward.rate_limits import Bucket, RateLimits, Taken, bucket_key
from onceward.rate_limits.invariants import RULES
from onceward.store.transaction import Transaction
from onceward.work.job import Job
from tests.rate_limits.buckets import Step, follow, opened
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 5)),
        st.tuples(st.just("pass"), st.integers(0, 3_000)),
        st.tuples(st.just("reset"), st.just(0)),
    )
)


async def test_a_burst_is_allowed_and_then_the_rate() -> None:
    buckets = await opened()
    limit = {"rate": 2, "burst": 3}
    found = [await buckets.take("a", **limit) for _ in range(4)]
    assert found[0] == Taken(True, 2.0, 0.0)
    assert [one.allowed for one in found] == [True, True, True, False]
    assert found[3] == Taken(False, 0.0, 0.5)
    assert (await buckets.take("b", 3, **limit)).allowed  # a bucket of its own
    buckets.clock.at_ms += 499
    assert (await buckets.take("a", **limit)).retry_after_s == 0.001
    buckets.clock.at_ms += 1
    assert await buckets.take("a", **limit) == Taken(True, 0.0, 0.0)
    assert buckets.problems() == []


async def test_a_refused_take_takes_nothing() -> None:
    buckets = await opened()
    assert await buckets.take("a", 3, rate=1, burst=5)
    assert await buckets.take("a", 4, rate=1, burst=5) == Taken(False, 2.0, 2.0)
    assert await buckets.take("a", 2, rate=1, burst=5)


async def test_zero_tokens_show_the_bucket() -> None:
    buckets = await opened()
    assert await buckets.take("a", 0, rate=1, burst=5) == Taken(True, 5.0, 0.0)
    assert await buckets.store.run(lambda tx: tx.has(bucket_key("a"))) is False
    await buckets.take("a", 5, rate=1, burst=5)
    assert await buckets.take("a", 0, rate=1, burst=5) == Taken(True, 0.0, 0.0)


async def test_a_reset_fills_the_bucket() -> None:
    buckets = await opened()
    await buckets.take("a", 5, rate=1, burst=5)
    for _ in range(2):
        await buckets.reset("a")
    assert (await buckets.take("a", 0, rate=1, burst=5)).remaining == 5.0


async def test_the_record_expires_when_the_bucket_is_full() -> None:
    buckets = await opened()
    await buckets.take("a", 5, rate=2, burst=10)
    for passed_ms, there in ((2_499, True), (1, False)):
        buckets.clock.at_ms += passed_ms
        assert await buckets.store.run(lambda tx: tx.has(bucket_key("a"))) is there
    assert (await buckets.take("a", 0, rate=2, burst=10)).remaining == 10.0


async def test_after_a_change_of_the_limit_missing_tokens_stay_missing() -> None:
    buckets = await opened()
    await buckets.take("a", 10, rate=1, burst=10)
    assert (await buckets.take("a", 0, rate=100, burst=50)).remaining == 0.0
    buckets.clock.at_ms += 1_000
    assert (await buckets.take("a", 0, rate=30, burst=20)).remaining == 20.0
    assert (await buckets.take("a", 0, rate=5, burst=20)).remaining == 5.0


async def test_a_node_whose_clock_is_behind_takes_nothing_back() -> None:
    ahead = await opened()
    behind = await opened(ahead.engine.memory)
    ahead.clock.at_ms += 60_000
    await ahead.take("a", 4, rate=1, burst=5)
    assert (await behind.take("a", 0, rate=1, burst=5)).remaining == 1.0


async def test_clocks_that_differ_add_no_tokens() -> None:
    ahead = await opened()
    behind = await opened(ahead.engine.memory)
    ahead.clock.at_ms += 60_000
    taken = [bool(await one.take("a", rate=1, burst=5)) for one in (ahead, behind) * 10]
    assert sum(taken) == 5


async def test_a_failed_transaction_takes_no_tokens() -> None:
    buckets = await opened()

    async def fails(tx: Transaction) -> None:
        assert await buckets.limits.take(tx, "a", 5, rate=1, burst=5)
        assert not await buckets.limits.take(tx, "a", rate=1, burst=5)  # it sees its own take
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        await buckets.store.run(fails)
    assert (await buckets.take("a", 0, rate=1, burst=5)).remaining == 5.0


@given(st.integers(1, 20_000), st.integers(5, 50), STEPS)
def test_buckets_agree_with_a_model(rate_milli: int, burst: int, steps: list[Step]) -> None:
    asyncio.run(follow(rate_milli, burst, steps))


@given(
    st.floats(1e-6, 1e6),
    st.integers(5, 1_000),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 10_000))),
)
def test_no_rate_gives_more_than_it_allows(
    rate: float, burst: int, steps: list[tuple[int, int]]
) -> None:
    asyncio.run(_within(rate, burst, steps))


async def _within(rate: float, burst: int, steps: list[tuple[int, int]]) -> None:
    buckets = await opened()
    given_, began_ms = 0, buckets.clock.at_ms
    for tokens, passed_ms in steps:
        buckets.clock.at_ms += passed_ms
        taken = await buckets.take("a", tokens, rate=rate, burst=burst)
        given_ += tokens if taken else 0
        most = burst + rate * (1 + 1e-9) * (buckets.clock.at_ms - began_ms) / 1_000
        assert given_ <= most + 1e-3
        if not taken and taken.retry_after_s < 1e9:
            buckets.clock.at_ms += round(taken.retry_after_s * 1_000)
            assert await buckets.take("a", tokens, rate=rate, burst=burst)
            given_ += tokens


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"key": ""}, "bad_key"),
        ({"key": "é" * 129}, "bad_key"),
        ({"key": 7}, "bad_key"),
        ({"key": "\ud800"}, "bad_key"),
        ({"tokens": -1}, "bad_request"),
        ({"tokens": 1.5}, "bad_request"),
        ({"tokens": True}, "bad_request"),
        ({"tokens": 11}, "bad_request"),
        ({"rate": 0}, "bad_request"),
        ({"rate": -1.0}, "bad_request"),
        ({"rate": float("nan")}, "bad_request"),
        ({"rate": float("inf")}, "bad_request"),
        ({"rate": 10**400}, "bad_request"),
        ({"rate": "1"}, "bad_request"),
        ({"rate": True}, "bad_request"),
        ({"rate": 1e-7}, "bad_request"),
        ({"rate": 1e-6, "burst": 10_000}, "bad_request"),
        ({"burst": 0}, "bad_request"),
        ({"burst": 2.5}, "bad_request"),
        ({"burst": 10**11}, "bad_request"),
    ],
)
async def test_bad_input_is_rejected_and_writes_nothing(changes: dict[str, Any], code: str) -> None:
    buckets = await opened()
    asked: dict[str, Any] = {"key": "a", "tokens": 1, "rate": 1, "burst": 10, **changes}
    with pytest.raises(BadInput) as caught:
        await buckets.take(**asked)
    assert caught.value.code == code
    assert await buckets.store.run(lambda tx: tx.has(bucket_key("a"))) is False


async def test_what_is_no_transaction_is_rejected() -> None:
    for method in (RateLimits().take, RateLimits().reset):
        with pytest.raises(BadInput, match="`tx`"):
            await method("tx", "a", rate=1, burst=1)  # type: ignore[call-arg, arg-type]


def test_the_check_finds_what_cannot_be_a_bucket() -> None:
    [rule] = RULES
    key = bucket_key("a")
    wrong = [
        (key, b'{"microtokens":-1,"at_ms":1}', 2),
        (key, b'{"microtokens":100000000000000000,"at_ms":1}', 2),
        (key, b"7", 2),
        (key, b'{"microtokens":1,"at_ms":1}', None),
        (key, b'{"microtokens":1,"at_ms":1}', 1),
        (("bucket#xx", "a"), b'{"microtokens":1,"at_ms":1}', 2),
        ((key[0], "a#b"), b'{"microtokens":1,"at_ms":1}', 2),
    ]
    for place, value, expires_at_ms in wrong:
        record = Record(place, value, 1, expires_at_ms)
        assert len(list(rule.judge(record, {}.get))) == 1, (place, value)
    right = Record(key, b'{"microtokens":1,"at_ms":1}', 1, 2)
    assert list(rule.judge(right, {}.get)) == []
    assert Bucket(1, 1) == Bucket(1, 1)


@virtual
async def test_the_tokens_of_a_job_are_taken_once_however_often_it_crashes() -> None:
    apps = Apps()
    attempts: list[int] = []

    def declared() -> App:
        app = apps.make(node_lease_s=1)

        @app.handler("sms", lease_s=2)
        async def send(job: Job) -> float:
            taken = await app.limits.take(job.tx, "sms", rate=0.001, burst=3)
            attempts.append(job.attempt)
            if len(attempts) < 3:
                await apps.sleep(10_000)  # until it is killed
            return taken.remaining

        return app

    app = declared()
    process = await apps.start(app)
    receipt = await app.send("sms", {}, key="k")
    for seen in (1, 2):
        while len(attempts) < seen:
            await apps.sleep(0.1)
        process.kill()
        app = declared()
        process = await apps.start(app)
    job = await app.wait(receipt.id, 100)
    assert (attempts, job.result) == ([1, 2, 3], pytest.approx(2.0, abs=0.1))
    await app.stop()


async def test_an_application_has_its_limits_while_it_runs() -> None:
    app = App("memory://")
    with pytest.raises(Unavailable, match="not running"):
        _ = app.limits
    async with app:
        assert await app.run(lambda tx: app.limits.take(tx, "a", rate=1, burst=1))
        assert not await app.run(lambda tx: app.limits.take(tx, "a", rate=1, burst=1))
