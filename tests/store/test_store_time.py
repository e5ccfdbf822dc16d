"""A store on a database with a clock of its own: that one counts."""

import asyncio

import pytest

from onceward import limits
from onceward.alarms import DAMAGED_RECORDS
from onceward.engine.base import Put
from onceward.errors import EngineStopped, OncewardError, Unavailable
from onceward.ids import created_ms
from onceward.store.store import CLOCK_AHEAD, LAST_TIME, Store
from onceward.store.transaction import Transaction
from tests.quick import START_MS, QuickClock, WatchedEngine

DATABASE_MS = START_MS + 9 * 3_600_000


class TimedEngine(WatchedEngine):
    """A database whose clock is nine hours ahead of this machine's."""

    def __init__(self, clock: QuickClock) -> None:
        super().__init__()
        self.asked = 0
        self.broken: OncewardError | None = None
        self._clock = clock

    async def now_ms(self) -> int:
        self.asked += 1
        if self.broken is not None:
            raise self.broken
        return self._clock.at_ms - START_MS + DATABASE_MS


async def timed() -> tuple[Store, TimedEngine]:
    clock = QuickClock()
    engine = TimedEngine(clock)
    await engine.open()
    return Store(engine, clock), engine


async def read_now(tx: Transaction) -> int:
    return tx.now_ms


async def test_the_first_transaction_has_the_time_of_the_database() -> None:
    store, engine = await timed()
    assert await store.run(read_now) == DATABASE_MS
    assert store.clock.now_ms() == DATABASE_MS
    assert created_ms(store.ids.new()) == DATABASE_MS
    assert engine.asked == limits.CLOCK_READS
    await store.run(read_now)
    assert engine.asked == limits.CLOCK_READS, "not with every transaction"


async def test_transactions_that_start_together_have_the_same_time() -> None:
    store, _ = await timed()
    assert set(await asyncio.gather(*[store.run(read_now) for _ in range(5)])) == {DATABASE_MS}


async def test_a_database_clock_far_ahead_of_the_last_commit_is_held() -> None:
    store, engine = await timed()
    last_ms = DATABASE_MS - limits.CLOCK_AHEAD_MS - 1
    await engine.commit([Put(LAST_TIME, b"%d" % last_ms)], 0)
    assert await store.read_time()
    await store.judge_time()
    assert await store.read_time()
    assert await store.run(read_now) == last_ms
    assert store.alarms.get(CLOCK_AHEAD) is not None
    assert store.believe_clock() == DATABASE_MS - last_ms
    assert await store.run(read_now) == DATABASE_MS
    assert store.alarms.get(CLOCK_AHEAD) is None


async def test_a_last_time_that_cannot_be_read_raises_an_alarm() -> None:
    store, engine = await timed()
    await engine.commit([Put(LAST_TIME, b'"soon"')], 0)
    assert await store.read_time()
    await store.judge_time()
    assert await store.run(read_now) == DATABASE_MS
    assert store.alarms.get(DAMAGED_RECORDS) is not None


async def test_later_readings_set_nothing() -> None:
    store, engine = await timed()
    assert await store.read_time()
    engine._clock = QuickClock()
    engine._clock.at_ms = START_MS - 1_000_000
    assert await store.read_time()
    assert engine.asked == limits.CLOCK_READS + 1
    assert store.clock.now_ms() == DATABASE_MS
    assert store.clock.jump_ms == -1_000_000


async def test_a_database_without_a_clock_leaves_the_machines() -> None:
    clock = QuickClock()
    engine = WatchedEngine()
    await engine.open()
    store = Store(engine, clock)
    assert not await store.read_time()
    assert await store.run(read_now) == START_MS


async def test_without_the_time_there_is_no_transaction() -> None:
    store, engine = await timed()
    engine.broken = Unavailable("away")
    with pytest.raises(Unavailable):
        await store.run(read_now)
    engine.broken = None
    assert await store.run(read_now) == DATABASE_MS


async def test_the_time_is_read_again_and_again_whatever_happens() -> None:
    store, engine = await timed()
    await store.read_time()
    engine.broken = Unavailable("away")
    keeping = asyncio.create_task(store.keep_time())
    while engine.asked < 20:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert isinstance(store.clock, QuickClock)
    assert set(store.clock.slept_s) == {limits.CLOCK_READ_S}
    engine.broken = EngineStopped("stopped")
    with pytest.raises(EngineStopped):
        await keeping
