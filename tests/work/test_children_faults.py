"""Children and events where something else goes wrong: damage, doubt, retries and clocks."""

import asyncio
from typing import Any

import pytest

from onceward.app import App
from onceward.engine.base import DAMAGED
from onceward.errors import ChildFailed, Fail, InDoubt, QueueFull
from onceward.keys import Key
from onceward.schedule import job_key
from onceward.schedule.children import child_key, family_key
from onceward.schedule.records import Parent
from onceward.work.children import ChildJob
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


def spoil(apps: Apps, key: Key, value: bytes) -> None:
    """Replace a record by one that cannot be read."""
    table = apps.memory.table
    row = table.get(key)
    assert row is not None
    table.put(type(row)(row.key, value, row.version, row.expires_at_ms))


async def children(apps: Apps, parent: str) -> list[str]:
    """The ids of the children of a job's first call, as soon as they exist."""
    while True:
        entries = sorted(
            key for key in apps.records if key[0].startswith("family#") and key[1].count("#") == 2
        )
        if entries:
            return [apps.value(key, internal=True)["id"] for key in entries if parent in key[1]]
        await apps.sleep(0.01)


def app_of(apps: Apps, work: Any) -> App:
    """An application whose parent waits for jobs that someone else completes."""
    app = apps.make()

    @app.handler("parent", retry_first_s=0.1, attempts_max=3)
    async def parent(job: Job) -> Any:
        return await work(job)

    app.queue("by-hand")
    return app


@virtual
async def test_a_time_limit_that_has_passed_leaves_no_wait_behind() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    apps.engines[0].latency_s = 0.01

    @app.handler("order")
    async def order(job: Job) -> str:
        with pytest.raises(TimeoutError):
            await job.wait_for("approval", timeout_s=0.005)
        return "too late"

    async with app:
        id_ = (await app.send("order", None)).id
        found: set[tuple[str, str]] = set()
        while (job := await app.job(id_)).state != "succeeded":
            found.add((job.state, job.waits))
            assert apps.problems == []
        assert job.result == "too late"
        assert not any(waits and state != "waiting" for state, waits in found), found


@virtual
async def test_waiting_jobs_count_towards_the_depth_of_their_queue() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("order", depth_max=2)
    async def order(job: Job) -> Any:
        return await job.wait_for("approval")

    async with app:
        ids = [(await app.send("order", None)).id for _ in range(2)]
        await apps.sleep(1)
        assert [(await app.job(id_)).state for id_ in ids] == ["waiting"] * 2
        with pytest.raises(QueueFull):
            await app.send("order", None)
        await app.emit(ids[0], "approval")
        await app.wait(ids[0], 60)
        await app.send("order", None)


@virtual
async def test_a_retried_parent_keeps_the_child_that_was_first() -> None:
    apps = Apps(shared=False)
    broken = True
    chosen: list[int] = []

    async def work(job: Job) -> Any:
        position, result = await job.wait_any(*[ChildJob("by-hand", n) for n in range(3)])
        chosen.append(position)
        if broken:
            raise Fail("out of paper")
        return [position, result]

    async with app_of(apps, work) as app:
        id_ = (await app.send("parent", None)).id
        ids = await children(apps, id_)
        claims = {claim.id: claim for claim in await app.claim("by-hand", "w", lease_s=60, max=3)}
        await app.complete(ids[2], claims[ids[2]].token, "two")
        assert (await app.wait(id_, 60)).state == "failed"
        await apps.sleep(1)
        assert [(await app.job(child)).state for child in ids[:2]] == ["cancelled"] * 2
        broken = False
        await app.queues.redrive("parent")
        assert (await app.wait(id_, 60)).result == [2, "two"]
        assert chosen == [2, 2]
        assert len([key for key in apps.records if key[1].endswith("#job")]) == 4, "no new children"
    assert apps.problems == []


@pytest.mark.parametrize("cancels", [True, False])
@virtual
async def test_a_child_in_doubt_is_not_cancelled_with_its_parent(cancels: bool) -> None:
    apps = Apps(shared=False)
    broken = True

    async def work(job: Job) -> Any:
        try:
            return await job.gather(*[ChildJob("pay", n) for n in range(2)])
        except BaseException as waits:
            if broken and job.body == "fail" and not isinstance(waits, Exception):
                await job.step("wait", apps.sleep, 2)
                raise Fail("it does not wait") from waits
            raise

    app = app_of(apps, work)

    @app.handler("pay", concurrency=2)
    async def pay(job: Job) -> Any:
        async def unknown() -> None:
            raise InDoubt("no answer")

        if job.body:
            return await job.step("pay", unknown, at_most_once=True)
        return "paid"

    async with app:
        id_ = (await app.send("parent", None if cancels else "fail")).id
        ids = await children(apps, id_)
        await apps.sleep(1)
        assert (await app.job(ids[1])).state == "in_doubt"
        if cancels:
            await app.cancel(id_)
        else:
            assert (await app.wait(id_, 60)).state == "failed"
        await apps.sleep(5)
        assert (await app.job(ids[1])).state == "in_doubt", "money may have been paid"
        assert apps.problems == []
        if not cancels:
            broken = False
            await app.queues.redrive("parent")
            await apps.sleep(5)
            assert (await app.job(id_)).state == "waiting"
        await app.queues.settle(ids[1], "pay", done=True, result="paid after all")
        assert (await app.wait(ids[1], 60)).state == "succeeded"
        if not cancels:
            assert (await app.wait(id_, 60)).result == ["paid", "paid after all"]
        await apps.sleep(5)
    assert apps.problems == []
    assert [key for key in apps.records if key[0].startswith(("family#", "due#"))] == []


@pytest.mark.parametrize("value", [DAMAGED, b'{"queue":7}', b"17"])
@virtual
async def test_a_parent_continues_when_a_child_cannot_be_read(value: bytes) -> None:
    apps = Apps(shared=False)

    async def work(job: Job) -> Any:
        found = await job.gather(
            *[ChildJob("by-hand", n) for n in range(3)], return_exceptions=True
        )
        return ["unreadable" if isinstance(one, ChildFailed) else one for one in found]

    async with app_of(apps, work) as app:
        id_ = (await app.send("parent", None)).id
        ids = await children(apps, id_)
        spoil(apps, job_key(ids[1]), value)
        while claims := await app.claim("by-hand", "w", lease_s=60):
            for claim in claims:
                await app.complete(claim.id, claim.token, claim.body)
        assert (await app.wait(id_, 60)).result == [0, "unreadable", 2]


@pytest.mark.parametrize("value", [DAMAGED, b'{"id":7}', b"17"])
@pytest.mark.parametrize("ends", ["before", "after", "last", "cancelled"])
@virtual
async def test_a_child_whose_entry_cannot_be_read_has_failed(value: bytes, ends: str) -> None:
    apps = Apps(shared=False)

    async def work(job: Job) -> Any:
        found = await job.gather(
            *[ChildJob("by-hand", n) for n in range(3)], return_exceptions=True
        )
        return [str(one) if isinstance(one, ChildFailed) else one for one in found]

    async with app_of(apps, work) as app:
        id_ = (await app.send("parent", None)).id
        ids = await children(apps, id_)
        claims = {claim.id: claim for claim in await app.claim("by-hand", "w", lease_s=60, max=3)}

        async def complete(*positions: int) -> None:
            for position in positions:
                await app.complete(ids[position], claims[ids[position]].token, position)

        damaged = 2 if ends == "last" else 1
        if ends == "after":
            await complete(1)
        spoil(apps, child_key(id_, 1, damaged), value)
        if ends == "cancelled":
            await app.cancel(id_)
        else:
            await complete(*{0, 1, 2} - {damaged})
            result = (await app.wait(id_, 60)).result
            assert "child (unknown) in queue 'by-hand' failed" in result.pop(damaged)
            assert result == [n for n in range(3) if n != damaged]
            if ends != "after":
                await complete(damaged)  # it did not know
        await apps.sleep(60)
        assert app.node.dispatcher.troubles == {}
    assert [key for key in apps.records if key[0].startswith("family#")] == []


@pytest.mark.parametrize("value", [DAMAGED, b"17"])
@virtual
async def test_a_waiting_parent_that_cannot_be_read_becomes_a_dead_letter(value: bytes) -> None:
    apps = Apps(shared=False)

    async def work(job: Job) -> Any:
        return await job.gather(*[ChildJob("by-hand", n) for n in range(3)])

    async with app_of(apps, work) as app:
        id_ = (await app.send("parent", None)).id
        ids = await children(apps, id_)
        await apps.sleep(1)
        assert (await app.job(id_)).waits == "children 1"
        spoil(apps, job_key(id_), value)
        [claim] = await app.claim("by-hand", "w", lease_s=60)
        await app.complete(claim.id, claim.token, "done")
        await apps.sleep(60)
        job = await app.job(id_)
        assert (job.state, job.quarantined) == ("failed", True)
        states = sorted([(await app.job(child)).state for child in ids])
        assert states == ["cancelled", "cancelled", "succeeded"]
        assert apps.problems == []
        await app.cancel(id_)
        await apps.sleep(60)
    assert [key for key in apps.records if key[0].startswith(("family#", "due#"))] == []


@virtual
async def test_a_parent_whose_family_cannot_be_read_fails_with_the_reason() -> None:
    apps = Apps(shared=False)

    async def work(job: Job) -> Any:
        return await job.gather(*[ChildJob("by-hand", n) for n in range(2)])

    async with app_of(apps, work) as app:
        id_ = (await app.send("parent", None)).id
        await children(apps, id_)
        await apps.sleep(1)
        spoil(apps, family_key(id_, 1), b"17")
        [claim] = await app.claim("by-hand", "w", lease_s=60)
        await app.complete(claim.id, claim.token, "done")
        job = await app.wait(id_, 600)
        assert job.state == "failed"
        assert "family#" in job.reason
        assert "not valid" in job.reason
        await app.cancel(id_)
        await apps.sleep(60)
        assert app.node.dispatcher.troubles == {}
    assert [key for key in apps.records if key[0].startswith(("family#", "due#"))] == []


@virtual
async def test_two_calls_at_once_wait_for_their_own_job_of_a_batch() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("task", concurrency=4)
    async def task(job: Job) -> int:
        await apps.sleep(1)
        return int(job.body)

    @app.handler("batch", batch=3)
    async def batch(jobs: list[Job]) -> list[Any]:
        async def one(job: Job) -> Any:
            if job.body == "plain":
                return "plain"
            if job.body == "event":
                return await job.wait_for("go")
            first, second = await asyncio.gather(
                job.gather(ChildJob("task", 1), ChildJob("task", 2)),
                job.gather(ChildJob("task", 3)),
            )
            return [*first, *second]

        return [await one(job) for job in jobs]

    async with app:
        ids = [(await app.send("batch", body)).id for body in ("plain", "children", "event")]
        await apps.sleep(10)
        assert (await app.job(ids[2])).waits == "event go"
        await app.emit(ids[2], "go", "gone")
        results = [(await app.wait(id_, 60)).result for id_ in ids]
        assert results == ["plain", [1, 2, 3], "gone"]
        await apps.sleep(1)
    assert apps.problems == []
    assert [key for key in apps.records if key[0].startswith("family#")] == []


@virtual
async def test_results_of_children_outlive_jobs_that_are_not_retained() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("task", concurrency=4, job_retention_s=0)
    async def task(job: Job) -> int:
        await apps.sleep(job.body)
        return int(job.body)

    ended: list[Any] = []

    @app.handler("parent", job_retention_s=0)
    async def parent(job: Job) -> None:
        ended.append(await job.gather(*[ChildJob("task", n) for n in (3, 1, 2)]))

    async with app:
        await app.send("parent", None)
        await apps.sleep(60)
    assert ended == [[3, 1, 2]]
    assert apps.problems == []
    assert [key for key in apps.records if key[0].startswith(("family#", "due#"))] == []


@virtual
async def test_a_child_that_is_retried_after_its_parent_leaves_nothing_behind() -> None:
    apps = Apps(shared=False)

    async def work(job: Job) -> Any:
        return await job.gather(ChildJob("task", 1), return_exceptions=True) and None

    app = app_of(apps, work)
    broken = True

    @app.handler("task", attempts_max=1)
    async def task(job: Job) -> str:
        if broken:
            raise ValueError("paper jam")
        return "done"

    async with app:
        id_ = (await app.send("parent", None)).id
        [child] = await children(apps, id_)
        assert (await app.wait(id_, 60)).state == "succeeded"
        await apps.sleep(1)
        broken = False
        await app.queues.redrive("task")
        assert (await app.wait(child, 60)).result == "done"
        await apps.sleep(1)
        record = apps.value(job_key(child), internal=True)
        assert Parent(*record["parent"]) == Parent(id_, 1, 0)
    assert apps.problems == []
    assert [key for key in apps.records if key[0].startswith(("family#", "due#"))] == []


@pytest.mark.parametrize("ends", ["cancelled", "failed"])
@virtual
async def test_many_children_of_every_kind_are_cancelled_in_few_commits(ends: str) -> None:
    apps = Apps(shared=False)

    async def work(job: Job) -> Any:
        options: list[Any] = [{}, {"order_key": "o"}, {"limit_key": "l"}, {"limit_key": "m"}]
        children = [ChildJob("busy", n, **options[n % 4]) for n in range(300)]
        try:
            return await job.gather(*children)
        except BaseException as waits:
            if ends == "failed":
                await job.step("wait", apps.sleep, 2)
                raise Fail("out of paper") from waits
            raise

    app = app_of(apps, work)

    @app.handler("busy", concurrency=20, limit=50, limit_per_key=2)
    async def busy(job: Job) -> None:
        await apps.sleep(3_600)

    async with app:
        id_ = (await app.send("parent", None)).id
        await apps.sleep(1)
        before = len(apps.commits)
        if ends == "cancelled":
            await app.cancel(id_)
        await apps.sleep(60)
        assert (await app.job(id_)).state == ends
        jobs = [key for key in apps.records if key[1].endswith("#job") and id_ not in key[1]]
        stages = {apps.value(key, internal=True)["stage"] for key in jobs}
        assert (len(jobs), stages) == (300, {"cancelled"})
        assert len(apps.commits) - before < 100
        assert app.node.dispatcher.troubles == {}
    assert apps.problems == []
