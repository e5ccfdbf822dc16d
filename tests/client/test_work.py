"""A worker over HTTP: runs its handler, says how jobs ended, and stops when told to."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from onceward.client import ClaimedJob, Client, Worker
from onceward.errors import BadInput, Fail, OncewardError, Retry
from tests.client.served import Cutter, Loss, Served

LEASE_S = 0.6


class Working:
    """A worker in a task of its own."""

    def __init__(
        self, client: Client, handler: Callable[[ClaimedJob], Awaitable[Any]], **options: Any
    ) -> None:
        self.worker = client.worker("q", handler, **{"wait_s": 5, **options})

    async def __aenter__(self) -> Worker:
        self.task = asyncio.create_task(self.worker.run())
        return self.worker

    async def __aexit__(self, *_: object) -> None:
        self.worker.stop()
        await self.task


async def test_what_the_handler_returns_is_the_result(client: Client) -> None:
    async def double(claim: ClaimedJob) -> int:
        return 2 * int(claim.body)

    async with Working(client, double, name="w1"):
        receipts = [await client.send("q", n, key=str(n)) for n in range(20)]
        jobs = [await client.jobs.wait(receipt.id) for receipt in receipts]
    assert [job.result for job in jobs] == [2 * n for n in range(20)]
    assert {job.worker for job in jobs} == {"w1"}


async def test_plain_functions_run_in_threads(client: Client) -> None:
    pair = threading.Barrier(2, timeout=60)

    def double(claim: ClaimedJob) -> int:
        pair.wait()  # two run at once, and the loop is free to claim the second
        if claim.body == 3 and claim.attempt == 1:
            raise Retry("once more", after_s=0)
        if claim.body == 2:
            raise Fail("never")
        return 2 * int(claim.body)

    async with Working(client, double, concurrency=2):
        receipts = [await client.send("q", n, key=str(n)) for n in range(5)]
        jobs = [await client.jobs.wait(receipt.id) for receipt in receipts]
    assert [job.result for job in jobs] == [0, 2, None, 6, 8]
    assert [job.state for job in jobs] == [*["succeeded"] * 2, "failed", *["succeeded"] * 2]
    assert "in double" in jobs[2].history[0].traceback
    assert jobs[2].history[0].type == "Fail"


class Told(logging.Handler):
    """Waits for a log record."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.told = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self.text in record.getMessage():
            self.told.set()


async def test_a_thread_is_busy_until_it_returns(client: Client) -> None:
    loop, begun, free = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def block(claim: ClaimedJob) -> int:
        if claim.body == 0:
            loop.call_soon_threadsafe(begun.set)
            assert free.wait(60)
        return int(claim.body)

    lost, log = Told("its lease was lost"), logging.getLogger("onceward.client")
    log.addHandler(lost)
    async with Working(client, block, concurrency=1, lease_s=LEASE_S):
        first = await client.send("q", 0, key="0")
        await begun.wait()
        await client.jobs.cancel(first.id)
        await lost.told.wait()
        log.removeHandler(lost)
        second = await client.send("q", 1, key="1")
        assert (await client.jobs.get(second.id)).state == "queued"
        free.set()
        assert (await client.jobs.wait(second.id)).result == 1
    assert (await client.jobs.get(first.id)).result is None


async def test_no_more_jobs_run_at_once_than_allowed(client: Client) -> None:
    running: set[str] = set()
    three, most = asyncio.Event(), 0

    async def count(claim: ClaimedJob) -> None:
        nonlocal most
        running.add(claim.id)
        most = max(most, len(running))
        if most == 3:
            three.set()
        await three.wait()
        await client.jobs.get(claim.id)
        running.remove(claim.id)

    receipts = [await client.send("q", n, key=str(n)) for n in range(12)]
    async with Working(client, count, concurrency=3):
        for receipt in receipts:
            await client.jobs.wait(receipt.id)
    assert most == 3


def explode(_: ClaimedJob) -> Awaitable[Any]:
    raise ValueError("at once")


async def surrogate(_: ClaimedJob) -> None:
    raise OSError("\udcff is no name")


async def speechless(_: ClaimedJob) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Mute


async def unspeakable(_: ClaimedJob) -> Any:
    return print


async def far_too_much(_: ClaimedJob) -> str:
    return 2_000_000 * "x"


async def cancels_itself(_: ClaimedJob) -> None:
    raise asyncio.CancelledError


async def long_winded(_: ClaimedJob) -> None:
    raise ValueError(2_000_000 * "x")


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (partial(explode), "ValueError: at once"),
        (surrogate, "OSError: \\udcff is no name"),
        (speechless, "Mute (its message cannot be read)"),
        (unspeakable, "the request cannot be written as JSON"),
        (far_too_much, "the body of this request must have at most"),
        (cancels_itself, "the handler cancelled itself; raise an error instead"),
        (long_winded, "ValueError: xxx"),
    ],
)
async def test_whatever_a_handler_does_wrong_fails_the_attempt(
    client: Client, handler: Any, reason: str
) -> None:
    receipt = await client.send("q", 1, key="k", attempts_max=1)
    async with Working(client, handler):
        job = await client.jobs.wait(receipt.id)
    assert (job.state, job.attempt) == ("failed", 1)
    assert job.reason.startswith(reason)


async def test_a_handler_names_the_next_attempt_or_gives_up(client: Client) -> None:
    attempts: list[int] = []

    async def fickle(claim: ClaimedJob) -> None:
        attempts.append(claim.attempt)
        if claim.attempt == 1:
            raise Retry("soon", after_s=0)
        if claim.attempt == 2:
            raise Retry("then", at_ms=client.clock.now_ms())
        if claim.attempt == 3:
            raise Retry("a little later", not_before_s=0.2)
        raise Fail("never")

    receipt = await client.send("q", 1, key="k", attempts_max=0)
    async with Working(client, fickle):
        job = await client.jobs.wait(receipt.id)
    assert (job.state, job.reason, attempts) == ("failed", "never", [1, 2, 3, 4])


async def test_a_lease_is_renewed_while_the_handler_runs(client: Client, cutter: Cutter) -> None:
    async def slow(claim: ClaimedJob) -> int:
        while sum("/extend" in line for line in cutter.requests) < 5:
            await client.jobs.get(claim.id)
        return claim.attempt

    receipt = await client.send("q", 1, key="k")
    async with Working(client, slow, lease_s=LEASE_S):
        assert (await client.jobs.wait(receipt.id)).result == 1


async def test_a_worker_whose_lease_is_lost_is_cancelled_and_completes_nothing(
    client: Client, cutter: Cutter, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def stuck(claim: ClaimedJob) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
        return "too late"

    receipt = await client.send("q", 1, key="k")
    async with Client(served.url) as other, Working(client, stuck, lease_s=LEASE_S) as worker:
        await began.wait()
        cutter.deaf.set()
        cutter.cut_all()
        await cancelled.wait()
        worker.stop()
        claims: list[ClaimedJob] = []
        while not claims:
            claims = await other.jobs.claim("q", wait_s=5, lease_s=60)
        cutter.deaf.clear()
        await other.jobs.complete(claims[0].id, claims[0].token, result="in time")
        assert (await other.jobs.wait(receipt.id)).result == "in time"
    assert not any("/complete" in line for line in cutter.requests)
    assert "its lease was lost in attempt 1" in caplog.text


async def test_a_job_that_moved_on_cannot_be_completed(
    client: Client, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker was asleep and has not noticed: the server refuses it."""
    caplog.set_level(logging.INFO)

    async def cancel_and_return(claim: ClaimedJob) -> str:
        await client.jobs.cancel(claim.id)
        return "done?"

    receipt = await client.send("q", 1, key="k")
    async with Working(client, cancel_and_return):
        assert (await client.jobs.wait(receipt.id)).state == "cancelled"
    assert (await client.jobs.get(receipt.id)).result is None
    assert "stale_token" in caplog.text


async def test_a_completion_whose_answer_is_lost_is_said_again(
    client: Client, cutter: Cutter
) -> None:
    ran: list[int] = []

    async def note(claim: ClaimedJob) -> str:
        ran.append(claim.body)
        return "fine"

    cutter.word, cutter.losses = "/complete", [Loss.ANSWER, Loss.REQUEST, Loss.HALF]
    async with Working(client, note):
        receipts = [await client.send("q", n, key=str(n)) for n in range(5)]
        jobs = [await client.jobs.wait(receipt.id) for receipt in receipts]
    assert cutter.losses == []
    assert {(job.state, job.attempt, job.result) for job in jobs} == {("succeeded", 1, "fine")}
    assert sorted(ran) == list(range(5))


async def test_a_worker_outlives_a_server_that_is_away(
    served: Served, cutter: Cutter, caplog: pytest.LogCaptureFixture
) -> None:
    async def fine(_: ClaimedJob) -> None:
        pass

    async with Client(cutter.url, patience_s=0) as impatient, Client(served.url) as client:
        cutter.deaf.set()
        receipt = await client.send("q", 1, key="k")
        async with Working(impatient, fine, wait_s=1):
            while "no jobs of q: " not in caplog.text:
                await client.jobs.get(receipt.id)
            cutter.deaf.clear()
            assert (await client.jobs.wait(receipt.id)).state == "succeeded"


async def test_a_worker_that_is_stopped_finishes_what_is_at_hand(client: Client) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def patient(claim: ClaimedJob) -> str:
        began.set()
        await go_on.wait()
        return "finished"

    first = await client.send("q", 1, key="first")
    working = Working(client, patient, concurrency=1)
    async with working as worker:
        await began.wait()
        second = await client.send("q", 2, key="second")
        worker.stop()
        assert not working.task.done()
        go_on.set()
    assert (await client.jobs.get(first.id)).result == "finished"
    assert (await client.jobs.get(second.id)).state == "queued"


async def test_a_worker_that_waits_for_jobs_stops_at_once(client: Client, cutter: Cutter) -> None:
    async with Working(client, speechless, wait_s=60) as worker:
        while not any("/claim" in line for line in cutter.requests):
            await client.queues.list()
        worker.stop()


async def test_a_worker_that_is_cancelled_gives_up_what_is_at_hand(client: Client) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def stuck(_: ClaimedJob) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    receipt = await client.send("q", 1, key="k")
    task = asyncio.create_task(client.worker("q", stuck).run())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()
    assert (await client.jobs.get(receipt.id)).state == "running"


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, 1_001, None])
async def test_a_worker_has_some_jobs_at_once(client: Client, concurrency: Any) -> None:
    with pytest.raises(BadInput, match="`concurrency` must be 1 to"):
        client.worker("q", speechless, concurrency=concurrency)


@pytest.mark.parametrize("wait_s", [0, 0.5, 61, float("nan"), "x"])
async def test_a_worker_waits_for_jobs_for_a_while(client: Client, wait_s: Any) -> None:
    with pytest.raises(BadInput, match="wait_s must be"):
        client.worker("q", speechless, wait_s=wait_s)


@pytest.mark.parametrize("options", [{"lease_s": 0}, {"lease_s": -1}, {"name": 300 * "n"}])
async def test_what_the_server_refuses_ends_the_worker(
    client: Client, options: dict[str, Any]
) -> None:
    with pytest.raises(OncewardError):
        await client.worker("q", speechless, **options).run()
