"""Acquire, wait, release: who holds what, in what order, with which tokens."""

from copy import deepcopy

import pytest

from onceward import limits
from onceward.engine.base import Incarnation
from onceward.errors import BadInput, LockLost, TooManyWaiters
from onceward.locks import Head, head_key
from onceward.store.transaction import Transaction
from tests.locks.locking import new_locking, problems


async def test_a_free_lock_is_held_at_once_and_by_one_only() -> None:
    locking = await new_locking()
    first = await locking.held("a", owner="one")
    assert first.tokens == {"a": 1}
    assert await locking.acquire("a") is None
    await locking.release(first)
    assert (await locking.held("a")).tokens == {"a": 2}
    assert problems(locking.engine) == []


async def test_tokens_of_a_new_incarnation_are_larger_than_those_it_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locking = await new_locking()
    await locking.release(await locking.held("a"))
    lost = deepcopy(locking.engine.memory)
    for _ in range(3):
        await locking.release(last := await locking.held("a"))
    other = await locking.held("b")
    locking.engine.memory = lost
    began = Incarnation("other", 2, locking.clock.now_ms())
    monkeypatch.setattr(type(locking.engine), "incarnation", began)
    tokens = (await locking.held("a", "b")).tokens
    assert tokens["a"] > last.tokens["a"]
    assert tokens["b"] > other.tokens["b"]
    assert max(tokens.values()) < limits.KEY_NUMBER_MAX
    assert problems(locking.engine) == []


async def test_several_names_are_held_all_or_none() -> None:
    locking = await new_locking(slots=4)
    b = await locking.held("b")
    assert await locking.acquire("a", "b", "c") is None
    assert (await locking.held("a", "c")).tokens == {"a": 1, "c": 1}
    await locking.release(b)
    assert await locking.acquire("a", "b") is None
    assert (await locking.held("b", "d")).tokens == {"b": 2, "d": 1}


async def test_who_waits_is_granted_in_the_commit_that_makes_room() -> None:
    locking = await new_locking()
    first = await locking.held("a", owner="one")
    second = await locking.waits("a", owner="two")
    third = await locking.waits("a", owner="three")
    assert await locking.line("a") == (["one"], ["two", "three"])
    await locking.release(first)
    assert await locking.line("a") == (["two"], ["three"])
    granted = await locking.get(second)
    assert granted is not None
    assert granted.tokens == {"a": 2}
    await locking.release(granted)
    assert await locking.state(third) == "held"
    assert problems(locking.engine) == []


async def test_nobody_overtakes_those_who_wait_also_if_the_name_is_free() -> None:
    locking = await new_locking()
    a = await locking.held("a")
    both = await locking.waits("a", "b", owner="both")
    assert await locking.acquire("b") is None
    late = await locking.waits("b", owner="late")
    assert await locking.line("b") == ([], ["both", "late"])
    await locking.release(a)
    assert await locking.state(both) == "held"
    assert await locking.state(late) == "waiting"
    await locking.release(both)
    assert await locking.state(late) == "held"


async def test_requests_that_cross_each_other_do_not_lock_each_other_up() -> None:
    locking = await new_locking(slots=8)
    start = await locking.held("a", "b", "c")
    circle = [
        await locking.waits("a", "b"),
        await locking.waits("b", "c"),
        await locking.waits("c", "a"),
    ]
    await locking.release(start)
    for request in circle:
        assert await locking.state(request) == "held"
        await locking.release(request)
    assert problems(locking.engine) == []


async def test_a_request_in_front_that_gives_up_lets_all_behind_it_through() -> None:
    locking = await new_locking()
    await locking.held("b")
    front = await locking.waits("pool", "b", capacity=1)
    behind = await locking.waits("pool")
    await locking.withdraw(front)
    assert await locking.state(front) is None
    assert await locking.state(behind) == "held"
    assert problems(locking.engine) == []


async def test_giving_up_a_wait_that_was_granted_meanwhile_keeps_the_lock() -> None:
    locking = await new_locking()
    first = await locking.held("a")
    second = await locking.waits("a")
    await locking.release(first)
    kept = await locking.withdraw(second)
    assert kept is not None
    assert kept.held
    await locking.release(kept)
    assert await locking.withdraw(second) is None


async def test_a_semaphore_is_held_by_as_many_as_it_has_room_for() -> None:
    locking = await new_locking()
    holders = [await locking.held("pool", capacity=3) for _ in range(3)]
    assert [h.tokens["pool"] for h in holders] == [1, 2, 3]
    assert await locking.acquire("pool", capacity=3) is None
    waiters = [await locking.waits("pool", capacity=3) for _ in range(4)]
    await locking.release(holders[1])
    await locking.release(holders[0])
    states = [await locking.state(waiter) for waiter in waiters]
    assert states == ["held", "held", "waiting", "waiting"]


async def test_room_in_a_semaphore_is_given_to_all_it_suffices_for() -> None:
    locking = await new_locking()
    b = await locking.held("b", capacity=3)
    holders = [await locking.held("pool", capacity=3) for _ in range(3)]
    front = await locking.run(lambda tx: locking.table.join(tx, {"pool": 3, "b": 3}))
    assert front.state == "waiting"
    others = [await locking.waits("pool", capacity=3, owner=str(n)) for n in range(4)]
    for holder in holders[:2]:
        await locking.release(holder)
    assert await locking.state(front) == "held"
    assert [await locking.state(o) for o in others] == ["held", *["waiting"] * 3]
    assert b.held


async def test_another_capacity_is_refused_while_the_lock_is_in_use() -> None:
    locking = await new_locking()
    holder = await locking.held("pool", capacity=3)
    with pytest.raises(BadInput, match="in use with a capacity of 3, not 2") as refused:
        await locking.acquire("pool", capacity=2)
    assert refused.value.code == "lock_capacity"
    with pytest.raises(BadInput, match="capacity"):
        await locking.join("pool")
    await locking.release(holder)
    await locking.held("pool", capacity=2)
    assert (await locking.status("pool")).capacity == 2


async def test_a_released_request_is_over() -> None:
    locking = await new_locking()
    request = await locking.held("a")
    await locking.release(request)
    for again in (locking.release, locking.renew):
        with pytest.raises(LockLost, match="has ended") as lost:
            await again(request)
        assert lost.value.code == "lock_lost"
    assert await locking.get(request) is None


async def test_asking_again_with_the_same_id_is_asking_once() -> None:
    locking = await new_locking()
    id_ = locking.table.new_id(["a"])
    first = await locking.acquire("a", id_=id_)
    again = await locking.acquire("a", id_=id_)
    assert first == again
    waiting = locking.table.new_id(["a"])
    assert await locking.waits("a", id_=waiting) == await locking.waits("a", id_=waiting)
    assert await locking.line("a") == ([""], [""])
    with pytest.raises(BadInput, match="is for other names"):
        await locking.join("a", "b", id_=id_)


async def test_several_locks_and_other_writes_share_a_commit() -> None:
    locking = await new_locking()

    async def fn(tx: Transaction) -> None:
        one = await locking.table.acquire(tx, {"a": 1})
        two = await locking.table.join(tx, {"a": 1})
        assert one is not None
        assert not two.held
        await locking.table.guard(tx, "a", one.tokens["a"])
        tx.put(("other", "record"), 1)
        await locking.table.release(tx, one.id)
        granted = await locking.table.get(tx, two.id)
        assert granted is not None
        assert granted.tokens == {"a": 2}

    await locking.run(fn)
    assert len(locking.engine.commits) == 1
    assert problems(locking.engine) == []


async def test_a_line_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOCK_WAITERS_MAX", 2)
    locking = await new_locking()
    await locking.held("a")
    for _ in range(2):
        await locking.waits("a")
    with pytest.raises(TooManyWaiters, match="the lock 'a' has 2 waiters") as full:
        await locking.join("a", "b")
    assert full.value.code == "too_many_waiters"
    assert await locking.run(lambda tx: tx.get(head_key("b", 1), Head)) is None


async def test_a_guarded_write_is_refused_once_the_lock_has_gone_on() -> None:
    locking = await new_locking()
    first = await locking.held("a")
    await locking.guard("a", 1)
    await locking.release(first)
    with pytest.raises(LockLost, match="token 1 does not hold the lock 'a'"):
        await locking.guard("a", 1)
    await locking.held("a")
    with pytest.raises(LockLost):
        await locking.guard("a", 1)
    await locking.guard("a", 2)


async def test_a_guarded_write_that_is_overtaken_at_its_commit_is_refused() -> None:
    locking = await new_locking()
    first = await locking.held("a")
    await locking.waits("a")

    async def overtake() -> None:
        locking.engine.before_commit = None
        await locking.release(first)

    locking.engine.before_commit = overtake
    with pytest.raises(LockLost):
        await locking.guard("a", 1)


async def test_holders_of_a_semaphore_guard_their_writes_each_by_itself() -> None:
    locking = await new_locking()
    first = await locking.held("pool", capacity=2)
    await locking.held("pool", capacity=2)
    await locking.guard("pool", 1)
    await locking.guard("pool", 2)
    await locking.release(first)
    await locking.held("pool", capacity=2)
    await locking.guard("pool", 2)
    with pytest.raises(LockLost):
        await locking.guard("pool", 1)


async def test_a_gate_lets_no_token_through_after_a_newer_one() -> None:
    locking = await new_locking()
    for token in (3, 3, 7):
        await locking.gate("bucket", token)
    with pytest.raises(LockLost, match="'bucket' was used with the newer token 7"):
        await locking.gate("bucket", 6)
    await locking.gate("other", 6)


async def test_renewing_conflicts_neither_with_guarded_writes_nor_with_who_joins() -> None:
    locking = await new_locking()
    first = await locking.held("a")
    runs = 0

    async def meanwhile() -> None:
        locking.engine.before_commit = None
        locking.clock.at_ms += 10
        await locking.renew(first)
        await locking.waits("a")

    async def write(tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        await locking.table.guard(tx, "a", 1)
        tx.put(("written", "a"), 1)

    locking.engine.before_commit = meanwhile
    await locking.run(write)
    assert runs == 1


async def test_holders_and_waiters_are_listed_with_their_owners() -> None:
    locking = await new_locking()
    assert await locking.run(lambda tx: locking.table.status(tx, "a")) is None
    await locking.held("a", owner="one")
    locking.clock.at_ms += 5
    second = await locking.waits("a", owner="two")
    status = await locking.status("a")
    assert (status.capacity, status.token, status.held, status.waiting) == (1, 1, 1, 1)
    [holder], [waiter] = status.holders, status.waiters
    assert (holder.owner, holder.number) == ("one", 1)
    assert (waiter.id, waiter.owner, waiter.since_ms) == (second.id, "two", locking.clock.at_ms)
