"""Every node has a copy of the settings of queues, and follows what others change."""

import asyncio

import pytest

from onceward import limits
from onceward.schedule import DEFAULT, settings_key
from onceward.store.transaction import Transaction
from onceward.work.bulk import configure
from tests.schedule.cluster import Cluster, Member, virtual


async def set_limit(member: Member, limit: int, queue: str = "q") -> None:
    await member.run(lambda tx: configure(tx, queue, limit=limit))


@virtual
async def test_a_queue_without_settings_has_the_default_ones() -> None:
    cluster = Cluster()
    member = await cluster.start()
    assert member.node.queue_settings("q") == DEFAULT
    assert member.node.queue_settings.names() == []


@virtual
async def test_a_change_holds_at_once_where_it_was_made() -> None:
    cluster = Cluster()
    member = await cluster.start()
    changed: list[str] = []
    member.node.queue_settings.on_change(changed.append)
    await set_limit(member, 3)
    assert member.node.queue_settings("q").limit == 3
    await set_limit(member, 3)
    await set_limit(member, 4, "r")
    assert changed == ["q", "r"], "what is the same is no change"
    assert member.node.queue_settings.names() == ["q", "r"]


@pytest.mark.parametrize("deaf", [False, True])
@virtual
async def test_other_nodes_follow_by_a_hint_or_by_looking(deaf: bool) -> None:
    cluster = Cluster(deaf=deaf)
    one, other = await cluster.start_many(2)
    await set_limit(one, 3)
    took_s = await cluster.until(lambda: other.node.queue_settings("q").limit == 3)
    assert took_s <= (limits.POLL_ALONE_S + 0.1 if deaf else 0.1)

    async def forget(tx: Transaction) -> None:
        tx.delete(settings_key("q"))

    await one.store.run(forget)
    assert one.node.queue_settings("q") == DEFAULT
    await cluster.until(lambda: other.node.queue_settings("q") == DEFAULT)


@virtual
async def test_a_node_that_starts_knows_all_settings() -> None:
    cluster = Cluster()
    one = await cluster.start()
    await set_limit(one, 3)
    other = await cluster.start()
    assert other.node.queue_settings("q").limit == 3


@virtual
async def test_an_engine_that_is_away_is_waited_out() -> None:
    cluster = Cluster(deaf=True)
    one, other = await cluster.start_many(2)
    other.engine.cut_off = True
    await cluster.clock.sleep(8)
    await set_limit(one, 3)
    other.engine.cut_off = False
    await cluster.until(lambda: other.node.queue_settings("q").limit == 3)


@virtual
async def test_settings_that_cannot_be_read_hand_out_nothing() -> None:
    cluster = Cluster()
    member = await cluster.start()

    async def damage(tx: Transaction) -> None:
        tx.put(settings_key("q"), {"of": "a newer version"})

    await member.run(damage)
    assert member.node.queue_settings("q").paused
    assert member.node.queue_settings("q").internal, "it may be, and then no caller may send to it"
    await member.send(queue="q")
    assert await member.claim() == []


@virtual
async def test_what_was_read_before_an_own_change_does_not_undo_it() -> None:
    cluster = Cluster()
    member = await cluster.start()
    await set_limit(member, 1)
    member.engine.latency_s = 1.0
    loading = asyncio.create_task(member.do(member.node.queue_settings.load()))
    await cluster.clock.sleep(1.5)  # it has read, and the answer is on its way
    member.engine.latency_s = 0.0
    await set_limit(member, 2)
    await loading
    assert member.node.queue_settings("q").limit == 2


@virtual
async def test_a_book_that_is_closed_follows_no_more() -> None:
    cluster = Cluster(shared=False)
    member = await cluster.start()
    member.node.queue_settings.close()
    member.node.queue_settings.close()
    await set_limit(member, 3)
    assert member.node.queue_settings("q") == DEFAULT
