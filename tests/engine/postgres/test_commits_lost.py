"""Commits whose answers are lost: what became of them is found out, and never guessed at."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest

from onceward import limits
from onceward.engine.base import ABSENT, Put
from onceward.engine.postgres import PostgresEngine
from onceward.engine.postgres.link import Link
from onceward.errors import Conflict, OutcomeUnknown, Unavailable
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.testing.postgres import PostgresServer
from onceward.testing.proxy import Cut, Proxy
from tests.engine.postgres.insisting import MARKER, MARKERS

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


def once(cut: Cut) -> Any:
    cuts = [cut]
    return lambda: cuts.pop() if cuts else None


async def values(engine: PostgresEngine, *keys: tuple[str, str]) -> list[bytes | None]:
    return [record and record.value for record in await engine.get(keys, 0)]


def told_by(engine: PostgresEngine) -> list[bool]:
    """Of which changes watches are hinted from now on: whether their callers know of them."""
    told: list[bool] = []
    engine._commits.changed = lambda _, own: told.append(own)
    return told


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Call again and again until the server is back."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0)


@pytest.mark.parametrize("cut", list(Cut))
async def test_what_became_of_commits_whose_answer_is_lost_is_found_out(
    proxy: Proxy, engine: PostgresEngine, cut: Cut
) -> None:
    await engine.commit([Put(A, b"0")], 0)
    proxy.plan = once(cut)
    visible: list[Any] = []
    told = told_by(engine)
    outcomes = await asyncio.gather(
        engine.commit([Put(A, b"1")], 0, visible.append),
        engine.commit([Put(B, b"1", None, ABSENT)], 0, visible.append),
        engine.commit([Put(A, b"2", None, ABSENT)], 0, visible.append),
        return_exceptions=True,
    )
    assert told == [True, True], "no one need look for what he was told"
    assert proxy.counts == {cut: 1}
    assert visible == outcomes[:2]
    assert type(outcomes[2]) is Conflict
    await proxy.deliver()  # a late one is refused now
    records = await engine.get([A, B], 0)
    assert [(r.value, r.version) for r in records if r] == [(b"1", v) for v in visible]


@pytest.mark.parametrize("cut", list(Cut))
async def test_it_is_found_out_though_the_question_is_lost_too(
    server: PostgresServer, schema: str, cut: Cut
) -> None:
    async with Proxy(server.port, marker=MARKERS) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?schema={schema}"
        async with PostgresEngine(url, answer_s=0.3) as engine:
            await engine.commit([Put(A, b"0")], 0)
            for first in (Cut.REQUEST, Cut.ANSWER, Cut.LATE):
                cuts = [first, cut, Cut.ANSWER]
                proxy.plan = lambda cuts=cuts: cuts.pop(0) if cuts else None
                version = await engine.commit([Put(A, b"1")], 0)
                assert cuts == []
                await proxy.deliver()
                [record] = await engine.get([A], 0)
                assert record is not None
                assert record.version == version


@pytest.mark.parametrize("cut", list(Cut))
async def test_a_transaction_whose_answer_is_lost_is_applied_once(
    proxy: Proxy, engine: PostgresEngine, cut: Cut
) -> None:
    store, runs = Store(engine), 0

    async def count_up(tx: Transaction) -> int:
        nonlocal runs
        runs += 1
        value: int = (await tx.get(A) or 0) + 1
        tx.put(A, value)
        return value

    assert await store.run(count_up) == 1
    proxy.plan = once(cut)
    assert await store.run(count_up) == 2
    await proxy.deliver()
    assert await store.run(count_up) == 3
    assert runs == 3, "it need not even run again"
    assert await values(engine, A) == [b"3"]


@pytest.mark.parametrize("cut", [Cut.REQUEST, Cut.ANSWER])
async def test_while_no_one_can_be_asked_the_outcome_is_unknown(
    proxy: Proxy, engine: PostgresEngine, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTCOME_MS_MAX", 20)
    await engine.commit([Put(A, b"0")], 0)

    def cut_and_refuse() -> Cut:
        proxy.refusing = True
        proxy.plan = None
        return cut

    proxy.plan = cut_and_refuse
    told = told_by(engine)
    with pytest.raises(OutcomeUnknown, match="it may or may not have been applied"):
        await engine.commit([Put(A, b"1")], 0)
    assert told == [False], "it may have been applied"
    with pytest.raises(Unavailable):
        await engine.commit([Put(A, b"2")], 0)
    proxy.refusing = False
    assert await insist(lambda: values(engine, A)) == [b"1" if cut is Cut.ANSWER else b"0"]


async def test_when_it_is_too_late_to_ask_the_outcome_is_unknown(
    proxy: Proxy, engine: PostgresEngine, url: str, schema: str
) -> None:
    await engine.commit([Put(A, b"0")], 0)
    admin = await Link.connect(engine.target)

    def cut_and_refuse() -> Cut:
        proxy.refusing = True
        return Cut.LATE

    proxy.plan = cut_and_refuse
    commit = asyncio.create_task(engine.commit([Put(A, b"1")], 0))
    while not proxy.counts[Cut.LATE]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await admin.fetch(f"DELETE FROM {schema}.lane")  # as if it had been asleep for a day
    proxy.refusing = False
    with pytest.raises(OutcomeUnknown, match="cannot be determined"):
        await commit
    await admin.close()
    await proxy.deliver()
    assert await values(engine, A) == [b"0"], "without its lane it is refused, however late"


async def test_a_commit_that_is_lost_again_and_again_is_given_up(
    proxy: Proxy, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_TRIES_MAX", 3)
    proxy.plan = lambda: Cut.REQUEST
    with pytest.raises(Unavailable, match="in every attempt"):
        await engine.commit([Put(A, b"1")], 0)
    assert proxy.counts == {Cut.REQUEST: 3}
    assert await values(engine, A) == [None]


async def test_a_batch_whose_lane_is_gone_is_refused_and_sent_by_another(
    engine: PostgresEngine, url: str, schema: str
) -> None:
    await engine.commit([Put(A, b"1")], 0)
    [link] = engine._commits._links._idle
    admin = await Link.connect(engine.target)
    # When a lane is opened, those go that have not been used for long.
    await admin.fetch(f"UPDATE {schema}.lane SET used_at = now() - interval '2 days'")
    async with PostgresEngine(url) as second:
        await second.commit([Put(B, b"1")], 0)
    [(lanes,)] = await admin.fetch(f"SELECT count(*) FROM {schema}.lane")
    assert lanes == 1
    await admin.close()
    await engine.commit([Put(A, b"2")], 0)
    assert link.closed
    assert await values(engine, A, B) == [b"2", b"1"]
