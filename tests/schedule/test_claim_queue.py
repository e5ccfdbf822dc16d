"""Desks of several nodes: each hands out the jobs of its own slots, and helps where nobody does."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from onceward.engine.base import Version, Write
from onceward.errors import Conflict
from onceward.schedule import Claim, slot_of
from onceward.store.transaction import Transaction
from tests.schedule.cluster import Cluster, Member, TestEngine, virtual

pytestmark = pytest.mark.no_cover

JOBS_PER_COMMIT = 20


class CountingEngine(TestEngine):
    """Counts conflicts."""

    __test__ = False
    conflicts = 0

    async def commit(
        self,
        writes: Sequence[Write],
        now_ms: int,
        visible: Callable[[Version], None] | None = None,
    ) -> Version:
        try:
            return await super().commit(writes, now_ms, visible)
        except Conflict:
            self.conflicts += 1
            raise


async def send(member: Member, count: int) -> list[str]:
    async def fn(tx: Transaction) -> list[str]:
        return [await member.node.schedule.send(tx, "q", None) for _ in range(JOBS_PER_COMMIT)]

    return [id_ for _ in range(count // JOBS_PER_COMMIT) for id_ in await member.run(fn)]


async def complete(member: Member, claim: Claim, tx: Transaction) -> None:
    await member.node.schedule.complete(tx, claim.id, claim.token)


class Workers:
    """Workers of several nodes, and what they have done, in that order."""

    def __init__(self, members: Sequence[Member], count: int) -> None:
        self.done: list[str] = []
        for member in members:
            self.start(member, count)

    def start(self, member: Member, count: int) -> None:
        for number in range(count):
            member.process.spawn(self._work(member, f"{member.process.name}.{number}"))

    async def _work(self, member: Member, name: str) -> None:
        while True:
            for claim in await member.node.claims.claim("q", name, lease_ms=60_000, wait_s=60):
                await member.clock.sleep(0.005)
                await member.store.run(partial(complete, member, claim))
                self.done.append(claim.id)


async def three_nodes() -> tuple[Cluster, list[Member]]:
    cluster = Cluster(16, engine=CountingEngine)
    members = await cluster.start_many(3)
    for member in members:
        member.engine.latency_s = 0.003
    return cluster, members


def conflicts(members: Sequence[Member]) -> int:
    return sum(member.engine.conflicts for member in members)  # type: ignore[attr-defined]


@virtual
async def test_nodes_with_much_to_do_do_not_fight_over_each_others_jobs() -> None:
    cluster, members = await three_nodes()
    ids = await send(members[0], 2_000)
    workers = Workers(members, 12)
    await cluster.until(lambda: len(workers.done) == len(ids))
    assert sorted(workers.done) == sorted(ids)
    assert conflicts(members) < len(ids) / 40


@virtual
async def test_nodes_that_join_while_much_waits_take_their_share_and_do_not_fight() -> None:
    cluster = Cluster(16, engine=CountingEngine)
    ids: list[str] = []
    workers = Workers([], 0)
    for _ in range(3):
        member = await cluster.start()
        member.engine.latency_s = 0.003
        ids = ids or await send(member, 6_000)
        workers.start(member, 12)  # it owns nothing yet, unless it is the first
    await cluster.until(lambda: len(workers.done) == len(ids))
    assert conflicts(cluster.members) < len(ids) / 40


@virtual
async def test_jobs_where_nobody_works_are_not_left_behind_those_of_ones_own() -> None:
    cluster, members = await three_nodes()
    ids = await send(members[0], 2_000)
    workers = Workers(members[:1], 12)
    await cluster.until(lambda: len(workers.done) >= len(ids) // 2)
    own = sum(slot_of(id_) in members[0].owned for id_ in workers.done)
    assert 0.2 < own / len(workers.done) < 0.6, "a third of the slots are its own"
    assert conflicts(members) == 0
