"""Children of a job are listed and counted, while it waits for them and after its end."""

from typing import Any

import pytest

import onceward
from onceward import limits
from onceward.api.job_history import JobChild, JobChildCounts
from onceward.app import App
from onceward.errors import Fail
from onceward.observe import children
from onceward.schedule.children import past_partition
from onceward.work.children import ChildJob
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


def declare(apps: Apps, *, gate: bool = False) -> App:
    app = apps.make()

    @app.handler("task", concurrency=4)
    async def task(job: onceward.Job[int]) -> None:
        await apps.sleep(1)
        if job.body % 10 == 3:
            raise Fail(f"{job.body} is broken")

    @app.handler("parent", job_retention_s=600)
    async def parent(job: onceward.Job[list[int]]) -> None:
        for total in job.body:
            asked = [ChildJob("task", number) for number in range(total)]
            await job.gather(*asked, return_exceptions=True)
        if gate:
            await job.wait_for("never")

    return app


async def counted(app: App, id_: str) -> JobChildCounts:
    async def fn(tx: Any) -> JobChildCounts:
        return await children.counts(tx, id_, await app.node.schedule.get(tx, id_))

    return await app.store.run(fn)


async def listed(app: App, id_: str, *states: str, limit: int = 7) -> list[JobChild]:
    """All pages of children."""
    found: list[JobChild] = []
    after: str | None = ""
    while after is not None:

        async def fn(tx: Any, after: str = after) -> Any:
            job = await app.node.schedule.get(tx, id_)
            return await children.page(
                tx, id_, job, after, limit, lambda one: not states or one.state in states
            )

        page, after = await app.store.run(fn)
        assert len(page) <= limit
        found += page
    return found


def places(found: list[JobChild]) -> list[tuple[int, int]]:
    return [(one.call, one.index) for one in found]


@virtual
async def test_children_are_listed_in_order_and_by_state_while_their_parent_waits() -> None:
    apps = Apps(shared=False)
    async with declare(apps, gate=True) as app:
        id_ = (await app.send("parent", [3, 30])).id
        await apps.sleep(3.5)
        found = await listed(app, id_)
        assert places(found) == [(1, n) for n in range(3)] + [(2, n) for n in range(30)]
        counts = await counted(app, id_)
        assert counts.total == 33
        assert counts.states["running"] == 4
        assert counts.states["queued"] > 10
        assert sum(counts.states.values()) == 33
        ended = await listed(app, id_, "succeeded", "failed")
        assert len(ended) == counts.states["succeeded"] + counts.states["failed"] > 3
        assert len(await listed(app, id_, "open")) == 33 - len(ended)
        assert all(one.ended_ms - one.started_ms == 1_000 for one in ended)
        await apps.sleep(60)
        assert (await counted(app, id_)).states == {"succeeded": 30, "failed": 3}
        broken = await listed(app, id_, "failed")
        assert [(one.index, one.reason) for one in broken] == [
            (number, f"{number} is broken") for number in (3, 13, 23)
        ]


@virtual
async def test_many_children_that_have_not_ended_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "FAMILY_STATES_MAX", 5)
    apps = Apps(shared=False)
    async with declare(apps) as app:
        id_ = (await app.send("parent", [40])).id
        await apps.sleep(2.5)
        states = (await counted(app, id_)).states
        assert states.keys() == {"open", "succeeded", "failed"}
        assert states["open"] > 5


@virtual
async def test_the_children_of_a_job_that_has_ended_are_kept_as_long_as_it() -> None:
    apps = Apps(shared=False)
    async with declare(apps) as app:
        id_ = (await app.send("parent", [3, 100])).id
        await app.wait(id_, 600)
        await apps.sleep(5)
        assert not [key for key in apps.records if key[0].startswith("family#")]
        assert len([key for key in apps.records if key[0].startswith("children#")]) < 20
        assert await counted(app, id_) == JobChildCounts(103, {"succeeded": 93, "failed": 10})
        found = await listed(app, id_)
        assert places(found) == [(1, n) for n in range(3)] + [(2, n) for n in range(100)]
        broken = await listed(app, id_, "failed", limit=3)
        assert [one.index for one in broken] == list(range(3, 100, 10))
        # One that is retried after the end of its parent has its new state.
        await app.queues.retry(broken[0].id)
        await apps.sleep(5)
        await app.cancel(broken[0].id)
        await apps.sleep(5)
        assert places(await listed(app, id_)) == places(found)
        assert (await counted(app, id_)).states == {"succeeded": 93, "failed": 9, "cancelled": 1}
        await apps.sleep(600)
        assert await app.store.run(lambda tx: tx.scan(past_partition(id_))) == []


@virtual
async def test_cancelled_children_of_a_cancelled_parent_are_kept_with_it() -> None:
    apps = Apps(shared=False)
    async with declare(apps) as app:
        id_ = (await app.send("parent", [50])).id
        await apps.sleep(2.5)
        await app.cancel(id_)
        await apps.sleep(5)
        counts = await counted(app, id_)
        assert counts.total == 50
        assert counts.states.keys() <= {"succeeded", "failed", "cancelled"}
        assert counts.states["cancelled"] > 30


@virtual
async def test_a_job_without_children_has_none() -> None:
    apps = Apps(shared=False)
    async with declare(apps) as app:
        for state in ("running", "succeeded"):
            id_ = (await app.send("task", 1)).id
            if state == "succeeded":
                await app.wait(id_, 60)
            assert await listed(app, id_) == []
            assert await counted(app, id_) == JobChildCounts(0, {})
