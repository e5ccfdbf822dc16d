"""A lease renews itself while a handler runs; once it is lost, nothing more is committed."""

import asyncio
import gc
import weakref
from functools import partial
from typing import Any

import pytest

from onceward.engine.base import Put
from onceward.errors import StaleToken
from onceward.work.attempt import Attempt
from onceward.work.job import Job
from onceward.work.lease import Lease
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

EFFECT = ("effect", "x")


@virtual
async def test_a_handler_may_take_far_longer_than_its_lease() -> None:
    apps = Apps()
    app, other = apps.make(), apps.make()
    attempts: list[int] = []

    @app.handler("q", lease_s=3)
    async def work(job: Job) -> str:
        attempts.append(job.attempt)
        await apps.sleep(600)
        return "in the end"

    async with app, other:
        job = await app.wait((await app.send("q", None)).id)
    assert (job.result, attempts) == ("in the end", [1])
    assert apps.problems == []


@virtual
async def test_a_lease_is_renewed_when_a_third_of_it_has_passed() -> None:
    apps = Apps()
    app = apps.make()

    @app.handler("q", lease_s=30)
    async def work(job: Job) -> None:
        await apps.sleep(95)

    async with app:
        await app.wait((await app.send("q", None)).id)
    puts = [write.key for commit in apps.commits for write in commit if type(write) is Put]
    assert len([key for key in puts if key[0].startswith("job#") and "#lease" in key[1]]) == 9


@virtual
async def test_a_handler_whose_job_was_cancelled_is_ended_at_the_next_renewal() -> None:
    apps = Apps()
    app = apps.make()
    ended: list[float] = []

    @app.handler("q", lease_s=30)
    async def work(job: Job) -> None:
        job.tx.put(EFFECT, 1)
        try:
            await apps.sleep(1_000)
        finally:
            ended.append(apps.loop.time())

    async with app:
        id_ = (await app.send("q", None)).id
        await apps.sleep(5)
        await app.cancel(id_, "no longer wanted")
        await apps.sleep(20)
        assert (await app.job(id_)).state == "cancelled"
    assert ended == [pytest.approx(10, abs=0.1)]
    assert apps.value(EFFECT) is None


@pytest.mark.parametrize("trouble", ["cut off", "hanging"])
@virtual
async def test_a_handler_that_cannot_renew_is_ended_when_its_lease_is_over(trouble: str) -> None:
    apps = Apps()
    app, other = apps.make(), apps.make()
    ended: list[float] = []
    begun = asyncio.Event()

    @app.handler("q", lease_s=30)
    async def work(job: Job) -> str:
        begun.set()
        job.tx.put(EFFECT, "late")
        try:
            await apps.sleep(1_000)
        finally:
            ended.append(apps.loop.time())
        return "late"

    await apps.start(app)
    id_ = (await app.send("q", None)).id
    await begun.wait()
    begun_s = apps.loop.time()

    @other.handler("q")
    async def take_over(job: Job) -> str:
        job.tx.put(EFFECT, "taken over")
        return "taken over"

    async with other:
        if trouble == "cut off":
            apps.engines[0].cut_off = True
        else:
            apps.engines[0].hang()
        job = await other.wait(id_)
        assert (job.result, job.attempt) == ("taken over", 2)
        assert ended == [pytest.approx(begun_s + 30, abs=0.1)], "neither sooner nor later"
    assert apps.value(EFFECT) == "taken over"
    assert len(apps.commits_of(EFFECT)) == 1


@virtual
async def test_a_renewal_that_failed_is_tried_again_before_the_lease_is_over() -> None:
    apps = Apps()
    app = apps.make()

    @app.handler("q", lease_s=30)
    async def work(job: Job) -> int:
        await apps.sleep(100)
        return job.attempt

    async with app:
        id_ = (await app.send("q", None)).id
        await apps.sleep(9)
        apps.engines[0].cut_off = True
        await apps.sleep(15)
        apps.engines[0].cut_off = False
        assert (await app.wait(id_)).result == 1


@virtual
async def test_a_worker_that_was_stopped_for_longer_than_its_lease_commits_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    apps = Apps()
    app, other = apps.make(node_lease_s=2), apps.make(node_lease_s=2)
    acted: list[str] = []
    begun = asyncio.Event()

    async def work(job: Job, who: str) -> str:
        await job.step("first", acted.append, f"first by {who}")
        if who == "app":
            begun.set()
            await apps.sleep(1)
        await job.step("second", acted.append, f"second by {who}")
        job.tx.put(EFFECT, who)
        return who

    app.handler("q", lease_s=5)(partial(work, who="app"))
    other.handler("q", lease_s=5)(partial(work, who="other"))
    process = await apps.start(app)
    id_ = (await app.send("q", None)).id
    await begun.wait()
    process.pause()
    await apps.start(other)
    await apps.sleep(20)
    assert (await other.job(id_)).state == "succeeded"
    process.resume()
    await apps.sleep(20)
    job = await other.job(id_)
    assert (job.result, job.attempt) == ("other", 2)
    assert acted == ["first by app", "second by other"], "who was stopped does not act any more"
    assert apps.value(EFFECT) == "other"
    assert len(apps.commits_of(EFFECT)) == 1
    lost: Any = [one for one in caplog.records if "lost its lease" in one.getMessage()]
    assert [(one.job_id, one.queue, one.attempt) for one in lost] == [(id_, "q", 1)]
    await other.stop()


@virtual
async def test_a_lease_knows_by_its_own_clock_when_it_is_over() -> None:
    apps = Apps()
    lost: list[float] = []
    async with apps.make() as app:
        await app.send("q", None)
        [claim] = await app.claim("q", "w", lease_s=5)
        lease = Lease(
            app.store, app.node.schedule, claim, 5_000, lambda: lost.append(apps.loop.time())
        )
        begun_s = apps.loop.time()
        await apps.sleep(60)
        lease.insist()
        assert not lease.over
        apps.engines[0].hang()
        await apps.sleep(6)
        assert lease.over
        assert lease.lost
        with pytest.raises(StaleToken, match="has ended"):
            lease.insist()
        assert len(lost) == 1
        assert lost[0] < begun_s + 66
        apps.engines[0].free.set()
        await apps.sleep(10)
        assert (await app.job(claim.id)).state in ("retrying", "queued")


@virtual
async def test_a_lease_that_is_closed_is_neither_renewed_nor_lost() -> None:
    apps = Apps()
    lost: list[Any] = []
    async with apps.make() as app:
        await app.send("q", None)
        [claim] = await app.claim("q", "w", lease_s=5)
        lease = Lease(app.store, app.node.schedule, claim, 5_000, lambda: lost.append(1))
        lease.close()
        lease.close()
        await apps.sleep(20)
        assert lost == []
        assert "ran out" in (await app.job(claim.id)).reason


@virtual
async def test_nothing_of_an_attempt_that_is_over_is_left_to_the_garbage_collector() -> None:
    apps = Apps()
    app = apps.make()
    attempts: list[weakref.ref[Attempt]] = []

    @app.handler("q")
    async def work(job: Job) -> None:
        [worker] = app._workers.all
        attempts.extend(map(weakref.ref, worker.running.values()))

    gc.disable()
    try:
        async with app:
            await app.wait((await app.send("q", None)).id)
            await apps.sleep(1)
            assert [attempt() for attempt in attempts] == [None]
    finally:
        gc.enable()


@virtual
async def test_a_bug_in_renewing_does_not_keep_a_handler_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    apps = Apps()
    lost: list[float] = []
    async with apps.make() as app:
        await app.send("q", None)
        [claim] = await app.claim("q", "w", lease_s=5)

        async def fails(*args: Any) -> int:
            raise KeyError("a bug")

        app.node.schedule.extend = fails  # type: ignore[method-assign]
        Lease(app.store, app.node.schedule, claim, 5_000, lambda: lost.append(apps.loop.time()))
        begun_s = apps.loop.time()
        await apps.sleep(20)
    assert lost == [pytest.approx(begun_s + 5, abs=0.1)]
    assert "a bug" in caplog.text
