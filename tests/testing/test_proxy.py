"""The proxy cuts where it is told to, and nowhere else."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import asyncpg
import pytest

from onceward.errors import BadInput
from onceward.testing.postgres import PostgresServer
from onceward.testing.proxy import Cut, Proxy, chance

MARKER = b"UPDATE counter"
COUNT_UP = "UPDATE counter SET n = n + 1"
BROKEN = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


@pytest.fixture
async def direct(server: PostgresServer) -> AsyncIterator[Any]:
    """A connection past the proxy, to a counter that stands at 0."""
    connection = await asyncpg.connect(server.url)
    await connection.execute("CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)")
    yield connection
    await connection.execute("DROP TABLE counter")
    await connection.close()


@pytest.fixture
async def proxy(server: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy(server.port, marker=MARKER) as proxy:
        yield proxy


async def connect(proxy: Proxy) -> Any:
    return await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres")


async def counted(direct: Any) -> int:
    return int(await direct.fetchval("SELECT n FROM counter"))


async def until_counted(direct: Any, wanted: int) -> None:
    while await counted(direct) != wanted:
        pass


def once(cut: Cut) -> Any:
    cuts = [cut]
    return lambda: cuts.pop() if cuts else None


async def test_what_is_not_to_be_cut_goes_through(proxy: Proxy, direct: Any) -> None:
    connection = await connect(proxy)
    await connection.execute(COUNT_UP)
    assert await connection.fetchval("UPDATE counter SET n = n + $1 RETURNING n", 4) == 5
    big = "x" * 3_000_000
    assert await connection.fetchval("SELECT $1::text", big) == big
    assert proxy.requests > 1
    assert proxy.counts == {}
    await connection.close()
    assert await counted(direct) == 5


@pytest.mark.parametrize(
    ("cut", "applied"),
    [
        (Cut.REQUEST, 0),
        (Cut.HALF_REQUEST, 0),
        (Cut.ANSWER, 1),
        (Cut.HALF_ANSWER, 1),
    ],
)
async def test_a_cut_loses_the_request_or_the_answer(
    proxy: Proxy, direct: Any, cut: Cut, applied: int
) -> None:
    connection = await connect(proxy)
    proxy.plan = once(cut)
    with pytest.raises(BROKEN):
        await connection.execute(COUNT_UP)
    assert await counted(direct) == applied
    assert proxy.counts == {cut: 1}
    again = await connect(proxy)
    await again.execute(COUNT_UP)
    assert await counted(direct) == applied + 1
    await again.close()


async def test_a_request_cut_while_under_way_may_be_carried_out(proxy: Proxy, direct: Any) -> None:
    applied = 0
    for _ in range(5):
        connection = await connect(proxy)
        pid = connection.get_server_pid()
        proxy.plan = once(Cut.UNDER_WAY)
        with pytest.raises(BROKEN):
            await connection.execute(COUNT_UP)
        async with asyncio.timeout(20):
            # It is carried out or not, but the connection goes away in any case.
            while await direct.fetchval("SELECT 1 FROM pg_stat_activity WHERE pid = $1", pid):
                pass
        before, applied = applied, await counted(direct)
        assert applied - before in (0, 1)


async def test_a_late_request_arrives_after_others(proxy: Proxy, direct: Any) -> None:
    connection, other = await connect(proxy), await connect(proxy)
    proxy.plan = once(Cut.LATE)
    with pytest.raises(BROKEN):
        await connection.execute(COUNT_UP)
    for number in (1, 2):
        await other.execute(COUNT_UP)
        assert await counted(direct) == number
    await other.execute(COUNT_UP)
    async with asyncio.timeout(20):
        await until_counted(direct, 4)
    await other.close()


async def test_late_requests_can_be_delivered(proxy: Proxy, direct: Any) -> None:
    proxy.plan = lambda: Cut.LATE
    for _ in range(3):
        connection = await connect(proxy)
        with pytest.raises(BROKEN):
            await connection.execute(COUNT_UP)
    held = await counted(direct)
    await proxy.deliver()
    assert held < 3
    assert await counted(direct) == 3
    await proxy.deliver()


@pytest.mark.parametrize(("cut", "applied"), [(Cut.DEAF, 0), (Cut.MUTE, 1)])
async def test_a_half_open_connection_stays_and_says_nothing(
    proxy: Proxy, direct: Any, cut: Cut, applied: int
) -> None:
    connection = await connect(proxy)
    proxy.plan = once(cut)
    pending = asyncio.create_task(connection.execute(COUNT_UP))
    async with asyncio.timeout(20):
        await until_counted(direct, applied)
        while proxy.counts != {cut: 1}:  # noqa: ASYNC110
            await asyncio.sleep(0)
    other = await connect(proxy)
    await other.execute(COUNT_UP)
    assert await counted(direct) == applied + 1
    assert not pending.done()
    connection.terminate()
    with pytest.raises(BROKEN):
        await pending
    await other.close()


async def test_all_connections_can_be_cut_and_new_ones_refused(proxy: Proxy, direct: Any) -> None:
    connections = [await connect(proxy) for _ in range(3)]
    proxy.refusing = True
    proxy.cut_all()
    for connection in connections:
        with pytest.raises(BROKEN):
            await connection.execute("SELECT 1")
    with pytest.raises(BROKEN):
        await connect(proxy)
    proxy.refusing = False
    await (await connect(proxy)).close()


async def test_a_server_that_is_away_is_away_behind_the_proxy_too(server: PostgresServer) -> None:
    async with Proxy(server.port, marker=MARKER) as other:
        nowhere = other.port
    async with Proxy(nowhere, marker=MARKER) as proxy:
        with pytest.raises(BROKEN):
            await connect(proxy)


async def test_leaving_ends_what_is_open_and_delivers_what_is_held(
    server: PostgresServer, direct: Any
) -> None:
    async with Proxy(server.port, marker=MARKER) as proxy:
        idle, late, deaf = [await connect(proxy) for _ in range(3)]
        proxy.plan = once(Cut.LATE)
        with pytest.raises(BROKEN):
            await late.execute(COUNT_UP)
        proxy.plan = once(Cut.DEAF)
        pending = asyncio.create_task(deaf.execute(COUNT_UP))
        while proxy.counts[Cut.DEAF] == 0:  # noqa: ASYNC110
            await asyncio.sleep(0)
    with pytest.raises(BROKEN):
        await pending
    assert await counted(direct) == 1
    with pytest.raises(BROKEN):
        await idle.execute("SELECT 1")


def test_a_late_request_is_later_than_others() -> None:
    with pytest.raises(BadInput):
        Proxy(1, marker=MARKER, late_by=0)


def test_a_plan_by_chance_cuts_at_its_rates() -> None:
    plan = chance(Random(1), {Cut.ANSWER: 0.2, Cut.REQUEST: 0.1})
    made = [plan() for _ in range(2_000)]
    assert 300 < made.count(Cut.ANSWER) < 500
    assert 130 < made.count(Cut.REQUEST) < 270
    assert set(made) == {Cut.ANSWER, Cut.REQUEST, None}
