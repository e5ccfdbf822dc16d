"""Queues with a limit: whoever waits is served when another one is done."""

import asyncio

import pytest

from onceward.work.bulk import configure
from tests.schedule.cluster import Cluster, Member, asks, virtual


async def limited(cluster: Cluster) -> Member:
    """A node with one permit for two jobs."""
    member = await cluster.start()
    await member.run(lambda tx: configure(tx, "q", limit=1))
    for body in ("a", "b"):
        await member.send(body)
    return member


@pytest.mark.parametrize("shared", [False, True])
@virtual
async def test_a_permit_that_is_given_back_goes_to_who_waits_also_without_hints(
    shared: bool,
) -> None:
    cluster = Cluster(4, shared=shared, deaf=True)
    member = await limited(cluster)
    [claim] = await member.claim()
    asked = asks(member, wait_s=600)
    await cluster.clock.sleep(10)
    assert not asked.done()
    await member.complete(claim)
    assert await cluster.until(asked.done) < 0.1


@virtual
async def test_a_permit_that_is_given_back_during_a_look_is_not_overlooked() -> None:
    cluster = Cluster(1, shared=False)
    member = await limited(cluster)
    [claim] = await member.claim()
    member.engine.latency_s = 0.1
    done = asyncio.create_task(member.complete(claim))
    await cluster.clock.sleep(0.05)
    # It finds the permit taken, and is still on its way back when that is heard of.
    asked = asks(member, wait_s=600)
    await done
    assert await cluster.until(asked.done) < 3
