"""Commits whose outcome the engine could not find out, and checks whose answer was lost."""

import asyncio
from collections import deque
from typing import Any

import pytest

from onceward import limits
from onceward.engine.base import Put, Version, Write
from onceward.engine.memory import MemoryEngine
from onceward.errors import OutcomeUnknown, TooLarge, Unavailable
from onceward.store import Store
from onceward.store.transaction import Transaction
from tests.quick import QuickClock, change, stored

A = ("p", "a")

# What becomes of a commit: it is applied and answered; applied, but the answer is lost; lost
# on the way; or refused for now.
FINE, ANSWER_LOST, REQUEST_LOST, AWAY = "fine", "answer lost", "request lost", "away"


class ScriptedEngine(MemoryEngine):
    """Lets each commit fare as the script says, then all fine."""

    def __init__(self, *script: str) -> None:
        super().__init__()
        self.script = deque(script)
        self.commits: list[list[Write]] = []

    async def commit(self, writes: Any, now_ms: int, visible: Any = None) -> Version:
        self.commits.append(list(writes))
        fate = self.script.popleft() if self.script else FINE
        if fate == AWAY:
            raise Unavailable("no connection")
        if fate == ANSWER_LOST:
            await super().commit(writes, now_ms)
        if fate != FINE:
            raise OutcomeUnknown("the answer was lost")
        return await super().commit(writes, now_ms, visible)


class Counter:
    """Counts a record up, and counts its own runs."""

    def __init__(self, *, cached: bool = False) -> None:
        self.runs = 0
        self.durable = 0
        self.cached = cached

    async def __call__(self, tx: Transaction) -> int:
        self.runs += 1
        tx.on_durable(self._durable)
        value: int = (await tx.get(A, cached=self.cached) or 0) + 1
        tx.put(A, value)
        return value

    def _durable(self) -> None:
        self.durable += 1


async def scripted(*script: str) -> tuple[Store, ScriptedEngine, Counter]:
    engine = ScriptedEngine(*script)
    return Store(await engine.open(), QuickClock()), engine, Counter()


@pytest.mark.parametrize(("fate", "after"), [(ANSWER_LOST, 1), (REQUEST_LOST, None)])
async def test_an_unknown_outcome_is_raised_and_nothing_runs_again(
    fate: str, after: int | None
) -> None:
    store, _, count = await scripted(fate)
    with pytest.raises(OutcomeUnknown):
        await store.run(count)
    assert (count.runs, count.durable) == (1, 0)
    assert await stored(store, A) == after


async def test_no_record_is_written_beside_those_of_a_transaction() -> None:
    store, engine, count = await scripted()
    await store.run(count)
    assert list(engine.memory.table.partitions) == ["p"]


async def test_an_engine_that_is_away_changed_nothing_and_is_not_asked_again() -> None:
    store, engine, count = await scripted(AWAY)
    with pytest.raises(Unavailable):
        await store.run(count)
    assert len(engine.commits) == 1
    assert await stored(store, A) is None


async def test_checks_whose_answer_was_lost_are_simply_made_again() -> None:
    store, engine, _ = await scripted(FINE, ANSWER_LOST, REQUEST_LOST)
    await change(store, A, "there")
    assert await store.run(lambda tx: tx.get(A)) == "there"
    assert len(engine.commits) == 4


async def test_checks_that_are_never_answered_end_with_unavailable() -> None:
    store, _, _ = await scripted(*[REQUEST_LOST] * limits.CHECK_ASKS_MAX)
    with pytest.raises(Unavailable) as away:
        await store.run(lambda tx: tx.get(A))
    assert away.value.code == "engine_unreachable"


async def test_a_turn_in_a_line_ends_when_an_outcome_is_unknown() -> None:
    store, _, count = await scripted(ANSWER_LOST, FINE, REQUEST_LOST)
    outcomes = await asyncio.gather(
        *(store.run(count, line="a") for _ in range(4)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, int, OutcomeUnknown, int]
    assert await stored(store, A) == outcomes[-1] == 3


@pytest.mark.parametrize(("fate", "after"), [(ANSWER_LOST, 3), (REQUEST_LOST, 2)])
async def test_a_cached_head_is_right_after_an_unknown_outcome(fate: str, after: int) -> None:
    store, _, _ = await scripted(FINE, fate)
    count = Counter(cached=True)
    assert await store.run(count) == 1
    with pytest.raises(OutcomeUnknown):
        await store.run(count)
    assert await store.run(count) == after


async def test_a_transaction_has_as_many_writes_as_a_commit() -> None:
    store, engine, _ = await scripted()

    async def fn(tx: Transaction, count: int = limits.COMMIT_WRITES_MAX) -> None:
        for i in range(count):
            tx.put(("p", f"{i:03}"), i)

    await store.run(fn)
    assert len(engine.commits[0]) == limits.COMMIT_WRITES_MAX
    assert all(isinstance(write, Put) for write in engine.commits[0])
    with pytest.raises(TooLarge):
        await store.run(lambda tx: fn(tx, limits.COMMIT_WRITES_MAX + 1))
