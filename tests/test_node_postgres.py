"""A node on a real PostgreSQL: its time, and what wakes it."""

import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from onceward.clock import Clock
from onceward.engine.postgres import PostgresEngine
from onceward.node import Node
from onceward.schedule.claim_queue import ClaimQueue
from onceward.schedule.slot import Slot
from onceward.store import Store
from onceward.store.transaction import Transaction

WAIT_S = 20.0
HOURS_NS = 3_600 * 10**9


@pytest.fixture
async def engine(url: str) -> AsyncIterator[PostgresEngine]:
    async with PostgresEngine(url) as engine:
        yield engine


async def send(store: Store, node: Node, due_ms: int = 0) -> str:
    async def fn(tx: Transaction) -> str:
        return await node.schedule.send(tx, "q", None, due_ms=due_ms)

    return await store.run(fn)


async def work(node: Node) -> None:
    """Take one job and complete it."""
    [claim] = await node.claims.claim("q", "w", lease_ms=60_000, wait_s=WAIT_S)
    await node.store.run(lambda tx: node.schedule.complete(tx, claim.id, claim.token))


@pytest.mark.parametrize("hours", [-7, 30])
async def test_a_job_is_on_time_by_the_servers_clock_whatever_the_machine_shows(
    engine: PostgresEngine, hours: int
) -> None:
    clock = Clock(lambda: time.time_ns() + hours * HOURS_NS)
    async with Node(Store(engine, clock), slots=4) as node:
        for delay_ms in (1, 30, 300):
            due_ms = await engine.now_ms() + delay_ms
            await send(node.store, node, due_ms)
            await work(node)
            late_ms = await engine.now_ms() - due_ms
            assert 0 <= late_ms < 5_000


async def test_who_only_sends_has_the_servers_time_too(engine: PostgresEngine) -> None:
    async with Node(Store(engine), slots=4) as node:
        fast = Store(engine, Clock(lambda: time.time_ns() + 9 * HOURS_NS))
        id_ = await send(fast, node, await engine.now_ms() + 60_000)
        job = await fast.run(lambda tx: node.schedule.get(tx, id_))
        assert job.state == "scheduled", "not ready hours too early"
        assert abs(job.created_ms - await engine.now_ms()) < 5_000


async def test_a_node_is_woken_by_what_others_commit_and_not_by_its_own_commits(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: Counter[str] = Counter()
    hinted, arrived = Slot._hinted, ClaimQueue.arrived

    def count_hinted(self: Slot) -> None:
        woken["dispatcher"] += 1
        hinted(self)

    def count_arrived(self: ClaimQueue, slot: int, priority: int = 0) -> None:
        woken["desk"] += 1
        arrived(self, slot, priority)

    monkeypatch.setattr(Slot, "_hinted", count_hinted)
    monkeypatch.setattr(ClaimQueue, "arrived", count_arrived)
    async with PostgresEngine(url) as engine:
        with engine.watch("anything") as watch:
            assert await watch.wait(WAIT_S), "all are hinted when it begins to listen"
        async with Node(Store(engine), slots=4) as node:
            for delay_ms in (0, 20) * 10:
                due_ms = await engine.now_ms() + delay_ms if delay_ms else 0
                await send(node.store, node, due_ms)
                await work(node)
            assert woken["dispatcher"] == 0
            # By the store, each time that a job has become ready; the first one's desk was not
            # there yet.
            assert woken["desk"] == 19
            async with PostgresEngine(url) as other:
                await send(Store(other), node)
                await work(node)
