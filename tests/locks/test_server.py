"""Locks on nodes: waiting, renewing and letting go."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from onceward import limits
from onceward.engine.base import Check, Delete
from onceward.errors import BadInput, LockHeld, LockLost, TooManyWaiters, Unavailable
from onceward.store.transaction import Transaction
from tests.locks.lockers import Holder, Locker, start
from tests.locks.locking import problems
from tests.schedule.cluster import Cluster, TestEngine, virtual


async def alone() -> Locker:
    return await start(Cluster(4, shared=False))


async def line(locker: Locker, name: str) -> tuple[list[str], list[str]]:
    status = await locker.do(locker.locks.status(name))
    assert status is not None
    return [s.owner for s in status.holders], [s.owner for s in status.waiters]


@virtual
async def test_a_lock_is_held_by_one_at_a_time_and_given_on_in_order() -> None:
    locker = await alone()
    order: list[int] = []

    async def use(number: int) -> None:
        async with locker.locks.hold("a", owner=str(number)) as lock:
            order.append(number)
            assert await line(locker, "a") == (
                [str(number)],
                [str(n) for n in range(number + 1, 5)],
            )
            assert lock.held
            assert lock.token == number + 1
            await locker.clock.sleep(3)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(use(number))
    assert order == list(range(5))
    assert await line(locker, "a") == ([], [])
    assert locker.locks._followers == {}
    assert locker.locks._holds == {}


@pytest.mark.parametrize("deaf", [False, True])
@virtual
async def test_a_lock_is_given_on_between_nodes(deaf: bool) -> None:
    cluster = Cluster(4, deaf=deaf)
    one, two = await start(cluster), await start(cluster)
    await cluster.clock.sleep(10)
    first = Holder(one, "a", "b")
    assert (await first.hold()).tokens == {"a": 1, "b": 1}
    second = Holder(two, "b", "c")
    await cluster.clock.sleep(100)
    assert not second.got.is_set()
    assert await first.end() is None
    start_s = cluster.loop.time()
    assert (await second.hold()).tokens == {"b": 2, "c": 1}
    assert cluster.loop.time() - start_s <= (limits.POLL_S if deaf else 0.01)
    assert await second.end() is None
    assert problems(cluster.members[0].engine) == []


@virtual
async def test_a_lock_is_kept_for_as_long_as_its_body_runs() -> None:
    locker = await alone()
    holder = Holder(locker, "a", lease_s=0.9)
    lock = await holder.hold()
    for _ in range(500):
        await locker.clock.sleep(0.1)
        assert lock.held
        assert 0.59 < lock.left_s <= 0.9
    with pytest.raises(LockHeld):
        await locker.locks.hold("a", wait_s=0).__aenter__()
    assert await holder.end() is None


@virtual
async def test_one_who_does_not_wait_is_refused_at_once_and_leaves_nothing() -> None:
    locker = await alone()
    first = Holder(locker, "a")
    await first.hold()
    start_s = locker.clock.elapsed_ns()
    with pytest.raises(LockHeld, match="another holder has the lock on a, b") as held:
        async with locker.locks.hold("a", "b", wait_s=0):
            pytest.fail("it is held")
    assert held.value.code == "lock_held"
    assert locker.clock.elapsed_ns() == start_s
    assert await line(locker, "a") == ([""], [])


@pytest.mark.parametrize("shared", [False, True])
@virtual
async def test_one_who_waits_for_some_time_gives_up_then(shared: bool) -> None:
    cluster = Cluster(4, shared=shared)
    locker = await start(cluster)
    first = Holder(locker, "a")
    await first.hold()
    start_s = cluster.loop.time()
    with pytest.raises(LockHeld, match=r"the lock on .* for 7\.5 s"):
        async with locker.locks.hold("a", wait_s=7.5, lease_s=1):
            pytest.fail("it is held")
    assert cluster.loop.time() - start_s == pytest.approx(7.5, abs=0.01)
    assert await line(locker, "a") == ([""], [])


@virtual
async def test_one_who_is_granted_just_when_he_gives_up_has_it() -> None:
    locker = await alone()
    first = Holder(locker, "a")
    await first.hold()
    second = Holder(locker, "a", wait_s=5)
    await locker.clock.sleep(1)
    locker.locks._unhook()  # it does not hear of the grant
    await first.end()
    lock = await second.hold()
    assert lock.held
    assert locker.clock.elapsed_ns() / 1e9 >= 5
    assert lock.left_s > 29.9, "its lease counts from when it knew"


@virtual
async def test_a_lock_given_on_within_a_node_takes_no_more_than_the_release() -> None:
    locker = await alone()
    first, second = Holder(locker, "a", lease_s=9), Holder(locker, "a", lease_s=9)
    await locker.clock.sleep(1)
    before = len(locker.engine.commits)
    await first.end()
    lock = await second.hold()
    assert len(locker.engine.commits) == before + 1
    assert lock.left_s == 9
    assert locker.locks._news == {}


@virtual
async def test_waiting_is_no_work() -> None:
    locker = await alone()
    first = Holder(locker, "a", lease_s=3600)
    await first.hold()
    waiters = [Holder(locker, "a", lease_s=600) for _ in range(10)]
    await locker.clock.sleep(1)
    before = len(locker.engine.commits)
    await locker.clock.sleep(1_000)
    commits = [
        writes
        for writes in locker.engine.commits[before:]
        if not any(write.key[0] in ("node", "slot") for write in writes)
    ]
    renewed = [w.key[0] for writes in commits for w in writes if type(w) is not Check]
    assert all(partition.startswith(("ask#", "due#", "clock")) for partition in renewed)
    assert 40 <= len(commits) <= 70, "five renewals of each place, and entries that move on"
    assert not any(waiter.got.is_set() for waiter in waiters)


@virtual
async def test_who_stops_waiting_gives_up_the_place_at_once() -> None:
    locker = await alone()
    first = Holder(locker, "a")
    await first.hold()
    second, third = Holder(locker, "a", "b", owner="2"), Holder(locker, "b", owner="3")
    await locker.clock.sleep(1)
    assert await line(locker, "b") == ([], ["2", "3"])
    second.task.cancel()
    start_s = locker.clock.elapsed_ns()
    await third.hold()
    assert locker.clock.elapsed_ns() - start_s < 10_000_000
    assert isinstance(second.error, asyncio.CancelledError)


@virtual
async def test_who_is_cancelled_while_asking_leaves_nothing_behind() -> None:
    locker = await alone()
    locker.engine.latency_s = 0.01
    for turns in range(8):
        holder = Holder(locker, "a")
        await locker.clock.sleep(0.005 * turns)
        holder.task.cancel()
        await locker.clock.sleep(1)
        status = await locker.do(locker.locks.status("a"))
        assert status is None or (status.held, status.waiting) == (0, 0)
    assert problems(locker.engine) == []


@virtual
async def test_a_semaphore_is_held_by_several() -> None:
    locker = await alone()
    holders = [Holder(locker, "pool", capacity=3, owner=str(n)) for n in range(5)]
    await locker.clock.sleep(1)
    assert [holder.got.is_set() for holder in holders] == [True] * 3 + [False] * 2
    await holders[1].end()
    await holders[3].hold()
    assert await line(locker, "pool") == (["0", "2", "3"], ["4"])
    with pytest.raises(BadInput, match="in use with a capacity of 3, not 1"):
        async with locker.locks.hold("pool"):
            pytest.fail("another capacity")


@virtual
async def test_capacities_can_be_given_by_name() -> None:
    locker = await alone()
    async with locker.locks.hold("a", "pool", capacity={"pool": 2}) as lock:
        assert lock.tokens == {"a": 1, "pool": 1}
        async with locker.locks.hold("pool", capacity=2) as other:
            assert other.token == 2
        with pytest.raises(ValueError, match="too many values"):
            _ = lock.token


@virtual
async def test_a_write_guarded_by_the_lock_is_refused_when_it_is_lost() -> None:
    locker = await alone()
    holder = Holder(locker, "a", "b", cancel=False)
    lock = await holder.hold()

    async def write(tx: Transaction) -> None:
        await lock.guard(tx)
        await locker.locks.guard(tx, "a", lock.tokens["a"])
        await locker.locks.gate(tx, "outside", lock.tokens["a"])
        tx.put(("written", "x"), 1)

    await locker.run(write)
    await locker.run(lambda tx: locker.locks.table.release(tx, lock.id))
    with pytest.raises(LockLost):
        await locker.run(write)


@virtual
async def test_a_line_that_is_full_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOCK_WAITERS_MAX", 1)
    locker = await alone()
    holders = [Holder(locker, "a") for _ in range(2)]
    await locker.clock.sleep(1)
    with pytest.raises(TooManyWaiters):
        async with locker.locks.hold("a"):
            pytest.fail("it is full")
    assert await holders[0].end() is None


BAD: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, "1 to 16 names, not 0"),
    (("a", "a"), {}, "has a lock twice"),
    (("",), {}, "a lock's name must have 1 to 256 bytes"),
    ((5,), {}, "the name of a lock must be text"),
    ((["a"],), {}, "the name of a lock must be text"),
    (("a",), {"capacity": 0}, "the capacity of 'a' must be 1 to 10000"),
    (("a",), {"capacity": "1"}, "the capacity of 'a' must be 1 to 10000"),
    (("a",), {"capacity": {"b": 1}}, "`capacity` names 'b', which is not among"),
    (("a",), {"lease_s": 0}, "a lease must last 1 to"),
    (("a",), {"lease_s": True}, "a lease must be 0 to"),
    (("a",), {"lease_s": "30"}, "a lease must be 0 to"),
    (("a",), {"lease_s": 10**6}, "a lease must be 0 to"),
    (("a",), {"lease_s": None}, "a lease must be 0 to"),
    (("a",), {"wait_s": -1}, "`wait_s` must be 0 or more seconds"),
    (("a",), {"wait_s": float("nan")}, "`wait_s` must be 0 or more seconds"),
    (("a",), {"wait_s": float("inf")}, "`wait_s` must be 0 or more seconds"),
    (("a",), {"wait_s": "5"}, "`wait_s` must be 0 or more seconds"),
    (("a",), {"owner": "x" * 257}, "an owner's name must be text of at most 256 characters"),
]


@virtual
async def test_bad_input_is_refused_before_anything_happens() -> None:
    locker = await alone()
    before = len(locker.engine.commits)
    for names, options, message in BAD:
        with pytest.raises(BadInput, match=message):
            locker.locks.hold(*names, **options)
    with pytest.raises(BadInput, match="a lock's name"):
        await locker.locks.status("")
    assert len(locker.engine.commits) == before


@virtual
async def test_a_hold_is_for_one_use() -> None:
    locker = await alone()
    hold = locker.locks.hold("a")
    async with hold:
        with pytest.raises(BadInput, match="already used"):
            await hold.__aenter__()
    with pytest.raises(BadInput, match="already used"):
        await hold.__aenter__()


@virtual
async def test_closing_ends_waits_and_holds_and_lets_go_of_all() -> None:
    locker = await alone()
    first, second = Holder(locker, "a"), Holder(locker, "a")
    await locker.clock.sleep(1)
    await locker.do(locker.locks.close())
    await asyncio.wait([first.task, second.task])
    assert isinstance(first.error, LockLost)
    assert "the node is stopping" in str(first.error)
    assert isinstance(second.error, Unavailable)
    assert second.error.code == "node_stopped"
    with pytest.raises(Unavailable):
        await locker.locks.hold("a").__aenter__()
    await locker.do(locker.locks.close())
    assert await line(locker, "a") == ([], [])
    await locker.stop()
    assert locker.store._hooks == []


async def letting_go() -> tuple[Locker, Holder]:
    """Someone who is just letting go of "a", which takes its time."""
    locker = await alone()
    first = Holder(locker, "a")
    await first.hold()
    locker.engine.latency_s = 1
    first.let_go.set()
    await locker.clock.sleep(0.5)
    return locker, first


@virtual
async def test_closing_waits_for_what_is_just_being_let_go() -> None:
    locker, first = await letting_go()
    assert locker.locks._holds == {}
    await locker.do(locker.locks.close())
    writes = [write for commit in locker.engine.commits for write in commit]
    assert any(type(write) is Delete and write.key[0].startswith("ask#") for write in writes)
    locker.engine.latency_s = 0
    assert await line(locker, "a") == ([], [])
    assert await first.end() is None


@virtual
async def test_who_is_cancelled_while_letting_go_has_let_go() -> None:
    locker, first = await letting_go()
    first.task.cancel()
    await asyncio.wait([first.task])
    assert first.task.cancelled()
    second = Holder(locker, "a")
    assert (await second.hold()).token == 2
    assert asyncio.get_running_loop().time() < limits.LOCK_LEASE_MS / 1_000
    assert await second.end() is None


@virtual
async def test_nothing_of_a_hold_that_is_over_is_left_to_the_garbage_collector() -> None:
    locker = await alone()
    hold = locker.locks.hold("a")
    gone = weakref.ref(hold)
    gc.disable()
    try:
        async with hold:
            pass
        del hold
        assert gone() is None
    finally:
        gc.enable()


@virtual
async def test_what_the_body_raises_comes_out_and_the_lock_is_free() -> None:
    locker = await alone()
    with pytest.raises(ZeroDivisionError):
        async with locker.locks.hold("a"):
            raise ZeroDivisionError
    assert await line(locker, "a") == ([], [])
    holder = Holder(locker, "a")
    await holder.hold()
    holder.task.cancel()
    await asyncio.wait([holder.task])
    assert holder.task.cancelled()
    assert await line(locker, "a") == ([], [])


@virtual
async def test_one_node_uses_a_lock_without_reading_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TestEngine, "shares_reads", True)
    cluster = Cluster(4, deaf=True)  # its engine sends hints of own commits as well
    locker = await start(cluster)
    await locker.clock.sleep(10)
    engine = cluster.members[0].engine
    get, asked = engine.get, list[Any]()
    monkeypatch.setattr(engine, "get", lambda keys, now_ms: asked.extend(keys) or get(keys, now_ms))
    order, tokens = list[int](), list[int]()

    async def use(number: int) -> None:
        async with locker.locks.hold("a") as lock:
            order.append(number)
            tokens.append(lock.token)
            await locker.clock.sleep(0.01)

    async with locker.locks.hold("a"):
        pass
    asked.clear()
    engine.commits.clear()
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(use(number))
    assert order == list(range(20))
    assert tokens == list(range(2, 22))
    assert [key for key in asked if key[0].partition("#")[0] in ("lock", "ask")] == []
    own = [c for c in engine.commits if any(write.key[0].startswith("lock#") for write in c)]
    assert len(own) == 40, "a request and a release for each"
    assert problems(engine) == []


@virtual
async def test_nodes_that_use_one_lock_by_turns_read_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TestEngine, "shares_reads", True)
    cluster = Cluster(4)
    lockers = [await start(cluster), await start(cluster)]
    await cluster.clock.sleep(10)
    tokens, holding = list[int](), 0
    before = sum(locker.store.meters.total("conflicts") for locker in lockers)

    async def use(locker: Locker) -> None:
        nonlocal holding
        async with locker.locks.hold("a") as lock:
            holding += 1
            assert holding == 1, "two nodes hold it"
            tokens.append(lock.token)
            await locker.clock.sleep(0.001)
            holding -= 1

    for _ in range(20):
        for locker in lockers:
            await locker.do(use(locker))
    assert tokens == list(range(1, 41))
    conflicts = sum(locker.store.meters.total("conflicts") for locker in lockers) - before
    assert conflicts <= 2, "after that, neither uses its copies"
    assert problems(cluster.members[0].engine) == []
