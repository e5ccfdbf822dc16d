"""A node as a whole: it starts, works, and stops."""

import asyncio
import random

import pytest

from onceward import limits
from onceward.engine.memory import Memory, MemoryEngine
from onceward.engine.sqlite import SQLiteEngine
from onceward.errors import BadInput, StaleToken, Unavailable
from onceward.node import Node
from onceward.schedule import Claim
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.testing.clock import VirtualClock
from tests.schedule.cluster import LEASE_S, Cluster, Member, TestEngine, virtual

pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize("slots", [0, -1, limits.SLOTS_MAX + 1])
async def test_an_impossible_number_of_slots_is_refused(slots: int) -> None:
    with pytest.raises(BadInput, match="a database must have 1 to 4096 slots"):
        Node(Store(MemoryEngine()), slots=slots)


@virtual
async def test_the_number_of_slots_is_chosen_once() -> None:
    memory = Memory()
    for slots in (8, 64):
        engine = await MemoryEngine(memory).open()
        async with Node(Store(engine, VirtualClock()), slots=slots) as node:
            assert node.schedule.slots == 8
            assert node.placement.slots == 8


@virtual
async def test_a_node_that_cannot_start_leaves_nothing_running() -> None:
    engine = await TestEngine().open()
    store = Store(engine, VirtualClock())
    node = Node(store, slots=4)
    commit = engine.commit

    async def fails_at_the_second(*args: object) -> object:
        if len(engine.commits) == 1:
            raise Unavailable("cut off")
        return await commit(*args)  # type: ignore[arg-type]

    engine.commit = fails_at_the_second  # type: ignore[assignment,method-assign]
    with pytest.raises(Unavailable):
        await node.start()
    assert store._hooks == []
    engine.commit = commit  # type: ignore[method-assign]
    await node.start()
    assert len(node.placement.owned) == 4
    await node.stop()


@virtual
async def test_stopping_twice_is_once_and_waiting_ends_with_it() -> None:
    cluster = Cluster()
    member = await cluster.start()
    waiting = asyncio.create_task(member.do(member.node.wait()))
    await asyncio.gather(member.stop(), member.stop())
    await waiting
    await member.stop()
    assert member.store._hooks == []
    assert cluster.memory.watchers.by_partition == {}


@virtual
async def test_a_node_that_was_not_started_stops_at_once() -> None:
    await Node(Store(MemoryEngine(), VirtualClock())).stop()


@pytest.mark.parametrize("code", ["engine_unreachable", "storage_failed", "damaged"])
@virtual
async def test_a_node_outlives_an_engine_that_cannot_be_used_for_a_while(code: str) -> None:
    cluster = Cluster(2)
    member = await cluster.start()
    name = member.node.placement.node
    member.engine.cut_off_code = code
    id_ = await member.send(delay_ms=1_000)
    for outage_s in (0.1, 3, 2 * limits.SWEEP_S):
        member.engine.cut_off = True
        await cluster.clock.sleep(outage_s)
        member.engine.cut_off = False
        await cluster.clock.sleep(limits.SWEEP_S)
    assert cluster.names == {name}
    assert (await member.job(id_)).state == "queued"
    await member.stop()


async def test_a_node_works_on_sqlite_and_again_after_a_restart(tmp_path) -> None:
    path = str(tmp_path / "a.db")
    async with SQLiteEngine(path) as engine, Node(Store(engine), slots=4) as node:

        async def send(tx: Transaction) -> None:
            for n in range(20):
                await node.schedule.send(tx, "q", n, due_ms=tx.now_ms + n)

        await node.store.run(send)
        first = []
        while len(first) < 10:
            first += await node.claims.claim("q", "w", lease_ms=60_000, wait_s=10)
        for claim in first:
            await node.store.run(lambda tx, c=claim: node.schedule.complete(tx, c.id, c.token))
    async with SQLiteEngine(path) as engine, Node(Store(engine)) as node:
        assert node.schedule.slots == 4
        second = []
        while len(second) < 10:
            second += await node.claims.claim("q", "w", lease_ms=60_000, wait_s=10)
    assert sorted(claim.body for claim in first + second) == list(range(20))


class Shop:
    """Workers that note their effects in the commit that completes the job."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.sent: dict[str, tuple[str | None, int]] = {}

    async def send_some(self, member: Member, count: int) -> None:
        for _ in range(count):
            key = self.random.choice([None, "a", "b", "c"])
            number = len(self.sent)
            delay_ms = self.random.choice([0, 0, 1, 500, 5_000])
            id_ = await member.send(number, order_key=key, delay_ms=delay_ms)
            self.sent[id_] = key, number

    async def work(self, member: Member, name: str) -> None:
        while True:
            wait_s = self.random.uniform(0, 5)
            try:
                claims = await member.node.claims.claim(
                    "q", name, lease_ms=3_000, most=self.random.randint(1, 4), wait_s=wait_s
                )
            except Unavailable:
                return
            for claim in claims:
                await member.clock.sleep(self.random.choice([0, 0.01, 1, 4]))
                try:
                    await self.finish(member, claim)
                except StaleToken:
                    pass

    async def finish(self, member: Member, claim: Claim) -> None:
        schedule = member.node.schedule
        fails = self.random.random() < 0.2

        async def fn(tx: Transaction) -> None:
            if fails:
                await schedule.fail(tx, claim.id, claim.token, "no luck", tx.now_ms + 700)
            else:
                await schedule.complete(tx, claim.id, claim.token)
                effects = await tx.get(("effects", claim.id)) or 0
                tx.put(("effects", claim.id), effects + 1)
                if claim.options.order_key is not None:
                    done = await tx.get(("history", claim.options.order_key)) or []
                    tx.put(("history", claim.options.order_key), [*done, claim.body])

        await member.store.run(fn)


@pytest.mark.parametrize("seed", range(6))
@virtual
async def test_every_job_is_effective_once_and_in_order_while_nodes_die_and_freeze(
    seed: int,
) -> None:
    cluster = Cluster(8, deaf=seed % 3 == 2, seed=seed)
    shop = Shop(cluster, seed)

    async def start() -> None:
        member = await cluster.start(wall_offset_ms=shop.random.randint(-500, 500))
        member.engine.latency_s = 0.002
        for n in range(4):
            member.process.spawn(shop.work(member, f"{member.process.name}.{n}"))

    for _ in range(3):
        await start()
    for _ in range(15):
        await shop.send_some(shop.random.choice(cluster.alive), 10)
        victim = shop.random.choice(cluster.alive)
        what = shop.random.choice(["kill", "stop", "freeze", "nothing"])
        if what == "kill":
            victim.process.kill()
        elif what == "stop":
            await victim.stop()
            victim.process.kill()
        elif what == "freeze" and len(cluster.alive) > 1:
            victim.process.pause()
            await cluster.clock.sleep(shop.random.uniform(0, 2 * LEASE_S))
            victim.process.resume()
        while len(cluster.alive) < 2:
            await start()
        await cluster.clock.sleep(shop.random.uniform(0, 5))

    def done() -> int:
        return sum(key[0] == "effects" for key in cluster.records)

    await cluster.until(lambda: done() == len(shop.sent), 0.5)
    await cluster.clock.sleep(2 * LEASE_S)
    assert cluster.all_owned
    assert cluster.problems == []
    records = cluster.records
    assert all(records["effects", id_].value == b"1" for id_ in shop.sent)
    for name in "abc":
        numbers = [number for key, number in shop.sent.values() if key == name]
        assert records["history", name].value.decode() == str(numbers).replace(" ", "")
    entries = [key for key in records if key[0].split("#")[0] in ("due", "ready", "line")]
    assert entries == []
