"""Output of remote workers, and readers that follow jobs through lost connections."""

import asyncio
from typing import Any

import pytest

from onceward.client import Client, Worker
from onceward.client.work import SyncWorkerJob, WorkerJob
from onceward.errors import BadInput, NoSuchJob
from tests.client.served import Cutter, Loss


async def worked(client: Client, worker: Worker, id_: str) -> Any:
    """The job when a worker has ended it."""
    running = asyncio.create_task(worker.run())
    job = await client.jobs.wait(id_, 60)
    worker.stop()
    await running
    return job


async def chunks_of(client: Client, id_: str) -> list[Any]:
    return [one.value async for one in client.jobs.follow(id_) if one.kind == "chunk"]


async def test_a_worker_reports_and_its_reader_misses_nothing(
    client: Client, cutter: Cutter
) -> None:
    cutter.word = "/output"
    cutter.losses = [Loss.ANSWER, Loss.REQUEST, Loss.HALF, Loss.ANSWER, Loss.REQUEST, Loss.ANSWER]
    id_ = (await client.send("q", 1)).id
    half = asyncio.Event()

    async def answer(job: WorkerJob) -> str:
        for number in range(50):
            await job.progress(number / 50, f"token {number}")
            await job.stream(number)
        await half.wait()  # the reader has seen the first ones
        for number in range(50, 100):
            await job.stream(number)
        await job.progress(1)
        return "whole"

    seen: list[Any] = []

    async def read() -> Any:
        async for update in client.jobs.follow(id_):
            if update.kind == "chunk":
                seen.append(update.value)
                half.set()
        return update

    reading = asyncio.create_task(read())
    job = await worked(client, client.worker("q", answer, wait_s=5), id_)
    end = await reading
    assert cutter.losses == []
    assert seen == list(range(100))
    assert (end.kind, end.state, end.result) == ("end", "succeeded", "whole")
    assert (job.progress, job.progress_text) == (1.0, "")
    assert (await client.jobs.get(id_)).progress == 1.0
    assert await chunks_of(client, id_) == list(range(100))
    resumed = [one.value async for one in client.jobs.follow(id_, after=end.seq)]
    assert resumed == [None]


async def test_a_plain_function_of_a_worker_reports(client: Client) -> None:
    id_ = (await client.send("q", 1)).id

    def answer(job: SyncWorkerJob) -> None:
        with pytest.raises(BadInput, match="a progress must be 0 to 1, not 2"):
            job.progress(2)
        job.progress(0.5, "half")
        for number in range(10):
            job.stream(number)

    job = await worked(client, client.worker("q", answer, wait_s=5), id_)
    assert (job.state, job.progress, job.progress_text) == ("succeeded", 0.5, "half")
    assert await chunks_of(client, id_) == list(range(10))


async def test_a_worker_fails_a_job_whose_stream_is_full(client: Client) -> None:
    id_ = (await client.send("q", 1, attempts_max=1)).id

    async def answer(job: WorkerJob) -> None:
        for _ in range(20):
            await job.stream("x" * 60_000)

    job = await worked(client, client.worker("q", answer, wait_s=5), id_)
    assert job.state == "failed"
    assert "at most 1000000 bytes as JSON" in job.reason


async def test_a_reader_of_an_unknown_job_gets_an_error(client: Client) -> None:
    with pytest.raises(NoSuchJob):
        await anext(client.jobs.follow("x"))
    id_ = (await client.send("q", 1)).id
    with pytest.raises(BadInput, match="has no position 5"):
        await anext(client.jobs.follow(id_, after=5))
