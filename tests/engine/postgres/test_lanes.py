import asyncio
from collections import deque

from onceward.engine.postgres.lanes import Lanes


class Work:
    """Batches that end when the test says so."""

    def __init__(self, count: int, most: int = 100) -> None:
        self.most = most
        self.batches: list[list[int]] = []
        self.ends: deque[asyncio.Future[None]] = deque()
        self.lanes = Lanes(self.run, self.cut, count)

    def cut(self, queue: deque[int]) -> list[int]:
        return [queue.popleft() for _ in range(min(self.most, len(queue)))]

    async def run(self, batch: list[int]) -> None:
        self.batches.append(batch)
        self.ends.append(asyncio.get_running_loop().create_future())
        await self.ends[-1]

    def add(self, *numbers: int) -> None:
        for number in numbers:
            self.lanes.add(number)

    def end(self) -> None:
        self.ends.popleft().set_result(None)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_comes_in_one_turn_goes_together() -> None:
    work = Work(1)
    work.add(1, 2, 3)
    await turns()
    assert work.batches == [[1, 2, 3]]


async def test_who_comes_while_all_are_busy_shares_the_next_batch() -> None:
    work = Work(1)
    for number in range(4):
        work.add(number)
        await turns()
    assert work.batches == [[0]]
    work.end()
    await turns()
    assert work.batches == [[0], [1, 2, 3]]


async def test_a_free_lane_is_used_at_once_and_no_more_than_there_are() -> None:
    work = Work(2)
    for number in range(4):
        work.add(number)
        await turns()
    assert work.batches == [[0], [1]]
    work.end()
    await turns()
    assert work.batches == [[0], [1], [2, 3]]


async def test_what_one_batch_cannot_hold_goes_in_the_next() -> None:
    work = Work(1, most=2)
    work.add(1, 2, 3)
    for _ in range(2):
        await turns()
        work.end()
    await turns()
    assert work.batches == [[1, 2], [3]]


async def test_what_one_batch_cannot_hold_goes_by_another_lane() -> None:
    work = Work(2, most=2)
    work.add(1, 2, 3, 4, 5)
    await turns()
    assert work.batches == [[1, 2], [3, 4]]
    work.end()
    await turns()
    assert work.batches == [[1, 2], [3, 4], [5]]


async def test_what_comes_just_when_the_last_batch_ends_is_not_forgotten() -> None:
    for delay in range(6):
        work = Work(1)
        work.add(1)
        await turns()
        work.end()
        for _ in range(delay):
            await asyncio.sleep(0)
        work.add(2)
        await turns()
        assert work.batches == [[1], [2]], f"{delay} turns later"


async def test_draining_waits_for_everything() -> None:
    work = Work(1, most=1)
    work.add(1, 2)
    draining = asyncio.create_task(work.lanes.drain())
    await turns()
    work.end()
    await turns()
    assert not draining.done()
    work.end()
    await draining
    assert work.batches == [[1], [2]]
    await work.lanes.drain()
