"""Failovers and restores: noticed before a connection is used, and what they lost is reported."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from onceward import limits
from onceward.engine.base import Incarnation, Put
from onceward.engine.postgres import PostgresEngine
from onceward.engine.postgres.incarnation import COMMITS_LOST
from onceward.errors import Unavailable
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.testing.postgres import PostgresServer
from onceward.testing.proxy import Proxy
from tests.engine.postgres.insisting import MARKERS
from tests.failover import Servers, address

T = TypeVar("T")
A, B = ("p", "a"), ("p", "b")
JUMP = 1 << 40


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Call again and again until the server is back."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0)


async def failure(call: Callable[[], Awaitable[T]]) -> str:
    """Why the server is away, as soon as it is."""
    try:
        while True:
            await call()
    except Unavailable as error:
        return error.message


async def count_up(tx: Transaction) -> int:
    value: int = (await tx.get(A, cached=True) or 0) + 1
    tx.put(A, value)
    return value


def codes(engine: PostgresEngine) -> list[str]:
    return [alarm.code for alarm in engine.alarms]


async def write(engine: PostgresEngine, times: int = 1) -> int:
    """The version of the last of some commits, one after the other."""
    version = 0
    for _ in range(times):
        version = int(await engine.commit([Put(B, b"1")], 0))
    return version


def put_back(server: PostgresServer, schema: str, dump: str) -> None:
    """Restore a dump in place of what is there, as an operator would, and break connections."""
    server.ask(f"DROP SCHEMA {schema} CASCADE")
    server.restore(dump)
    cut_all(server)


def cut_all(server: PostgresServer) -> None:
    server.ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'onceward'"
    )


async def test_a_failover_that_loses_commits_raises_an_alarm_on_all_nodes(
    servers: Servers, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    standby = servers.follow()
    url = address(schema, servers.primary, standby)
    async with PostgresEngine(url) as one, PostgresEngine(url) as two, PostgresEngine(url) as idle:
        await write(one)
        await write(two)
        standby.catch_up()
        standby.cut_off()
        lost = await write(one, 3)
        await write(two, 2)
        servers.fail_over(standby)
        assert await insist(lambda: write(two)) > lost + JUMP // 2, "no version is given twice"
        await insist(lambda: write(one))
        assert codes(one) == codes(two) == [COMMITS_LOST]
        assert one.incarnation == two.incarnation
        assert one.incarnation.number == 2
        # Who has lost nothing learns of it when it reads the clock, as nodes do.
        await insist(idle.now_ms)
        alarm = idle.alarms.get(COMMITS_LOST)
        assert alarm is not None
        assert "at least 5 acknowledged batches" in alarm.message
        assert "timeline 0000000" in caplog.text
        # A node that starts later, too; until an operator has dealt with it.
        async with PostgresEngine(url) as late:
            assert codes(late) == [COMMITS_LOST]
            assert servers.primary.ask(f"SELECT {schema}.accept_lost_commits()") == "5"
            await asyncio.gather(*(engine.now_ms() for engine in (one, two, idle, late)))
            assert codes(one) == codes(two) == codes(idle) == codes(late) == []
            assert late.incarnation.number == 2, "each failover begins one"


async def test_a_cached_record_of_a_lost_commit_passes_no_check(
    servers: Servers, schema: str
) -> None:
    standby = servers.follow()
    url = address(schema, servers.primary, standby)
    async with PostgresEngine(url) as engine, PostgresEngine(url) as other:
        one, two = Store(engine), Store(other)
        await one.run(count_up)
        standby.catch_up()
        standby.cut_off()
        # More than the server takes from a sequence in advance.
        for _ in range(60):
            await one.run(count_up)
        [lost] = await engine.get([A], 0)
        assert lost is not None
        servers.fail_over(standby)

        async def reset(tx: Transaction) -> None:
            tx.put(A, 1_000)

        # Without the jump one of these gets the version of the lost record.
        for _ in range(60):
            await insist(lambda: two.run(reset))
            [record] = await other.get([A], 0)
            assert record is not None
            if record.version == lost.version:
                break
        assert await insist(lambda: one.run(count_up)) == 1_001
        assert record.version != lost.version


async def test_a_failover_to_a_synchronous_standby_raises_no_alarm(
    servers: Servers, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    standby = servers.follow("other")
    url = address(schema, servers.primary, standby)
    async with PostgresEngine(url):
        assert "1 standbys, and none is synchronous" in caplog.text
    caplog.clear()
    servers.make_synchronous("other")
    async with PostgresEngine(url) as engine:
        assert "none is synchronous" not in caplog.text
        changes: list[Incarnation] = []
        engine.on_incarnation(changes.append)
        before = await write(engine, 60)
        servers.fail_over(standby)
        [record] = await insist(lambda: engine.get([B], 0))
        assert record is not None
        assert record.version == before, "nothing is lost"
        assert await write(engine) >= before + JUMP
        assert codes(engine) == []
        assert changes == [engine.incarnation]
        assert "failed over: incarnation 2" in caplog.text


async def test_a_node_does_not_return_to_a_former_primary(servers: Servers, schema: str) -> None:
    standby, former = servers.follow(), servers.primary
    async with Proxy(former.port, marker=MARKERS) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={schema}"
        async with PostgresEngine(url) as engine:
            await write(engine)
            standby.catch_up()
            standby.cut_off()
            await write(engine)
            standby.promote()  # the former primary goes on
            proxy.server_port = standby.port
            # One new connection is enough: those to the former primary are closed.
            old = [*engine._reads._links._idle, *engine._commits._links._idle]
            reader = await engine._connect()
            assert all(link.closed for link in old)
            reader.drop()
            assert codes(engine) == [COMMITS_LOST]
            version = await insist(lambda: write(engine))
            proxy.server_port = former.port
            proxy.cut_all()
            assert "a former primary" in await failure(lambda: engine.get([B], 0))
            assert former.ask(f"SELECT count(*) FROM {schema}.incarnation") == "1"
            proxy.server_port = standby.port
            assert await insist(lambda: write(engine)) > version
            assert engine.incarnation.number == 2
    servers.retire(standby)


async def test_a_dump_restored_elsewhere_begins_an_incarnation_once(
    server: PostgresServer, crashing: PostgresServer, url: str, schema: str
) -> None:
    async with PostgresEngine(url) as engine:
        version = await write(engine)
        crashing.restore(server.dump(schema))
        await write(engine)
        copies = [PostgresEngine(f"{crashing.url}?schema={schema}") for _ in range(4)]
        await asyncio.gather(*(copy.open() for copy in copies))
        assert {copy.incarnation for copy in copies} == {copies[0].incarnation}
        assert copies[0].incarnation.number == 2
        assert copies[0].incarnation.id != engine.incarnation.id
        assert await write(copies[1]) >= version + JUMP
        assert codes(copies[0]) == [], "nobody here was promised what is missing"
        for copy in copies:
            await copy.close()
        async with PostgresEngine(f"{crashing.url}?schema={schema}") as again:
            assert again.incarnation.number == 2
    async with PostgresEngine(url) as engine:
        assert engine.incarnation.number == 1


async def test_a_dump_restored_under_a_running_node_is_noticed(
    server: PostgresServer, url: str, schema: str
) -> None:
    async with PostgresEngine(url) as engine:
        store = Store(engine)
        await store.run(count_up)
        dump = await asyncio.to_thread(server.dump, schema)
        for _ in range(60):
            await store.run(count_up)
        put_back(server, schema, dump)
        assert await insist(lambda: store.run(count_up)) == 2
        assert engine.incarnation.number == 2
        assert codes(engine) == [COMMITS_LOST]


async def test_a_lane_that_is_behind_is_noticed_by_its_next_commit(
    server: PostgresServer, url: str, schema: str
) -> None:
    """As behind a pooler, which hides that the server is another one."""
    async with PostgresEngine(url, lanes=1) as engine:
        version = await write(engine, 3)
        server.ask(f"UPDATE {schema}.lane SET number = number - 1")
        assert await write(engine) >= version + JUMP
        assert engine.incarnation.number == 2
        assert codes(engine) == [COMMITS_LOST]


async def test_a_server_behind_a_pooler_is_compared_with_every_clock_reading(
    server: PostgresServer, url: str, schema: str
) -> None:
    async with PostgresEngine(url) as engine:
        version = await write(engine, 3)
        links = [*engine._reads._links._idle, *engine._commits._links._idle]
        server.ask(f"UPDATE {schema}.incarnation SET timeline = '0'")
        await engine.now_ms()
        assert engine.incarnation.number == 2
        assert all(link.closed for link in links)
        assert await write(engine) >= version + JUMP
        assert codes(engine) == []


async def test_a_server_that_crashes_and_recovers_is_the_same_incarnation(
    crashing: PostgresServer, schema: str
) -> None:
    async with PostgresEngine(f"{crashing.url}?schema={schema}") as engine:
        before = engine.incarnation
        await write(engine, 3)
        crashing.stop("immediate")
        crashing.start()
        await insist(lambda: write(engine))
        assert engine.incarnation == before
        assert codes(engine) == []


async def test_a_server_that_hides_its_identity_is_told_by_its_start(
    crashing: PostgresServer, schema: str
) -> None:
    crashing.ask(f"CREATE ROLE {schema} LOGIN")
    crashing.ask(f"CREATE DATABASE {schema} OWNER {schema}")
    as_admin = f"{crashing.url.removesuffix('postgres')}{schema}?schema={schema}"
    as_owner = as_admin.replace("postgres@", f"{schema}@")
    crashing.restore(f"""\\connect {schema}
        REVOKE EXECUTE ON FUNCTION pg_control_system, pg_current_wal_lsn FROM PUBLIC;
    """)
    async with PostgresEngine(as_owner) as engine:
        version = await write(engine)
        # The rights of the owner count: others seem to be on no other server.
        async with PostgresEngine(as_admin) as admin:
            assert admin.incarnation == engine.incarnation
        cut_all(crashing)
        await insist(lambda: write(engine))
        assert engine.incarnation.number == 1
        crashing.stop("fast")
        crashing.start()
        assert await insist(lambda: write(engine)) >= version + JUMP
        assert engine.incarnation.number == 2
        assert codes(engine) == []


async def test_only_lanes_that_the_server_still_has_are_compared(
    server: PostgresServer, url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresEngine(url) as engine:
        await write(engine)
        server.ask(f"DELETE FROM {schema}.lane")  # as it does with those not used for a day
        monkeypatch.setattr(limits, "LANE_KNOWN_S", 0)
        await write(engine)
        assert engine.incarnation.number == 1
        assert codes(engine) == []


async def test_a_node_remembers_its_latest_lanes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LANES_KNOWN_MAX", 2)
    async with PostgresEngine(url) as engine:
        for lane in (5, 7, 5, 9):
            engine._incarnations.acknowledged(lane, lane)
        assert engine._incarnations.arguments[2:] == ("{5,9}", "{5,9}")
