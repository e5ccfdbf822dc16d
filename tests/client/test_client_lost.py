"""Requests and answers get lost, and the calls are made again: nothing is done twice."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from onceward.api.queues import QueueSettingsView
from onceward.client import Client, Receipt
from onceward.errors import AlreadyEnded, LockHeld, NotFailed, StaleToken, Unavailable
from onceward.web.metrics import text
from tests.client.served import Cutter, Loss, Served

LOSSES = [[Loss.REQUEST], [Loss.ANSWER], [Loss.HALF, Loss.REQUEST, Loss.ANSWER]]

pytestmark = [pytest.mark.parametrize("losses", LOSSES, ids=" and ".join), pytest.mark.no_cover]


@pytest.fixture
async def cutter(served: Served, losses: list[Loss]) -> AsyncIterator[Cutter]:
    async with Cutter(served.port, losses=losses) as cutter:
        yield cutter
        assert cutter.losses == [], "nothing was lost, so nothing is shown"


@pytest.fixture
async def client(cutter: Cutter) -> AsyncIterator[Client]:
    async with Client(cutter.url, patience_s=20) as client:
        yield client


def did(losses: list[Loss]) -> bool:
    """Whether a request that was lost to the client has reached the server."""
    return any(loss is not Loss.REQUEST for loss in losses)


async def test_a_message_is_one_job(client: Client, cutter: Cutter, losses: list[Loss]) -> None:
    done = did(losses)
    cutter.word = "/inbox/"
    receipt = await client.send("q", {"n": 1}, key="k")
    assert receipt.duplicate is done
    claims = await client.jobs.claim("q", max=10)
    assert [claim.id for claim in claims] == [receipt.id]


async def test_messages_of_a_batch_are_one_job_each(client: Client, cutter: Cutter) -> None:
    cutter.word = "/batch"
    receipts = await client.send_many("q", [{"body": n, "key": str(n)} for n in range(150)])
    ids = [receipt.id for receipt in receipts if isinstance(receipt, Receipt)]
    claimed: list[str] = []
    while claims := await client.jobs.claim("q", max=1_000):
        claimed += [claim.id for claim in claims]
    assert len(ids) == 150
    assert sorted(claimed) == sorted(ids)


async def test_a_job_is_completed_once(client: Client, cutter: Cutter, served: Served) -> None:
    cutter.word = "/complete"
    receipt = await client.send("q", 1, key="k")
    [claim] = await client.jobs.claim("q")
    await client.jobs.complete(claim.id, claim.token, result="first")
    job = await client.jobs.get(receipt.id)
    assert (job.state, job.result, job.attempt) == ("succeeded", "first", 1)
    ended = [line for line in metrics(served) if line.startswith("onceward_ended_total")]
    ended = [line for line in ended if not line.endswith(" 0")]
    assert ended == ['onceward_ended_total{queue="q",state="succeeded"} 1']


async def test_an_attempt_fails_once(client: Client, cutter: Cutter) -> None:
    cutter.word = "/fail"
    receipt = await client.send("q", 1, key="k")
    [claim] = await client.jobs.claim("q")
    failed = await client.jobs.fail(claim.id, claim.token, "why", retry_after_s=3_600)
    assert failed.state == "retrying"
    job = await client.jobs.get(receipt.id)
    assert (job.state, job.attempt, len(job.history)) == ("retrying", 1, 1)


async def test_a_failure_that_was_heard_of_does_not_end_the_next_attempt(
    client: Client, cutter: Cutter, losses: list[Loss], served: Served
) -> None:
    """The next attempt begins before the one whose answer was lost is told of again."""
    cutter.word, done = "/fail", did(losses)
    await client.send("q", 1, key="k")
    [claim] = await client.jobs.claim("q")
    async with Client(served.url) as other:
        claiming = asyncio.create_task(other.jobs.claim("q", wait_s=30, lease_s=600))
        try:
            await client.jobs.fail(claim.id, claim.token, "why", retry_after_s=0)
        except StaleToken:
            assert done
        [second] = await claiming
        assert second.attempt == 2
        await other.jobs.complete(second.id, second.token)


async def test_a_job_is_cancelled(client: Client, cutter: Cutter) -> None:
    cutter.word = "DELETE"
    receipt = await client.send("q", 1, key="k")
    await client.jobs.cancel(receipt.id)
    assert (await client.jobs.get(receipt.id)).state == "cancelled"


async def test_a_job_that_is_done_is_not_taken_for_cancelled(
    client: Client, cutter: Cutter
) -> None:
    cutter.word = "DELETE"
    receipt = await client.send("q", 1, key="k")
    [claim] = await client.jobs.claim("q")
    await client.jobs.complete(claim.id, claim.token)
    with pytest.raises(AlreadyEnded):
        await client.jobs.cancel(receipt.id)


async def test_a_job_is_redriven_once(client: Client, cutter: Cutter) -> None:
    cutter.word = "/retry"
    await client.send("q", 1, key="k")
    [claim] = await client.jobs.claim("q")
    await client.jobs.fail(claim.id, claim.token, "why", final=True)
    await client.jobs.retry(claim.id)
    [again] = await client.jobs.claim("q", max=10, wait_s=30)
    assert (again.id, again.attempt) == (claim.id, 1)
    with pytest.raises(NotFailed):
        await client.jobs.retry(claim.id)


async def test_many_jobs_are_redriven_and_cancelled(client: Client, cutter: Cutter) -> None:
    await client.send_many("q", [{"body": n, "key": str(n)} for n in range(5)])
    for claim in await client.jobs.claim("q", max=5):
        await client.jobs.fail(claim.id, claim.token, "why", final=True)
    cutter.word, losses = "/redrive", list(cutter.losses)
    await client.queues.redrive_all("q")
    cutter.word, cutter.losses = "/purge", losses
    await client.queues.purge_all("q")
    for n in range(5):
        assert (await client.send("q", n, key=str(n))).state == "cancelled"


async def test_a_lease_is_extended(client: Client, cutter: Cutter) -> None:
    cutter.word = "/extend"
    await client.send("q", 1, key="k")
    [claim] = await client.jobs.claim("q", lease_s=30)
    assert await client.jobs.extend(claim.id, claim.token, 60) > claim.lease_until_ms
    await client.jobs.complete(claim.id, claim.token)


async def test_a_claim_that_was_not_heard_of_comes_back(
    client: Client, cutter: Cutter, losses: list[Loss]
) -> None:
    """Nobody works on it twice at the same time: its lease has to run out first."""
    cutter.word, done = "/claim", did(losses)
    await client.send("q", 1, key="k")
    claims = []
    while not claims:
        claims = await client.jobs.claim("q", lease_s=0.2, wait_s=5)
    assert claims[0].attempt >= (2 if done else 1)
    job = await client.jobs.get(claims[0].id)
    assert all("lease of" in past.reason for past in job.history)


async def test_a_lock_is_acquired_once(client: Client, cutter: Cutter) -> None:
    cutter.word = "/acquire"
    lock = await client.locks.acquire(["a", "b"])
    status = await client.locks.get("a")
    assert (lock.token, status.token, status.held, status.waiting) == (1, 1, 1, 0)
    with pytest.raises(LockHeld):
        await client.locks.acquire(["b"])
    assert await client.locks.release(lock.id)
    assert (await client.locks.get("b")).held == 0


async def test_a_place_in_line_is_one_place(client: Client, cutter: Cutter, served: Served) -> None:
    cutter.word = "/acquire"
    async with Client(served.url) as other:
        first = await other.locks.acquire(["a"])
        waiting = asyncio.create_task(client.locks.acquire(["a"], wait_s=30))
        while not (await other.locks.get("a")).waiting:
            pass
        assert (await other.locks.get("a")).waiting == 1
        await other.locks.release(first.id)
        assert (await waiting).token == 2
        assert (await other.locks.get("a")).waiting == 0


async def test_a_lock_is_renewed_and_released(client: Client, cutter: Cutter) -> None:
    losses, cutter.word = list(cutter.losses), "/renew"
    lock = await client.locks.acquire(["a"])
    assert await client.locks.renew(lock.id, lease_s=600) > lock.lease_until_ms
    cutter.word, cutter.losses = "/release", losses
    assert await client.locks.release(lock.id)
    assert (await client.locks.get("a")).held == 0


async def test_a_queue_is_set(client: Client, cutter: Cutter) -> None:
    cutter.word = "PUT"
    assert (await client.queues.configure("q", limit=3)).settings == QueueSettingsView(limit=3)


async def test_one_who_is_not_patient_hears_that_nobody_answers(
    cutter: Cutter, losses: list[Loss]
) -> None:
    cutter.losses = losses * 10
    async with Client(cutter.url, patience_s=0) as client:
        with pytest.raises(Unavailable, match=r"no response from|cannot connect to"):
            await client.send("q", 1, key="k")
    assert len(cutter.requests) == 1
    cutter.losses = []


def metrics(served: Served) -> list[str]:
    app, census = served.app, served.server.counts
    return text(app.store.meters, census, app.store.clock.now_ms()).decode().splitlines()
