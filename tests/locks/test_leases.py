"""Leases that run out, tokens that outlive their lock, and commits that stay within limits."""

import pytest

from onceward.errors import LockLost, TooLarge
from onceward.locks import GRANT_ROOM, release_writes
from onceward.locks.records import fence_key, head_key
from onceward.schedule import due_ms_of
from onceward.store.transaction import Transaction
from tests.locks.locking import Locking, new_locking, problems
from tests.schedule.jobs import all_records

HOUR_MS = 3_600_000


async def kinds(locking: Locking) -> list[str]:
    return [key[1].split("#")[-1] for key in await locking.due()]


async def test_a_lease_that_runs_out_goes_to_the_next_in_line() -> None:
    locking = await new_locking()
    first = await locking.held("a", lease_ms=1_000)
    second = await locking.waits("a", lease_ms=5_000)
    await locking.pass_ms(999)
    assert await locking.state(first) == "held"
    await locking.pass_ms(1)
    assert await locking.state(first) is None
    assert await locking.state(second) == "held"
    with pytest.raises(LockLost):
        await locking.guard("a", 1)
    await locking.guard("a", 2)
    assert problems(locking.engine) == []


async def test_a_lease_over_which_nobody_has_noticed_yet_is_still_good() -> None:
    locking = await new_locking()
    first = await locking.held("a", lease_ms=1_000)
    locking.clock.at_ms += 5_000
    await locking.guard("a", 1)
    await locking.renew(first)
    await locking.settle()
    assert await locking.state(first) == "held"


async def test_renewing_makes_a_lease_longer_and_never_shorter() -> None:
    locking = await new_locking()
    first = await locking.held("a", lease_ms=1_000)
    start_ms = locking.clock.at_ms
    assert await locking.renew(first) == start_ms + 1_000
    await locking.pass_ms(500)
    assert await locking.renew(first) == start_ms + 1_500
    assert await locking.renew(first, 200) == start_ms + 1_500
    assert await locking.renew(first, 9_500) == start_ms + 10_000
    await locking.pass_ms(9_499)
    assert await locking.state(first) == "held"
    await locking.pass_ms(1)
    assert await locking.state(first) is None


async def test_a_place_in_line_runs_out_and_does_not_block_those_behind_it() -> None:
    locking = await new_locking()
    first = await locking.held("a", lease_ms=60_000)
    dead = await locking.waits("a", lease_ms=1_000)
    alive = await locking.waits("a", lease_ms=1_000)
    await locking.pass_ms(700)
    await locking.renew(alive)
    await locking.pass_ms(700)
    assert await locking.state(dead) is None
    assert await locking.state(alive) == "waiting"
    await locking.release(first)
    assert await locking.state(alive) == "held"
    with pytest.raises(LockLost):
        await locking.renew(dead)
    assert problems(locking.engine) == []


async def test_one_who_is_gone_already_is_not_granted_after_a_standstill() -> None:
    locking = await new_locking()
    await locking.held("a", lease_ms=1_000)
    dead = [await locking.waits("a", lease_ms=2_000) for _ in range(3)]
    locking.clock.at_ms += 60_000  # no node was there
    alive = await locking.waits("a")
    await locking.settle()
    assert [await locking.state(request) for request in dead] == [None] * 3
    assert await locking.state(alive) == "held"
    assert (await locking.status("a")).token == 2


async def test_what_waiting_has_left_behind_does_not_end_the_hold() -> None:
    locking = await new_locking()
    first = await locking.held("a", lease_ms=1_500)
    second = await locking.waits("a", lease_ms=1_000)
    await locking.pass_ms(600)
    await locking.renew(second)
    await locking.pass_ms(500)  # its entry moves on, to 1,600
    await locking.release(first)
    assert await locking.state(second) == "held"
    await locking.pass_ms(999)
    assert await locking.state(second) == "held"
    await locking.pass_ms(1)
    assert await locking.state(second) is None


async def test_a_lock_that_came_and_went_leaves_nothing_in_due_but_the_look_for_use() -> None:
    locking = await new_locking()
    for _ in range(3):
        first = await locking.held("a", "b")
        second = await locking.waits("b")
        await locking.release(first)
        await locking.release(second)
    assert await kinds(locking) == ["lock-unused", "lock-unused"]


async def test_tokens_grow_also_after_the_lock_was_forgotten() -> None:
    locking = await new_locking(slots=2)
    for _ in range(3):
        await locking.release(await locking.held("a"))
    await locking.pass_ms(HOUR_MS)
    assert await locking.due() == []
    slot = int(head_key("a", 2)[0][-4:])
    assert list(all_records(locking.engine)) == [fence_key(slot)]
    assert (await locking.held("a")).tokens == {"a": 4}
    others = [name for name in "bcdefgh" if head_key(name, 2)[0] == head_key("a", 2)[0]]
    assert (await locking.held(others[0])).tokens == {others[0]: 4}


async def test_the_fence_of_a_slot_never_goes_back() -> None:
    locking = await new_locking()
    for name, count in (("a", 5), ("b", 2)):
        for _ in range(count):
            await locking.release(await locking.held(name))
        await locking.pass_ms(1_000)
    await locking.pass_ms(HOUR_MS)
    assert (await locking.held("b")).tokens == {"b": 6}
    assert (await locking.held("a")).tokens == {"a": 6}


async def test_a_lock_in_use_is_not_forgotten() -> None:
    locking = await new_locking()
    await locking.held("a", lease_ms=2 * HOUR_MS)
    await locking.pass_ms(HOUR_MS)
    assert (await locking.status("a")).held == 1
    [_, unused] = sorted(await locking.due(), key=lambda key: key[1].split("#")[-1])
    assert due_ms_of(unused[1]) == locking.clock.at_ms + HOUR_MS


async def test_a_lock_used_lately_is_looked_at_again_when_it_may_be_unused() -> None:
    locking = await new_locking()
    await locking.release(await locking.held("a"))
    await locking.pass_ms(HOUR_MS - 1)
    await locking.release(await locking.held("a"))
    await locking.pass_ms(HOUR_MS - 1)
    assert (await locking.status("a")).token == 2
    await locking.pass_ms(1)
    assert await locking.run(lambda tx: locking.table.status(tx, "a")) is None


async def test_who_does_not_fit_into_the_commit_is_granted_just_after_it() -> None:
    locking = await new_locking()
    gate = await locking.held("gate")
    front = await locking.run(
        lambda tx: locking.table.join(tx, {"pool": 50, "gate": 1}, owner="front")
    )
    others = [await locking.waits("pool", capacity=50) for _ in range(49)]
    await locking.release(gate)
    states = [await locking.state(request) for request in (front, *others)]
    granted = states.count("held")
    assert 0 < granted < 50
    assert states == ["held"] * granted + ["waiting"] * (50 - granted)
    assert "lock-grant" in await kinds(locking)
    assert await locking.acquire("pool", capacity=50) is None, "nobody slips in between"
    await locking.settle()
    assert {await locking.state(request) for request in (front, *others)} == {"held"}
    tokens = [(await locking.get(request)).tokens["pool"] for request in (front, *others)]
    assert tokens == list(range(1, 51))
    assert "lock-grant" not in await kinds(locking)
    assert problems(locking.engine) == []


NAMES = [f"{'x' * 250}{n:02d}" for n in range(16)]


@pytest.mark.parametrize("how", ["release", "expire"])
async def test_the_largest_requests_fit_into_commits(how: str) -> None:
    locking = await new_locking(slots=64)
    full = 99 - release_writes(16, 0)
    first = await locking.held(*NAMES, lease_ms=1_000)
    # In each line another one is first, and all of them want as much as there may be.
    waiters = [await locking.waits(*NAMES, lease_ms=10_000) for _ in range(3)]
    for name in NAMES:
        others = [f"{'y' * 250}{name[-2:]}{n:02d}" for n in range(15)]
        waiters.append(await locking.waits(name, *others, lease_ms=10_000))
    if how == "release":
        await locking.release(first, room=full)
    await locking.pass_ms(1_000)
    for request in waiters[:3]:
        assert await locking.state(request) == "held"
        await locking.release(request, room=full)
        await locking.settle()
    assert {await locking.state(request) for request in waiters[3:]} == {"held"}
    assert 80 < locking.largest_commit <= 99
    assert problems(locking.engine) == []


async def test_a_release_beside_other_writes_takes_no_more_than_it_says() -> None:
    locking = await new_locking()
    first = await locking.held(*NAMES)
    for name in NAMES:
        await locking.waits(name)
    others = 99 - release_writes(16)

    async def fn(tx: Transaction) -> None:
        for n in range(others):
            tx.put(("other", str(n)), n)
        await locking.table.release(tx, first.id)

    await locking.run(fn)
    assert len(locking.engine.commits[-1]) > 99 - GRANT_ROOM
    await locking.settle()
    states = [(await locking.status(name)).held for name in NAMES]
    assert states == [1] * 16
    others = 99
    first = await locking.waits(*NAMES)
    with pytest.raises(TooLarge):
        await locking.run(fn)


async def test_two_who_each_free_a_name_do_not_leave_the_waiter_to_each_other() -> None:
    locking = await new_locking(slots=8)
    a, b = await locking.held("a"), await locking.held("b")
    both = await locking.waits("a", "b")

    async def meanwhile() -> None:
        locking.engine.before_commit = None
        await locking.release(b)

    locking.engine.before_commit = meanwhile
    await locking.release(a)
    assert await locking.state(both) == "held"


async def test_a_late_entry_for_names_that_are_gone_does_nothing() -> None:
    locking = await new_locking()
    entry = ("due#0000", f"{locking.clock.at_ms:016d}#x#lock-grant")

    async def fn(tx: Transaction) -> None:
        tx.put(entry, ["a", "b"])

    await locking.run(fn)
    await locking.settle()
    assert await locking.due() == []
