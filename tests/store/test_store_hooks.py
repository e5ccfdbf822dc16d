"""Hooks: how parts learn what has become durable."""

import asyncio
from typing import Any

import pytest

from onceward.engine.base import Version
from onceward.engine.memory import MemoryEngine
from onceward.errors import Conflict, Unavailable
from onceward.store.store import Commit
from onceward.store.transaction import Transaction
from tests.quick import START_MS, WatchedEngine, change, quick_store, stored

A, B = ("p", "a"), ("p", "b")


class NotFound(Exception):
    """What an application raises."""


async def count_up(tx: Transaction) -> int:
    value: int = (await tx.get(A) or 0) + 1
    tx.put(A, value)
    return value


async def test_hooks_learn_of_every_commit_that_changed_something() -> None:
    store = await quick_store()
    told: list[Commit] = []
    store.on_durable(told.append)

    async def fn(tx: Transaction) -> None:
        await tx.get(B)
        tx.put(A, 1)

    await store.run(fn)
    await store.run(lambda tx: tx.get(A))
    [record] = await store.engine.get([A], START_MS)
    assert record is not None
    [commit] = told
    assert commit.version == record.version
    assert commit.now_ms == START_MS
    assert [write.key for write in commit.writes] == [A, B]


class Slow(MemoryEngine):
    """A commit is visible at once, and durable when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.visible, self.durable = asyncio.Event(), asyncio.Event()

    async def commit(self, *args: Any) -> Version:
        version = await super().commit(*args)
        self.visible.set()
        await self.durable.wait()
        return version


async def test_hooks_are_called_when_the_commit_is_durable_not_when_it_is_visible() -> None:
    engine = Slow()
    store = await quick_store(engine)
    told = []
    store.on_durable(lambda commit: told.append("store"))

    async def fn(tx: Transaction) -> None:
        tx.on_durable(lambda: told.append("tx"))
        tx.put(A, 1)

    running = asyncio.create_task(store.run(fn))
    await engine.visible.wait()
    assert await stored(store, A) == 1
    assert told == []
    engine.durable.set()
    await running
    assert told == ["tx", "store"]


async def test_hooks_of_a_transaction_that_only_read_are_called_once_it_is_checked() -> None:
    store = await quick_store()
    told: list[str] = []

    async def look(tx: Transaction) -> None:
        tx.on_durable(lambda: told.append("read"))
        await tx.get(A)

    async def nothing(tx: Transaction) -> None:
        tx.on_durable(lambda: told.append("nothing"))

    async def fail(tx: Transaction) -> None:
        tx.on_durable(lambda: told.append("failed"))
        await tx.get(A)
        raise NotFound

    await store.run(look)
    await store.run(nothing)
    with pytest.raises(NotFound):
        await store.run(fail)
    assert told == ["read", "nothing"]


async def test_who_wants_to_know_the_end_of_a_transaction_is_told_once() -> None:
    store = await quick_store()
    ends: list[tuple[int, bool]] = []
    runs = 0

    async def fn(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        run = runs
        assert tx.on_end(lambda durable: ends.append((run, durable)))
        await tx.get(A)
        if run == 1:
            await store.run(count_up)  # in its way
        if run == 3:
            raise ValueError("no")
        tx.put(A, "mine")
        assert ends == [(n, False) for n in range(1, run)]

    await store.run(fn)
    assert ends == [(1, False), (2, True)]
    ends.clear()
    with pytest.raises(ValueError, match="no"):
        await store.run(fn)
    assert ends == [(3, False)]


async def test_the_end_of_a_transaction_that_nobody_ends_is_not_told() -> None:
    store = await quick_store()
    assert not store.begin().on_end(lambda durable: None)


async def test_the_end_of_a_commit_whose_caller_was_cancelled_is_told_when_it_is_durable() -> None:
    engine = Slow()
    store = await quick_store(engine)
    ends: list[bool] = []
    told = asyncio.Event()
    store.on_durable(lambda commit: told.set())

    async def fn(tx: Transaction) -> None:
        tx.on_end(ends.append)
        tx.put(A, 1)

    running = asyncio.create_task(store.run(fn))
    await engine.visible.wait()
    running.cancel()
    await asyncio.wait([running])
    assert ends == []
    engine.durable.set()
    await told.wait()
    assert ends == [True]


async def test_hooks_learn_of_a_commit_whose_caller_was_cancelled_once_it_is_durable() -> None:
    engine = Slow()
    store = await quick_store(engine)
    told: list[Any] = []
    all_told = asyncio.Event()

    def hook(commit: Commit) -> None:
        told.append(commit)
        all_told.set()

    store.on_durable(hook)

    async def fn(tx: Transaction) -> None:
        tx.on_durable(lambda: told.append("tx"))
        tx.put(A, 1)

    running = asyncio.create_task(store.run(fn))
    await engine.visible.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for _ in range(10):
        await asyncio.sleep(0)
    assert told == []
    engine.durable.set()
    await all_told.wait()
    [record] = await engine.get([A], START_MS)
    assert record is not None
    assert told[0] == "tx"
    assert (told[1].version, [write.key for write in told[1].writes]) == (record.version, [A])
    assert len(told) == 2


async def test_hooks_learn_of_it_also_after_the_engine_was_away_for_a_while() -> None:
    class Away(Slow):
        refused = 0

        async def commit(self, *args: Any) -> Version:
            if self.visible.is_set() and self.refused < 50:
                self.refused += 1
                raise Unavailable("away") if self.refused % 2 else Conflict("for no reason")
            return await super().commit(*args)

    engine = Away()
    store = await quick_store(engine)
    told = asyncio.Event()
    store.on_durable(lambda commit: told.set())
    running = asyncio.create_task(store.run(count_up))
    await engine.visible.wait()
    running.cancel()
    await asyncio.wait([running])
    engine.durable.set()
    await told.wait()
    assert engine.refused == 50


async def test_hooks_are_not_told_of_what_a_closed_engine_may_have() -> None:
    class Closed(Slow):
        async def commit(self, *args: Any) -> Version:
            if self.visible.is_set():
                raise Unavailable("closed", code="engine_closed")
            return await super().commit(*args)

    engine = Closed()
    store = await quick_store(engine)
    told: list[Commit] = []
    store.on_durable(told.append)
    running = asyncio.create_task(store.run(count_up))
    await engine.visible.wait()
    running.cancel()
    await asyncio.wait([running])
    await asyncio.gather(*store._telling)
    assert told == []
    assert store._left == {}


async def test_hooks_learn_in_order_of_commits_whose_callers_were_cancelled() -> None:
    engine = Slow()
    store = await quick_store(engine)
    told: list[str] = []
    store.on_durable(lambda commit: told.extend(write.key[1] for write in commit.writes))

    def putting(name: str) -> asyncio.Task[None]:
        async def fn(tx: Transaction) -> None:
            tx.put(("p", name), 1)

        return asyncio.create_task(store.run(fn))

    tasks = [putting(name) for name in "abcd"]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(await engine.scan("p", START_MS)) == 4
    tasks[2].cancel()
    tasks[0].cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    engine.durable.set()
    await asyncio.wait(tasks)
    assert told == ["a", "b", "c", "d"]


async def test_hooks_are_not_told_of_a_commit_that_was_cancelled_too_early() -> None:
    store = await quick_store(engine := WatchedEngine())
    told: list[Any] = []
    store.on_durable(told.append)
    engine.before_commit = asyncio.Event().wait
    running = asyncio.create_task(store.run(count_up))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await stored(store, A) is None
    assert told == []


async def test_hooks_of_runs_that_failed_are_never_called() -> None:
    store = await quick_store()
    told: list[Any] = []
    store.on_durable(told.append)
    runs = 0

    async def fn(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        run = runs
        tx.on_durable(lambda: told.append(run))
        await tx.get(A)
        if runs < 3:
            await change(store, A, runs)
        if runs == 4:
            raise NotFound
        tx.put(B, 1)

    await store.run(fn)
    assert told[0] == 3
    assert len(told) == 2
    with pytest.raises(NotFound):
        await store.run(fn)
    assert len(told) == 2


async def test_a_hook_can_be_taken_out_also_by_itself() -> None:
    store = await quick_store()
    told = []

    def once(commit: Commit) -> None:
        told.append("once")
        take_out()

    take_out = store.on_durable(once)
    store.on_durable(lambda commit: told.append("always"))
    await store.run(count_up)
    await store.run(count_up)
    assert told == ["once", "always", "always"]
