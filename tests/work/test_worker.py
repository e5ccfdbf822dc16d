"""Workers claim jobs, run their handler on them, and stop in good order."""

import asyncio
import logging
from typing import Any

import pytest

from onceward.errors import Unavailable
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps, no_tasks_left


@virtual
async def test_jobs_are_run_as_they_come_and_their_results_are_kept() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def double(job: Job) -> int:
        return 2 * int(job.body)

    async with app:
        ids = [(await app.send("q", n)).id for n in range(20)]
        assert [(await app.wait(id_)).result for id_ in ids] == [2 * n for n in range(20)]
    assert apps.problems == []


@virtual
async def test_no_more_jobs_are_at_hand_than_the_concurrency_says() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    at_hand = most = 0

    @app.handler("q", concurrency=3)
    async def work(job: Job) -> None:
        nonlocal at_hand, most
        at_hand += 1
        most = max(most, at_hand)
        await apps.sleep(1)
        at_hand -= 1

    async with app:
        ids = [(await app.send("q", n)).id for n in range(10)]
        for id_ in ids:
            assert (await app.wait(id_)).state == "succeeded"
    assert most == 3
    assert apps.loop.time() == pytest.approx(4, abs=0.5), "three at a time, and no pause"


@virtual
async def test_stopping_waits_for_what_is_at_hand_and_takes_no_more() -> None:
    apps = Apps(shared=False)
    app = apps.make(drain_s=60)
    begun, before = asyncio.Event(), asyncio.all_tasks()

    @app.handler("q", concurrency=1)
    async def work(job: Job) -> str:
        begun.set()
        await apps.sleep(10)
        await app.send("other", "said while it drains")
        return "finished"

    await app.start()
    first = (await app.send("q", 1)).id
    await begun.wait()
    second = (await app.send("q", 2)).id
    await app.stop()
    assert no_tasks_left(before) == []
    assert 10 <= apps.loop.time() < 11
    async with apps.make() as other:
        assert (await other.job(first)).result == "finished"
        assert (await other.job(second)).state == "queued"
        [claim] = await other.claim("other", "w", lease_s=1)
        assert claim.body == "said while it drains"
    assert apps.problems == []


@virtual
async def test_what_takes_longer_than_the_drain_is_given_back_and_loses_no_attempt() -> None:
    apps = Apps(shared=False)
    seen: list[tuple[str, int]] = []

    for round_ in range(3):
        app = apps.make(drain_s=5)

        @app.handler("q", attempts_max=1)
        async def work(job: Job, round_: int = round_) -> str:
            seen.append(("begun", job.attempt))
            job.tx.put(("effect", str(round_)), 1)
            try:
                await apps.sleep(1 if round_ == 2 else 1_000)
            finally:
                seen.append(("ended", job.attempt))
            return "done"

        await app.start()
        if not round_:
            id_ = (await app.send("q", None)).id
        await apps.sleep(0.5)
        await app.stop()
    async with apps.make() as last:
        job = await last.job(id_)
    assert (job.state, job.attempt, job.history) == ("succeeded", 1, [])
    assert seen == [("begun", 1), ("ended", 1)] * 3
    assert [apps.value(("effect", str(n))) for n in range(3)] == [None, None, 1]
    assert apps.problems == []


@virtual
async def test_a_handler_that_does_not_end_holds_the_stop_up_only_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    apps = Apps(shared=False)
    app = apps.make(drain_s=1)
    free, begun = asyncio.Event(), asyncio.Event()

    @app.handler("q")
    async def work(job: Job) -> str:
        begun.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                pass
        return "too late"

    await app.start()
    id_ = (await app.send("q", None)).id
    await begun.wait()
    await app.stop()
    assert apps.loop.time() < 10
    assert "ignores its cancellation" in caplog.text
    free.set()
    async with apps.make() as other:
        await apps.sleep(1)
        job = await other.job(id_)
        assert (job.state, job.attempt) == ("queued", 0)


@virtual
async def test_a_stop_that_is_cancelled_hurries_but_leaves_nothing_running() -> None:
    apps = Apps(shared=False)
    app = apps.make(drain_s=1_000)
    begun, before = asyncio.Event(), asyncio.all_tasks()

    @app.handler("q")
    async def work(job: Job) -> None:
        begun.set()
        await apps.sleep(10_000)

    await app.start()
    id_ = (await app.send("q", None)).id
    await begun.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await app.stop()
    assert apps.loop.time() < 5
    assert no_tasks_left(before) == []
    async with apps.make() as other:
        assert (await other.job(id_)).state == "queued"


@virtual
async def test_two_who_stop_it_both_wait_until_it_has_stopped() -> None:
    apps = Apps(shared=False)
    app = apps.make(drain_s=100)
    begun = asyncio.Event()

    @app.handler("q")
    async def work(job: Job) -> None:
        begun.set()
        await apps.sleep(10)

    await app.start()
    await app.send("q", None)
    await begun.wait()
    ended: list[float] = []

    async def stop() -> None:
        await app.stop()
        ended.append(apps.loop.time())

    await asyncio.gather(stop(), stop())
    assert ended[0] >= 10
    assert ended[1] >= 10


@virtual
async def test_a_worker_waits_out_an_engine_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    apps = Apps()
    app = apps.make()
    done: list[Any] = []

    @app.handler("q")
    async def work(job: Job) -> None:
        done.append(job.body)

    async with app:
        await app.send("q", 1)
        await apps.sleep(1)
        apps.engines[0].cut_off = True
        await apps.sleep(60)
        apps.engines[0].cut_off = False
        await apps.sleep(15)
        await app.send("q", 2)
        await apps.sleep(5)
    assert done == [1, 2]


@virtual
async def test_a_worker_survives_an_error_that_nobody_expects(
    caplog: pytest.LogCaptureFixture,
) -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def work(job: Job) -> str:
        return "done"

    await app.start()
    picker = app.node.claims._claim_queue("q")._claimer
    claim, failed = picker.claim, 0

    async def fails(*args: Any) -> Any:
        nonlocal failed
        failed += 1
        if failed < 3:
            raise KeyError("a bug")
        return await claim(*args)

    picker.claim = fails  # type: ignore[method-assign]
    first = (await app.send("q", 1)).id
    assert (await app.wait(first, 100)).state == "succeeded"
    second = (await app.send("q", 2)).id
    assert (await app.wait(second, 100)).state == "succeeded"
    assert failed >= 3
    assert "could not claim jobs" in caplog.text
    await app.stop()


@virtual
async def test_a_worker_whose_node_has_ended_asks_no_more() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def work(job: Job) -> None: ...

    await app.start()
    await app.node.stop()
    await apps.sleep(100)
    with pytest.raises(Unavailable, match="not running"):
        await app.send("q", 1)
    await app.stop()


@virtual
async def test_batches_are_as_large_as_there_are_jobs_and_hands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    apps = Apps(shared=False)
    app = apps.make()
    sizes: list[int] = []

    @app.handler("q", batch=10, concurrency=25)
    async def work(jobs: list[Job]) -> list[int]:
        sizes.append(len(jobs))
        await apps.sleep(1)
        return [job.body for job in jobs]

    await app.start(work=False)
    ids = [(await app.send("q", n)).id for n in range(30)]
    await app.stop()
    app = apps.make()
    app.handler("q", batch=10, concurrency=25)(work)
    async with app:
        assert [(await app.wait(id_)).result for id_ in ids] == list(range(30))
    assert sum(sizes) == 30
    assert max(sizes) == 10
    assert sizes[:3] == [10, 10, 5], "no more than the concurrency at a time"


@virtual
async def test_poison_hardly_slows_down_its_neighbours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    apps = Apps(shared=False)
    rate, count = 60, 900  # of 200 a second that the workers can do

    async def took(poison: bool) -> list[float]:
        app, took = apps.make(), []

        @app.handler("q", concurrency=4, attempts_max=5)
        async def work(job: Job) -> None:
            await apps.sleep(0.02)
            if job.body is None:
                raise ValueError("poison")
            took.append(apps.loop.time() - job.body)

        async with app:
            for _ in range(count):
                await app.send("q", apps.loop.time())
                if poison:
                    await app.send("q", None)
                await apps.sleep(1 / rate)
            await apps.sleep(1)
        return sorted(took)

    alone, beside_poison = await took(False), await took(True)
    assert len(alone) == len(beside_poison) == count
    p99 = int(0.99 * count)
    assert beside_poison[p99] < 2 * alone[p99]
