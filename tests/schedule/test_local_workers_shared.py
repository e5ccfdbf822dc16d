"""On a database that nodes share, new jobs are leased to free handlers of the node that owns their
slot."""

import asyncio
from typing import Any

import pytest

from onceward.engine.base import Put, Session
from onceward.errors import OutcomeUnknown, Unavailable
from onceward.json_values import decode
from onceward.keys import Key
from onceward.schedule import job_key, slot_of
from tests.schedule.cluster import TestEngine, virtual
from tests.work.apps import Apps

LEASE_S = 30.0


def starts(apps: Apps, id_: str) -> list[str]:
    """The stages in which a job was written."""
    puts = [write for commit in apps.commits for write in commit if type(write) is Put]
    return [decode(put.value, Any, put.key)["stage"] for put in puts if put.key == job_key(id_)]


def shop(apps: Apps, seen: list[Any], free: asyncio.Event | None = None) -> Any:
    """An application with a handler."""
    app = apps.make()

    @app.handler("q", lease_s=LEASE_S)
    async def work(job: Any) -> Any:
        seen.append(job.body)
        if free is not None:
            await free.wait()
        return job.body

    return app


@virtual
async def test_a_new_job_is_leased_to_a_free_handler_by_its_commit() -> None:
    apps, seen = Apps(), []
    async with shop(apps, seen) as app:
        await apps.sleep(0.1)
        id_ = (await app.send("q", 1, key="k")).id
        assert (await app.wait(id_)).attempt == 1
    assert starts(apps, id_) == ["running", "succeeded"]
    assert seen == [1]
    assert apps.problems == []


@virtual
async def test_jobs_in_slots_of_another_node_are_ready_for_its_workers() -> None:
    apps, seen, theirs = Apps(), [], []
    async with shop(apps, seen) as app, shop(apps, theirs) as other:
        while len(other.node.placement.owned) != 2 or len(app.node.placement.owned) != 2:
            await apps.sleep(1)
        await apps.sleep(0.1)
        ids = [(await app.send("q", n)).id for n in range(20)]
        for id_ in ids:
            await app.wait(id_)
        owned = app.node.placement.owned
        firsts = {id_: starts(apps, id_)[0] for id_ in ids}
    assert all((firsts[id_] == "running") <= (slot_of(id_) in owned) for id_ in ids)
    assert {*firsts.values()} == {"ready", "running"}
    assert len(seen) + len(theirs) == 20
    assert seen
    assert theirs
    assert apps.problems == []


@pytest.mark.parametrize("arrives", [True, False])
@virtual
async def test_a_job_whose_sender_is_cancelled_runs_at_once(arrives: bool) -> None:
    apps, seen = Apps(), []
    async with shop(apps, seen) as app:
        await apps.sleep(0.1)
        engine = apps.engines[0]
        engine.hang()
        sending = asyncio.create_task(app.send("q", "cancelled"))
        await apps.sleep(0.01)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        engine.cut_off = not arrives
        engine.free.set()
        await apps.sleep(0.01)
        engine.cut_off = False
        assert seen == (["cancelled"] if arrives else [])
        id_ = (await app.send("q", "next")).id
        assert (await app.wait(id_)).attempt == 1
        assert app.node.claims._claim_queue("q")._capacity[0]._spoken_for == 0
    assert seen[-1] == "next"
    assert apps.problems == []


@pytest.mark.parametrize("arrives", [True, False])
@virtual
async def test_a_job_whose_commit_has_an_unknown_outcome_is_released(
    monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    apps, seen = Apps(), []
    async with shop(apps, seen) as app:
        await apps.sleep(0.1)
        engine = apps.engines[0]
        commit = engine.commit

        async def lost(writes: Any, now_ms: int, visible: Any = None) -> Any:
            monkeypatch.undo()
            if arrives:
                await commit(writes, now_ms, visible)
            raise OutcomeUnknown("the response was lost")

        monkeypatch.setattr(engine, "commit", lost)
        with pytest.raises(OutcomeUnknown):
            await app.send("q", "unknown", key="k", attempts_max=1)
        await apps.sleep(1)
        assert seen == (["unknown"] if arrives else [])
        again = await app.send("q", "unknown", key="k", attempts_max=1)
        assert again.duplicate == arrives
        job = await app.wait(again.id)
        assert (job.state, job.attempt) == ("succeeded", 1)
        assert app.node.claims._claim_queue("q")._capacity[0]._spoken_for == 0
    assert seen == ["unknown"]
    assert apps.problems == []


class Statements(Session):
    """A transaction of the application without statements."""

    def __init__(self, engine: TestEngine) -> None:
        self.connection = None
        self.discarded = False
        self._engine = engine

    async def commit(self, writes: Any, now_ms: int, visible: Any = None) -> int:
        version = await self._engine.commit(writes, now_ms, visible)
        assert not self.discarded, "it was discarded during its commit"
        return version

    async def rollback(self) -> None:
        self.discard()

    def discard(self) -> None:
        self.discarded = True

    def conflicts(self, error: BaseException) -> bool:
        return False


@virtual
async def test_a_job_of_a_transaction_with_statements_runs_although_its_caller_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps, seen = Apps(), []
    async with shop(apps, seen) as app:
        await apps.sleep(0.1)
        engine = apps.engines[0]

        async def session() -> Session:
            return Statements(engine)

        monkeypatch.setattr(engine, "session", session)

        async def pay(tx: Any) -> None:
            await app.send("q", "paid", tx=tx)
            await tx.sql()
            engine.hang()

        paying = asyncio.create_task(app.run(pay))
        await apps.sleep(0.01)
        paying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await paying
        engine.free.set()
        await apps.sleep(0.1)
        assert seen == ["paid"]
    assert apps.problems == []


@virtual
async def test_a_stop_releases_the_job_of_a_cancelled_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apps, seen = Apps(), []
    async with shop(apps, seen) as app:
        await apps.sleep(0.1)
        commit, sent, free = apps.engines[0].commit, asyncio.Event(), asyncio.Event()

        async def slow(writes: Any, now_ms: int, visible: Any = None) -> Any:
            if any(write.key[0].startswith("job#") for write in writes) and not sent.is_set():
                sent.set()
                await free.wait()
            return await commit(writes, now_ms, visible)

        monkeypatch.setattr(apps.engines[0], "commit", slow)
        sending = asyncio.create_task(app.send("q", 1))
        await sent.wait()
        sending.cancel()
        stopping = asyncio.create_task(app.stop())
        await apps.sleep(5)
        free.set()
        await stopping
    jobs = [record for key, record in apps.records.items() if key[1].endswith("#job")]
    assert [decode(job.value, Any, ("", ""))["stage"] for job in jobs] == ["ready"]
    assert seen == []
    assert apps.problems == []


@virtual
async def test_the_end_of_a_job_uses_the_copy_of_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TestEngine, "shares_reads", True)
    apps, seen, free = Apps(), [], asyncio.Event()
    free.set()
    async with shop(apps, seen, free) as app:
        await apps.sleep(0.1)
        engine = apps.engines[0]
        asked: list[Key] = []
        get = engine.get
        monkeypatch.setattr(
            engine, "get", lambda keys, now_ms: asked.extend(keys) or get(keys, now_ms)
        )
        ids = [(await app.send("q", n)).id for n in range(3)]
        await apps.sleep(0.1)
        assert [key for key in asked if key in map(job_key, ids)] == []
        assert [(await app.job(id_)).state for id_ in ids] == ["succeeded"] * 3
        assert not app.store._heads.records.keys() & {*map(job_key, ids)}, "no copies remain"


@virtual
async def test_an_outdated_copy_of_a_job_ends_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TestEngine, "shares_reads", True)
    apps, seen, free = Apps(), [], asyncio.Event()
    async with shop(apps, seen, free) as app, apps.make() as other:
        await apps.sleep(0.1)
        ids = [(await app.send("q", n)).id for n in range(3)]
        while len(seen) < 3:
            await apps.sleep(0.1)
        await other.cancel(ids[1])
        free.set()
        await apps.sleep(0.1)
        states = [(await app.job(id_)).state for id_ in ids]
        assert states == ["succeeded", "cancelled", "succeeded"]
    assert apps.problems == []


@virtual
async def test_a_sender_without_a_database_keeps_no_handler_reserved() -> None:
    apps, seen = Apps(), []
    async with shop(apps, seen) as app:
        await apps.sleep(0.1)
        apps.engines[0].cut_off = True
        with pytest.raises(Unavailable):
            await app.send("q", "lost")
        apps.engines[0].cut_off = False
        id_ = (await app.send("q", "next")).id
        assert (await app.wait(id_)).attempt == 1
    assert seen == ["next"]
