"""The application as its users meet it."""

import asyncio
from typing import Any

import pytest

from onceward.app import App
from onceward.callers import Caller
from onceward.engine.memory import MemoryEngine
from onceward.errors import (
    AlreadyEnded,
    BadInput,
    EngineStopped,
    KeyReused,
    NoSuchJob,
    StaleToken,
    Unavailable,
)
from onceward.store.user_records import UserTransaction
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps, no_tasks_left


@virtual
async def test_a_message_is_accepted_once_and_a_duplicate_gets_its_result() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    ran = 0

    @app.handler("q")
    async def work(job: Job) -> str:
        nonlocal ran
        ran += 1
        return f"hello {job.body}"

    async with app:
        first = await app.send("q", "ann", key="k")
        again = await app.send("q", "ann", key="k")
        assert (again.id, first.duplicate, again.duplicate) == (first.id, False, True)
        assert (await app.wait(first.id)).result == "hello ann"
        last = await app.send("q", "ann", key="k")
        assert (last.state, last.result) == ("succeeded", "hello ann")
        with pytest.raises(KeyReused):
            await app.send("q", "bob", key="k")
    assert ran == 1


@virtual
async def test_a_message_is_accepted_inside_the_callers_own_transaction() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:

        async def order(tx: UserTransaction, fail: bool) -> list[str]:
            tx.put(("order", "1"), "paid")
            receipt = await app.send("q", None, key="k", tx=tx)
            sent = (await app.send("q", None, tx=tx, delay_s=5)).id
            if fail:
                raise ValueError("not after all")
            return [receipt.id, sent]

        with pytest.raises(ValueError, match="not after all"):
            await app.run(lambda tx: order(tx, True))
        assert apps.value(("order", "1")) is None
        assert await app.claim("q", "w", lease_s=1) == []
        ids = await app.run(lambda tx: order(tx, False))
        assert [(await app.job(id_)).state for id_ in ids] == ["queued", "scheduled"]
        [commit] = apps.commits_of(("order", "1"))
        assert len([w for w in commit if w.key[0].startswith("job#")]) == 2


@virtual
async def test_a_delay_is_never_shorter_than_it_was_meant_to_be() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def work(job: Job) -> int:
        return apps.loop.time_ns()

    async with app:
        await apps.sleep(0.0007)  # within a millisecond
        for delay_us in (1_000, 10_400, 10**6, 1_000 * 10**6):
            sent_ns = apps.loop.time_ns()
            job = await app.wait((await app.send("q", None, delay_s=delay_us / 1e6)).id)
            assert 0 <= job.result - sent_ns - delay_us * 1_000 < 3_000_000


@virtual
async def test_jobs_can_be_cancelled_and_moved() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q")
    async def work(job: Job) -> float:
        return round(apps.loop.time())

    async with app:
        ids = [(await app.send("q", n, delay_s=100)).id for n in range(3)]
        await app.cancel(ids[0], "no longer wanted")
        await app.move(ids[1], delay_s=50)
        await app.move(ids[2])
        assert (await app.job(ids[0])).reason == "no longer wanted"
        assert (await app.wait(ids[2])).result == 0
        assert (await app.wait(ids[1])).result == 50
        with pytest.raises(AlreadyEnded):
            await app.move(ids[1])
        with pytest.raises(NoSuchJob):
            await app.cancel("nonsense")


@virtual
async def test_workers_that_are_no_handlers_claim_extend_complete_and_fail() -> None:
    apps = Apps()
    async with apps.make() as app:
        ids = [(await app.send("q", n, attempts_max=2)).id for n in range(3)]
        claims = {c.body: c for c in await app.claim("q", "w", lease_s=10, max=5, wait_s=1)}
        assert len(claims) == 3
        await apps.sleep(8)
        until_ms = await app.extend(ids[0], claims[0].token, 10)
        assert until_ms == claims[0].lease_until_ms + 8_000
        await app.complete(ids[0], claims[0].token, "well")
        assert (await app.job(ids[0])).result == "well"
        assert await app.fail(ids[1], claims[1].token, "badly", retry_after_s=5) == "retrying"
        assert await app.fail(ids[2], claims[2].token, "at all", final=True) == "failed"
        with pytest.raises(StaleToken):
            await app.complete(ids[0], claims[0].token)
        await apps.sleep(4.9)
        assert await app.claim("q", "w", lease_s=10) == []
        [again] = await app.claim("q", "w", lease_s=10, wait_s=1)
        assert (again.attempt, again.reason) == (2, "badly")
        assert await app.fail(again.id, again.token, "badly again") == "failed"
    assert apps.problems == []


BAD_CALLS: dict[str, Any] = {
    "send: name of a queue": lambda app: app.send("no such name", 1, key="k"),
    "send: queue of another kind": lambda app: app.send(5, 1, key="k"),
    "send: empty key": lambda app: app.send("q", 1, key=""),
    "send: body of another type": lambda app: app.send("q", object(), key="k"),
    "send: negative delay": lambda app: app.send("q", 1, key="k", delay_s=-1),
    "send: two times": lambda app: app.send("q", 1, key="k", delay_s=1, due_ms=5),
    "send: caller": lambda app: app.send("q", 1, key="k", caller="x" * 1_000),
    "send: caller without a key": lambda app: app.send("q", 1, caller="x" * 1_000),
    "send: id of a caller": lambda app: app.send("q", 1, caller=Caller("app", "", "x" * 1_000)),
    "send_many: queue": lambda app: app.send_many("no such name", [{"body": 1, "key": "k"}]),
    "send: queue": lambda app: app.send("", 1),
    "send: body": lambda app: app.send("q", {"n": float("nan")}),
    "send: due": lambda app: app.send("q", 1, due_ms=-1),
    "send: delay": lambda app: app.send("q", 1, delay_s="soon"),
    "send: priority": lambda app: app.send("q", 1, priority=10),
    "send: order key": lambda app: app.send("q", 1, order_key="x" * 257),
    "send: odd order key": lambda app: app.send("q", 1, order_key="\ud800"),
    "send: limit key": lambda app: app.send("q", 1, limit_key=""),
    "send: attempts": lambda app: app.send("q", 1, attempts_max=-1),
    "send: key of another type": lambda app: app.send("q", 1, key=1),
    "send: order key of another type": lambda app: app.send("q", 1, order_key=7),
    "send: limit key of another type": lambda app: app.send("q", 1, limit_key=("a",)),
    "send: priority of another type": lambda app: app.send("q", 1, priority="hi"),
    "send: attempts of another type": lambda app: app.send("q", 1, attempts_max="many"),
    "send: time of another type": lambda app: app.send("q", 1, due_ms=1.5),
    "job: id of another type": lambda app: app.job(None),
    "wait: id of another type": lambda app: app.wait(1),
    "cancel: id of another type": lambda app: app.cancel(None),
    "job: id": lambda app: app.job("nonsense"),
    "job: odd id": lambda app: app.job("\ud800" * 29),
    "wait: id": lambda app: app.wait("nonsense"),
    "wait: time": lambda app: app.wait("0" * 29, -1),
    "wait: no time": lambda app: app.wait("0" * 29, float("nan")),
    "cancel: id": lambda app: app.cancel("nonsense"),
    "move: id": lambda app: app.move("nonsense"),
    "move: delay": lambda app: app.move("0" * 29, delay_s=-1),
    "claim: queue": lambda app: app.claim("no such name", "w", lease_s=1),
    "claim: worker": lambda app: app.claim("q", "", lease_s=1),
    "claim: lease": lambda app: app.claim("q", "w", lease_s=0),
    "claim: no lease": lambda app: app.claim("q", "w", lease_s=float("nan")),
    "claim: max": lambda app: app.claim("q", "w", lease_s=1, max=0),
    "complete: id": lambda app: app.complete("nonsense", "token"),
    "fail: id": lambda app: app.fail("nonsense", "token", "why"),
    "fail: retry": lambda app: app.fail("0" * 29, "token", "why", retry_after_s=-1),
    "fail: not before": lambda app: app.fail("0" * 29, "token", "why", not_before_s=-1),
    "extend: id": lambda app: app.extend("nonsense", "token", 1),
    "extend: lease": lambda app: app.extend("0" * 29, "token", -1),
}


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS)
@virtual
async def test_bad_input_is_refused_and_changes_nothing(call: Any) -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        before = set(apps.records)
        with pytest.raises(BadInput):
            await call(app)
        assert set(apps.records) == before


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "x" * 101},
        {"name": "ä"},
        {"name": "a\nb"},
        {"node_lease_s": 0},
        {"node_lease_s": float("nan")},
        {"drain_s": -1},
        {"drain_s": float("inf")},
    ],
)
def test_an_application_that_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        App(MemoryEngine(), **options)


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://host/db", "sqlite://file"])
def test_an_unknown_database_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        App(url)


@virtual
async def test_an_application_that_does_not_run_says_so() -> None:
    app = Apps().make()
    for call in (
        app.send("q", 1),
        app.send("q", 1, key="k"),
        app.send_many("q", []),
        app.job("0" * 29),
        app.wait("0" * 29),
        app.cancel("0" * 29),
        app.move("0" * 29),
        app.claim("q", "w", lease_s=1),
        app.complete("0" * 29, "t"),
        app.fail("0" * 29, "t", "why"),
        app.extend("0" * 29, "t", 1),
    ):
        with pytest.raises(Unavailable, match="not running"):
            await call
    await app.stop()


@virtual
async def test_it_starts_once_and_can_start_again_after_it_has_stopped() -> None:
    apps = Apps(shared=False)
    app, before = apps.make(), asyncio.all_tasks()

    @app.handler("q")
    async def work(job: Job) -> str:
        return "done"

    starting = asyncio.gather(app.start(), app.start(), return_exceptions=True)
    assert [type(answer) for answer in await starting] == [App, BadInput]
    with pytest.raises(BadInput, match="is already running"):
        await app.start()
    id_ = (await app.send("q", 1)).id
    await app.wait(id_)
    await app.stop()
    await app.stop()
    assert no_tasks_left(before) == []
    async with app:
        assert (await app.job(id_)).state == "succeeded"
        assert (await app.wait((await app.send("q", 2)).id)).result == "done"


@virtual
async def test_a_start_that_fails_leaves_nothing_running_and_can_be_tried_again() -> None:
    apps = Apps()
    app, before = apps.make(), asyncio.all_tasks()
    app.queue("q", limit=3)
    engine = apps.engines[0]
    for fails_at in range(12):
        commit, count = engine.commit, 0

        async def fails(*args: Any, fails_at: int = fails_at, commit: Any = commit) -> Any:
            nonlocal count
            count += 1
            if count > fails_at:
                raise Unavailable("cut off")
            return await commit(*args)

        engine.commit = fails  # type: ignore[method-assign]
        try:
            await app.start()
        except Unavailable:
            assert no_tasks_left(before) == []
        else:
            await app.stop()
        engine.commit = commit  # type: ignore[method-assign]
    async with app:
        assert app.node.queue_settings("q").limit == 3


@virtual
async def test_handlers_can_be_left_out() -> None:
    apps = Apps(shared=False)
    app = apps.make()

    @app.handler("q", limit=7)
    async def work(job: Job) -> None: ...

    await app.start(work=False)
    id_ = (await app.send("q", 1)).id
    await apps.sleep(100)
    assert (await app.job(id_)).state == "queued"
    assert app.node.queue_settings("q").limit == 7
    await app.stop()


@virtual
async def test_a_node_that_has_ended_is_no_running_application() -> None:
    apps = Apps()
    app = apps.make()
    await app.start()
    apps.engines[0].stopped = True
    await apps.sleep(30)
    with pytest.raises(Unavailable, match="not running"):
        await app.send("q", 1)
    with pytest.raises(EngineStopped):
        await app.stop()
    await app.stop()


@virtual
async def test_a_job_recurs_once_for_all_nodes_and_once_after_downtime() -> None:
    apps = Apps()
    sent: list[tuple[str, float]] = []

    def declared() -> App:
        app = apps.make(node_lease_s=1)
        app.every(60, "q", {"kind": "minute"}, name="minutely")

        @app.handler("q")
        async def work(job: Job) -> None:
            sent.append((job.body["kind"], round(apps.loop.time())))

        return app

    nodes = [declared() for _ in range(3)]
    for node in nodes:
        await apps.start(node)
    await apps.sleep(185)
    assert sent == [("minute", 60), ("minute", 120), ("minute", 180)]
    for node in nodes:
        apps.processes[node].kill()
    await apps.sleep(400)
    async with declared() as app:
        await apps.sleep(70)
        assert [at_s for _, at_s in sent[3:]] == [pytest.approx(585, abs=5), 600]
        await app.timers.cancel("every:minutely")
        await apps.sleep(300)
    assert len(sent) == 5


@virtual
async def test_failed_jobs_are_reported_to_another_queue() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    notices: list[Any] = []

    @app.handler("q", attempts_max=2, failure_queue="alarm", retry_first_s=0.001)
    async def work(job: Job) -> None:
        raise ValueError("poison")

    @app.handler("alarm")
    async def alarm(job: Job) -> None:
        notices.append(job.body)

    async with app:
        id_ = (await app.send("q", None)).id
        await app.wait(id_)
        await apps.sleep(1)
    assert notices == [
        {"id": id_, "queue": "q", "state": "failed", "reason": "ValueError: poison", "attempts": 2}
    ]
