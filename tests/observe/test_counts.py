"""Jobs are counted by queue and state, a little at a time."""

import asyncio
from collections import Counter
from functools import partial

import pytest

from onceward import limits
from onceward.errors import EngineStopped
from onceward.keys import Key
from onceward.observe.counts import Counts
from onceward.schedule import job_key
from onceward.store.transaction import Transaction
from onceward.webhooks import endpoints, signing
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@virtual
async def test_jobs_are_counted_by_queue_and_state() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        counts = Counts(app.store, app.node.schedule.slots)
        assert (counts.queues, counts.counted_ms) == ({}, None)
        first_ms = app.store.clock.now_ms()
        for number in range(5):
            await app.send("a", number)
            await apps.sleep(1)
        await app.send("a", None, delay_s=600)
        other = (await app.send("b", None)).id
        await app.cancel(other)
        [held] = await app.claim("a", "w", lease_s=60)
        await counts.count()
        assert counts.counted_ms == app.store.clock.now_ms()
        assert counts.queues["a"].jobs == Counter(queued=4, running=1, scheduled=1)
        assert counts.queues["b"].jobs == Counter(cancelled=1)
        # The one that is being worked on waits no longer.
        oldest_ms = first_ms if held.body else first_ms + 1_000
        assert counts.queues["a"].oldest_queued_ms == oldest_ms
        assert counts.queues["b"].oldest_queued_ms is None
        # What is gone is not counted any more.
        await app.complete(held.id, held.token)
        await counts.count()
        assert counts.queues["a"].jobs == Counter(queued=4, succeeded=1, scheduled=1)


@virtual
async def test_all_jobs_are_counted_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CENSUS_JOBS", 7)
    apps = Apps(shared=False)
    async with apps.make() as app:
        for number in range(100):
            await app.send(f"q{number % 3}", number)
        counts = Counts(app.store, app.node.schedule.slots)
        await counts.count()
        assert [counts.queues[f"q{n}"].jobs["queued"] for n in range(3)] == [34, 33, 33]


@virtual
async def test_counting_leaves_most_of_the_time_to_others() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        engine = apps.engines[0]
        engine.latency_s = 0.1
        counts = Counts(app.store, app.node.schedule.slots)
        begun_s = apps.loop.time()
        await counts.count()
        # The jobs, timers and locks of each of the four slots, the rooms, endpoints and tables take
        # two trips to the engine each, and a rest many times as long.
        trips = 2 * (4 + 4 + 4 + 1 + 1 + 1)
        assert apps.loop.time() - begun_s == pytest.approx(trips * 0.1 * (1 + limits.CENSUS_REST))
        counted_ms = counts.counted_ms
        counting = asyncio.create_task(counts.run())
        count_s = 2 * 4 * 0.1 * (1 + limits.CENSUS_REST)  # of the jobs alone
        await apps.sleep(1.1 * count_s)
        assert counts.counted_ms != counted_ms
        # And it is not begun again at once.
        scans = len([scan for scan in engine.scans if scan.startswith("job#")])
        await apps.sleep(0.8 * count_s)
        assert len([scan for scan in engine.scans if scan.startswith("job#")]) == scans
        counting.cancel()


@pytest.mark.parametrize("trouble", ["cut_off", "stopped"])
@virtual
async def test_trouble_is_waited_out(trouble: str) -> None:
    apps = Apps(shared=False)
    app = await apps.make().start()
    engine = apps.engines[0]
    await app.send("q", None)
    counts = Counts(app.store, app.node.schedule.slots)
    counting = asyncio.create_task(counts.run())
    await apps.sleep(0.5)
    before_ms = counts.counted_ms
    assert before_ms is not None
    setattr(engine, trouble, True)
    await apps.sleep(5)
    # The last figures stay, and say when they were taken.
    assert counts.queues["q"].jobs == Counter(queued=1)
    assert counts.counted_ms is not None
    assert counts.counted_ms < app.store.clock.now_ms() - 3_000
    setattr(engine, trouble, False)
    await apps.sleep(2 * limits.CENSUS_S)
    assert counts.counted_ms > app.store.clock.now_ms() - 2_000
    counting.cancel()
    try:
        await app.stop()
    except EngineStopped:
        assert trouble == "stopped"


@virtual
async def test_a_record_that_cannot_be_read_is_left_out() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        ids = [(await app.send("q", n)).id for n in range(3)]

        async def damage(tx: Transaction, key: Key) -> None:
            tx.put(key, "nonsense")

        await app.store.run(lambda tx: damage(tx, job_key(ids[0])))
        counts = Counts(app.store, app.node.schedule.slots)
        await counts.count()
        assert counts.queues["q"].jobs == Counter(queued=2)


@virtual
async def test_timers_rooms_and_endpoints_that_fail_are_counted_now_and_then() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        counts = Counts(app.store, app.node.schedule.slots)
        for number in range(5):
            await app.timers.set(f"t{number}", queue="q", delay_s=600)
        await app.timers.cancel("t0")
        for number in range(3):
            await app.run(partial(app.rooms.create, id_=f"r{number}", by="ann"))
        secret = signing.new_secret(app.store.ids)
        for id_ in ("a", "b"):
            await app.store.run(
                partial(endpoints.put, id_=id_, url="https://x.example", secret=secret)
            )
        await app.store.run(partial(endpoints.note, id_="b", failing=True, said="500", caller=""))
        await counts.count()
        assert counts.timers == Counter(active=4, cancelled=1)
        assert counts.rooms == 3
        assert [(one.id, one.said) for one in counts.failing] == [("b", "500")]
        await app.store.run(partial(endpoints.note, id_="b", failing=False, said="200", caller=""))
        for _ in range(limits.CENSUS_OTHERS - 1):
            await counts.count()
        assert counts.failing
        await counts.count()
        assert counts.failing == []
