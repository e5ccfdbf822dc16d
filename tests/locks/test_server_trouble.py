"""Locks when processes die or stand still, and when the engine is away."""

import asyncio

import pytest

from onceward.engine.memory import MemoryEngine
from onceward.errors import EngineStopped, LockHeld, LockLost, OutcomeUnknown, Unavailable
from onceward.node import Node
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.testing import Fault, FaultEngine, VirtualClock
from tests.locks.lockers import Holder, Locker, locks_of, start
from tests.locks.locking import problems
from tests.schedule.cluster import LEASE_S, Cluster, virtual


async def pair(cluster: Cluster) -> tuple[Locker, Locker]:
    one, two = await start(cluster), await start(cluster)
    await cluster.clock.sleep(LEASE_S)
    return one, two


@virtual
async def test_the_lock_of_a_process_that_died_goes_to_the_next() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first, second = Holder(one, "a", lease_s=20), Holder(two, "a")
    await first.hold()
    one.process.kill()
    start_s = cluster.loop.time()
    assert (await second.hold()).token == 2
    assert 20 - 20 / 3 <= cluster.loop.time() - start_s <= 21


@virtual
async def test_a_waiter_whose_process_died_does_not_block_the_line() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first = Holder(one, "a")
    await first.hold()
    dead = Holder(two, "a", "b", lease_s=6)
    await cluster.clock.sleep(1)
    third = Holder(one, "a", "b")
    await cluster.clock.sleep(1)
    two.process.kill()
    await cluster.clock.sleep(60)
    assert not third.got.is_set()
    await first.end()
    start_s = cluster.loop.time()
    await third.hold()
    assert cluster.loop.time() - start_s < 0.1
    assert not dead.got.is_set()
    assert problems(MemoryEngine(cluster.memory)) == []


@virtual
async def test_who_stood_still_for_too_long_has_lost_the_lock_and_is_told() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first, second = Holder(one, "a", lease_s=3), Holder(two, "a", lease_s=3)
    lock = await first.hold()
    one.process.pause()
    assert (await second.hold()).token == 2
    one.process.resume()
    await asyncio.wait([first.task])
    assert isinstance(first.error, LockLost)
    assert (
        first.error.message
        == "the lock on a was lost: its lease expired before it was renewed. Acquire it again"
    )
    assert lock.lost.is_set()
    assert not lock.held
    with pytest.raises(LockLost):
        await one.run(lock.guard)
    assert await second.end() is None


@virtual
async def test_a_waiter_that_stood_still_for_too_long_joins_the_line_again() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first = Holder(one, "a")
    await first.hold()
    second, third = Holder(two, "a", lease_s=3, owner="2"), Holder(one, "a", owner="3")
    await cluster.clock.sleep(1)
    two.process.pause()
    await cluster.clock.sleep(2 * LEASE_S)  # its slots are looked after by the other one now
    two.process.resume()
    await cluster.clock.sleep(5)
    status = await one.do(one.locks.status("a"))
    assert status is not None
    assert [waiter.owner for waiter in status.waiters] == ["3", "2"]
    await first.end()
    await third.hold()
    await third.end()
    await second.hold()


@virtual
async def test_a_holder_that_is_cut_off_gives_up_before_the_next_one_has_the_lock() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first, second = Holder(one, "a", lease_s=9), Holder(two, "a", lease_s=9)
    lock = await first.hold()
    await cluster.clock.sleep(20)
    one.engine.cut_off = True
    await asyncio.wait([first.task])
    given_up_s = cluster.loop.time()
    assert isinstance(first.error, LockLost)
    await second.hold()
    assert cluster.loop.time() >= given_up_s
    assert lock.lost.is_set()


@virtual
async def test_a_renewal_that_hangs_does_not_keep_the_loss_from_being_told() -> None:
    cluster = Cluster(4)
    one, _ = await pair(cluster)
    first = Holder(one, "a", lease_s=3)
    await first.hold()
    start_s = cluster.loop.time()
    one.engine.hang()
    await cluster.until(lambda: first.lock is not None and first.lock.lost.is_set())
    assert cluster.loop.time() - start_s <= 3.02
    one.engine.free.set()
    await asyncio.wait([first.task])
    assert isinstance(first.error, LockLost)


@virtual
async def test_short_trouble_with_the_engine_costs_no_lock_and_no_place() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first, second = Holder(one, "a", lease_s=9), Holder(two, "a", lease_s=9)
    await first.hold()
    for _ in range(20):
        one.engine.cut_off = two.engine.cut_off = True
        await cluster.clock.sleep(4)
        one.engine.cut_off = two.engine.cut_off = False
        await cluster.clock.sleep(2)
    assert not second.got.is_set()
    assert await first.end() is None
    assert (await second.hold()).token == 2


@virtual
async def test_a_lock_let_go_while_the_engine_is_away_is_free_when_it_is_back() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first, second = Holder(one, "a"), Holder(two, "a")
    await first.hold()
    one.engine.cut_off = True
    ending = asyncio.create_task(first.end())
    await cluster.clock.sleep(3)
    one.engine.cut_off = False
    assert await ending is None
    await second.hold()
    await cluster.clock.sleep(1)
    assert cluster.loop.time() < 20


@virtual
async def test_a_lock_that_cannot_be_let_go_ends_with_its_lease() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first, second = Holder(one, "a", lease_s=6), Holder(two, "a")
    await first.hold()
    one.engine.cut_off = True
    start_s = cluster.loop.time()
    assert await first.end() is None
    assert cluster.loop.time() - start_s <= 6
    await second.hold()


@virtual
async def test_who_waits_while_the_engine_is_away_gives_up_in_time() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first, second = Holder(one, "a"), Holder(two, "a", wait_s=5)
    await first.hold()
    await cluster.clock.sleep(1)
    two.engine.cut_off = True
    start_s = cluster.loop.time()
    await asyncio.wait([second.task])
    assert isinstance(second.error, LockHeld)
    assert cluster.loop.time() - start_s <= 5.1
    two.engine.cut_off = False
    await cluster.clock.sleep(2)
    status = await one.do(one.locks.status("a"))
    assert status is not None
    assert status.waiting == 0


@virtual
async def test_asking_while_the_engine_is_away_is_an_error_at_once() -> None:
    cluster = Cluster(4)
    one, _ = await pair(cluster)
    one.engine.cut_off = True
    holder = Holder(one, "a")
    await asyncio.wait([holder.task])
    assert isinstance(holder.error, Unavailable)


@virtual
async def test_an_engine_that_has_stopped_ends_holds_and_waits() -> None:
    cluster = Cluster(4)
    one, _ = await pair(cluster)
    first, second = Holder(one, "a", lease_s=3), Holder(one, "a", lease_s=3)
    await first.hold()
    await cluster.clock.sleep(0.1)
    one.engine.stopped = True
    await asyncio.wait([first.task, second.task])
    assert isinstance(first.error, LockLost)
    assert "the disk is gone" in str(first.error)
    assert isinstance(second.error, EngineStopped)


@virtual
async def test_a_lock_released_by_someone_else_is_lost_at_once_on_its_own_node() -> None:
    cluster = Cluster(4)
    one, _ = await pair(cluster)
    first = Holder(one, "a")
    lock = await first.hold()
    start_s = cluster.loop.time()
    await one.store.run(lambda tx: one.locks.table.release(tx, lock.id))
    await asyncio.wait([first.task])
    assert cluster.loop.time() - start_s < 0.01
    assert isinstance(first.error, LockLost)


@virtual
async def test_nothing_is_remembered_of_requests_whose_callers_have_gone() -> None:
    cluster = Cluster(4)
    one = await start(cluster)
    one.engine.latency_s = 1
    first = Holder(one, "a")
    while not any(w.key[0].startswith("ask#") for c in one.engine.commits for w in c):
        await cluster.clock.sleep(0.1)
    first.task.cancel()  # what it has asked for is on its way to the disk
    await asyncio.wait([first.task])
    await cluster.clock.sleep(LEASE_S)
    assert one.locks._own == set()
    assert one.locks._followers == {}


@virtual
async def test_a_body_that_may_go_on_learns_of_the_loss_by_the_event() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first = Holder(one, "a", cancel=False, lease_s=3)
    lock = await first.hold()
    await two.store.run(lambda tx: two.locks.table.release(tx, lock.id))
    await lock.lost.wait()
    assert not lock.held
    assert "has ended" in lock.reason
    assert await first.end() is None


@virtual
async def test_a_body_that_ends_before_it_has_heard_of_the_loss_is_told_in_the_end() -> None:
    cluster = Cluster(4)
    one, two = await pair(cluster)
    first = Holder(one, "a")
    lock = await first.hold()
    await two.store.run(lambda tx: two.locks.table.release(tx, lock.id))
    error = await first.end()
    assert isinstance(error, LockLost)
    assert "another process released it" in error.message


@virtual
async def test_a_body_that_swallows_its_cancellation_is_told_all_the_same() -> None:
    cluster = Cluster(4)
    one, _ = await pair(cluster)

    async def stubborn() -> str:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with one.locks.hold("a") as lock:
                await one.store.run(lambda tx: one.locks.table.release(tx, lock.id))
                try:
                    await one.clock.sleep(100)
                except asyncio.CancelledError:
                    pass
        except LockLost:
            return f"told, {task.cancelling()} cancellations left"
        return "not told"

    assert await one.do(stubborn()) == "told, 0 cancellations left"


@virtual
async def test_a_body_cancelled_by_others_too_stays_cancelled() -> None:
    cluster = Cluster(4)
    one, _ = await pair(cluster)
    first = Holder(one, "a")
    await first.hold()
    [hold] = one.locks._holds
    hold.lose("by this test")
    first.task.cancel()
    await asyncio.wait([first.task])
    assert first.task.cancelled()


@virtual
async def test_a_release_whose_answer_was_lost_is_no_loss() -> None:
    engine = await FaultEngine(MemoryEngine()).open()
    engine.shared = False
    store = Store(engine, VirtualClock())
    async with Node(store, slots=1) as node:
        locks = locks_of(node)
        release = locks.table.release
        calls = 0

        async def unlucky(tx: Transaction, id_: str, *, room: int) -> None:
            nonlocal calls
            calls += 1
            await release(tx, id_, room=room)

        locks.table.release = unlucky  # type: ignore[method-assign]
        async with locks.hold("a") as lock:
            run = store.run

            async def lose_once(fn, **options):
                await run(fn, **options)
                store.run = run  # type: ignore[method-assign]
                raise OutcomeUnknown("who knows")

            store.run = lose_once  # type: ignore[assignment, method-assign]
        assert calls == 2
        assert not lock.lost.is_set()
        status = await locks.status("a")
        assert status is not None
        assert status.held == 0


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST, Fault.CONFLICT])
@virtual
async def test_lost_answers_and_conflicts_while_asking_are_settled_by_the_store(
    fault: Fault,
) -> None:
    for number in range(1, 12):
        engine = await FaultEngine(MemoryEngine(), {number: fault}).open()
        store = Store(engine, VirtualClock())
        async with Node(store, slots=1) as node:
            locks = locks_of(node)
            async with locks.hold("a", "b") as lock:
                assert lock.held
            status = await locks.status("a")
            assert status is not None
            assert (status.token, status.held, status.waiting) == (1, 0, 0)
