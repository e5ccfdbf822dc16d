"""Whoever may bring the process down runs alone: nobody dies for another's crash."""

import asyncio

import pytest

from onceward import limits
from onceward.app import App
from onceward.testing.clock import Process
from onceward.work.job import Job
from onceward.work.quarantine import Quarantine
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@pytest.mark.parametrize("batch", [0, 8])
@virtual
async def test_poison_that_kills_its_process_takes_nobody_with_it(batch: int) -> None:
    apps = Apps()
    attempts: dict[str, list[int]] = {}
    processes: list[Process] = []

    def declared() -> App:
        app = apps.make(node_lease_s=1)

        async def handle(job: Job) -> None:
            attempts.setdefault(job.body, []).append(job.attempt)
            if job.body == "poison":
                await apps.sleep(0.1)
                processes[-1].kill()
            await apps.sleep(1)

        async def handle_all(jobs: list[Job]) -> None:
            async with asyncio.TaskGroup() as group:
                for job in jobs:
                    group.create_task(handle(job))

        app.handler("q", lease_s=2, attempts_max=3, concurrency=16, batch=batch)(
            handle_all if batch else handle
        )
        return app

    async with apps.make() as sender:
        ids = {"poison": (await sender.send("q", "poison", attempts_max=3)).id}
        for name in "abcdefg":
            ids[name] = (await sender.send("q", name, attempts_max=3)).id
        for _ in range(8):
            app = declared()
            processes.append(apps.loop.process(f"victim{len(processes)}"))
            await processes[-1].spawn(app.start())
            await apps.sleep(15)
        jobs = {name: await sender.job(id_) for name, id_ in ids.items()}
        failed = await sender.queues.failed("q")
        assert [letter.job.body for letter in failed] == ["poison"]
    assert (jobs["poison"].state, jobs["poison"].attempt) == ("failed", 3)
    assert attempts["poison"] == [1, 2, 3]
    assert {jobs[name].state for name in "abcdefg"} == {"succeeded"}
    assert apps.problems == []


@virtual
async def test_a_suspect_waits_for_those_at_work_and_others_wait_for_it() -> None:
    apps = Apps()
    app = apps.make()
    seen: list[str] = []

    async def work(job: Job) -> None:
        seen.append(f"{job.body} begins")
        await apps.sleep(2)
        seen.append(f"{job.body} ends")

    app.handler("q", lease_s=30)(work)
    app.handler("other")(work)
    async with apps.make() as sender:
        await sender.send("q", "suspect", attempts_max=2)
        await sender.claim("q", "w", lease_s=0.5)
        first = (await sender.send("other", "first")).id
        await app.start()
        await sender.queues.pause("q")
        await apps.sleep(1)
        await sender.queues.resume("q")
        await apps.sleep(0.5)
        last = (await sender.send("other", "last")).id
        for id_ in (first, last):
            assert (await sender.wait(id_)).state == "succeeded"
        await app.stop()
    assert seen == [
        *("first begins", "first ends", "suspect begins"),
        *("suspect ends", "last begins", "last ends"),
    ]


@virtual
async def test_neither_waits_for_ever() -> None:
    apps, quarantine = Apps(), Quarantine()
    quarantine.begun()
    quarantine.begun()
    quarantine.close("suspect")
    await quarantine.alone(lambda: False)
    assert apps.loop.time() == limits.ALONE_S
    assert quarantine.closed
    opened = asyncio.Event()
    quarantine.on_open(opened.set)
    await opened.wait()
    assert apps.loop.time() == 2 * limits.ALONE_S
    quarantine.open("suspect")
    quarantine.close("another")
    quarantine.open("suspect")
    assert quarantine.closed, "who has left cannot open for another"


@virtual
async def test_who_must_hurry_does_not_wait() -> None:
    apps, quarantine = Apps(), Quarantine()
    hurry = False
    quarantine.begun()
    quarantine.begun()
    quarantine.close("suspect")
    waiting = asyncio.create_task(quarantine.alone(lambda: hurry))
    await apps.sleep(1)
    assert not waiting.done()
    hurry = True
    quarantine.look()
    await waiting
    assert apps.loop.time() == 1


@virtual
async def test_a_worker_that_stops_does_not_wait_for_its_suspects() -> None:
    apps = Apps(shared=False)
    app = apps.make(drain_s=1)
    began: list[str] = []

    @app.handler("q", attempts_max=2, lease_s=2)
    async def work(job: Job) -> None:
        began.append(job.body)
        await apps.sleep(1_000)

    async with apps.make() as sender:
        id_ = (await sender.send("q", "suspect", attempts_max=2)).id
        await sender.claim("q", "w", lease_s=1)
        await apps.sleep(2)
        await sender.send("q", "other")
    await app.start()
    await apps.sleep(1)
    before_s = apps.loop.time()
    await app.stop()
    assert apps.loop.time() - before_s < 2
    async with apps.make() as sender:
        assert (await sender.job(id_)).attempt == 1
        assert (await sender.job(id_)).state == "queued"
    assert len(began) == 1
