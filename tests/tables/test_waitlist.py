"""Lanes: positions are exact, whoever comes and goes, and nothing is left of what has gone."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.tables import waitlist as lines
from onceward.tables.records import Lane, Wait
from onceward.tables.waitlist import Waitlist
from tests.quick import quick_store
from tests.schedule.jobs import all_records

# How many come, and then which of those who are there go, by their places.
ROUNDS = st.lists(
    st.tuples(st.integers(0, 40), st.lists(st.integers(0, 10_000), max_size=40)), max_size=8
)


class Queue:
    """A lane, and the same as a list beside it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lane = Lane(0)
        self.numbers: list[int] = []

    async def stand(self) -> None:
        async def fn(tx: Transaction) -> int:
            return Waitlist(tx, "t", "e").stand("main", self.lane, Wait(("u",), 0, 0, "main"))

        self.numbers.append(await self.store.run(fn))

    async def remove(self, place: int) -> None:
        number = self.numbers.pop(place)
        await self.store.run(lambda tx: Waitlist(tx, "t", "e").remove("main", self.lane, number))
        self.lane = msgspec.json.decode(msgspec.json.encode(self.lane), type=Lane)

    async def position(self, number: int) -> int:
        return await self.store.run(
            lambda tx: Waitlist(tx, "t", "e").position("main", self.lane, number)
        )

    async def judge(self) -> None:
        assert self.lane.waiting == len(self.numbers)
        front = None if self.lane.front is None else self.lane.front.number
        assert front == (self.numbers[0] if self.numbers else None)
        for place, number in enumerate(self.numbers):
            assert await self.position(number) == place + 1


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few people fill whole groups."""
    monkeypatch.setattr(lines, "BLOCK", 4)
    monkeypatch.setattr(lines, "GROUP", 16)


@given(ROUNDS)
@settings(max_examples=40)
def test_positions_are_those_of_a_list(rounds: list[tuple[int, list[int]]]) -> None:
    async def run() -> None:
        store = await quick_store()
        queue = Queue(store)
        for coming, going in rounds:
            for _ in range(coming):
                await queue.stand()
            for place in going:
                if queue.numbers:
                    await queue.remove(place % len(queue.numbers))
            await queue.judge()
        while queue.numbers:
            await queue.remove(len(queue.numbers) // 2)
        assert not all_records(store.engine)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", 4)
        patch.setattr(lines, "GROUP", 16)
        asyncio.run(run())


async def test_who_leaves_writes_few_records_however_many_wait() -> None:
    store = await quick_store()
    queue = Queue(store)
    for _ in range(400):
        await queue.stand()
    for place in (300, 5, 200):
        queue_tx = store.begin()
        number = queue.numbers.pop(place)
        await Waitlist(queue_tx, "t", "e").remove("main", queue.lane, number)
        assert queue_tx.size <= 3
        await store.end(queue_tx)
    asking = store.begin()
    assert await Waitlist(asking, "t", "e").position("main", queue.lane, queue.numbers[350]) == 351
    assert asking.size <= 2


async def test_a_number_that_is_gone_is_damage() -> None:
    store = await quick_store()
    queue = Queue(store)
    await queue.stand()
    with pytest.raises(Exception, match="was removed"):
        await store.run(lambda tx: Waitlist(tx, "t", "e").get("main", 7))
