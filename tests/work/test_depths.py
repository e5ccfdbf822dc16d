"""A queue with `depth_max` holds no more jobs than that which have not ended."""

import asyncio
from typing import Any

import pytest

from onceward import limits
from onceward.app import App
from onceward.errors import OncewardError, QueueFull
from onceward.work.depths import Depths
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.web.asgi import serving
from tests.work.apps import Apps


def bounded(apps: Apps, depth_max: int = 3) -> App:
    app = apps.make(slots=2)
    app.queue("q", depth_max=depth_max)
    return app


async def fill(app: App, count: int, **options: Any) -> list[str]:
    found = [await app.send("q", n, key=f"{n}", **options) for n in range(count)]
    return [receipt.id for receipt in found]


@virtual
async def test_a_full_queue_refuses_until_a_job_has_ended() -> None:
    async with bounded(Apps(shared=False)) as app:
        ids = await fill(app, 3)
        with pytest.raises(QueueFull, match="'q' is full: it has 3 unfinished jobs") as refused:
            await app.send("q", 1, key="more")
        assert refused.value.code == "queue_full"
        with pytest.raises(QueueFull):
            await app.send("q", 1)
        again = await app.send("q", 0, key="0")
        assert (again.id, again.duplicate) == (ids[0], True), "what is known is answered"
        [claim] = await app.claim("q", "w", lease_s=9)
        with pytest.raises(QueueFull):
            await app.send("q", 1)
        await app.complete(claim.id, claim.token)
        await app.send("q", 1, key="more")
        await app.cancel(ids[-1])
        await app.send("q", 1)
        with pytest.raises(QueueFull):
            await app.send("q", 1)


@virtual
async def test_delayed_and_ordered_jobs_count() -> None:
    async with bounded(Apps(shared=False)) as app:
        await app.send("q", 1, key="a", delay_s=100)
        await app.send("q", 1, key="b", order_key="k")
        await app.send("q", 1, key="c", order_key="k")
        with pytest.raises(QueueFull):
            await app.send("q", 1, key="d", delay_s=100)


@virtual
async def test_very_many_at_once_do_not_exceed_it() -> None:
    apps = Apps(shared=False)
    async with bounded(apps, 10) as app:
        sent = [app.send("q", n, key=f"{n}") for n in range(200)]
        found = await asyncio.gather(*sent, return_exceptions=True)
        assert len([one for one in found if not isinstance(one, BaseException)]) == 10
        assert {type(one) for one in found if isinstance(one, BaseException)} == {QueueFull}
        assert len([key for key in apps.records if key[1].endswith("#job")]) == 10


@virtual
async def test_a_batch_has_a_verdict_for_each() -> None:
    async with bounded(Apps(shared=False)) as app:
        messages = [{"body": n, "key": f"{n}"} for n in range(5)]
        found = await app.send_many("q", messages)
        codes = [one.code for one in found if isinstance(one, OncewardError)]
        assert codes == ["queue_full"] * 2


@virtual
async def test_a_transaction_that_fails_takes_no_room() -> None:
    async with bounded(Apps(shared=False), 1) as app:

        async def fail(tx: Any) -> None:
            await app.send("q", 1, tx=tx)
            raise ValueError("no")

        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await app.run(fail)
        await app.send("q", 1)


@virtual
async def test_a_bound_counts_what_was_there_before() -> None:
    apps = Apps(shared=False)
    async with apps.make(slots=2) as app:
        await fill(app, 5)
        await app.queues.configure("q", depth_max=5)
        with pytest.raises(QueueFull):
            await app.send("q", 1)
    async with apps.make() as app:
        with pytest.raises(QueueFull):
            await app.send("q", 1)
        await app.queues.configure("q", depth_max=0)
        await app.send("q", 1)


@virtual
async def test_handlers_make_room() -> None:
    apps = Apps(shared=False)
    app = bounded(apps)

    @app.handler("q")
    async def work(job: Job) -> None:
        pass

    async with app:
        for n in range(20):
            await app.wait((await app.send("q", n, key=f"{n}")).id)


@virtual
async def test_nodes_that_share_a_database_bound_it_after_a_moment() -> None:
    apps = Apps(shared=True)
    async with bounded(apps, 10) as one, apps.make() as two:
        await fill(one, 10)
        await apps.sleep(3 * limits.DEPTH_S)
        with pytest.raises(QueueFull):
            await two.send("q", 1)
        [claim] = await two.claim("q", "w", lease_s=9, wait_s=5)
        await two.complete(claim.id, claim.token)
        await apps.sleep(3 * limits.DEPTH_S)
        await one.send("q", 1)


@virtual
async def test_a_bound_that_is_new_while_others_are_counted_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps = Apps(shared=True)
    gate = asyncio.Event()
    count_slot = Depths._count_slot

    async def slowly(depths: Depths, slot: int, found: dict[str, set[str]]) -> None:
        await gate.wait()
        await count_slot(depths, slot, found)

    async with bounded(apps) as app:
        await app.send("new", 1)
        await apps.sleep(2.5 * limits.DEPTH_S)  # nobody is counting then
        monkeypatch.setattr(Depths, "_count_slot", slowly)
        setting = asyncio.create_task(app.queues.configure("new", depth_max=1))
        await apps.sleep(3 * limits.DEPTH_S)  # all are to be counted again
        gate.set()
        await setting
        await apps.sleep(3 * limits.DEPTH_S)
        with pytest.raises(QueueFull):
            await app.send("new", 1)


@virtual
async def test_callers_are_told_when_to_come_again() -> None:
    async with serving(bounded(Apps(shared=False), 1)) as caller:
        await caller.ok("POST", "/v1/inbox/q", {"key": "a", "body": 1})
        full = await caller("POST", "/v1/inbox/q", {"key": "b", "body": 1})
        assert full.verdict == (429, "queue_full")
        assert full.headers["retry-after"] == "1"
