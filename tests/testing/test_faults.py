import asyncio

import pytest

from onceward import limits
from onceward.engine.base import ABSENT, Check, Put
from onceward.engine.memory import Memory, MemoryEngine
from onceward.errors import (
    BadInput,
    Conflict,
    TooLarge,
    Unavailable,
)
from onceward.ids import Ids
from onceward.store import Store
from onceward.testing.certify import certify_engine
from onceward.testing.clock import VirtualClock, VirtualLoop, run_virtual
from onceward.testing.faults import FaultEngine, LocalFaultEngine
from onceward.testing.plan import Fault, Script, Step

KEY = ("p", "a")


def put(value: bytes = b"1", expect=ABSENT) -> list[Put]:
    return [Put(KEY, value, None, expect)]


async def value(engine) -> bytes | None:
    [record] = await engine.get([KEY], 0)
    return None if record is None else record.value


async def opened(plan=None, kind=FaultEngine, **options):
    return await kind(MemoryEngine(), plan, **options).open()


async def test_without_a_plan_it_does_what_the_inner_engine_does():
    seen = []
    async with await opened() as engine:
        version = await engine.commit(put(), 0, seen.append)
        assert seen == [version]
        assert await value(engine) == b"1"
        assert [r.value for r in await engine.scan("p", 0)] == [b"1"]
        with pytest.raises(Conflict) as error:
            await engine.commit(put(), 0)
        assert error.value.details["keys"] == [KEY]
        assert await engine.sweep(0) == 0
        assert engine.calls == {"commit": 2, "get": 1, "scan": 1, "sweep": 1}
        assert engine.counts == {"conflict": 1}


@pytest.mark.parametrize(
    ("fault", "error", "after"),
    [
        (Fault.CONFLICT, Conflict, None),
        (Fault.UNAVAILABLE, Unavailable, None),
        (Fault.LOST_REQUEST, Conflict, None),
    ],
)
async def test_a_fault_happens_at_the_call_that_the_plan_says(fault, error, after):
    engine = await opened({2: fault})
    await engine.commit([Put(("p", "other"), b"0")], 0)
    seen = []
    with pytest.raises(error):
        await engine.commit(put(), 0, seen.append)
    assert seen == []
    assert await value(engine) == after
    assert engine.counts == {fault: 1}
    await engine.commit(put(b"2", expect=ABSENT if after is None else 2), 0)
    assert await value(engine) == b"2"


async def test_a_commit_whose_answer_is_lost_is_found():
    engine = await opened({1: Fault.LOST_ANSWER, 2: Fault.LOST_ANSWER})
    seen = []
    version = await engine.commit(put(), 0, seen.append)
    assert seen == [version]
    assert await value(engine) == b"1"
    with pytest.raises(Conflict) as error:
        await engine.commit(put(), 0)
    assert error.value.details["keys"] == [KEY]
    assert engine.counts == {Fault.LOST_ANSWER: 2, "conflict": 1}


def test_a_late_commit_that_has_not_arrived_is_fenced():
    async def main():
        clock = VirtualClock()
        engine = await opened({1: Step(Fault.LATE, answer_s=1, late_s=5)})
        with pytest.raises(Conflict):
            await engine.commit(put(), 0)
        assert (clock.elapsed_ns(), engine.on_their_way) == (10**9, 1)
        await engine.close()
        await engine.open()
        assert (clock.elapsed_ns(), engine.on_their_way) == (5 * 10**9, 0)
        assert await value(engine) is None
        assert engine.counts == {Fault.LATE: 1, "late commit refused": 1}

    run_virtual(main())


def test_a_late_commit_that_has_arrived_is_found():
    async def main():
        engine = await opened({1: Step(Fault.LATE, answer_s=5, late_s=1)})
        seen = []
        version = await engine.commit(put(), 0, seen.append)
        assert seen == [version]
        assert await value(engine) == b"1"
        assert engine.counts == {Fault.LATE: 1, "late commit applied": 1}

    run_virtual(main())


def test_a_late_commit_arrives_if_nobody_is_left_to_fence_it():
    async def main():
        engine = await opened({1: Step(Fault.LATE, answer_s=2, late_s=5)})
        caller = asyncio.create_task(engine.commit(put(), 0))
        await VirtualClock().sleep(1)
        caller.cancel()
        await engine.close()
        await engine.open()
        assert await value(engine) == b"1"

    run_virtual(main())


def test_a_late_commit_is_refused_or_fails_as_any_other():
    async def main():
        inner = MemoryEngine()
        late = Step(Fault.LATE, answer_s=2, late_s=1)
        engine = await FaultEngine(inner, {2: late, 3: late}).open()
        await engine.commit(put(b"2"), 0)
        with pytest.raises(Conflict) as error:
            await engine.commit(put(), 0)
        assert error.value.details["keys"] == [KEY]
        await inner.close()
        with pytest.raises(Unavailable):
            await engine.commit(put(), 0)
        assert engine.counts == {
            Fault.LATE: 2,
            "conflict": 1,
            "late commit refused": 1,
            "late commit failed": 1,
        }

    run_virtual(main())


def test_calls_take_the_time_that_the_plan_says():
    async def main():
        clock = VirtualClock()
        engine = await opened(Script({n: Step(None, 1, 2) for n in (1, 2)}, ["get", "commit"]))
        await engine.commit(put(), 0)
        assert clock.elapsed_ns() == 3 * 10**9
        assert await value(engine) == b"1"
        assert clock.elapsed_ns() == 6 * 10**9

    run_virtual(main())


def test_a_commit_on_its_way_arrives_though_its_caller_dies():
    async def main():
        loop, clock = asyncio.get_running_loop(), VirtualClock()
        assert isinstance(loop, VirtualLoop)
        engine = await opened({1: Step(None, 1, 1)})
        process = loop.process("p")
        process.spawn(engine.commit(put(), 0))
        await clock.sleep(0.5)
        process.kill()
        await clock.sleep(3)
        assert await value(engine) == b"1"
        assert engine.on_their_way == 0

    run_virtual(main())


def test_a_commit_on_its_way_arrives_though_its_caller_is_cancelled():
    async def main():
        engine = await opened({1: Step(None, 1, 1)})
        task = asyncio.create_task(engine.commit(put(), 0))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert await value(engine) is None
        await engine.close()
        await engine.open()
        assert await value(engine) == b"1"

    run_virtual(main())


class Crashed(BaseException):
    pass


def crash() -> None:
    raise Crashed


@pytest.mark.parametrize("kind", [FaultEngine, LocalFaultEngine])
@pytest.mark.parametrize(
    ("fault", "after"),
    [(Fault.CRASH_BEFORE, None), (Fault.CRASH_AFTER, b"1"), (Fault.CRASH_ANSWER, b"1")],
)
async def test_it_crashes_before_applying_after_it_or_before_the_answer(kind, fault, after):
    engine = await opened({1: fault}, kind, crash=crash)
    with pytest.raises(Crashed):
        await engine.commit(put(), 0)
    assert await value(engine) == after
    assert engine.counts == {fault: 1}


@pytest.mark.parametrize("kind", [FaultEngine, LocalFaultEngine])
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_ANSWER])
def test_a_call_at_which_the_process_died_never_returns(kind, fault):
    async def main():
        loop, clock = asyncio.get_running_loop(), VirtualClock()
        assert isinstance(loop, VirtualLoop)
        process = loop.process("p")
        engine = await opened({1: fault}, kind, crash=process.kill)
        task = process.spawn(engine.commit(put(), 0))
        await clock.sleep(10)
        assert process.dead
        assert not task.done()

    run_virtual(main())


async def test_reads_can_fail_and_crash_too():
    plan = Script({1: Fault.UNAVAILABLE, 2: Fault.CRASH_BEFORE, 3: Fault.CRASH_ANSWER}, ["get"])
    engine = await opened(plan, crash=crash)
    with pytest.raises(Unavailable):
        await value(engine)
    for _ in range(2):
        with pytest.raises(Crashed):
            await value(engine)
    assert await value(engine) is None


async def test_a_crash_needs_to_be_told_how():
    engine = await opened({1: Fault.CRASH_BEFORE})
    with pytest.raises(BadInput, match="crash="):
        await engine.commit(put(), 0)


async def test_a_local_engine_loses_no_answers():
    engine = await opened({1: Fault.LOST_ANSWER}, LocalFaultEngine)
    with pytest.raises(BadInput, match="cannot have the fault"):
        await engine.commit(put(), 0)
    seen = []
    version = await engine.commit(put(), 0, seen.append)
    assert seen == [version]


async def test_a_deaf_watch_never_hints_and_another_does():
    memory = Memory()
    deaf = await FaultEngine(MemoryEngine(memory), Script({1: Fault.DEAF}, ["watch"])).open()
    with deaf.watch("p") as first, deaf.watch("p") as second:
        await deaf.commit(put(), 0)
        assert await second.wait(10)
        assert not await first.wait(0)
    assert deaf.counts == {Fault.DEAF: 1}


async def test_dynamodb_limits_are_enforced(monkeypatch):
    engine = await opened()
    with pytest.raises(TooLarge):
        await engine.commit([Check(("p", str(n)), ABSENT) for n in range(101)], 0)
    for key in (("", "a"), ("p", ""), ("p", "x" * 1025)):
        with pytest.raises(BadInput):
            await engine.get([key], 0)
        with pytest.raises(BadInput):
            await engine.commit([Put(key, b"1")], 0)
    largest = b"1" * limits.VALUE_BYTES_MAX
    await engine.commit([Put(("p" * 2048, "s" * 1024), largest)], 0)
    monkeypatch.setattr(limits, "VALUE_BYTES_MAX", 500_000)
    with pytest.raises(TooLarge, match="DynamoDB"):
        await engine.commit([Put(KEY, b"1" * 409_600)], 0)
    assert engine.calls["commit"] == 1


async def test_it_tells_an_observer_what_happened():
    seen = []
    engine = await opened({1: Fault.UNAVAILABLE}, observe=seen.append)
    with pytest.raises(Unavailable):
        await engine.commit(put(), 0)
    assert seen == ["unavailable"]


@pytest.mark.parametrize(
    "plan",
    [
        {1: Fault.LOST_REQUEST},
        {1: Fault.LOST_ANSWER},
        {1: Step(Fault.LATE, late_s=0.5)},
        {1: Step(Fault.LATE, answer_s=1, late_s=0.5)},
        {1: Fault.LOST_ANSWER, 2: Fault.LOST_REQUEST, 3: Fault.LOST_ANSWER},
        {1: Fault.LOST_REQUEST, 2: Fault.LOST_ANSWER, 3: Fault.UNAVAILABLE},
        {1: Step(Fault.LATE, late_s=0.5), 2: Step(Fault.LATE, late_s=0.1)},
    ],
)
def test_a_store_on_it_finds_out_what_became_of_a_lost_commit(plan):
    async def main():
        engine = await opened(plan)
        clock = VirtualClock()
        store = Store(engine, clock, Ids(clock.now_ms))

        async def count(tx):
            number = (await tx.get(KEY) or 0) + 1
            tx.put(KEY, number)
            return number

        assert await store.run(count) == 1
        await engine.close()
        await engine.open()
        assert await value(engine) == b"1"

    run_virtual(main())


@pytest.mark.parametrize("kind", [FaultEngine, LocalFaultEngine])
async def test_with_an_empty_plan_it_is_certified(kind):
    memories = []

    def make():
        memories.append(Memory())
        return kind(MemoryEngine(memories[-1]))

    def again(engine):
        return kind(MemoryEngine(memories[-1]))

    await certify_engine(make, reopen=again, second=again)
