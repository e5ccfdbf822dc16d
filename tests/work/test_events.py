"""Events: each one sent to a job is consumed once, whether it comes before or after the wait."""

import asyncio
from typing import Any

import pytest

from onceward import limits
from onceward.app import App
from onceward.errors import AlreadyEnded, BadInput, NoSuchJob, TooLarge
from onceward.schedule import events_key
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


def waiting(apps: Apps, **options: Any) -> App:
    """An application whose job waits for an approval."""
    app = apps.make()

    @app.handler("order")
    async def order(job: Job) -> Any:
        try:
            return await job.wait_for("approval", **options)
        except TimeoutError as error:
            return str(error)

    return app


@virtual
async def test_an_event_continues_the_job_that_waits_for_it() -> None:
    apps = Apps(shared=False)
    async with waiting(apps) as app:
        id_ = (await app.send("order", None)).id
        await apps.sleep(1_000)
        job = await app.job(id_)
        assert (job.state, job.waits, job.attempt) == ("waiting", "event approval", 0)
        assert apps.problems == []
        await app.emit(id_, "comment", "not this one")
        await app.emit(id_, "approval", {"by": "Ann"})
        job = await app.wait(id_, 60)
        assert (job.state, job.result, job.attempt) == ("succeeded", {"by": "Ann"}, 1)
        assert apps.value(events_key(id_), internal=True) is None
        with pytest.raises(AlreadyEnded, match=f"job {id_} cannot receive the event 'approval'"):
            await app.emit(id_, "approval")
    assert apps.problems == []


@virtual
async def test_an_event_that_comes_first_is_kept() -> None:
    apps = Apps(shared=False)
    async with waiting(apps, timeout_s=10) as app:
        id_ = (await app.send("order", None, delay_s=100)).id
        await app.emit(id_, "approval", 1)
        await app.emit(id_, "approval", 2)
        job = await app.wait(id_, 200)
        assert job.result == 1


@virtual
async def test_a_wait_ends_at_its_time_limit() -> None:
    apps = Apps(shared=False)
    async with waiting(apps, timeout_s=60) as app:
        begun_s = apps.loop.time()
        job = await app.wait((await app.send("order", None)).id, 600)
        assert "got no event 'approval' in time" in job.result
        assert 60 <= apps.loop.time() - begun_s < 61
        assert job.attempt == 1


@virtual
async def test_the_decision_about_a_wait_is_the_same_in_every_attempt() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    seen: list[Any] = []

    @app.handler("order", attempts_max=3, retry_first_s=1)
    async def order(job: Job) -> None:
        first = await job.wait_for("number")
        try:
            second = await job.wait_for("never", timeout_s=5)
        except TimeoutError:
            second = None
        third = await job.wait_for("number")
        seen.append([first, second, third])
        if job.attempt < 3:
            raise ValueError("once more")

    async with app:
        id_ = (await app.send("order", None)).id
        for number in range(4):
            await app.emit(id_, "number", number)
        job = await app.wait(id_, 600)
        assert job.state == "succeeded"
        assert seen == [[0, None, 1]] * 3


@virtual
async def test_many_emit_at_once_while_the_handler_consumes() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("order")
    async def order(job: Job) -> list[Any]:
        return [await job.wait_for("number") for _ in range(50)]

    async with app:
        id_ = (await app.send("order", None)).id
        await asyncio.gather(*[app.emit(id_, "number", number) for number in range(50)])
        job = await app.wait(id_, 600)
        assert sorted(job.result) == list(range(50)), job.reason
    assert apps.problems == []


@virtual
async def test_a_key_sends_an_event_once_and_a_transaction_sends_it_with_its_records() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("order")
    async def order(job: Job) -> list[Any]:
        return [await job.wait_for("number") for _ in range(2)]

    async with app:
        id_ = (await app.send("order", None)).id
        for _ in range(3):
            await app.emit(id_, "number", 1, key="first")

        async def both(tx: Any) -> None:
            tx.put(("seen", "x"), 1)
            await app.emit(id_, "number", 2, tx=tx)
            await app.emit(id_, "number", 3, tx=tx)

        await app.run(both)
        assert (await app.wait(id_, 60)).result == [1, 2]


@virtual
async def test_cancel_and_move_of_a_job_that_waits() -> None:
    apps = Apps(shared=False)
    async with waiting(apps) as app:
        id_ = (await app.send("order", None)).id
        await apps.sleep(1)
        with pytest.raises(AlreadyEnded, match="it is waiting"):
            await app.move(id_)
        await app.cancel(id_, "no longer wanted")
        assert (await app.job(id_)).state == "cancelled"
    assert apps.problems == []
    assert not [key for key in apps.records if key[0].startswith("due#")]


@virtual
async def test_invalid_events_are_refused_and_nothing_is_lost() -> None:
    apps = Apps(shared=False)
    async with waiting(apps) as app:
        id_ = (await app.send("order", None)).id
        wrong: list[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = [
            (BadInput, "must be text, not int", (id_, 7), {}),
            (BadInput, "event's name", (id_, ""), {}),
            (BadInput, "event's name", (id_, "x" * 101), {}),
            (BadInput, "not JSON|cannot|JSON", (id_, "approval", object()), {}),
            (BadInput, "the key of an event", (id_, "approval", 1), {"key": "k" * 200}),
            (TooLarge, "at most 65536 bytes", (id_, "approval", "x" * 70_000), {}),
            (NoSuchJob, "not a job id", ("nonsense", "approval"), {}),
        ]
        for error, match, arguments, options in wrong:
            with pytest.raises(error, match=match):
                await app.emit(*arguments, **options)
        for number in range(limits.EVENTS_MAX):
            await app.emit(id_, "other", number)
        with pytest.raises(TooLarge, match="has 100 events that its handler has not consumed"):
            await app.emit(id_, "other", "one too many")
        await app.cancel(id_)


@virtual
async def test_a_wait_without_a_valid_name_or_limit_fails_the_attempt() -> None:
    for arguments, match in (((5,), "must be text"), (("x", -1), "time limit"), (("",), "name")):
        apps = Apps(shared=False)
        app = apps.make()

        @app.handler("order", attempts_max=1)
        async def order(job: Job, arguments: Any = arguments) -> Any:
            return await job.wait_for(*arguments)

        async with app:
            job = await app.wait((await app.send("order", None)).id, 60)
            assert job.state == "failed"
            assert match in job.reason
