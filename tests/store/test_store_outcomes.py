"""Commits whose answer was lost: what became of them is found out before anyone is told."""

import asyncio
from collections import deque
from typing import Any

import pytest

from onceward import limits
from onceward.engine.base import Put, Record, Version, Write
from onceward.engine.memory import MemoryEngine
from onceward.errors import Conflict, OutcomeUnknown, Unavailable
from onceward.store import Store
from onceward.store.transaction import Transaction
from tests.quick import START_MS, QuickClock, change, quick_store, stored

A, B = ("p", "a"), ("p", "b")

# What becomes of a commit: it is applied and answered; applied, but the answer is lost; lost
# on the way; refused, for now or for good; or delayed, to arrive when the next get comes.
FINE, ANSWER_LOST, REQUEST_LOST, LATE = "fine", "answer lost", "request lost", "late"
AWAY, CLOSED = "away", "closed"


class ScriptedEngine(MemoryEngine):
    """Lets each commit and get fare as the script says, then all fine."""

    answers_can_be_lost = True

    def __init__(self, *script: str) -> None:
        super().__init__()
        self.script = deque(script)
        self.gets: deque[str] = deque()
        self.commits: list[list[Write]] = []
        self.late: list[Any] = []
        self.founds: list[Any] = []

    def found(self, writes: Any) -> None:
        self.founds.append(writes)

    async def commit(self, writes: Any, now_ms: int, visible: Any = None) -> Version:
        self.commits.append(list(writes))
        fate = self.script.popleft() if self.script else FINE
        if fate == CLOSED:
            raise Unavailable("it was closed", code="engine_closed")
        if fate == AWAY:
            raise Unavailable("no connection")
        if fate == LATE:
            self.late.append((writes, now_ms))
        if fate == ANSWER_LOST:
            await super().commit(writes, now_ms)
        if fate != FINE:
            raise OutcomeUnknown("the answer was lost")
        return await super().commit(writes, now_ms, visible)

    async def get(self, keys: Any, now_ms: int) -> list[Record | None]:
        if self.gets and self.gets.popleft() == AWAY:
            raise Unavailable("no connection")
        return await super().get(keys, now_ms)

    async def arrive(self) -> None:
        """Let the delayed commits reach the engine at last."""
        for writes, now_ms in self.late:
            await super().commit(writes, now_ms)


class PassingClock(QuickClock):
    """Time passes while one sleeps, and only then."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self.at_ms += round(seconds * 1_000)


class Counter:
    """Counts a record up, and counts its own runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.durable = 0

    async def __call__(self, tx: Transaction) -> int:
        self.runs += 1
        tx.on_durable(self._durable)
        value: int = (await tx.get(A) or 0) + 1
        tx.put(A, value)
        return value

    def _durable(self) -> None:
        self.durable += 1


async def scripted(*script: str) -> tuple[Store, ScriptedEngine, Counter]:
    engine = ScriptedEngine(*script)
    return Store(await engine.open(), PassingClock()), engine, Counter()


def attempts(engine: ScriptedEngine) -> list[Record]:
    """The attempt records that are there."""
    return [
        record
        for name, partition in engine.memory.table.partitions.items()
        if name.startswith("attempt#")
        for record in partition.rows.values()
    ]


async def test_every_commit_carries_an_attempt_record() -> None:
    store, engine, count = await scripted()
    await store.run(count)
    await store.run(count)
    one, other = attempts(engine)
    assert one.value == other.value == b'"committed"'
    assert one.key != other.key
    assert one.expires_at_ms == store.clock.now_ms() + limits.ATTEMPT_RETENTION_MS


async def test_an_engine_that_loses_no_answers_needs_no_attempt_records() -> None:
    store = await quick_store()
    await store.run(Counter())
    assert isinstance(store.engine, MemoryEngine)
    assert list(store.engine.memory.table.partitions) == ["p"]


async def test_a_commit_that_arrived_counts_though_its_answer_was_lost() -> None:
    store, _, count = await scripted(ANSWER_LOST)
    assert await store.run(count) == 1
    assert count.runs == 1, "not applied twice"
    assert count.durable == 1
    assert await stored(store, A) == 1


@pytest.mark.parametrize("fate", [FINE, ANSWER_LOST, REQUEST_LOST])
async def test_the_engine_is_told_of_a_lost_commit_that_was_found(fate: str) -> None:
    store, engine, count = await scripted(fate)
    await store.run(count)
    assert engine.founds == ([engine.commits[0][:-1]] if fate == ANSWER_LOST else [])


async def test_the_hooks_get_the_version_of_a_commit_whose_answer_was_lost() -> None:
    store, _, count = await scripted(ANSWER_LOST)
    told: list[Any] = []
    store.on_durable(told.append)
    await store.run(count)
    [record] = await store.engine.get([A], store.clock.now_ms())
    assert record is not None
    assert [commit.version for commit in told] == [record.version]


async def test_a_commit_that_never_arrived_is_fenced_out_and_run_again() -> None:
    store, engine, count = await scripted(REQUEST_LOST)
    assert await store.run(count) == 1
    assert count.runs == 2
    assert count.durable == 1
    assert sorted(record.value for record in attempts(engine)) == [b'"committed"', b'"fenced"']


async def test_a_commit_that_arrives_after_its_fence_is_refused() -> None:
    store, engine, count = await scripted(LATE)
    assert await store.run(count) == 1
    with pytest.raises(Exception, match="attempt"):
        await engine.arrive()
    assert await stored(store, A) == 1
    assert count.runs == 2


@pytest.mark.parametrize("fate", [LATE, ANSWER_LOST])
async def test_a_transaction_that_ran_for_hours_is_not_applied_twice(fate: str) -> None:
    store, engine, _ = await scripted(fate)
    clock = store.clock
    assert isinstance(clock, QuickClock)

    async def note(tx: Transaction) -> None:
        tx.put(("notes", store.ids.new()), clock.now_ms())
        if not engine.commits:
            clock.at_ms += 2 * limits.ATTEMPT_RETENTION_MS

    await store.run(note)
    assert await engine.sweep(clock.now_ms() - limits.SWEEP_SLACK_MS) == 0
    if fate == LATE:
        with pytest.raises(Conflict):
            await engine.arrive()
    assert len(await engine.scan("notes", clock.now_ms())) == 1


@pytest.mark.parametrize("first", [ANSWER_LOST, REQUEST_LOST])
@pytest.mark.parametrize(
    "fence",
    [
        [ANSWER_LOST],
        [REQUEST_LOST],
        [AWAY],
        [REQUEST_LOST, AWAY, ANSWER_LOST, AWAY],
        [AWAY] * 200,
    ],
)
async def test_the_outcome_is_found_though_the_fence_goes_wrong(
    first: str, fence: list[str]
) -> None:
    store, _, count = await scripted(first, *fence)
    assert await store.run(count) == 1
    assert count.runs == (1 if first == ANSWER_LOST else 2)
    assert count.durable == 1
    assert await stored(store, A) == 1


@pytest.mark.parametrize("first", [ANSWER_LOST, REQUEST_LOST])
async def test_the_outcome_is_found_though_reading_the_verdict_fails(first: str) -> None:
    store, engine, count = await scripted(first, ANSWER_LOST)
    engine.gets.extend([FINE, AWAY, AWAY])
    assert await store.run(count) == 1
    assert await stored(store, A) == 1
    assert count.durable == 1


async def test_when_no_one_says_what_became_of_it_the_outcome_is_unknown() -> None:
    store, engine, count = await scripted(ANSWER_LOST, *[AWAY] * 10_000)
    with pytest.raises(OutcomeUnknown, match="did not say"):
        await store.run(count)
    assert count.runs == 1
    assert count.durable == 0
    assert isinstance(store.clock, QuickClock)
    assert max(store.clock.slept_s) <= limits.OUTCOME_PAUSE_MS_MAX / 1_000
    asked_ms = store.clock.at_ms - START_MS
    assert 0 <= asked_ms - limits.OUTCOME_MS_MAX <= limits.OUTCOME_PAUSE_MS_MAX
    assert len(engine.commits) < 1_000, "but not all the time"


async def test_an_engine_that_was_closed_is_not_asked_for_long() -> None:
    store, engine, count = await scripted(ANSWER_LOST, AWAY, CLOSED)
    with pytest.raises(OutcomeUnknown):
        await store.run(count)
    assert len(engine.commits) == 3


async def test_who_asks_when_the_record_may_be_gone_learns_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a suspend: that there is no record means nothing any more."""
    store, engine, count = await scripted(REQUEST_LOST)
    clock, commit = store.clock, engine.commit
    assert isinstance(clock, QuickClock)

    async def suspend(*arguments: Any) -> Any:
        clock.at_ms += limits.ATTEMPT_RETENTION_MS
        return await commit(*arguments)

    monkeypatch.setattr(engine, "commit", suspend)
    with pytest.raises(OutcomeUnknown, match="too late"):
        await store.run(count)
    assert count.runs == 1


async def test_an_engine_that_is_away_changed_nothing_and_is_not_asked_again() -> None:
    store, engine, count = await scripted(AWAY)
    with pytest.raises(Unavailable):
        await store.run(count)
    assert len(engine.commits) == 1
    assert await stored(store, A) is None


async def test_checks_whose_answer_was_lost_are_simply_made_again() -> None:
    store, engine, _ = await scripted(ANSWER_LOST, REQUEST_LOST)
    await change_fine(store, engine)
    assert await store.run(lambda tx: tx.get(A)) == "there"
    assert len(engine.commits) == 4
    assert attempts(engine) == [], "checks need no attempt record"


async def test_checks_that_are_never_answered_end_with_unavailable() -> None:
    store, engine, _ = await scripted()
    engine.script.extend([REQUEST_LOST] * limits.CHECK_ASKS_MAX)
    with pytest.raises(Unavailable) as away:
        await store.run(lambda tx: tx.get(A))
    assert away.value.code == "engine_unreachable"


async def change_fine(store: Store, engine: ScriptedEngine) -> None:
    """A change from outside that the script does not touch."""
    engine.script.appendleft(FINE)
    await change(store, A, "there")


async def test_a_real_conflict_is_not_taken_for_a_lost_answer() -> None:
    store, engine, count = await scripted()
    changed = False

    async def fn(tx: Transaction) -> int:
        nonlocal changed
        result = await count(tx)
        if not changed:
            changed = True
            await change(store, A, 10)
        return result

    assert await store.run(fn) == 11
    assert len(attempts(engine)) == 1


async def test_a_turn_in_a_line_ends_when_a_lost_commit_is_found() -> None:
    store, _, count = await scripted(ANSWER_LOST, FINE, ANSWER_LOST)
    values = await asyncio.gather(*(store.run(count, line="a") for _ in range(4)))
    assert values == [1, 2, 3, 4]
    assert count.runs == 4


async def test_a_head_cached_from_a_lost_commit_is_right() -> None:
    store, _, _ = await scripted(ANSWER_LOST, ANSWER_LOST, REQUEST_LOST)
    runs = 0

    async def fn(tx: Transaction) -> int:
        nonlocal runs
        runs += 1
        value: int = (await tx.get(A, cached=True) or 0) + 1
        tx.put(A, value)
        return value

    assert [await store.run(fn) for _ in range(3)] == [1, 2, 3]
    assert await stored(store, A) == 3


async def test_a_transaction_of_99_writes_fits_with_its_attempt_record() -> None:
    store, engine, _ = await scripted(ANSWER_LOST)

    async def fn(tx: Transaction) -> None:
        for i in range(99):
            tx.put(("p", f"{i:03}"), i)

    await store.run(fn)
    assert len(engine.commits[0]) == 100
    assert all(isinstance(write, Put) for write in engine.commits[0])
