"""What is the memory engine's own; the contract is certified in tests/testing/test_certify.py."""

import pytest

from onceward.engine.base import ABSENT, Check, Delete, Put
from onceward.engine.memory import Memory, MemoryEngine
from onceward.errors import Conflict, Unavailable

A, B = ("p", "a"), ("p", "b")


async def test_engines_of_one_memory_share_everything() -> None:
    memory = Memory()
    one, other = await MemoryEngine(memory).open(), await MemoryEngine(memory).open()
    with other.watch("p") as watch:
        version = await one.commit([Put(A, b"1")], 0)
        assert await watch.wait(0)
    await other.commit([Check(A, version), Put(B, b"2")], 0)
    with pytest.raises(Conflict):
        await one.commit([Put(B, b"3", None, ABSENT)], 0)


async def test_engines_of_their_own_share_nothing() -> None:
    one, other = await MemoryEngine().open(), await MemoryEngine().open()
    await one.commit([Put(A, b"1")], 0)
    assert await other.get([A], 0) == [None]


async def test_closing_one_engine_leaves_the_memory_to_the_others() -> None:
    memory = Memory()
    one, other = await MemoryEngine(memory).open(), await MemoryEngine(memory).open()
    await one.commit([Put(A, b"1")], 0)
    await one.close()
    assert await other.get([A], 0) != [None]
    with pytest.raises(Unavailable):
        await one.get([A], 0)
    await one.open()
    assert await one.get([A], 0) == await other.get([A], 0)


async def test_before_it_is_opened_it_refuses() -> None:
    engine = MemoryEngine()
    with pytest.raises(Unavailable) as refused:
        await engine.commit([Put(A, b"1")], 0)
    assert refused.value.code == "engine_closed"


async def test_a_commit_is_done_before_another_task_can_run() -> None:
    engine = await MemoryEngine().open()
    coroutine = engine.commit([Put(A, b"1"), Delete(B)], 0)
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    assert done.value.value == 1


async def test_a_sweep_frees_the_memory_of_what_expired() -> None:
    engine = await MemoryEngine().open()
    for i in range(10):
        await engine.commit([Put(("p", f"{i}"), b"1", 100 + i)], 0)
    await engine.commit([Put(("p", "0"), b"2", 500)], 0)
    assert engine.memory.table.count == 10
    assert await engine.sweep(105) == 5
    assert engine.memory.table.count == 5
    assert await engine.sweep(1_000) == 5
    assert engine.memory.table.count == 0
    assert engine.memory.expiries == []


async def test_expiries_of_records_that_are_renewed_or_removed_do_not_pile_up() -> None:
    engine = await MemoryEngine().open()
    for i in range(10):
        await engine.commit([Put(("kept", f"{i}"), b"1", 100 + i)], 0)
    for i in range(5_000):
        await engine.commit([Put(A, b"1", 1_000_000 + i), Put(B, b"1", 2_000_000 + i)], 0)
        await engine.commit([Delete(B)], 0)
    assert len(engine.memory.expiries) < 1_100
    assert await engine.sweep(999_999) == 10
    assert await engine.sweep(1_004_998) == 0
    assert await engine.sweep(1_004_999) == 1
    assert engine.memory.table.count == 0


async def test_watching_needs_no_open_engine() -> None:
    engine = MemoryEngine()
    with engine.watch("p") as watch:
        await engine.open()
        await engine.commit([Put(A, b"1")], 0)
        assert await watch.wait(0)
