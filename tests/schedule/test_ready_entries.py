"""What is ready is known after one look, as long as nothing changes unseen."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from onceward import limits
from onceward.engine.base import Record
from onceward.engine.memory import MemoryEngine
from onceward.errors import NoSuchJob, Unavailable
from onceward.keys import Key
from onceward.schedule import job_key, ready_partition
from onceward.schedule.ready_entries import ReadyEntries
from onceward.store import Store
from onceward.store.transaction import Transaction

SLOT = 7
PARTITION = ready_partition(SLOT, "q")


def entry(number: int, priority: int = 10) -> Key:
    return PARTITION, f"{priority:016d}#{1:016d}#{number:026d}{SLOT:03x}"


class Counted(MemoryEngine):
    """Counts looks; can let one wait, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.seen = asyncio.Event()
        self.answer = asyncio.Event()
        self.answer.set()
        self.broken = False

    async def scan(self, partition: str, now_ms: int, **options: Any) -> list[Record]:
        self.looks += 1
        found = await super().scan(partition, now_ms, **options)
        self.seen.set()
        await self.answer.wait()
        if self.broken:
            raise Unavailable("cut off", code="engine_unreachable")
        return found


class Bench:
    """A shelf, and a store that has the entries."""

    def __init__(self) -> None:
        self.ready_entries = ReadyEntries("q")
        self.engine = Counted()
        self.store = Store(self.engine)

    async def write(self, *entries: Key, value: Any = None, told: bool = False) -> None:
        async def fn(tx: Transaction) -> None:
            for key in entries:
                tx.put(key, value or key[1].rpartition("#")[2])

        await self.store.run(fn)
        for key in entries if told else ():
            self.ready_entries.put(SLOT, key[1])

    async def first(self, most: int = 10) -> Sequence[Key]:
        found, _ = await self.first_and_more(most)
        assert all(job == job_key(key[1].rpartition("#")[2]) for key, job in found.items())
        return list(found)

    async def first_and_more(self, most: int) -> tuple[dict[Key, Key], bool]:
        return await self.ready_entries.first(self.store.begin(), SLOT, most)


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.engine.open()
    return bench


async def test_one_look_is_enough_while_all_changes_are_told_of(bench: Bench) -> None:
    await bench.write(entry(1), entry(3))
    assert await bench.first() == [entry(1), entry(3)]
    await bench.write(entry(2), entry(4, priority=0), told=True)
    bench.ready_entries.put(SLOT, entry(2)[1])  # twice is once
    assert await bench.first() == [entry(4, priority=0), entry(1), entry(2), entry(3)]
    found, more = await bench.first_and_more(2)
    assert (list(found), more) == ([entry(4, priority=0), entry(1)], True)
    bench.ready_entries.take(SLOT, entry(1)[1])
    bench.ready_entries.take(SLOT, entry(1)[1])
    assert await bench.first() == [entry(4, priority=0), entry(2), entry(3)]
    assert bench.engine.looks == 1


async def test_it_looks_again_after_something_may_have_changed_unseen(bench: Bench) -> None:
    assert await bench.first() == []
    await bench.write(entry(1))
    assert await bench.first() == []
    bench.ready_entries.forget(SLOT)
    assert await bench.first() == [entry(1)]
    assert bench.engine.looks == 2


async def test_nothing_is_known_of_a_slot_with_more_than_was_seen(bench: Bench) -> None:
    await bench.write(*[entry(number) for number in range(5)])
    assert await bench.first(2) == [entry(0), entry(1)]
    bench.ready_entries.put(SLOT, entry(9)[1])
    bench.ready_entries.take(SLOT, entry(0)[1])
    assert await bench.first(2) == [entry(0), entry(1)]
    assert bench.engine.looks == 2


async def test_what_comes_during_a_look_is_not_missed(bench: Bench) -> None:
    bench.engine.answer.clear()
    looking = asyncio.create_task(bench.first())
    await bench.engine.seen.wait()
    await bench.write(entry(1), told=True)
    bench.engine.answer.set()
    assert await looking == []
    assert await bench.first() == [entry(1)]
    assert bench.engine.looks == 1


async def test_a_hint_during_a_look_makes_it_look_again(bench: Bench) -> None:
    bench.engine.answer.clear()
    looking = asyncio.create_task(bench.first())
    await bench.engine.seen.wait()
    await bench.write(entry(1))
    bench.ready_entries.forget(SLOT)
    bench.engine.answer.set()
    assert await looking == []
    assert await bench.first() == [entry(1)]


async def test_a_look_that_failed_says_nothing(bench: Bench) -> None:
    await bench.write(entry(1))
    bench.engine.broken = True
    with pytest.raises(Unavailable):
        await bench.first()
    bench.engine.broken = False
    assert await bench.first() == [entry(1)]


async def test_entries_that_name_no_job_are_left_alone(bench: Bench) -> None:
    for sort in ("0", "00#nonsense"):
        await bench.write((entry(1)[0], sort))
    await bench.write(entry(3), value="nonsense")
    assert await bench.first_and_more(1) == ({}, True)
    assert await bench.first_and_more(1) == ({}, True)
    assert await bench.first(1) == [entry(3)], "they do not stand in its way"
    assert len(bench.ready_entries.unread) == 2
    bench.ready_entries.set_aside(entry(3), NoSuchJob("gone"))
    bench.ready_entries.put(SLOT, "nonsense")
    assert await bench.first() == []


async def test_what_it_keeps_in_mind_is_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SHELF_ENTRIES_MAX", 3)
    assert await bench.first() == []
    await bench.write(*[entry(number) for number in range(5)], told=True)
    assert len(await bench.first()) == 5
    assert bench.engine.looks == 2
