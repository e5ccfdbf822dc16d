"""A clock that is far ahead of the last commit is not believed until somebody confirms it."""

import asyncio
from pathlib import Path

import pytest

from onceward import limits
from onceward.app import App
from onceward.clock import Clock
from onceward.engine.base import Engine
from onceward.engine.memory import Memory, MemoryEngine
from onceward.engine.sqlite import SQLiteEngine
from onceward.store.store import LAST_TIME, Store
from onceward.testing.clock import VirtualClock
from tests.schedule.cluster import virtual

DAY_MS = 86_400_000
YEARS_MS = 12 * 365 * DAY_MS


class Machine:
    """A database, and applications that open it one after the other, each by its own clock."""

    def __init__(self, folder: Path | None, *, shared: bool = False) -> None:
        self.memory = Memory()
        self.folder = folder
        self.shared = shared

    def boot(self, ahead_ms: int = 0) -> App:
        engine: Engine
        if self.folder is None:
            engine = MemoryEngine(self.memory)
            engine.shared = self.shared
        else:
            engine = SQLiteEngine(str(self.folder / "app.db"))
        app = App(
            engine,
            slots=2,
            store=lambda engine: Store(engine, VirtualClock(wall_offset_ms=ahead_ms)),
        )
        app.queue("q", key_retention_s=60, job_retention_s=60)
        return app


@pytest.fixture(params=["memory", "sqlite"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "sqlite" else None


async def handled(app: App, key: str) -> None:
    await app.send("q", 1, key=key)
    [claim] = await app.claim("q", "w", lease_s=60, wait_s=10)
    await app.complete(claim.id, claim.token)


def test_a_message_handled_before_is_known_whatever_the_clock_shows(folder: Path | None) -> None:
    @virtual
    async def run() -> None:
        machine = Machine(folder)
        async with machine.boot() as app:
            await handled(app, "order-1")
            known_ms = app.store.clock.now_ms()
        for _ in range(2):  # also after another start
            async with machine.boot(YEARS_MS) as app:
                assert [alarm.code for alarm in app.alarms] == ["clock_ahead"]
                assert app.store.clock.now_ms() - known_ms < 60_000
                await app.node.sweeper.sweep()
                assert (await app.send("q", 1, key="order-1")).duplicate
                assert not (await app.send("q", 2, key=f"new-{_}")).duplicate
        async with machine.boot(YEARS_MS) as app:
            step_ms = await app.confirm_clock()
            assert abs(step_ms - YEARS_MS) < DAY_MS
            assert list(app.alarms) == []
            assert await app.confirm_clock() == 0
            assert not (await app.send("q", 1, key="order-1")).duplicate, "it has expired"
        async with machine.boot(YEARS_MS) as app:
            assert list(app.alarms) == [], "it stays confirmed"

    run()


def test_timers_wait_until_the_clock_is_confirmed(folder: Path | None) -> None:
    @virtual
    async def run() -> None:
        machine = Machine(folder)
        async with machine.boot() as app:
            await app.timers.set("far", queue="q", body="far", delay_s=3 * DAY_MS / 1000)
            await app.timers.set("near", queue="q", body="near", delay_s=60)
        async with machine.boot(YEARS_MS) as app:
            [claim] = await app.claim("q", "w", lease_s=60, wait_s=600)
            assert claim.body == "near"
            await app.complete(claim.id, claim.token)
            assert await app.claim("q", "w", lease_s=60, wait_s=300) == []
            await app.confirm_clock()
            [claim] = await app.claim("q", "w", lease_s=60, wait_s=60)
            assert claim.body == "far"

    run()


@virtual
async def test_a_pause_within_the_bound_is_believed() -> None:
    machine = Machine(None)
    async with machine.boot() as app:
        await handled(app, "order-1")
    async with machine.boot(limits.CLOCK_AHEAD_MS - DAY_MS) as app:
        assert list(app.alarms) == []
        assert not (await app.send("q", 1, key="order-1")).duplicate


@virtual
async def test_a_confirmed_clock_counts_on_all_nodes() -> None:
    machine = Machine(None, shared=True)
    async with machine.boot():
        pass
    async with machine.boot(YEARS_MS) as first, machine.boot(YEARS_MS) as second:
        assert first.store.clock_held
        assert second.store.clock_held
        await first.confirm_clock()
        while second.store.clock_held:
            await second.store.clock.sleep(1)
        assert list(second.alarms) == []
        assert abs(second.store.clock.now_ms() - first.store.clock.now_ms()) < 1_000


@virtual
async def test_a_clock_that_is_set_right_is_believed_without_confirmation() -> None:
    machine = Machine(None)
    async with machine.boot():
        pass
    async with machine.boot(YEARS_MS) as app:
        clock = app.store.clock
        assert isinstance(clock, VirtualClock)
        await clock.sleep(100)
        assert app.store.clock_held
        clock.jump_wall(-YEARS_MS)
        while app.store.clock_held:
            await clock.sleep(1)
        assert abs(clock.now_ms() - clock.wall_ms) < limits.CLOCK_JUMP_MS


@virtual
async def test_a_clock_far_behind_raises_an_alarm_and_is_not_noted() -> None:
    machine = Machine(None)
    async with machine.boot() as app:
        noted = await app.store.run(lambda tx: tx.get(LAST_TIME))
    async with machine.boot(-YEARS_MS) as app:
        assert [alarm.code for alarm in app.alarms] == ["clock_behind"]
        await app.store.clock.sleep(2 * limits.CLOCK_NOTE_S)
        assert await app.store.run(lambda tx: tx.get(LAST_TIME)) == noted
        await app.confirm_clock()
        assert list(app.alarms) == []
        assert await app.store.run(lambda tx: tx.get(LAST_TIME)) < noted


@virtual
async def test_a_clock_that_was_set_back_by_two_hours_raises_an_alarm() -> None:
    machine = Machine(None)
    async with machine.boot():
        pass
    async with machine.boot(-2 * 3_600_000) as app:
        [alarm] = app.alarms
        assert alarm.code == "clock_behind"
        assert "before the last commit" in alarm.message
    async with machine.boot(-limits.CLOCK_BEHIND_MS // 2) as app:
        assert list(app.alarms) == []


@virtual
async def test_the_time_is_noted_while_a_node_runs() -> None:
    machine = Machine(None)
    async with machine.boot() as app:
        clock = app.store.clock
        await clock.sleep(3 * limits.CLOCK_NOTE_S)
        noted = await app.store.run(lambda tx: tx.get(LAST_TIME, int))
        assert noted is not None
        assert clock.now_ms() - noted <= limits.CLOCK_NOTE_S * 1_000 + 1_000


async def test_a_clock_goes_on_from_where_it_is_held() -> None:
    boot_ns, wall_ns = 5, 1_000 * 10**9
    clock = Clock(lambda: wall_ns, lambda: boot_ns)
    clock.hold(7)
    boot_ns += 3_000_000
    assert (clock.now_ms(), clock.wall_ms) == (10, 1_000_000)
    assert clock.adopt() == 999_990
    await asyncio.sleep(0)
