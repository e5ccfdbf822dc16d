"""Many calls to one receiver at once: fast where it keeps up, and no more than it can take."""

from onceward.webhooks.answers import Answer
from tests.schedule.cluster import virtual
from tests.webhooks.test_delivery import URL, Post, World
from tests.work.apps import Apps

TIMERS = 4_000
ANSWERS_S = 0.2


@virtual
async def test_4000_calls_in_one_second_reach_a_receiver_within_three() -> None:
    apps = Apps(shared=False)
    world = World(apps)

    async def answer(post: Post) -> Answer:
        await apps.sleep(ANSWERS_S)
        return Answer(200, None, b"", ANSWERS_S)

    world.behaviour[URL] = answer
    async with apps.make(outward=world.outward()) as app:
        due_ms = apps.clock.now_ms() + 60_000
        for n in range(TIMERS):
            await app.timers.set(f"{n}", url=URL, at_ms=due_ms)
        await apps.sleep(63)
        assert len({post.id for post in world.posts}) == len(world.posts) == TIMERS
        late_ms = max(post.at_ms for post in world.posts) - due_ms
        assert late_ms + ANSWERS_S * 1_000 <= 3_000


@virtual
async def test_a_receiver_that_can_take_50_calls_at_once_refuses_few() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    refused = 0

    async def answer(post: Post) -> Answer:
        nonlocal refused
        if world.under_way > 50:
            refused += 1
            return Answer(503, None, b"too many", 0.001)
        await apps.sleep(ANSWERS_S)
        return Answer(200, None, b"", ANSWERS_S)

    world.behaviour[URL] = answer
    async with apps.make(outward=world.outward()) as app:
        due_ms = apps.clock.now_ms() + 60_000
        for n in range(TIMERS):
            await app.timers.set(f"{n}", url=URL, at_ms=due_ms)
        await apps.sleep(60 + 60)
        assert refused <= 0.05 * len(world.posts)
        ids = {post.id for post in world.posts}
        assert len(ids) == TIMERS
        assert len(world.posts) - refused == TIMERS
        last_s = (max(post.at_ms for post in world.posts) - due_ms) / 1_000
        assert last_s < 2.5 * TIMERS * ANSWERS_S / 50, "and it is used well"
