"""Reads that one transaction makes at the same time."""

import asyncio

import pytest

from onceward.engine.base import Put
from onceward.engine.memory import Memory, MemoryEngine
from onceward.ids import Ids
from onceward.store import Store
from onceward.testing import FaultEngine, Script, Step, VirtualClock, run_virtual

KEY = ("p", "a")


@pytest.mark.parametrize("second", ["get", "get_many"])
def test_two_reads_of_a_key_at_the_same_time_see_the_same(second):
    async def main():
        memory = Memory()
        other = await MemoryEngine(memory).open()
        await other.commit([Put(KEY, b"1")], 0)
        # The second read is slow on its way there, and the key changes meanwhile.
        slow = Script({1: Step(answer_s=0.1), 2: Step(request_s=1)}, ["get"])
        clock = VirtualClock()
        store = Store(FaultEngine(MemoryEngine(memory), slow), clock, Ids(clock.now_ms))
        await store.engine.open()
        seen = []

        async def decide(tx):
            late = tx.get(KEY) if second == "get" else tx.get_many([KEY])
            one, two = await asyncio.gather(tx.get(KEY), late)
            seen.append((one, two if second == "get" else two[0]))
            tx.put(KEY, one + 1)

        run = asyncio.create_task(store.run(decide))
        await clock.sleep(0.5)
        await other.commit([Put(KEY, b"10")], 0)
        await run
        [record] = await other.get([KEY], 0)
        assert seen == [(1, 1), (10, 10)]
        assert record.value == b"11"

    run_virtual(main())
