"""The engine when the network fails: quick to say so, quick to come back, and never guessing."""

import asyncio
import builtins
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import asyncpg
import pytest

from onceward import engine as engines
from onceward import limits
from onceward.engine.base import ABSENT, Put
from onceward.engine.postgres import PostgresEngine
from onceward.errors import BadInput, OutcomeUnknown, Unavailable
from onceward.testing.postgres import PostgresServer
from onceward.testing.proxy import Cut, Proxy
from tests.engine.postgres.insisting import MARKER

T = TypeVar("T")
A, B = ("p", "a"), ("p", "b")


@pytest.fixture
async def proxy(server: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy(server.port, marker=MARKER) as proxy:
        yield proxy


@pytest.fixture
async def engine(proxy: Proxy, schema: str) -> AsyncIterator[PostgresEngine]:
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={schema}"
    async with PostgresEngine(url, answer_s=0.3) as engine:
        yield engine


async def values(engine: PostgresEngine, *keys: tuple[str, str]) -> list[bytes | None]:
    return [record and record.value for record in await engine.get(keys, 0)]


async def cut_idle(proxy: Proxy, engine: PostgresEngine) -> None:
    """Cut all connections, and wait until the engine must have noticed."""
    links = [*engine._commits._links._idle, *engine._reads._links._idle]
    proxy.cut_all()
    while not all(link.closed for link in links):  # noqa: ASYNC110
        await asyncio.sleep(0)


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Call again and again until the server is back."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0)


async def test_open_opens_the_engine_that_a_url_names(url: str) -> None:
    async with await engines.open(url) as opened:
        assert isinstance(opened, PostgresEngine)
        assert await opened.open() is opened
    for alias in ("postgres://host/db", "postgresql://host/db?schema=a"):
        assert isinstance(engines.create(alias), PostgresEngine)


def test_without_the_driver_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "onceward.engine.postgres":
            raise ModuleNotFoundError("No module named 'asyncpg'", name="asyncpg")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadInput, match=r"needs asyncpg: pip install 'onceward\[postgres\]'"):
        engines.create("postgresql://host/db")


async def test_before_it_is_opened_it_refuses(url: str) -> None:
    engine = PostgresEngine(url)
    with pytest.raises(Unavailable) as refused:
        await engine.now_ms()
    assert refused.value.code == "engine_closed"
    await engine.close()


async def test_while_the_server_is_away_calls_fail_at_once_and_then_work_again(
    proxy: Proxy, engine: PostgresEngine
) -> None:
    await engine.commit([Put(A, b"1")], 0)
    await engine.get([A], 0)
    proxy.refusing = True
    await cut_idle(proxy, engine)
    for _ in range(3):
        async with asyncio.timeout(limits.CONNECT_S):
            for call in (
                engine.commit([Put(A, b"2")], 0),
                engine.get([A], 0),
                engine.scan("p", 0),
                engine.sweep(0),
                engine.now_ms(),
            ):
                with pytest.raises(Unavailable) as away:
                    await call
                assert away.value.code == "engine_unreachable"
    proxy.refusing = False
    async with asyncio.timeout(20):
        await insist(lambda: engine.commit([Put(B, b"1", None, ABSENT)], 0))
        assert await insist(lambda: values(engine, A, B)) == [b"1", b"1"]


async def test_what_was_never_sent_has_no_unknown_outcome(
    proxy: Proxy, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.commit([Put(A, b"1")], 0)
    await engine.get([A], 0)

    async def fail(*arguments: Any, **options: Any) -> Any:
        raise asyncpg.InternalClientError("no host is a primary")

    with monkeypatch.context() as patch:
        patch.setattr("asyncpg.connect", fail)
        await cut_idle(proxy, engine)
        for call in (engine.commit([Put(A, b"2")], 0), engine.get([A], 0), engine.scan("p", 0)):
            with pytest.raises(Unavailable, match="no host is a primary"):
                await call
    async with asyncio.timeout(20):
        assert await insist(lambda: values(engine, A)) == [b"1"]
        await insist(lambda: engine.commit([Put(A, b"3")], 0))


async def test_a_connection_cut_while_idle_is_replaced_unnoticed(
    proxy: Proxy, engine: PostgresEngine
) -> None:
    await engine.commit([Put(A, b"1")], 0)
    await cut_idle(proxy, engine)
    await engine.commit([Put(A, b"2")], 0)
    assert await values(engine, A) == [b"2"]


async def test_closing_answers_what_is_under_way_though_the_server_is_away(
    proxy: Proxy, engine: PostgresEngine
) -> None:
    await engine.commit([Put(A, b"1")], 0)
    proxy.refusing = True
    proxy.plan = lambda: Cut.REQUEST
    commits = [asyncio.create_task(engine.commit([Put(A, b"2")], 0)) for _ in range(3)]
    await asyncio.sleep(0)
    await engine.close()
    outcomes = await asyncio.gather(*commits, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {OutcomeUnknown, Unavailable}


async def test_closing_that_is_cut_off_leaves_nothing_behind(url: str, schema: str) -> None:
    engine = await PostgresEngine(url).open()
    await engine.commit([Put(A, b"1")], 0)
    await engine.get([A], 0)
    admin = await asyncpg.connect(url.partition("?")[0])
    others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onceward'"
    async with admin.transaction():
        await admin.execute(f"SELECT FROM {schema}.record FOR UPDATE")
        commit = asyncio.create_task(engine.commit([Put(A, b"2")], 0))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not await admin.fetch(waiting):
            await admin.execute("SELECT pg_stat_clear_snapshot()")
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    assert await commit
    while await admin.fetchval(others):
        pass
    await admin.close()


async def test_an_engine_can_be_opened_again(url: str) -> None:
    engine = PostgresEngine(url)
    for number in range(2):
        async with engine:
            await engine.commit([Put(A, str(number).encode())], 0)
            assert await values(engine, A) == [str(number).encode()]


async def test_the_largest_keys_can_be_stored_however_random_they_are(url: str) -> None:
    """A compressed index entry would hide that there is a limit."""
    text = "".join(chr(0x4E00 + number**3 % 20_011) for number in range(1_020))
    partition, sort = text[:680] + "12345678", text[680:] + "1234"
    assert len(partition.encode()) == limits.PARTITION_BYTES_MAX
    assert len(sort.encode()) == limits.SORT_BYTES_MAX
    async with PostgresEngine(url) as engine:
        await engine.commit([Put((partition, sort), b"1", None, ABSENT)], 0)
        [record] = await engine.scan(partition, 0)
        assert record.key == (partition, sort)
        assert await engine.get([record.key, (partition + "x", sort)], 0) == [record, None]
