import asyncio
from typing import Any

import pytest

from onceward import limits
from onceward.engine.memory import MemoryEngine
from onceward.errors import (
    BadInput,
    Conflict,
    Contention,
    EngineStopped,
    OncewardError,
    OutcomeUnknown,
    StorageFull,
    Unavailable,
)
from onceward.store import Store
from onceward.store.transaction import Transaction
from tests.quick import START_MS, QuickClock, WatchedEngine, change, quick_store, stored

A, B = ("p", "a"), ("p", "b")


class NotFound(Exception):
    """What an application raises."""


async def count_up(tx: Transaction) -> int:
    value: int = (await tx.get(A) or 0) + 1
    tx.put(A, value)
    return value


# Running.


async def test_it_returns_what_the_function_returned_and_has_committed() -> None:
    store = await quick_store()
    assert await store.run(count_up) == 1
    assert await store.run(count_up) == 2
    assert await stored(store, A) == 2


async def test_all_writes_of_a_function_are_one_commit() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)

    async def fn(tx: Transaction) -> None:
        await tx.get(A)
        tx.put(A, 1)
        tx.put(B, 2)
        tx.delete(("other", "c"))

    await store.run(fn)
    assert len(engine.commits) == 1
    assert await stored(store, B) == 2


async def test_a_function_that_does_nothing_commits_nothing() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)

    async def nothing(tx: Transaction) -> str:
        return "done"

    assert await store.run(nothing) == "done"
    assert engine.commits == []


async def test_each_run_has_one_time() -> None:
    store = await quick_store()
    assert isinstance(store.clock, QuickClock)

    async def fn(tx: Transaction) -> int:
        assert isinstance(store.clock, QuickClock)
        store.clock.at_ms += 1_000
        return tx.now_ms

    assert await store.run(fn) == START_MS
    assert await store.run(fn) == START_MS + 1_000


async def test_by_default_it_makes_its_own_clock_and_ids() -> None:
    store = Store(await MemoryEngine().open())
    assert await store.run(count_up) == 1
    assert abs(store.clock.now_ms() - await store.run(_now_ms)) < 60_000
    assert store.ids.new()


async def _now_ms(tx: Transaction) -> int:
    return tx.now_ms


# Conflicts.


async def test_on_conflict_it_runs_again_and_sees_the_change() -> None:
    store = await quick_store()
    seen = []

    async def fn(tx: Transaction) -> None:
        seen.append(await tx.get(A))
        if len(seen) <= 3:
            await change(store, A, len(seen))
        tx.put(B, seen[-1])

    await store.run(fn)
    assert seen == [None, 1, 2, 3]
    assert await stored(store, B) == 3


async def test_a_blind_put_never_conflicts() -> None:
    store = await quick_store()
    runs = 0

    async def fn(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await change(store, A, "theirs")
        tx.put(A, "ours")

    await store.run(fn)
    assert runs == 1
    assert await stored(store, A) == "ours"


async def test_no_update_is_lost_among_many_callers() -> None:
    store = await quick_store()

    async def slowly(tx: Transaction) -> None:
        value = await tx.get(A) or 0
        await asyncio.sleep(0)
        tx.put(A, value + 1)

    await asyncio.gather(*(store.run(slowly, attempts_max=1_000) for _ in range(20)))
    assert await stored(store, A) == 20


@pytest.mark.parametrize("attempts_max", [1, 2, 7])
async def test_after_so_many_conflicts_it_gives_up_with_contention(attempts_max: int) -> None:
    store = await quick_store()
    runs = 0

    async def fn(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await tx.get(A)
        await change(store, A, runs)
        tx.put(B, 1)

    with pytest.raises(Contention, match=f"{attempts_max} conflicts in a row"):
        await store.run(fn, attempts_max=attempts_max)
    assert runs == attempts_max
    assert await stored(store, B) is None


async def test_by_default_attempts_and_pauses_are_bounded() -> None:
    store = await quick_store()
    assert isinstance(store.clock, QuickClock)

    async def fn(tx: Transaction) -> None:
        await tx.get(A)
        await change(store, A, 1)

    with pytest.raises(Contention):
        await store.run(fn)
    pauses_ms = [pause_s * 1_000 for pause_s in store.clock.slept_s]
    assert len(pauses_ms) == limits.TRANSACTION_ATTEMPTS_MAX
    assert pauses_ms[0] == 0, "the first repeat comes at once"
    assert max(pauses_ms) <= limits.TRANSACTION_PAUSE_MS_MAX
    assert len(set(pauses_ms[8:])) > 1, "with jitter"


# Answers that write nothing.


async def test_what_was_only_read_is_validated() -> None:
    store = await quick_store()
    seen = []

    async def fn(tx: Transaction) -> Any:
        seen.append(await tx.get(A))
        if len(seen) == 1:
            await change(store, A, "now")
        return seen[-1]

    assert await store.run(fn) == "now"
    assert seen == [None, "now"]


async def test_a_stale_refusal_is_not_raised() -> None:
    store = await quick_store()
    runs = 0

    async def fn(tx: Transaction) -> Any:
        nonlocal runs
        runs += 1
        value = await tx.get(A)
        if value is None:
            await change(store, A, "there")
            raise NotFound
        return value

    assert await store.run(fn) == "there"
    assert runs == 2


async def test_what_the_function_raises_is_raised_and_nothing_written() -> None:
    store = await quick_store()

    async def fn(tx: Transaction) -> None:
        await tx.get(A)
        tx.put(A, 1)
        tx.delete(B)
        raise NotFound

    await change(store, B, "kept")
    with pytest.raises(NotFound):
        await store.run(fn)
    assert await stored(store, A) is None
    assert await stored(store, B) == "kept"


async def test_an_error_that_stands_after_validation_is_raised_once() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)

    async def fn(tx: Transaction) -> None:
        await tx.get(A)
        raise BadInput("no such thing")

    with pytest.raises(BadInput, match="no such thing"):
        await store.run(fn)
    assert len(engine.commits) == 1


async def test_a_conflict_raised_by_the_function_is_its_own() -> None:
    store = await quick_store()
    runs = 0

    async def fn(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        raise Conflict("held by someone else", holder="Ada")

    with pytest.raises(Conflict, match="held by someone else"):
        await store.run(fn)
    assert runs == 1


@pytest.mark.parametrize(
    "error", [EngineStopped("stopped"), OutcomeUnknown("unknown"), Unavailable("away")]
)
async def test_when_reading_fails_it_does_not_try_to_validate(error: OncewardError) -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)

    async def fn(tx: Transaction) -> None:
        await tx.get(A)
        raise error

    with pytest.raises(type(error)):
        await store.run(fn)
    assert engine.commits == []


@pytest.mark.parametrize("error", [EngineStopped("stopped"), StorageFull("full")])
async def test_what_the_engine_raises_at_the_commit_is_passed_on(error: OncewardError) -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)

    async def fail() -> None:
        raise error

    engine.before_commit = fail
    with pytest.raises(type(error)):
        await store.run(count_up)


async def test_a_scan_alone_waits_for_what_it_has_seen_to_be_durable() -> None:
    engine = WatchedEngine()
    store = await quick_store(engine)
    await store.run(lambda tx: tx.scan("p"))
    assert len(engine.commits) == 1
