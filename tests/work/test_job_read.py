"""Reads that are recorded like steps: load, call, save."""

import asyncio
from typing import Any

import msgspec
import pytest

from onceward import limits
from onceward.errors import Retry
from onceward.keys import Key
from onceward.work.job import Job
from onceward.work.sync_job import SyncJob
from tests.schedule.cluster import virtual
from tests.work.apps import Apps
from tests.work.one_job import run_one

ORDER: Key = ("order", "17")


class Order(msgspec.Struct):
    total: int
    receipt: str = ""


async def put(app: Any, value: Any, key: Key = ORDER) -> None:
    async def write(tx: Any) -> None:
        tx.put(key, value)

    await app.run(write)


@virtual
@pytest.mark.parametrize("plain", [False, True])
async def test_load_call_save(plain: bool) -> None:
    apps = Apps(shared=False)
    app = apps.make()
    charged: list[int] = []

    def charge(total: int) -> str:
        charged.append(total)
        return f"receipt {total}"

    async def bill(job: Job) -> list[Any]:
        order = await job.read(ORDER, Order)
        assert order is not None
        receipt = await job.step("charge", charge, order.total)
        if job.attempt == 1:
            await put(app, {"total": 99, "note": "changed"})
            raise Retry("again", after_s=1)
        again = await job.read(ORDER)
        current = await job.tx.get(ORDER)
        job.tx.put(ORDER, {**current, "receipt": receipt})
        return [order.total, again["total"], current["total"]]

    def bill_plain(job: SyncJob) -> list[Any]:
        order = job.read(ORDER, Order)
        assert order is not None
        receipt = job.step("charge", charge, order.total)
        if job.attempt == 1:
            job.call(put, app, {"total": 99, "note": "changed"})
            raise Retry("again", after_s=1)
        again = job.read(ORDER)
        current = job.tx.get(ORDER)
        job.tx.put(ORDER, {**current, "receipt": receipt})
        return [order.total, again["total"], current["total"]]

    app.handler("q")(bill_plain if plain else bill)  # type: ignore[arg-type]
    async with app:
        await put(app, {"total": 7})
        id_ = (await app.send("q", None)).id
        job = await app.wait(id_)
    assert job.result == [7, 7, 99], job.reason
    assert charged == [7]
    assert apps.value(ORDER) == {"total": 99, "note": "changed", "receipt": "receipt 7"}
    assert [(effect.kind, effect.name) for effect in job.effects] == [
        ("step", "charge"),
        ("record", "order 17"),
    ]
    assert apps.problems == []


@virtual
async def test_a_conflict_and_concurrent_reads_see_one_value() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    runs: list[Any] = []

    @app.handler("q")
    async def work(job: Job) -> None:
        values = await asyncio.gather(*[job.read(ORDER) for _ in range(3)])
        counter = await job.tx.get(("n", "n")) or 0
        runs.append(values)
        if len(runs) == 1:
            await put(app, 2)
            await put(app, 10, ("n", "n"))
        job.tx.put(("n", "n"), counter + 1)

    async with app:
        await put(app, 1)
        assert (await app.wait((await app.send("q", None)).id)).state == "succeeded"
    assert runs == [[1, 1, 1], [1, 1, 1]]
    assert apps.value(("n", "n")) == 11


@virtual
async def test_a_missing_record_stays_missing_for_later_attempts() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def work(job: Job) -> Any:
        found = await job.read(ORDER, Order)
        if job.attempt == 1:
            await put(app, {"total": 7})
            raise Retry("again", after_s=1)
        return found

    async with app:
        job = await app.wait((await app.send("q", None)).id)
    assert (job.state, job.result) == ("succeeded", None)


async def after_tx(job: Job) -> None:
    await job.tx.get(ORDER)
    await job.read(ORDER)


async def bad_key(job: Job) -> None:
    await job.read("order/17")  # type: ignore[call-overload]


async def no_partition(job: Job) -> None:
    await job.read(("", "17"))


async def name_of_a_step(job: Job) -> None:
    await job.step("read order#17", str)
    await job.read(ORDER)


async def step_of_that_name(job: Job) -> None:
    await job.read(ORDER)
    await job.step("read order#17", str)


@virtual
@pytest.mark.parametrize(
    ("fn", "reason", "attempts"),
    [
        (after_tx, "job.read(('order', '17')) comes after the first use of job.tx", 1),
        (bad_key, "a key must be a partition and a sort key", 2),
        (no_partition, "a partition must have 1 to", 2),
        (name_of_a_step, "rename it", 2),
        (step_of_that_name, "two steps have the name 'read order#17'", 2),
    ],
)
async def test_wrong_uses_are_refused(fn: Any, reason: str, attempts: int) -> None:
    job = await run_one(fn, attempts_max=2, retry_first_s=1)
    assert (job.state, job.attempt) == ("failed", attempts)
    assert reason in job.reason


@virtual
async def test_a_record_of_another_type_fails_the_attempt() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", attempts_max=1)
    async def work(job: Job) -> Any:
        return await job.read(ORDER, Order)

    async with app:
        await put(app, ["not", "an", "order"])
        job = await app.wait((await app.send("q", None)).id)
    assert "the record ('order', '17') is not valid" in job.reason


@virtual
async def test_keys_of_any_length_can_be_read() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    keys: list[Key] = [("p" * 500, sort * 400) for sort in "ab"]

    @app.handler("q")
    async def work(job: Job) -> Any:
        return [await job.read(key) for key in keys]

    async with app:
        for n, key in enumerate(keys):
            await put(app, n, key)
        job = await app.wait((await app.send("q", None)).id)
    assert job.result == [0, 1], job.reason
    assert limits.STEP_BYTES_MAX < 500


@virtual
async def test_only_the_job_of_a_batch_that_used_tx_too_early_fails() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", batch=10)
    async def work(jobs: list[Job]) -> None:
        for job in jobs:
            if job.body == 1:
                job.tx.put(ORDER, 1)
        for job in jobs:
            await job.step("call", str)

    async with app:
        ids = [(await app.send("q", n)).id for n in range(3)]
        states = [(await app.wait(id_)).state for id_ in ids]
    assert states == ["succeeded", "failed", "succeeded"]
