"""The check of a database finds locks whose records do not agree."""

from typing import Any

import msgspec
import pytest

from onceward.engine.base import Record
from onceward.keys import Key
from onceward.locks.invariants import RULES
from onceward.locks.records import head_key, hold_key, request_key, wait_key
from tests.locks.locking import Locking, new_locking, problems
from tests.quick import change, remove
from tests.schedule.jobs import all_records


async def used() -> tuple[Locking, Key, Key]:
    """A lock that one holds and another waits for, and the keys of their requests."""
    locking = await new_locking()
    holder, waiter = await locking.held("a"), await locking.waits("a")
    assert problems(locking.engine) == []
    return locking, request_key(holder.id), request_key(waiter.id)


@pytest.mark.parametrize("held", [2, -1])
async def test_a_head_that_cannot_be_is_found(held: int) -> None:
    locking, _, _ = await used()
    head = {"capacity": 1, "token": 1, "held": held, "waiting": 1}
    await change(locking.store, head_key("a", 1), head)
    assert "not the head of a lock" in problems(locking.engine)[0]


@pytest.mark.parametrize(
    ("held", "waiting", "sound"),
    [(0, 0, True), (2, 0, True), (3, 0, False), (-1, 0, False), (0, 1, True), (0, -1, False)],
)
def test_a_lock_is_held_by_none_up_to_as_many_as_it_may_be(
    held: int, waiting: int, sound: bool
) -> None:
    head = {"capacity": 2, "token": 1, "held": held, "waiting": waiting}
    record = Record(head_key("a", 1), msgspec.json.encode(head), 1)
    [judge] = [rule.judge for rule in RULES if rule.kind == "lock"]
    assert list(judge(record, lambda key: None)) == (
        [] if sound else ["this is not the head of a lock"]
    )


async def test_one_who_stands_there_without_a_request_is_found() -> None:
    locking, holder, waiter = await used()
    await remove(locking.store, holder)
    await remove(locking.store, waiter)
    found = problems(locking.engine)
    assert sum("its request is missing" in problem for problem in found) == 2


async def test_one_who_stands_somewhere_else_is_found() -> None:
    locking, _, _ = await used()
    stand = all_records(locking.engine)[wait_key("a", 0, 1)].value
    await change(locking.store, wait_key("a", 5, 1), {**decode(stand), "number": 5})
    await change(locking.store, hold_key("b", 1, 1), decode(stand))
    found = " ".join(problems(locking.engine))
    assert "does not match: it is waiting" in found
    assert "the lock 'b' has no head" in found


@pytest.mark.parametrize("place", [0, 1])
async def test_one_who_stands_there_twice_is_found(place: int) -> None:
    locking, _, _ = await used()
    stand = decode(all_records(locking.engine)[wait_key("a", 0, 1)].value)
    await change(locking.store, wait_key("a", 1, 1), {**stand, "number": place})
    found = [problem for problem in problems(locking.engine) if "does not match" in problem]
    assert len(found) == 1


def decode(value: bytes) -> dict[str, Any]:
    return msgspec.json.decode(value)


async def test_a_request_that_contradicts_itself_is_found() -> None:
    locking, holder, waiter = await used()
    record = decode(all_records(locking.engine)[holder].value)
    await change(locking.store, holder, {**record, "state": "waiting"})
    record = decode(all_records(locking.engine)[waiter].value)
    await change(locking.store, waiter, {**record, "state": "lost"})
    found = " ".join(problems(locking.engine))
    assert "not a request for locks" in found
    assert "the request is lost but has queue numbers" in found


async def test_a_request_that_would_never_end_is_found() -> None:
    locking, _, _ = await used()
    for entry in await locking.due():
        await remove(locking.store, entry)
    found = problems(locking.engine)
    assert sum("a lease that never ends" in problem for problem in found) == 2


async def test_an_entry_in_due_that_says_too_little_is_found() -> None:
    locking, _, _ = await used()
    await change(locking.store, ("due#0000", "0000000000000001#x#lock"), 1)
    assert "not a lease of a lock" in problems(locking.engine)[0]


async def test_records_that_are_something_else_are_found() -> None:
    locking, holder, _ = await used()
    await change(locking.store, holder, 5)
    await change(locking.store, hold_key("a", 1, 1), {"id": "x", "owner": "", "since_ms": 0})
    found = " ".join(problems(locking.engine))
    assert "not a request for locks" in found
    assert "its request is missing" in found
