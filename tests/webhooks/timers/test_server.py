"""Timers of an application: they fire in its process, and belong to its transactions."""

from functools import partial
from typing import Any

import pytest

from onceward.errors import AlreadyEnded, BadInput, KeyReused, NoSuchTimer
from onceward.work.job import Job
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@virtual
async def test_timers_fire_at_their_time_each_once() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    seen: list[tuple[int, Any]] = []

    @app.handler("q")
    async def note(job: Job) -> None:
        seen.append((apps.clock.now_ms() - start_ms, job.body))

    async with app:
        start_ms = apps.clock.now_ms()
        for delay_s in (0, 1, 2.5, 60):
            await app.timers.set(queue="q", body=delay_s, delay_s=delay_s)
        await app.timers.set(queue="q", body="past", at_ms=5)
        await apps.sleep(100)
    assert sorted(seen, key=str) == [
        (0, "past"),
        (0, 0),
        (1_000, 1),
        (2_500, 2.5),
        (60_000, 60),
    ]
    assert apps.problems == []


@virtual
async def test_a_timer_that_repeats_goes_on_over_a_restart_and_catches_up() -> None:
    apps = Apps(shared=False)
    seen: list[Any] = []

    def declare() -> Any:
        app = apps.make()

        @app.handler("q")
        async def note(job: Job) -> None:
            seen.append(job.body)

        return app

    async with declare() as app:
        for policy in ("all", "last", "none"):
            await app.timers.set(policy, queue="q", body=policy, every_s=10, catch_up=policy)
        await apps.sleep(35)
        assert sorted(seen) == ["all"] * 3 + ["last"] * 3 + ["none"] * 3
    seen.clear()
    await apps.sleep(65)  # until 100: six times passed, and the last one just now
    async with declare() as app:
        await apps.sleep(0.5)
        assert sorted(seen) == ["all"] * 7 + ["last"] + ["none"]
        for policy in ("all", "last", "none"):
            await app.timers.cancel(policy)
        await apps.sleep(100)
    assert len(seen) == 9
    assert apps.problems == []


@pytest.mark.parametrize("repeat", [{"every_s": 10}, {"cron": "*/10 * * * * *"}])
@virtual
async def test_what_had_passed_before_a_timer_was_set_is_not_caught_up_with(repeat: Any) -> None:
    apps = Apps(shared=False)
    app = apps.make()
    seen: list[Any] = []

    @app.handler("q")
    async def note(job: Job) -> None:
        seen.append(job.body)

    async with app:
        # As who gives seconds for milliseconds does: due at once, and then every ten seconds.
        now_ms = app.store.clock.now_ms()
        view = await app.timers.set("t", queue="q", at_ms=now_ms // 1_000, catch_up="all", **repeat)
        assert now_ms - 10_000 < view.timer.due_ms <= now_ms
        await apps.sleep(35)
        assert len(seen) in (4, 5)
        seen.clear()
        view = await app.timers.move("t", at_ms=7)
        assert app.store.clock.now_ms() - 10_000 < view.timer.due_ms
        await apps.sleep(35)
        assert len(seen) in (4, 5)
        # What is to come is not touched, nor what comes once.
        ahead_ms = app.store.clock.now_ms() + 12_345
        assert (await app.timers.move("t", at_ms=ahead_ms)).timer.due_ms == ahead_ms
        assert (await app.timers.set("once", queue="q", at_ms=7)).timer.due_ms == 7
    assert apps.problems == []


@virtual
async def test_a_timer_is_part_of_the_transaction_that_sets_it() -> None:
    apps = Apps(shared=False)
    app = apps.make()
    fired: list[Any] = []

    @app.handler("orders")
    async def take(job: Job) -> None:
        job.tx.put(("order", "1"), "taken")
        await app.timers.set("late", queue="reminders", body="late", delay_s=60, tx=job.tx)
        if job.attempt == 1:
            raise RuntimeError("not yet")

    @app.handler("reminders")
    async def remind(job: Job) -> None:
        fired.append(apps.clock.now_ms() - taken_ms)

    async with app:
        await app.send("orders", 1, key="1")
        await apps.sleep(0.1)
        with pytest.raises(NoSuchTimer):
            await app.timers.get("late")
        while apps.value(("order", "1")) is None:
            await apps.sleep(0.1)
        taken_ms = (await app.timers.get("late")).timer.created_ms
        await apps.sleep(120)
    assert fired == [60_000]


@virtual
async def test_an_idempotency_key_sets_one_timer_however_often_it_comes() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        first = await app.timers.set(queue="q", delay_s=60, key="k")
        await apps.sleep(1)
        again = await app.timers.set(queue="q", delay_s=60, key="k")
        assert (again.id, again.timer.due_ms) == (first.id, first.timer.due_ms)
        with pytest.raises(KeyReused):
            await app.timers.set(queue="q", delay_s=61, key="k")
        other = await app.timers.set(queue="q", delay_s=60, key="k", caller="ann")
        assert other.id != first.id


@virtual
async def test_timers_are_moved_found_and_cancelled() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        for n in range(5):
            await app.timers.set(f"a{n}", queue="q", delay_s=60)
        assert [view.id for view in await app.timers.find(prefix="a", limit=3)] == [
            "a0",
            "a1",
            "a2",
        ]
        assert [view.id for view in await app.timers.find(after="a2")] == ["a3", "a4"]
        moved = await app.timers.move("a1", delay_s=5)
        assert moved.timer.due_ms == apps.clock.now_ms() + 5_000
        assert (await app.timers.move("a2", at_ms=1)).timer.due_ms == 1
        await app.timers.cancel("a3")
        await apps.sleep(10)
        found = [(await app.timers.get(f"a{n}")).status for n in range(5)]
        assert found == ["active", "success", "success", "cancelled", "active"]


BAD: list[dict[str, Any]] = [
    {},
    {"delay_s": 1},
    {"queue": "q"},
    {"queue": "q", "delay_s": -1},
    {"queue": "q", "delay_s": "soon"},
    {"queue": "q", "delay_s": 10**12},
    {"queue": "q", "delay_s": 1, "at_ms": 1},
    {"queue": "q", "every_s": 1, "cron": "* * * * *"},
    {"queue": "q", "every_s": 0.001},
    {"queue": "q", "cron": "every day"},
    {"queue": "q", "cron": "* * * * *", "zone": "Mars"},
    {"queue": "q", "url": "https://example.com", "delay_s": 1},
    {"queue": "q", "endpoint": "e", "delay_s": 1},
    {"queue": "q", "headers": {"a": "b"}, "delay_s": 1},
    {"queue": "q", "append_id": True, "delay_s": 1},
    {"url": "https://example.com", "priority": 1, "delay_s": 1},
    {"url": "https://example.com", "priority": 5, "delay_s": 1},  # the default
    {"url": "https://example.com", "endpoint": "e", "delay_s": 1},
    {"queue": "q", "delay_s": 1, "key": ""},
    {"queue": "q", "delay_s": 1, "key": "k", "id_": "t"},
    {"queue": "q", "delay_s": 1, "key": "x" * 5_000},
]


@pytest.mark.parametrize("options", BAD)
@virtual
async def test_what_cannot_be_meant_is_refused_and_sets_nothing(options: dict[str, Any]) -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        with pytest.raises(BadInput):
            await app.timers.set(**options)
        assert await app.timers.find() == []


@virtual
async def test_a_list_and_a_move_that_cannot_be_meant_are_refused() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.timers.set("t", queue="q", delay_s=60)
        for call in (
            app.timers.find(limit=0),
            app.timers.find(limit=10**6),
            app.timers.move("t"),
            app.timers.move("t", at_ms=1, delay_s=1),
            app.timers.move("t", delay_s=-1),
        ):
            with pytest.raises(BadInput):
                await call
        assert (await app.timers.get("t")).status == "active"


@virtual
async def test_a_long_list_is_whole_and_in_order() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        ids = sorted(f"{number * 7919 % 1000:03}" for number in range(250))
        for id_ in ids:
            await app.timers.set(id_, queue="q", at_ms=0)
        await apps.sleep(1)
        found = await app.timers.find(limit=1_000)
        assert [view.id for view in found] == ids
        assert all(view.job is not None for view in found)
        assert [view.id for view in await app.timers.find(limit=7, after=ids[9])] == ids[10:17]
        wanted = [id_ for id_ in ids if id_.startswith("5")]
        assert [view.id for view in await app.timers.find(prefix="5", limit=1_000)] == wanted


@virtual
async def test_a_transaction_may_cancel_a_timer_that_has_fired_or_is_unknown() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        await app.timers.set("fired", queue="q", delay_s=0)
        await app.timers.set("waits", queue="q", delay_s=60)
        await apps.sleep(1)

        async def pay(tx: Any) -> list[str | None]:
            tx.put(("paid", "order-7"), True)
            views = [
                await app.timers.cancel(id_, missing_ok=True, tx=tx)
                for id_ in ("fired", "waits", "unknown")
            ]
            return [view and view.status for view in views]

        assert await app.run(pay) == ["success", "cancelled", None]
        with pytest.raises(AlreadyEnded):
            await app.timers.cancel("fired")
        with pytest.raises(NoSuchTimer):
            await app.timers.cancel("unknown")


@virtual
async def test_a_cron_timer_starts_at_its_first_match_from_a_time_on() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        midnight_ms = (apps.clock.now_ms() // 86_400_000 + 2) * 86_400_000
        half_past_two_ms = midnight_ms + 9_000_000
        set_ = partial(app.timers.set, "t", queue="q", cron="30 2 * * *")
        assert (await set_(at_ms=midnight_ms)).timer.due_ms == half_past_two_ms
        assert (await set_(at_ms=half_past_two_ms)).timer.due_ms == half_past_two_ms
        after_ms = half_past_two_ms + 1
        assert (await set_(at_ms=after_ms)).timer.due_ms == half_past_two_ms + 86_400_000
        delay_s = (midnight_ms - apps.clock.now_ms()) / 1_000
        assert (await set_(delay_s=delay_s)).timer.due_ms == half_past_two_ms
        every = await app.timers.set("e", queue="q", every_s=60, at_ms=midnight_ms)
        assert every.timer.due_ms == midnight_ms
