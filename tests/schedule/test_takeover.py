"""The sole owner of a database takes over at once from the process before it."""

import asyncio

from onceward.app import App
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


def working(apps: Apps, seen: list[int], hangs: bool) -> App:
    app = apps.make(name="app")

    @app.handler("orders", lease_s=600)
    async def order(job: Job) -> None:
        seen.append(job.attempt)
        if hangs:
            await asyncio.Event().wait()

    return app


@virtual
async def test_what_a_killed_process_was_at_work_on_starts_again_at_once() -> None:
    apps, seen = Apps(shared=False), list[int]()
    process = await apps.start(first := working(apps, seen, hangs=True))
    receipt = await first.send("orders", 1, key="k")
    await apps.sleep(1)
    process.kill()
    began_ns = apps.clock.elapsed_ns()
    async with working(apps, seen, hangs=False) as second:
        assert (await second.wait(receipt.id)).stage == "succeeded"
        assert apps.clock.elapsed_ns() - began_ns < 2e9
        assert seen == [1, 2]
        job = await second.job(receipt.id)
        assert job.history[0].reason == "the process of app/orders ended"
        assert second.node.takeover.taken == 1
    assert apps.problems == []


@virtual
async def test_a_lease_of_a_worker_elsewhere_stays_valid() -> None:
    apps, seen = Apps(shared=False), list[int]()
    process = await apps.start(first := apps.make(name="app"))
    await first.send("orders", 1, key="k")
    [claim] = await first.claim("orders", "app/orders", lease_s=600)
    process.kill()
    async with working(apps, seen, hangs=False) as second:
        await apps.sleep(60)
        assert (seen, second.node.takeover.taken) == ([], 0)
        await second.store.run(
            lambda tx: second.node.schedule.complete(tx, claim.id, claim.token, "done")
        )


@virtual
async def test_nobody_takes_over_where_others_may_use_the_database() -> None:
    apps, seen = Apps(shared=True), list[int]()
    process = await apps.start(first := working(apps, seen, hangs=True))
    await first.send("orders", 1, key="k")
    await apps.sleep(1)
    process.pause()
    async with working(apps, seen, hangs=False) as second:
        await apps.sleep(60)
        assert (seen, second.node.takeover.taken) == ([1], 0)
    process.kill()
