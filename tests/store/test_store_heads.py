"""Cached heads: hot records kept in memory, checked at every commit."""

import pytest

from onceward import limits
from onceward.engine.base import Incarnation
from onceward.store.transaction import Transaction
from tests.quick import START_MS, QuickClock, WatchedEngine, change, quick_store, remove, stored

A, B = ("p", "a"), ("p", "b")


async def count_head(tx: Transaction) -> int:
    value: int = (await tx.get(A, cached=True) or 0) + 1
    tx.put(A, value)
    return value


async def test_a_cached_head_is_read_once_and_follows_own_commits() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)
    for expected in range(1, 6):
        assert await store.run(count_head) == expected
    assert engine.reads == [A]
    assert await stored(store, A) == 5


async def test_a_head_that_others_changed_costs_one_more_run() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)
    await store.run(count_head)
    await change(store, A, 10)
    engine.commits.clear()
    assert await store.run(count_head) == 11
    assert len(engine.commits) == 2


async def test_a_stale_head_is_no_answer_either() -> None:
    store = await quick_store()
    await store.run(count_head)
    await remove(store, A)
    assert await store.run(lambda tx: tx.get(A, cached=True)) is None


async def test_reading_without_the_cache_goes_to_the_engine() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)
    await store.run(count_head)
    engine.reads.clear()
    assert await store.run(lambda tx: tx.get(A)) == 1
    assert engine.reads == [A]


async def test_a_deleted_head_is_forgotten() -> None:
    store = await quick_store()
    await store.run(count_head)

    async def delete(tx: Transaction) -> None:
        await tx.get(A, cached=True)
        tx.delete(A)

    await store.run(delete)
    assert A not in store._heads.records
    assert await store.run(count_head) == 1


async def test_a_blind_put_of_a_head_refreshes_it() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)
    await store.run(count_head)

    async def put(tx: Transaction) -> None:
        tx.put(A, 100)

    await store.run(put)
    engine.reads.clear()
    assert await store.run(count_head) == 101
    assert engine.reads == []


async def test_a_head_that_was_only_checked_stays_cached() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)
    await change(store, A, 1)

    async def append(tx: Transaction) -> None:
        await tx.get(A, cached=True)
        tx.put(B, 1)

    await store.run(append)
    await store.run(append)
    assert engine.reads == [A]


async def test_an_expired_head_is_absent() -> None:
    store = await quick_store()
    assert isinstance(store.clock, QuickClock)

    async def put(tx: Transaction) -> None:
        await tx.get(A, cached=True)
        tx.put(A, 1, expires_at_ms=START_MS + 10)

    await store.run(put)
    assert await store.run(lambda tx: tx.get(A, cached=True)) == 1
    store.clock.at_ms += 10
    assert await store.run(lambda tx: tx.get(A, cached=True)) is None


@pytest.mark.parametrize("write", [False, True])
async def test_heads_are_bounded(monkeypatch: pytest.MonkeyPatch, write: bool) -> None:
    monkeypatch.setattr(limits, "HEADS_MAX", 5)
    store = await quick_store()

    async def use(tx: Transaction, key: tuple[str, str]) -> None:
        await tx.get(key, cached=True)
        if write:
            tx.put(key, 1)

    for i in range(20):
        key = ("p", f"{i}")
        await change(store, key, 0)
        await store.run(lambda tx, key=key: use(tx, key))
    assert len(store._heads.records) == 5
    assert ("p", "19") in store._heads.records, "the newest stay"


async def test_the_view_of_a_running_transaction_is_not_disturbed_by_others() -> None:
    store = await quick_store()
    await store.run(count_head)
    views = []

    async def fn(tx: Transaction) -> None:
        first = await tx.get(A, cached=True)
        if not views:
            await store.run(count_head)
        views.append((first, await tx.get(A, cached=True)))

    await store.run(fn)
    assert views == [(1, 1), (2, 2)]


async def test_a_new_incarnation_of_the_database_drops_all_copies() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)
    await store.run(count_head)
    engine.incarnation_changed(Incarnation("other", 2))
    await store.run(count_head)
    assert engine.reads == [A, A]
    store.close()
    store.close()
    engine.incarnation_changed(Incarnation("another", 3))
    await store.run(count_head)
    assert engine.reads == [A, A], "it follows no more"
