import asyncio
import random

import pytest

from onceward.engine.base import ABSENT, ANY, Check, Delete, Put
from onceward.errors import Conflict
from onceward.testing import certify_engine
from onceward.testing.clock import VirtualClock, run_virtual
from onceward.testing.simulation.database import LocalDatabase, SharedDatabase

KEY = ("p", "a")


def local(sync_s: float = 1.0) -> LocalDatabase:
    class Even(random.Random):
        def random(self) -> float:
            return 0.5

    return LocalDatabase(Even(0), sync_s, 9.0)


async def test_the_engine_of_a_local_database_is_certified():
    databases = []

    def make():
        databases.append(LocalDatabase(random.Random(0), 0.0001, 0.001))
        return databases[-1].connect()

    def crash(engine):
        databases[-1].crash()
        return databases[-1].connect()

    await certify_engine(make, reopen=lambda engine: databases[-1].connect(), crash=crash)


async def test_the_engine_of_a_shared_database_is_certified():
    databases = []

    def make():
        databases.append(SharedDatabase())
        return databases[-1].connect()

    def connect(engine):
        return databases[-1].connect()

    await certify_engine(make, reopen=connect, second=connect, crash=connect)


def test_a_local_commit_shows_at_once_and_returns_when_it_is_durable():
    async def main():
        database, clock, shown = local(), VirtualClock(), []
        engine = await database.connect().open()
        commit = asyncio.create_task(engine.commit([Put(KEY, b"1")], 0, shown.append))
        await asyncio.sleep(0)
        assert shown == [1]
        [record] = await engine.get([KEY], 0)
        assert record.value == b"1"
        assert [r.value for r in await engine.scan("p", 0)] == [b"1"]
        assert not database.settled()
        assert await commit == 1
        assert clock.elapsed_ns() == 10**9
        assert database.settled()

    run_virtual(main())


def test_checks_alone_wait_for_what_they_have_seen():
    async def main():
        database, clock = local(), VirtualClock()
        engine = await database.connect().open()
        await engine.commit([Check(KEY, ABSENT)], 0)
        assert clock.elapsed_ns() == 0
        task = asyncio.create_task(engine.commit([Put(KEY, b"1")], 0))
        await asyncio.sleep(0)
        await engine.commit([Check(KEY, ANY)], 0)
        assert clock.elapsed_ns() == 10**9
        await task
        with pytest.raises(Conflict):
            await engine.commit([Check(KEY, ABSENT)], 0)

    run_virtual(main())


def test_a_crash_leaves_a_prefix_with_all_that_is_durable():
    async def main():
        seen = set()
        for seed in range(40):
            database = LocalDatabase(random.Random(seed), 1.0, 1.0)
            engine = await database.connect().open()
            await engine.commit([Put(("p", "0"), b"0")], 0)
            await engine.commit([Put(("p", "gone"), b"0", 99)], 0)
            tasks = [
                asyncio.create_task(engine.commit([Put(("p", str(n)), b"0", 99)], 0))
                for n in range(1, 4)
            ]
            await asyncio.sleep(0)
            tasks.append(asyncio.create_task(engine.commit([Delete(("p", "gone"))], 0)))
            await asyncio.sleep(0)
            lost = database.crash()
            assert database.settled()
            again = await database.connect().open()
            left = [key[1] for key in database.final()]
            assert left == [*"0123"[: 5 - lost], *["gone"] * (lost > 0)]
            seen.add(lost)
            # Numbers of lost commits are not used again.
            assert await again.commit([Put(("p", "x"), b"1")], 0) > 6
            assert await again.sweep(100) == len(left) - 1
            for task in tasks:
                task.cancel()
        assert seen == {0, 1, 2, 3, 4}

    run_virtual(main())


def test_a_dead_engine_reports_nothing_more():
    async def main():
        database, clock = local(), VirtualClock()
        engine = await database.connect().open()
        early = asyncio.create_task(engine.commit([Put(KEY, b"1")], 0))
        await asyncio.sleep(0)
        database.crash()
        late = asyncio.create_task(engine.commit([Check(KEY, ANY)], 0))
        await clock.sleep(100)
        assert not early.done()
        assert not late.done()
        early.cancel()
        late.cancel()

    run_virtual(main())


def test_commits_that_last_are_noted_with_their_time():
    async def main():
        clock = VirtualClock()
        shared, disk = SharedDatabase(), local()
        for database in (shared, disk):
            engine = await database.connect().open()
            await clock.sleep(1)
            await engine.commit([Put(KEY, b"1")], 0)
            await engine.commit([Check(KEY, ANY)], 0)
            with pytest.raises(Conflict):
                await engine.commit([Put(KEY, b"2", None, ABSENT)], 0)
        assert [(c.at_ns, c.writes) for c in shared.commits()] == [(10**9, [Put(KEY, b"1")])]
        # The disk's own pace counts until it is durable, not for when it was applied.
        assert [c.at_ns for c in disk.commits()] == [2 * 10**9]
        unsynced = asyncio.create_task(engine.commit([Put(KEY, b"3")], 0))
        await asyncio.sleep(0)
        assert len(disk.commits()) == 1
        await unsynced
        assert len(disk.commits()) == 2

    run_virtual(main())


def test_a_disk_that_calms_down_is_never_slow_again():
    disk = LocalDatabase(random.Random(0), 0.001, 5.0)
    assert max(disk.sync_time_s() for _ in range(100)) > 1
    disk.calm()
    assert max(disk.sync_time_s() for _ in range(100)) <= 0.002


def test_final_records_are_decoded_and_in_order():
    async def main():
        database = SharedDatabase()
        engine = await database.connect().open()
        await engine.commit([Put(("q", "a"), b'{"x":1}'), Put(("p", "b"), b"2", 7)], 0)
        final = database.final()
        assert list(final) == [("p", "b"), ("q", "a")]
        assert final[("q", "a")].value == {"x": 1}
        assert final[("p", "b")].expires_at_ms == 7
        assert database.crash() == 0
        assert database.settled()

    run_virtual(main())
