"""What operators do: settings, dead letters, redrive, purge, settle."""

import asyncio
from typing import Any

import pytest

from onceward.errors import BadInput, NoSuchJob, NotFailed
from onceward.schedule import Job as JobRecord
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@virtual
async def test_a_paused_queue_hands_out_nothing_until_it_is_resumed() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    done: list[int] = []

    @app.handler("q")
    async def work(job: Job) -> None:
        done.append(job.body)

    async with app:
        await app.queues.pause("q")
        ids = [(await app.send("q", n)).id for n in range(3)]
        await apps.sleep(100)
        assert done == []
        await app.queues.resume("q")
        for id_ in ids:
            assert (await app.wait(id_, 1)).state == "succeeded"


@virtual
async def test_what_is_at_work_goes_on_while_its_queue_is_paused() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def work(job: Job) -> str:
        await app.queues.pause("q")
        await apps.sleep(100)
        return "went on"

    async with app:
        assert (await app.wait((await app.send("q", None)).id)).result == "went on"


async def die(apps: Apps, count: int) -> list[str]:
    """Let jobs die, one after the other; their ids."""
    async with apps.make() as app:
        ids = [(await app.send("q", n, attempts_max=1)).id for n in range(count)]
        left = count
        while left:
            for claim in await app.claim("q", "w", lease_s=10, max=100):
                await app.fail(claim.id, claim.token, f"number {claim.body}")
                left -= 1
            await apps.sleep(0.01)
    return ids


@virtual
async def test_dead_letters_come_page_by_page() -> None:
    apps = Apps(shared=False)
    ids = await die(apps, 250)
    async with apps.make() as app:
        seen: list[str] = []
        letters = await app.queues.failed("q", limit=100)
        while letters:
            seen += [letter.id for letter in letters]
            letters = await app.queues.failed("q", after=letters[-1].place, limit=100)
        assert sorted(seen) == sorted(ids)
        assert len(await app.queues.failed("q", limit=1_000)) == 250
        assert await app.queues.failed("other") == []
        [first, *_] = await app.queues.failed("q")
        assert first.job.reason == f"number {first.job.body}"


@virtual
async def test_all_failed_jobs_can_be_redriven_or_those_chosen() -> None:
    apps = Apps(shared=False)
    await die(apps, 250)
    async with apps.make() as app:
        progress: list[int] = []

        def even(job: JobRecord) -> bool:
            return job.body % 2 == 0

        assert await app.queues.redrive("q", where=even, progress=progress.append) == 125
        assert progress[-1] == 125
        assert progress == sorted(progress)
        assert len(await app.queues.failed("q", limit=1_000)) == 125
        assert await app.queues.redrive("q") == 125
        assert await app.queues.redrive("q") == 0
    assert apps.problems == []


@virtual
async def test_what_others_redrive_or_forget_meanwhile_stops_nobody_who_redrives_all() -> None:
    apps = Apps()
    await die(apps, 4)
    async with apps.make() as app, apps.make() as other:
        await other.queues.configure("q", job_retention_s=0)
        _, redriven, forgotten, _ = await app.queues.failed("q")
        apps.engines[-2].latency_s = 0.01
        scanned = len(apps.engines[-2].scans)
        redriving = asyncio.create_task(app.queues.redrive("q"))
        while len(apps.engines[-2].scans) == scanned:
            await apps.sleep(0.001)
        await apps.sleep(0.01)
        await other.queues.retry(redriven.id)
        await other.cancel(forgotten.id)
        assert await redriving == 2
        assert await app.queues.failed("q") == []
    assert apps.problems == []


@virtual
async def test_what_dies_again_while_all_are_redriven_stays_failed() -> None:
    apps = Apps(shared=False)
    await die(apps, 100)
    app = apps.make()

    @app.handler("q")
    async def work(job: Job) -> None:
        raise ValueError("again")

    async with app:
        apps.engines[-1].latency_s = 0.01
        assert await app.queues.redrive("q") == 100
        await apps.sleep(10)
        assert len(await app.queues.failed("q", limit=1_000)) == 100


@virtual
async def test_purging_cancels_what_waits_and_nothing_else() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        at_work = (await app.send("q", "at work")).id
        [claim] = await app.claim("q", "w", lease_s=100)
        await app.queues.configure("q", limit_per_key=1)
        waiting = [(await app.send("q", n)).id for n in range(150)]
        waiting += [(await app.send("q", n, order_key="k")).id for n in range(20)]
        waiting += [(await app.send("q", n, limit_key="k")).id for n in range(20)]
        waiting += [(await app.send("q", n, delay_s=100)).id for n in range(20)]
        other = (await app.send("other", None)).id
        progress: list[int] = []
        assert await app.queues.purge("q", progress=progress.append) == len(waiting)
        assert {(await app.job(id_)).state for id_ in waiting} == {"cancelled"}
        assert progress[-1] == len(waiting)
        assert (await app.job(at_work)).state == "running"
        assert (await app.job(other)).state == "queued"
        await app.complete(claim.id, claim.token)
        assert await app.queues.purge("q") == 0
    assert apps.problems == []


@pytest.mark.parametrize(
    "settings",
    [{"limit": -1}, {"nonsense": 1}, {"rate": float("nan")}, {"paused": "yes"}, {"rate": object()}],
)
@virtual
async def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any]) -> None:
    async with Apps(shared=False).make() as app:
        with pytest.raises(BadInput):
            await app.queues.configure("q", **settings)


@virtual
async def test_what_is_not_there_or_not_so_is_refused() -> None:
    async with Apps(shared=False).make() as app:
        id_ = (await app.send("q", None)).id
        for call in (
            app.queues.configure("no such name", limit=1),
            app.queues.pause(""),
            app.queues.failed("no such name"),
            app.queues.failed("q", limit=0),
            app.queues.redrive("no such name"),
            app.queues.purge("no such name"),
        ):
            with pytest.raises(BadInput):
                await call
        with pytest.raises(NoSuchJob):
            await app.queues.retry("nonsense")
        with pytest.raises(NotFailed):
            await app.queues.retry(id_)
        with pytest.raises(NotFailed):
            await app.queues.settle(id_, "step", done=True)
        with pytest.raises(NoSuchJob):
            await app.queues.settle("nonsense", "step", done=True)
        for _ in range(2):
            await app.cancel(id_)


@virtual
async def test_settings_hold_at_once_also_where_another_node_has_made_the_same() -> None:
    apps = Apps(deaf=True)
    async with apps.make() as one, apps.make() as other:
        await one.queues.configure("q", attempts_max=1)
        await other.queues.configure("q", attempts_max=1)  # which it had not heard of
        id_ = (await other.send("q", 1)).id
        assert (await other.job(id_)).attempts_max == 1
