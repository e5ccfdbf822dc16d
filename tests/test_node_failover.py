"""Nodes whose PostgreSQL fails over to a standby that lacks commits go on with what is there."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

from onceward.app import App
from onceward.errors import OutcomeUnknown, Unavailable
from onceward.work.job import Job
from tests.failover import Servers, address

T = TypeVar("T")
WAIT_S = 40.0
COUNT = ("count", "q")


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Call again and again, as a sender does that gets no answer."""
    while True:
        try:
            return await call()
        except (Unavailable, OutcomeUnknown):
            await asyncio.sleep(0)


async def start(stack: AsyncExitStack, url: str, name: str) -> App:
    app = App(url, name=name, slots=4)

    @app.handler("q")
    async def handle(job: Job) -> None:
        count = await job.tx.get(COUNT, int, cached=True) or 0
        job.tx.put(COUNT, count + 1)

    return await stack.enter_async_context(app)


async def process(app: App, key: str) -> int:
    """Send a message until its job is done; returns how many are."""

    async def send() -> int:
        accepted = await app.send("q", key, key=key)
        job = await app.wait(accepted.id, WAIT_S)
        assert job.state == "succeeded"
        return await app.run(lambda tx: tx.get(COUNT))

    return await insist(send)


async def token(app: App) -> int:
    """Of the next one who holds a lock."""
    async with app.locks.hold("printer") as lock:
        return lock.token


async def test_nodes_go_on_after_a_failover_that_lost_commits(
    servers: Servers, schema: str
) -> None:
    standby = servers.follow()
    async with AsyncExitStack() as stack:
        url = address(schema, servers.primary, standby)
        one = await start(stack, url, "one")
        two = await start(stack, url, "two")
        assert await process(one, "kept") == 1
        standby.catch_up()
        standby.cut_off()
        assert await process(one, "a") == 2
        assert await process(two, "b") == 3
        lost = await token(two)
        servers.fail_over(standby)
        # Senders repeat what they have no other proof of; each message counts once.
        assert await process(two, "a") == 2
        assert await process(one, "b") == 3
        assert await process(one, "kept") == 3
        assert await process(two, "new") == 4
        assert await insist(lambda: token(one)) > lost
        for app in (one, two):
            assert [alarm.code for alarm in app.alarms] == ["commits_lost"]
            assert app.node.running
            assert app.store.engine.incarnation.number == 2
