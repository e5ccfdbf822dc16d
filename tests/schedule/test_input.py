"""What cannot be: refused with an error that says why, and nothing changed."""

from typing import Any

import pytest

from onceward import limits
from onceward.errors import BadInput, NoSuchJob
from tests.quick import START_MS
from tests.schedule.jobs import all_records, new_jobs


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ({"queue": ""}, "bad_name", "a queue name must have 1 to 128 letters"),
        ({"queue": "x" * 129}, "bad_name", "a queue name"),
        ({"queue": "a b"}, "bad_name", "not 'a b'"),
        ({"queue": "a#b"}, "bad_name", "not 'a#b'"),
        ({"queue": "grün"}, "bad_name", "not 'grün'"),
        ({"queue": "a\n"}, "bad_name", "a queue name"),
        ({"priority": -1}, "bad_request", r"0 \(first\) to 9, not -1"),
        ({"priority": 10}, "bad_request", r"0 \(first\) to 9, not 10"),
        ({"due_ms": -1}, "bad_request", "a time must be 0 to"),
        ({"due_ms": 10**16}, "bad_request", "a time must be 0 to"),
        ({"due_ms": 1.5}, "bad_request", "whole ms since 1970, not 1.5"),
        ({"due_ms": "1"}, "bad_request", "not '1'"),
        ({"priority": 1.0}, "bad_request", "not 1.0"),
        ({"priority": True}, "bad_request", "not True"),
        ({"attempts_max": 1.5}, "bad_request", "not 1.5"),
        ({"order_key": 7}, "bad_key", "an order key must be text, not int"),
        ({"limit_key": b"x"}, "bad_key", "a limit key must be text, not bytes"),
        ({"order_key": ""}, "bad_key", "an order key must have 1 to 256 bytes, not 0"),
        ({"order_key": "ü" * 129}, "bad_key", "not 258"),
        ({"order_key": "\ud800"}, "bad_key", "lone surrogates"),
        ({"attempts_max": -1}, "bad_request", "attempts must be 1 or more, or 0"),
        ({"body": float("nan")}, "bad_value", "not JSON"),
        ({"body": {"x": [float("inf")]}}, "bad_value", "not JSON"),
        ({"body": object()}, "bad_value", "cannot be stored"),
        ({"body": "x" * limits.BODY_BYTES_MAX}, "value_too_large", "at most 350000 bytes"),
    ],
)
async def test_a_job_that_cannot_be_is_refused(
    options: dict[str, Any], code: str, says: str
) -> None:
    jobs = await new_jobs()
    with pytest.raises(BadInput, match=says) as raised:
        await jobs.send(**options)
    assert raised.value.code == code
    assert all_records(jobs.engine) == {}


async def test_every_valid_name_makes_a_queue() -> None:
    jobs = await new_jobs()
    for queue in ("q", "x" * 128, "a.b_c:d-e", "0"):
        await jobs.send(queue=queue)
        assert await jobs.claim(queue) is not None


@pytest.mark.parametrize("lease_ms", [0, -1, limits.LEASE_MS_MAX + 1, 1.5])
async def test_a_lease_that_cannot_be_is_refused(lease_ms: Any) -> None:
    jobs = await new_jobs()
    await jobs.send()
    with pytest.raises(BadInput, match=f"not {lease_ms}"):
        await jobs.claim(lease_ms=lease_ms)
    claim = await jobs.claimed()
    with pytest.raises(BadInput, match=f"not {lease_ms}"):
        await jobs.extend(claim, lease_ms)


@pytest.mark.parametrize("worker", ["", "w" * 257, "\ud800", 7])
async def test_a_worker_without_a_proper_name_gets_nothing(worker: Any) -> None:
    jobs = await new_jobs()
    await jobs.send()
    with pytest.raises(
        BadInput, match=r"1 to 256 characters|lone surrogates|must be text, not int"
    ):
        await jobs.claim(worker=worker)
    assert len(await jobs.ready()) == 1


async def test_a_retry_at_an_impossible_time_is_refused() -> None:
    jobs = await new_jobs()
    await jobs.send()
    claim = await jobs.claimed()
    with pytest.raises(BadInput, match="a time must be 0 to"):
        await jobs.fail(claim, -1)
    await jobs.complete(claim)


@pytest.mark.parametrize(
    "id_",
    [
        "",
        "x",
        "0" * 26,
        "0" * 26 + "000",
        "0" * 26 + "xyz",
        "0" * 26 + "-01",
        "0" * 26 + "0_1",
        "0" * 28 + "ü",
        "0" * 1_000_000,
        "../../../etc/passwd",
    ],
)
async def test_an_unknown_id_is_no_job_whatever_it_looks_like(id_: str) -> None:
    jobs = await new_jobs()
    schedule, store = jobs.schedule, jobs.store
    calls = [
        lambda tx: schedule.get(tx, id_),
        lambda tx: schedule.complete(tx, id_, "token"),
        lambda tx: schedule.fail(tx, id_, "token", "why", START_MS),
        lambda tx: schedule.extend(tx, id_, "token", 1_000),
        lambda tx: schedule.release(tx, id_, "token"),
    ]
    for call in calls:
        with pytest.raises(NoSuchJob) as raised:
            await store.run(call)
        assert raised.value.code == "no_such_job"
        assert len(str(raised.value)) < 200
