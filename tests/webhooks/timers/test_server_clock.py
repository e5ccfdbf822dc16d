"""Timers while the wall clock is set by hours: it is the time that passes that counts.

tests/webhooks/timers/test_server_wall.py does the same to a real process.
"""

import random
from collections import defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.app import App
from onceward.engine.base import Engine
from onceward.ids import Ids
from onceward.store import Store
from onceward.testing.clock import VirtualClock
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps

HOUR_MS = 3_600_000
MINUTE_S = 60
RUN_MS = 20_000

# At so many milliseconds: set a timer of such a delay, or set the wall clock.
TIMERS = st.tuples(st.integers(0, 10_000), st.integers(0, 10_000))
JUMPS = st.tuples(st.integers(0, 15_000), st.sampled_from([HOUR_MS, -HOUR_MS, 9 * HOUR_MS]))


def jump(app: App, step_ms: int) -> None:
    clock = app.store.clock
    assert isinstance(clock, VirtualClock)
    clock.jump_wall(step_ms)


@settings(max_examples=15)
@given(
    st.lists(TIMERS, min_size=1, max_size=10),
    st.lists(JUMPS, min_size=1, max_size=5),
    st.integers(700, 5_000),
)
@virtual
async def test_whenever_the_wall_clock_is_set_each_fires_at_its_time(
    timers: list[tuple[int, int]], jumps: list[tuple[int, int]], every_ms: int
) -> None:
    apps = Apps(shared=False)
    app = apps.make()
    fired: dict[Any, list[int]] = defaultdict(list)
    ids: list[str] = []

    @app.handler("q", concurrency=20)
    async def note(job: Job) -> None:
        fired[job.body].append(apps.clock.now_ms() - start_ms)
        ids.append(job.id)

    plan = [(at_ms, "set", delay_ms) for at_ms, delay_ms in timers]
    plan += [(at_ms, "jump", step_ms) for at_ms, step_ms in jumps]
    async with app:
        start_ms = apps.clock.now_ms()
        await app.timers.set("again", queue="q", body="again", every_s=every_ms / 1_000)
        expected: dict[Any, list[int]] = defaultdict(list)
        for number, (at_ms, what, value_ms) in enumerate(sorted(plan)):
            await apps.clock.sleep_until(start_ms + at_ms)
            if what == "jump":
                jump(app, value_ms)
            else:
                await app.timers.set(queue="q", body=number, delay_s=value_ms / 1_000)
                expected[number] = [at_ms + value_ms]
        await apps.clock.sleep_until(start_ms + RUN_MS + 1)
        expected["again"] = list(range(every_ms, RUN_MS + 1, every_ms))
    assert fired == expected
    assert len(set(ids)) == len(ids)
    assert apps.problems == []


@virtual
async def test_a_start_takes_over_what_the_wall_clock_shows_and_fires_nothing_again() -> None:
    apps = Apps(shared=False)
    fired: list[Any] = []

    def declare(wall_offset_ms: int) -> App:
        def store(engine: Engine) -> Store:
            clock = VirtualClock(wall_offset_ms=wall_offset_ms)
            return Store(engine, clock, Ids(clock.now_ms, random.Random(len(fired)).randbytes))

        app = apps.make(store=store)

        @app.handler("q")
        async def note(job: Job) -> None:
            fired.append(job.body)

        return app

    async with declare(0) as app:
        await app.timers.set("soon", queue="q", body="soon", delay_s=1)
        await app.timers.set("later", queue="q", body="later", delay_s=30 * MINUTE_S)
        await app.timers.set("last", queue="q", body="last", delay_s=90 * MINUTE_S)
        await apps.sleep(2)
        jump(app, HOUR_MS)
        await apps.sleep(2)
        assert fired == ["soon"]
    async with declare(HOUR_MS):
        await apps.sleep(2)
        assert fired == ["soon", "later"]
    async with declare(-HOUR_MS) as app:
        await apps.sleep(2)
        assert fired == ["soon", "later"]
        states = [(await app.timers.get(name)).status for name in ("soon", "later", "last")]
        assert states == ["success", "success", "active"]
    async with declare(2 * HOUR_MS):
        await apps.sleep(2)
    assert fired == ["soon", "later", "last"]
    assert apps.problems == []
