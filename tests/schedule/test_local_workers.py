"""A job that would become ready while hands are free is theirs by the commit that makes it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onceward import limits
from onceward.engine.base import Put
from onceward.json_values import decode
from onceward.schedule import job_key
from onceward.schedule.claiming import CLAIMS_AT_ONCE
from onceward.store.transaction import Transaction
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


class Shop:
    """An application with a handler that can be made to wait."""

    def __init__(self, **options: Any) -> None:
        self.apps = Apps(shared=False)
        self.app = self.apps.make()
        self.seen: list[Any] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

        @self.app.handler("q", **options)
        async def work(job: Any) -> None:
            self.seen += [one.body for one in (job if isinstance(job, list) else [job])]
            await self.go_on.wait()

    async def done(self, *ids: str) -> None:
        for id_ in ids:
            await self.app.wait(id_)

    def starts(self, id_: str) -> list[str]:
        """The stages in which a job was written."""
        puts = [write for commit in self.apps.commits for write in commit if type(write) is Put]
        return [decode(put.value, Any, put.key)["stage"] for put in puts if put.key == job_key(id_)]


@asynccontextmanager
async def opened(settings: Any = None, **options: Any) -> AsyncIterator[Shop]:
    """A shop of which all slots were looked into, and all hands are free."""
    shop = Shop(**options)
    async with shop.app as app:
        if settings:
            await app.queues.configure("q", **settings)
        await shop.done((await app.send("q", "first")).id)
        [worker] = app._workers.all
        await asyncio.wait(worker.running)
        shop.seen.clear()
        yield shop
    assert shop.apps.problems == []


@virtual
async def test_a_new_job_is_leased_to_free_hands_by_the_commit_that_makes_it() -> None:
    async with opened() as shop:
        sent = (await shop.app.send("q", "sent")).id
        later = (await shop.app.send("q", "later", delay_s=1)).id
        accepted = (await shop.app.send("q", "accepted", key="k")).id
        for id_ in (sent, later, accepted):
            assert (await shop.app.wait(id_)).attempt == 1
    assert sorted(shop.seen) == ["accepted", "later", "sent"]
    assert shop.starts(sent) == shop.starts(accepted) == ["running", "succeeded"]
    assert shop.starts(later) == ["due", "running", "succeeded"]


@pytest.mark.parametrize(("concurrency", "between"), [(8, []), (1, ["ready"])])
@virtual
async def test_the_next_of_an_order_key_is_leased_by_the_end_of_the_one_before_if_hands_are_free(
    concurrency: int, between: list[str]
) -> None:
    async with opened(concurrency=concurrency) as shop:
        shop.go_on.clear()
        ids = [(await shop.app.send("q", number, order_key="k")).id for number in range(3)]
        shop.go_on.set()
        await shop.done(*ids)
    assert shop.seen == [0, 1, 2]
    for id_ in ids[1:]:
        assert shop.starts(id_) == ["blocked", *between, "running", "succeeded"]
        [ends] = [
            c for c in shop.apps.commits if _stages(c).get(id_) == (between or ["running"])[0]
        ]
        assert "succeeded" in _stages(ends).values()


def _stages(commit: Any) -> dict[str, str]:
    """The stages in which jobs were written by a commit."""
    return {
        put.key[1][: -len("#job")]: decode(put.value, Any, put.key)["stage"]
        for put in commit
        if type(put) is Put and put.key[0].startswith("job#") and put.key[1].endswith("#job")
    }


@virtual
async def test_hands_that_are_full_get_what_is_ready_when_they_are_free() -> None:
    async with opened(concurrency=2) as shop:
        shop.go_on.clear()
        ids = [(await shop.app.send("q", n)).id for n in range(4)]
        stages = [(await shop.app.job(id_)).stage for id_ in ids]
        assert stages == ["running", "running", "ready", "ready"]
        shop.go_on.set()
        await shop.done(*ids)
    assert sorted(shop.seen) == [0, 1, 2, 3]


@virtual
async def test_a_transaction_that_fails_leaves_the_hands_free() -> None:
    async def fail(tx: Transaction) -> None:
        await shop.app.node.schedule.send(tx, "q", "never")
        raise ValueError("no")

    async with opened(concurrency=1) as shop:
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await shop.app.store.run(fail)
        id_ = (await shop.app.send("q", "after")).id
        await shop.done(id_)
    assert shop.seen == ["after"]
    assert shop.starts(id_) == ["running", "succeeded"]


@virtual
async def test_a_job_that_its_transaction_undoes_is_not_handled() -> None:
    async def send(tx: Transaction) -> str:
        id_ = await shop.app.node.schedule.send(tx, "q", "kept")
        mark = tx.mark()
        await shop.app.node.schedule.send(tx, "q", "undone")
        tx.undo(mark)
        return id_

    async with opened(concurrency=2) as shop:
        await shop.done(await shop.app.store.run(send))
        await shop.done((await shop.app.send("q", "after")).id)
    assert shop.seen == ["kept", "after"]


@virtual
async def test_what_the_sender_changes_later_is_not_what_the_handler_gets() -> None:
    ids: list[str] = []

    async def send(tx: Transaction) -> None:
        body = {"list": [1]}
        ids.append((await shop.app.send("q", body, tx=tx)).id)
        body["list"].append(2)

    async with opened() as shop:
        await shop.app.run(send)
        await shop.done(ids[0])
    assert shop.seen == [{"list": [1]}]


@pytest.mark.parametrize("settings", [{"rate": 1_000.0}, {"limit": 5}])
@virtual
async def test_what_a_queue_hands_out_by_rules_is_claimed_by_them(settings: Any) -> None:
    async with opened(settings) as shop:
        id_ = (await shop.app.send("q", 1)).id
        await shop.done(id_)
    assert shop.starts(id_) == ["ready", "running", "succeeded"]


@virtual
async def test_a_paused_queue_hands_out_nothing() -> None:
    async with opened() as shop:
        await shop.app.queues.pause("q")
        id_ = (await shop.app.send("q", 1)).id
        await shop.apps.sleep(60)
        assert (await shop.app.job(id_)).stage == "ready"
        await shop.app.queues.resume("q")
        await shop.done(id_)


@virtual
async def test_new_jobs_wait_behind_a_backlog() -> None:
    async with opened(concurrency=100) as shop:
        await shop.app.queues.pause("q")
        backlog = [(await shop.app.send("q", n)).id for n in range(3 * CLAIMS_AT_ONCE)]
        await shop.app.queues.resume("q")
        id_ = (await shop.app.send("q", "new")).id
        assert (await shop.app.job(id_)).stage == "ready"
        await shop.done(*backlog, id_)
    assert shop.seen.index("new") > CLAIMS_AT_ONCE


@virtual
async def test_a_batch_gets_only_what_is_ready() -> None:
    async with opened(batch=10, concurrency=20) as shop:
        id_ = (await shop.app.send("q", 1)).id
        await shop.done(id_)
    assert shop.starts(id_) == ["ready", "running", "succeeded"]


@virtual
async def test_what_was_promised_to_a_worker_that_stops_meanwhile_is_given_back() -> None:
    async with opened() as shop:
        engine = shop.apps.engines[0]
        engine.latency_s = 1.0
        sending = asyncio.create_task(shop.app.send("q", "late"))
        await shop.apps.sleep(0.5)
        engine.latency_s = 0.0
        [worker] = [worker for worker in shop.app._workers.all if worker.handler.queue == "q"]
        await worker.stop(0)
        id_ = (await sending).id
        await shop.apps.sleep(limits.POLL_S)
        job = await shop.app.job(id_)
        assert (job.stage, job.attempt) == ("ready", 0)
        assert shop.seen == []
        claims = await shop.app.claim("q", "other", lease_s=60)
    assert [claim.attempt for claim in claims] == [1]
