"""Connections cut and servers crashed under load: everyone is told the truth."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from onceward.engine.base import Put, Version
from onceward.engine.postgres import PostgresEngine
from onceward.errors import OutcomeUnknown, Unavailable
from onceward.store import Store
from onceward.testing.postgres import PostgresServer, StopMode
from onceward.testing.proxy import Cut, Proxy, chance
from tests.engine.postgres.insisting import MARKERS
from tests.engine.postgres.ledger import Ledger
from tests.failover import Servers, address

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
FAILOVERS = 60


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


class Writer:
    """Commits records of its own, one after the other, and notes what was acknowledged."""

    def __init__(self, engine: PostgresEngine, name: str) -> None:
        self.engine = engine
        self.name = name
        self.versions: list[Version] = []
        self.promised: list[str] = []

    async def work(self, stopped: Callable[[], bool]) -> None:
        while not stopped():
            sort = f"{len(self.versions):08}"
            try:
                version = await self.engine.commit([Put((self.name, sort), b"1")], 0)
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(0)
                continue
            self.versions.append(version)
            self.promised.append(sort)

    async def missing(self) -> int:
        """How many of the records that were acknowledged are gone; they are forgotten then."""
        found = []
        for start in range(0, len(self.promised), 100):
            keys = [(self.name, sort) for sort in self.promised[start : start + 100]]
            found += [r.key[1] for r in await self.engine.get(keys, 0) if r is not None]
        lost = len(self.promised) - len(found)
        self.promised = found
        return lost


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_what_failovers_lose_is_reported_and_no_version_comes_twice(
    servers: Servers, schema: str
) -> None:
    """By turns to a standby that was cut off before, to an asynchronous and a synchronous one."""
    versions: list[Version] = []
    lost = Counter[str]()
    for turn in range(FAILOVERS):
        kind = ("cut off", "asynchronous", "synchronous")[turn % 3]
        standby = servers.follow("other")
        if kind == "synchronous":
            servers.make_synchronous("other")
        url = address(schema, servers.primary, standby)
        async with PostgresEngine(url) as one, PostgresEngine(url) as two:
            assert not list(one.alarms)
            writers = [Writer(e, f"{turn}#{n}") for n, e in enumerate((one, two) * 4)]
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for writer in writers:
                    group.create_task(writer.work(stop.is_set))
                await progress(writers, 300)
                if kind == "cut off":
                    await asyncio.to_thread(standby.cut_off)
                await progress(writers, 300)
                await asyncio.to_thread(servers.fail_over, standby)
                await progress(writers, 300)
                stop.set()
            missing = sum([await writer.missing() for writer in writers])
            lost[kind] += missing
            for engine in (one, two):
                await engine.now_ms()
                assert bool(list(engine.alarms)) == bool(missing)
                assert engine.incarnation.number == turn + 2
        servers.primary.ask(f"SELECT {schema}.accept_lost_commits()")
        versions += [version for writer in writers for version in writer.versions]
    print(f"\n{len(versions)} commits, {FAILOVERS} failovers, lost: {dict(lost)}")
    assert len(set(versions)) == len(versions)
    assert lost["cut off"] > 0
    assert lost["synchronous"] == 0


async def progress(writers: Sequence[Writer], commits: int) -> None:
    """Wait until so many more are acknowledged."""
    begun = sum(len(writer.versions) for writer in writers)
    while sum(len(writer.versions) for writer in writers) < begun + commits:  # noqa: ASYNC110
        await asyncio.sleep(0)
