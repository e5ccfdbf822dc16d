"""A job that would become ready while hands are free is theirs by the commit that makes it."""

import asyncio
from typing import Any

import pytest

from onceward import limits
from onceward.engine.base import Put
from onceward.parts.schedule import job_key
from onceward.service.picker import CLAIMS_AT_ONCE
from onceward.transaction import Transaction, decode
from tests.service.apps import Apps
from tests.service.cluster import virtual


class Shop:
    """An application with a handler that can be made to wait."""

    def __init__(self, apps: Apps, **options: Any) -> None:
        self.app = apps.make()
        self.seen: list[Any] = []
        self.attempts: list[int] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

        @self.app.handler("q", **options)
        async def work(job: Any) -> None:
            for one in job if isinstance(job, list) else [job]:
                self.seen.append(one.body)
                self.attempts.append(one.attempt)
            await self.go_on.wait()

    async def settle(self) -> None:
        """Let all slots be looked into, and all hands be free."""
        await self.app.wait(await self.app.send("q", "first"))
        [worker] = self.app._workers
        await asyncio.wait(worker.running)
        self.seen.clear()
        self.attempts.clear()


def starts(apps: Apps, id_: str) -> list[str]:
    """The states in which a job was written."""
    puts = [write for commit in apps.commits for write in commit if isinstance(write, Put)]
    return [decode(put.value, Any, put.key)["state"] for put in puts if put.key == job_key(id_)]


@virtual
async def test_a_new_job_is_leased_to_free_hands_by_the_commit_that_makes_it() -> None:
    apps = Apps(shared=False)
    shop = Shop(apps)
    async with shop.app as app:
        await shop.settle()
        sent = await app.send("q", "sent")
        later = await app.send("q", "later", delay_s=1)
        accepted = (await app.accept("q", "accepted", key="k")).id
        for id_ in (sent, later, accepted):
            assert (await app.wait(id_)).attempt == 1
    assert sorted(shop.seen) == ["accepted", "later", "sent"]
    assert starts(apps, sent) == starts(apps, accepted) == ["leased", "done"]
    assert starts(apps, later) == ["due", "leased", "done"]
    assert apps.problems == []


@virtual
async def test_hands_that_are_full_get_what_is_ready_when_they_are_free() -> None:
    apps = Apps(shared=False)
    shop = Shop(apps, concurrency=2)
    async with shop.app as app:
        await shop.settle()
        shop.go_on.clear()
        ids = [await app.send("q", n) for n in range(4)]
        assert [(await app.job(id_)).state for id_ in ids] == ["leased", "leased", "ready", "ready"]
        shop.go_on.set()
        for id_ in ids:
            await app.wait(id_)
    assert sorted(shop.seen) == [0, 1, 2, 3]


@virtual
async def test_a_transaction_that_fails_leaves_the_hands_free() -> None:
    apps = Apps(shared=False)
    shop = Shop(apps, concurrency=1)

    async def fail(tx: Transaction) -> None:
        await shop.app.node.schedule.send(tx, "q", "never")
        raise ValueError("no")

    async with shop.app as app:
        await shop.settle()
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await app.run(fail)
        id_ = await app.send("q", "after")
        await app.wait(id_)
    assert shop.seen == ["after"]
    assert starts(apps, id_) == ["leased", "done"]


@virtual
async def test_what_the_sender_changes_later_is_not_what_the_handler_gets() -> None:
    apps = Apps(shared=False)
    shop = Shop(apps)
    ids: list[str] = []

    async def send(tx: Transaction) -> None:
        body = {"list": [1]}
        ids.append(await shop.app.send("q", body, tx=tx))
        body["list"].append(2)

    async with shop.app as app:
        await shop.settle()
        await app.run(send)
        await app.wait(ids[0])
    assert shop.seen == [{"list": [1]}]


@pytest.mark.parametrize("settings", [{"rate": 1_000.0}, {"limit": 5}])
@virtual
async def test_what_a_queue_hands_out_by_rules_is_claimed_by_them(settings: Any) -> None:
    apps = Apps(shared=False)
    shop = Shop(apps)
    async with shop.app as app:
        await app.queues.configure("q", **settings)
        await shop.settle()
        id_ = await app.send("q", 1)
        await app.wait(id_)
    assert starts(apps, id_) == ["ready", "leased", "done"]


@virtual
async def test_a_paused_queue_hands_out_nothing() -> None:
    apps = Apps(shared=False)
    shop = Shop(apps)
    async with shop.app as app:
        await shop.settle()
        await app.queues.pause("q")
        id_ = await app.send("q", 1)
        await apps.sleep(60)
        assert (await app.job(id_)).state == "ready"
        await app.queues.resume("q")
        await app.wait(id_)


@virtual
async def test_new_jobs_wait_behind_a_backlog() -> None:
    apps = Apps(shared=False)
    shop = Shop(apps, concurrency=100)
    async with shop.app as app:
        await shop.settle()
        await app.queues.pause("q")
        backlog = [await app.send("q", n) for n in range(3 * CLAIMS_AT_ONCE)]
        await app.queues.resume("q")
        id_ = await app.send("q", "new")
        assert (await app.job(id_)).state == "ready"
        for one in (*backlog, id_):
            await app.wait(one)
    assert shop.seen.index("new") > CLAIMS_AT_ONCE


@virtual
async def test_a_batch_gets_only_what_is_ready() -> None:
    apps = Apps(shared=False)
    shop = Shop(apps, batch=10, concurrency=20)
    async with shop.app as app:
        await shop.settle()
        id_ = await app.send("q", 1)
        await app.wait(id_)
    assert starts(apps, id_) == ["ready", "leased", "done"]


@virtual
async def test_what_was_promised_to_a_worker_that_stops_meanwhile_is_given_back() -> None:
    apps = Apps(shared=False)
    shop = Shop(apps)
    async with shop.app as app:
        await shop.settle()
        engine = apps.engines[0]
        engine.latency_s = 1.0
        sending = asyncio.create_task(app.send("q", "late"))
        await apps.sleep(0.5)
        engine.latency_s = 0.0
        [worker] = [worker for worker in app._workers if worker.handler.queue == "q"]
        await worker.stop(0)
        id_ = await sending
        await apps.sleep(limits.POLL_S)
        job = await app.job(id_)
        assert (job.state, job.attempt) == ("ready", 0)
        assert shop.seen == []
        claims = await app.claim("q", "other", lease_s=60)
    assert [claim.attempt for claim in claims] == [1]
