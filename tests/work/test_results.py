"""Callers wait for the ends of jobs: none misses one, and none waits for ever."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from onceward.errors import (
    BadInput,
    EngineStopped,
    Fail,
    JobFailed,
    NoSuchJob,
    NotEnded,
    OncewardError,
    Unavailable,
)
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@virtual
async def test_all_who_wait_hear_of_the_end_at_once() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def work(job: Job) -> list[int]:
        await apps.sleep(7)
        return [1]

    async with app:
        id_ = (await app.send("q", None)).id
        jobs = await asyncio.gather(*[app.wait(id_) for _ in range(5)])
        assert [job.result for job in jobs] == [[1]] * 5
        jobs[0].result.append(2)
        assert jobs[1].result == [1], "each has his own"
        assert apps.loop.time() == pytest.approx(7, abs=0.01)
        assert (await app.wait(id_)).result == [1]
        assert app.results._waiting == {}


@pytest.mark.parametrize("state", ["failed", "in_doubt", "cancelled"])
@virtual
async def test_every_end_is_an_end(state: str) -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        id_ = (await app.send("q", None)).id
        [claim] = await app.claim("q", "w", lease_s=10)
        waiting = asyncio.create_task(app.wait(id_))
        await apps.sleep(1)
        assert not waiting.done()
        if state == "failed":
            await app.fail(id_, claim.token, "no", final=True)
        elif state == "in_doubt":
            await app.store.run(
                lambda tx: app.node.schedule.hold(tx, id_, claim.token, "who knows")
            )
        else:
            await app.cancel(id_)
        assert (await waiting).state == state


@virtual
async def test_when_the_time_is_over_the_job_is_shown_as_it_is() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        id_ = (await app.send("q", None)).id
        assert (await app.wait(id_, 0)).state == "queued"
        assert (await app.wait(id_, 5)).state == "queued"
        assert apps.loop.time() == pytest.approx(5, abs=0.01)
        assert app.results._waiting == {}


@virtual
async def test_the_end_during_the_first_look_is_heard_of() -> None:
    for latency_ms in range(1, 20):
        apps = Apps(shared=False)
        app = apps.make()

        @app.handler("q")
        async def work(job: Job) -> str:
            return "quick"

        async with app:
            apps.engines[0].latency_s = latency_ms / 1000
            id_ = (await app.send("q", None)).id
            await apps.sleep(latency_ms * 0.005)
            assert (await app.wait(id_, 60)).result == "quick"
            apps.engines[0].latency_s = 0.0


@virtual
async def test_to_wait_for_what_is_not_there_is_an_error() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        for id_ in ("nonsense", "0" * 29):
            with pytest.raises(NoSuchJob):
                await app.wait(id_)


@virtual
async def test_the_end_on_another_node_is_heard_of_without_hints() -> None:
    apps = Apps(deaf=True)
    app, other = apps.make(), apps.make()

    @other.handler("q")
    async def work(job: Job) -> str:
        await apps.sleep(3)
        return "there"

    async with app, other:
        id_ = (await app.send("q", None)).id
        assert (await app.wait(id_, 60)).result == "there"


@virtual
async def test_the_end_of_a_job_that_is_not_kept_is_heard_of() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", job_retention_s=0)
    async def work(job: Job) -> str:
        await apps.sleep(1)
        return "gone at once"

    async with app:
        id_ = (await app.send("q", None)).id
        assert (await app.wait(id_)).result == "gone at once"
        with pytest.raises(NoSuchJob):
            await app.job(id_)


@virtual
async def test_who_waits_is_told_when_the_application_stops() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    await app.start()
    id_ = (await app.send("q", None)).id
    waiting = asyncio.create_task(app.wait(id_))
    await apps.sleep(1)
    await app.stop()
    with pytest.raises(Unavailable, match="stopping"):
        await waiting


@pytest.mark.parametrize("shared", [False, True])
@virtual
async def test_who_waits_is_told_when_the_storage_has_failed(shared: bool) -> None:
    apps = Apps(shared=shared)
    app = apps.make()
    await app.start()
    id_ = (await app.send("q", None)).id
    waiting = asyncio.create_task(app.wait(id_))
    await apps.sleep(1)
    apps.engines[0].stopped = True
    with pytest.raises((EngineStopped, Unavailable)):
        async with asyncio.timeout(60):
            await waiting
    with pytest.raises(EngineStopped):
        await app.stop()


@virtual
async def test_one_who_leaves_does_not_disturb_the_others() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        id_ = (await app.send("q", None)).id
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(app.wait(id_)) for _ in range(3)]
        await apps.sleep(1)
        tasks[0].cancel()
        await apps.sleep(1)
        await app.cancel(id_)
        assert [(await task).state for task in tasks[1:]] == ["cancelled", "cancelled"]
        assert app.results._waiting == {}


@dataclass
class Sent:
    id: str


@virtual
async def test_a_result_has_the_type_that_its_handler_declares() -> None:
    apps = Apps()
    app, other = apps.make(), apps.make()

    @app.handler("typed")
    async def typed(job: Job[str]) -> Sent:
        return Sent(job.body)

    @app.handler("plain")
    async def plain(job: Job) -> Any:
        return {"id": job.body}

    @app.handler("batch", batch=2)
    async def batch(jobs: list[Job[str]]) -> list[Sent] | None:
        return None if jobs[0].body == "none" else [Sent(job.body) for job in jobs]

    async with app, other:
        id_ = (await typed.enqueue("a")).id
        assert await typed.result(id_) == await app.result(id_) == Sent("a")
        assert await other.result(id_) == await app.result(id_, dict[str, str]) == {"id": "a"}
        assert await other.result(id_, Sent) == Sent("a")
        untyped = (await plain.enqueue("b")).id
        assert await plain.result(untyped) == await app.result(untyped) == {"id": "b"}
        one = (await batch.enqueue("c")).id
        assert await batch.result(one) == Sent("c")
        assert await batch.result((await batch.enqueue("none")).id) is None
        with pytest.raises(BadInput, match=r"result\[\.\.\.\]: expected int, got str"):
            await app.result(id_, dict[str, int])
        with pytest.raises(BadInput, match="cannot be converted"):
            await app.result(id_, type(apps))
        with pytest.raises(BadInput, match="is a job of 'plain', not of 'typed'"):
            await typed.result(untyped)
        with pytest.raises(NoSuchJob):
            await typed.result("01HF7YAT007NFS97B5X8KXAMA9002")


@pytest.mark.parametrize(
    ("state", "text"),
    [("failed", "failed"), ("in_doubt", "is in doubt"), ("cancelled", "was cancelled")],
)
@virtual
async def test_without_a_result_there_is_an_error_with_the_reason(state: str, text: str) -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def work(job: Job[None]) -> Sent:
        async def call() -> None:
            raise ConnectionError("no answer")

        if state == "in_doubt":
            await job.step("call", call, at_most_once=True)
        if state == "cancelled":
            await app.cancel(job.id, "no longer needed")
        raise Fail("no such account")

    async with app:
        receipt = await work.enqueue(None)
        for wait in (work.result, app.result):
            with pytest.raises(JobFailed) as error:
                await wait(receipt.id, timeout_s=60)
            assert (error.value.id, error.value.queue) == (receipt.id, "q")
            assert error.value.state == state
            assert error.value.reason in error.value.message
            types = {"failed": "Fail", "in_doubt": "InDoubt", "cancelled": ""}
            assert error.value.type == types[state]
            assert f"job {receipt.id} of 'q' {text}: " in error.value.message
            assert {
                "failed": "no such account",
                "in_doubt": "ConnectionError: no answer",
                "cancelled": "no longer needed",
            }[state] in error.value.reason


@virtual
async def test_a_job_that_has_not_ended_in_time_is_a_timeout() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        id_ = (await app.send("q", None)).id
        with pytest.raises(TimeoutError) as error:
            await app.result(id_, timeout_s=5)
        assert isinstance(error.value, NotEnded)
        assert "it is queued" in error.value.message
        assert apps.loop.time() == pytest.approx(5, abs=0.01)
        wrong: Any
        for wrong in (-1, "5"):
            with pytest.raises(BadInput):
                await app.result(id_, timeout_s=wrong)
        for wrong in (None, 5, ""):
            with pytest.raises(OncewardError):
                await app.result(wrong)
