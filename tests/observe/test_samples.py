"""Whoever watches sees what happened in each second."""

from onceward import limits
from onceward.observe.counts import Counts
from onceward.observe.samples import Samples
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@virtual
async def test_a_sample_tells_what_happened_since_the_one_before() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        counts = Counts(app.store, app.node.schedule.slots)
        samples = Samples(app.store, counts, app.hub.gauges)
        for number in range(3):
            await app.send("q", number, key=str(number))
        await app.send("q", 0, key="0")
        [claim] = await app.claim("q", "w", lease_s=60)
        app.store.meters.count("ended", queue="q", state="succeeded")
        app.store.meters.count("ended", 2, queue="q", state="retrying")
        app.store.meters.count("ended", 5, queue="q", state="scheduled")
        await apps.sleep(2)
        await counts.count()
        samples.sample()
        [sample] = samples.since(0)
        assert sample.at_ms == app.store.clock.now_ms()
        assert (sample.accepted, sample.repeats, sample.succeeded, sample.failed) == (3, 1, 1, 2)
        assert (sample.connections, sample.members) == (0, 0)
        assert sample.commit_ms is not None
        assert sample.commit_99_ms is not None
        assert 2_000 <= sample.age_ms <= 2_100
        await app.fail(claim.id, claim.token, "x", final=True)
        samples.sample()
        [_, second] = samples.since(0)
        assert (second.accepted, second.succeeded, second.failed) == (0, 0, 0)
        assert samples.since(1) == [second]
        assert samples.since(2) == samples.since(99) == []


@virtual
async def test_samples_are_taken_again_and_again_and_only_some_are_kept() -> None:
    apps = Apps(shared=False)
    async with apps.make() as app:
        samples = Samples(app.store, Counts(app.store, 4), app.hub.gauges)
        running = apps.loop.create_task(samples.run())
        await apps.sleep(limits.ACTIVITY_S * 3.5)
        assert samples.last == 3
        running.cancel()
        for _ in range(limits.ACTIVITY_SAMPLES + 10):
            samples.sample()
        assert samples.last == limits.ACTIVITY_SAMPLES + 13
        assert len(samples.since(0)) == limits.ACTIVITY_SAMPLES
        assert len(samples.since(samples.last - 5)) == 5
