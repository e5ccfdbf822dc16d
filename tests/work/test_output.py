"""The output of jobs: progress is throttled, streams have no gap and nothing twice."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onceward import limits
from onceward.api.job_updates import JobUpdate
from onceward.app import App
from onceward.errors import BadInput, Fail, NoSuchJob, StaleToken, TooLarge, Unavailable
from onceward.schedule.records import output_key
from onceward.work.job import Job
from onceward.work.output import page_partition
from onceward.work.sync_job import SyncJob
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


async def followed(updates: AsyncIterator[JobUpdate]) -> list[Any]:
    """What a reader sees of a stream in the end."""
    chunks: list[Any] = []
    async for update in updates:
        if update.kind == "restart":
            chunks.clear()
        elif update.kind == "chunk":
            chunks.append(update.value)
    return chunks


@virtual
async def test_the_last_progress_is_stored_and_few_commits_are_made() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("pages")
    async def pages(job: Job) -> None:
        for page in range(1, 101):
            await apps.sleep(0.1)
            await job.progress(page / 100, f"page {page} of 100")

    async with app:
        id_ = (await app.send("pages", None)).id
        seen = [update async for update in app.follow(id_) if update.kind == "progress"]
        assert (seen[-1].progress, seen[-1].text) == (1.0, "page 100 of 100")
        assert [one.seq for one in seen] == sorted({one.seq for one in seen})
        assert len(seen) > 10, "readers see it while the job runs"
        # In 10 seconds, at most one in half a second, and those at the beginning and the end.
        assert 10 < len(apps.commits_of(output_key(id_), internal=True)) <= 22
        listed = (await app.queues.jobs(queue="pages")).jobs[0]
        assert (listed.progress, listed.progress_text) == (1.0, "page 100 of 100")
    assert apps.problems == []


@virtual
async def test_a_progress_while_the_job_runs_is_stored_without_another_one() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("pages", retry_first_s=5, attempts_max=2)
    async def pages(job: Job) -> None:
        if job.attempt == 1:
            await job.progress(0.3)
            await job.progress(0.4, "half an hour to go")
            await apps.sleep(600)
            raise ValueError("once more")
        await apps.sleep(600)

    async with app:
        id_ = (await app.send("pages", None)).id
        await apps.sleep(1)
        stored = {"progress": 0.4, "text": "half an hour to go"}
        found = apps.value(output_key(id_), internal=True)
        assert stored.items() <= found.items()
        await apps.sleep(700)  # the next attempt runs, and has not reported yet
        job = await app.job(id_)
        assert (job.state, job.attempt) == ("running", 2)
        assert stored.items() <= apps.value(output_key(id_), internal=True).items()


@virtual
@pytest.mark.parametrize(
    ("fraction", "text", "error"),
    [
        (float("nan"), None, "a progress must be 0 to 1, not nan"),
        (1.01, None, "a progress must be 0 to 1, not 1.01"),
        (-1, None, "a progress must be 0 to 1, not -1"),
        (True, None, "a progress must be a number from 0 to 1, not 'True'"),
        ("0.4", None, "a progress must be a number from 0 to 1, not '0.4'"),
        (0.4, "x" * 201, "the text of a progress must have at most 200 characters, not 201: 'xxx"),
        (0.4, 7, "the text of a progress must be text, not int"),
        (0.4, "\ud800", "not valid text|surrogates|Unicode"),
    ],
)
async def test_a_progress_that_is_none_is_rejected(fraction: Any, text: Any, error: str) -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("pages")
    async def pages(job: Job) -> None:
        with pytest.raises(BadInput, match=error):
            await job.progress(fraction, text)
        await job.progress(0.5)

    async with app:
        id_ = (await app.send("pages", None)).id
        job = await app.wait(id_, 60)
        assert job.state == "succeeded", job.reason
        assert apps.value(output_key(id_), internal=True)["progress"] == 0.5


@virtual
async def test_a_stream_arrives_in_order_while_the_job_runs_and_afterwards() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    chunks: list[Any] = [f"token {n} " for n in range(200)]
    chunks += [None, {"a": [1]}, 0.5, ""]

    @app.handler("answer")
    async def answer(job: Job) -> str:
        for chunk in chunks:
            await apps.sleep(0.01)
            await job.stream(chunk)
        return "whole"

    async with app:
        id_ = (await app.send("answer", None)).id
        live = [update async for update in app.follow(id_)]
        assert [one.value for one in live if one.kind == "chunk"] == chunks
        assert [one.state for one in live if one.kind == "chunk"][:50] == ["running"] * 50
        assert (live[-1].kind, live[-1].state, live[-1].result) == ("end", "succeeded", "whole")
        assert await followed(app.follow(id_)) == chunks
        # A reader that stops anywhere continues without a gap.
        seen, seq, states = [], 0, {update.seq for update in live}
        while len(seen) < len(chunks):
            async for update in app.follow(id_, after=seq):
                assert update.seq >= seq
                seq = update.seq
                if update.kind == "chunk":
                    seen.append(update.value)
                    break
        assert seen == chunks
        assert seq in states
        assert len(apps.commits_of(output_key(id_), internal=True)) <= 13, "five a second"
    assert apps.problems == []


@virtual
async def test_a_retry_replaces_the_stream_except_for_recorded_steps() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("answer", attempts_max=3, retry_first_s=5)
    async def answer(job: Job) -> None:
        await job.stream(f"begin {job.attempt}")

        async def think() -> None:
            await job.stream(f"thinks in {job.attempt}")

        async def stumble() -> None:
            await job.stream(f"stumbles in {job.attempt}")
            if job.attempt < 3:
                raise ValueError("once more")

        await job.step("think", think)
        await job.stream(f"between {job.attempt}")
        await job.step("stumble", stumble)

    async with app:
        id_ = (await app.send("answer", None)).id
        last = ["thinks in 1", "begin 3", "between 3", "stumbles in 3"]
        live = [update async for update in app.follow(id_)]
        restarts = [update.attempt for update in live if update.kind == "restart"]
        assert restarts == [2, 3]
        assert {update.attempt for update in live if update.kind == "chunk"} == {1, 2, 3}
        assert await followed(app.follow(id_)) == last
        # A reader that has seen chunks of an earlier attempt starts again from any position.
        for update in live:
            seen = [one async for one in app.follow(id_, after=update.seq)]
            later = [one.value for one in seen if one.kind == "chunk"]
            if update.attempt in (1, 2) and update.kind == "chunk":
                assert seen[0].kind == "restart"
                assert later == last
            else:
                assert later == last[len(last) - len(later) :]
    assert apps.problems == []


@virtual
async def test_a_handler_that_runs_again_after_a_conflict_streams_once() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    runs = 0

    @app.handler("count")
    async def count(job: Job) -> None:
        nonlocal runs
        runs += 1
        await job.stream("a")
        found = await job.tx.get(("n", "1"))
        if runs == 1:

            async def other(tx: Any) -> None:
                tx.put(("n", "1"), 1)

            await app.run(other)
        await job.stream("b")
        job.tx.put(("n", "1"), (found or 0) + 1)

    async with app:
        id_ = (await app.send("count", None)).id
        assert (await app.wait(id_, 60)).state == "succeeded"
        assert runs == 2
        assert await followed(app.follow(id_)) == ["a", "b"]


@virtual
async def test_an_attempt_that_has_lost_its_lease_cannot_write() -> None:
    apps = Apps()
    slow, fast = apps.make(), apps.make()
    raised: list[BaseException] = []

    @slow.handler("answer", lease_s=5)
    async def stall(job: Job) -> None:
        await job.stream("of the slow one")
        process.pause()
        await apps.sleep(1)
        try:
            while True:
                await job.stream("too late")
                await apps.sleep(0.1)
        except StaleToken as stale:
            raised.append(stale)
            raise

    @fast.handler("answer", lease_s=5)
    async def answer(job: Job) -> None:
        await job.stream("of the fast one")

    process = await apps.start(slow)
    id_ = (await process.spawn(slow.send("answer", None))).id
    await apps.sleep(2)
    other = await apps.start(fast)
    job = await other.spawn(fast.wait(id_, 120))
    assert job.state == "succeeded", job.reason
    process.resume()
    await apps.sleep(20)
    read = fast.follow(id_)
    assert await other.spawn(followed(read)) == ["of the fast one"]
    assert apps.problems == []


@virtual
async def test_output_is_removed_with_its_job() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    app.queue("answer", job_retention_s=60)

    @app.handler("answer", attempts_max=1)
    async def answer(job: Job) -> None:
        await job.progress(1)
        for _ in range(20):
            await job.stream("x" * 10_000)
        if job.body == "fails":
            raise Fail("never")

    async with app:
        ids = [(await app.send("answer", body)).id for body in ("", "fails")]
        for id_ in ids:
            await app.wait(id_, 60)
        await apps.sleep(5)
        assert apps.problems == []
        assert len(_pages(apps)) > 8
        await apps.sleep(100)
        with pytest.raises(NoSuchJob):
            await anext(app.follow(ids[0]))
        assert {key[1][:29] for key in _pages(apps)} == {ids[1]}, "failed jobs stay"
        await app.cancel(ids[1])
        await apps.sleep(100)
        assert _pages(apps) == []
        assert [key for key in apps.records if key[1].endswith("#output")] == []
    assert apps.problems == []


def _pages(apps: Apps) -> list[Any]:
    words = {page_partition(slot) for slot in range(4)}
    return [key for key in apps.records if key[0] in words]


@virtual
async def test_a_stream_that_is_full_fails_the_job_and_stays_readable() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    sent: list[str] = []

    @app.handler("answer", attempts_max=2, retry_first_s=1)
    async def answer(job: Job) -> None:
        sent.clear()
        with pytest.raises(TooLarge, match="at most 65536 bytes as JSON, not 65539; stream it in"):
            await job.stream("x" * 65_537)
        with pytest.raises(BadInput, match="chunk of the stream cannot be stored"):
            await job.stream(object())
        while True:
            await job.stream(f"{len(sent):06d}" + "x" * 9_992)
            sent.append(f"{len(sent):06d}" + "x" * 9_992)

    async with app:
        id_ = (await app.send("answer", None)).id
        job = await app.wait(id_, 60)
        assert job.state == "failed"
        assert "with 16 more for each chunk, not 1001600;" in job.reason
        assert len(sent) == limits.STREAM_BYTES_MAX // 10_016
        assert await followed(app.follow(id_)) == sent
    assert apps.problems == []


@virtual
@pytest.mark.parametrize("pause_s", [0.0, 0.5])
async def test_very_small_chunks_have_few_pages_which_are_all_replaced(pause_s: float) -> None:
    apps = Apps(shared=False)
    app = apps.make()
    app.queue("answer", job_retention_s=60)
    chunks = limits.STREAM_BYTES_MAX // (limits.CHUNK_HEAD_BYTES + 1)

    @app.handler("answer", attempts_max=2, retry_first_s=600)
    async def answer(job: Job) -> None:
        if job.attempt == 2:
            await job.stream("again")
            return
        for number in range(chunks):
            await job.stream(1)
            if pause_s and number % 1_000 == 0:
                await apps.sleep(pause_s)
        with pytest.raises(TooLarge, match="larger chunks"):
            await job.stream(1)
        raise ValueError("once more")

    async with app:
        id_ = (await app.send("answer", None)).id
        await apps.sleep(50)
        assert 5 < len(_pages(apps)) <= limits.STREAM_BYTES_MAX // limits.STREAM_PAGE_BYTES
        assert apps.value(output_key(id_), internal=True)["chunks"] == chunks
        await app.wait(id_, 2_000)
        assert _pages(apps) == []
        assert await followed(app.follow(id_)) == ["again"]
    assert apps.problems == []


@virtual
async def test_a_plain_function_reports_and_streams() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("answer", attempts_max=2, retry_first_s=1)
    def answer(job: SyncJob) -> None:
        job.progress(0.5, "half")

        def think() -> None:
            job.stream(f"thinks in {job.attempt}")

        job.step("think", think)
        job.stream(f"speaks in {job.attempt}")
        if job.attempt == 1:
            raise ValueError("once more")

    async with app:
        id_ = (await app.send("answer", None)).id
        assert (await app.wait(id_, 60)).state == "succeeded"
        assert await followed(app.follow(id_)) == ["thinks in 1", "speaks in 2"]


@virtual
async def test_an_unreachable_database_delays_output_and_loses_none() -> None:
    apps = Apps()
    app = apps.make()

    @app.handler("answer", lease_s=300)
    async def answer(job: Job) -> None:
        for number in range(100):
            await job.progress(number / 100)
            await job.stream(number)
            apps.engines[0].cut_off = 20 <= number < 60
            await apps.sleep(0.1)

    async with app:
        id_ = (await app.send("answer", None)).id
        await apps.sleep(30)
        job = await app.wait(id_, 600)
        assert (job.state, job.attempt) == ("succeeded", 1)
        assert await followed(app.follow(id_)) == list(range(100))


@virtual
async def test_readers_on_other_nodes_and_at_the_stop_of_theirs() -> None:
    apps = Apps(deaf=True)
    worker, reader = apps.make(), apps.make()

    @worker.handler("answer")
    async def answer(job: Job) -> None:
        for number in range(50):
            await job.stream(number)
            await apps.sleep(0.2)

    async with worker:
        id_ = (await worker.send("answer", None)).id
        async with reader:
            assert await followed(reader.follow(id_)) == list(range(50))
            waits = (await reader.send("nobody", None)).id
            updates = reader.follow(waits)
            await anext(updates)
            waiting = asyncio.ensure_future(anext(updates))
            await apps.sleep(10)
        with pytest.raises(Unavailable, match="this node is stopping"):
            await waiting


@virtual
async def test_a_reader_at_an_unknown_position_gets_an_error() -> None:
    apps = Apps(shared=False)
    app: App = apps.make()
    async with app:
        id_ = (await app.send("nobody", None)).id
        with pytest.raises(BadInput, match=f"job {id_} has no position 7: it ends at 0"):
            await anext(app.follow(id_, after=7))
        for after in (-1, 1.5, "x", None):
            with pytest.raises(BadInput, match="after must be the `seq` of an update"):
                await anext(app.follow(id_, after=after))  # type: ignore[arg-type]
        with pytest.raises(NoSuchJob):
            await anext(app.follow("x"))
