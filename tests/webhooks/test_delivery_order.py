"""Overdue calls start in the order in which they were due, at the rate that is set."""

from typing import Any

import pytest

from onceward import limits
from onceward.schedule.claiming import CLAIMS_AT_ONCE
from onceward.webhooks.answers import Answer
from tests.schedule.cluster import virtual
from tests.webhooks.test_delivery import URL, Post, World
from tests.work.apps import Apps

TOGETHER = limits.CLAIM_ROUNDS_MAX * CLAIMS_AT_ONCE
OVERDUE = 600


async def posts_of(apps: Apps, world: World, **options: Any) -> list[Post]:
    """What is called after an hour in which no server ran."""
    async with apps.make() as app:
        start_ms = apps.clock.now_ms()
        for n in range(OVERDUE):
            due_ms = start_ms + 1_000 + (n * 7_919) % OVERDUE * 1_000
            await app.timers.set(f"{n}", url=URL, body=due_ms, at_ms=due_ms)
        await app.stop()
    await apps.sleep(OVERDUE + 600)
    async with apps.make(outward=world.outward(**options)):
        await apps.sleep(300)
    assert len(world.posts) == OVERDUE
    return world.posts


@virtual
@pytest.mark.parametrize(("takes_s", "apart"), [(0.2, 0), (0.0, TOGETHER)])
async def test_overdue_calls_start_in_due_order(takes_s: float, apart: int) -> None:
    """Those that are claimed together may start at one moment, in any order."""
    apps = Apps(shared=False)
    world = World(apps)

    async def answer(post: Post) -> Answer:
        await apps.sleep(takes_s)
        return Answer(200, None, b"", takes_s)

    world.behaviour[URL] = answer
    due = [int(post.body) for post in await posts_of(apps, world)]
    place = {due_ms: number for number, due_ms in enumerate(sorted(due))}
    assert max(abs(place[due_ms] - number) for number, due_ms in enumerate(due)) <= apart


@virtual
async def test_overdue_calls_start_at_the_rate_that_is_set() -> None:
    apps = Apps(shared=False)
    world = World(apps)
    posts = await posts_of(apps, world, rate=10.0)
    due = [int(post.body) for post in posts]
    assert due == sorted(due)
    took_s = (posts[-1].at_ms - posts[0].at_ms) / 1_000
    assert OVERDUE / 10 - 3 <= took_s <= OVERDUE / 10 + 3
