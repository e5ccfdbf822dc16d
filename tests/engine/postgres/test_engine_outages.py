"""Connections cut and servers crashed under load: everyone is told the truth."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from onceward.engine.postgres import PostgresEngine
from onceward.store import Store
from onceward.testing.postgres import PostgresServer, StopMode
from onceward.testing.proxy import Cut, Proxy, chance
from tests.engine.postgres.insisting import MARKERS
from tests.engine.postgres.ledger import Ledger

pytestmark = pytest.mark.outage

CUTS = {
    Cut.REQUEST: 0.04,
    Cut.HALF_REQUEST: 0.04,
    Cut.UNDER_WAY: 0.04,
    Cut.ANSWER: 0.04,
    Cut.HALF_ANSWER: 0.04,
    Cut.LATE: 0.04,
    Cut.DEAF: 0.005,
    Cut.MUTE: 0.005,
}
# How often a server crashes, in a short run and in a long one.
CRASHES = {"immediate": (4, 250), "kill": (1, 50)}


@asynccontextmanager
async def working(ledger: Ledger, callers: int) -> AsyncIterator[None]:
    """Many callers transfer all the while."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(ledger.work(stop.is_set))
        yield
        stop.set()


async def test_what_a_cutting_network_does_to_commits_is_found_out(
    server: PostgresServer, schema: str, soak: bool
) -> None:
    cuts = 20_000 if soak else 300
    async with Proxy(server.port, marker=MARKERS) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={schema}"
        async with PostgresEngine(url, answer_s=0.25) as engine:
            ledger = Ledger(Store(engine))
            await ledger.found()
            proxy.plan = chance(Random(1), CUTS)
            async with working(ledger, 16):
                while proxy.counts.total() < cuts:
                    await ledger.progress(20)
            proxy.plan = None
            await proxy.deliver()
            transfers = await ledger.audit(engine)
    print(f"\n{transfers} transfers, {dict(proxy.counts)}, {len(ledger.refused)} refused")
    assert proxy.counts.keys() == CUTS.keys()
    assert not ledger.unknown, "the engine finds out in the end"


@pytest.mark.parametrize("mode", ["immediate", "kill"])
async def test_a_server_that_crashes_loses_and_doubles_nothing(
    crashing: PostgresServer, schema: str, mode: StopMode, soak: bool
) -> None:
    crashes = CRASHES[mode][soak]
    load = 2_000 if soak else 200
    async with PostgresEngine(f"{crashing.url}?schema={schema}") as engine:
        ledger = Ledger(Store(engine))
        await ledger.found()
        async with working(ledger, 32):
            for _ in range(crashes):
                await ledger.progress(load)
                await asyncio.to_thread(crashing.stop, mode)
                await asyncio.to_thread(crashing.start)
            await ledger.progress(load)
        transfers = await ledger.audit(engine)
    print(f"\n{transfers} transfers, {crashes} crashes, {len(ledger.refused)} refused")
