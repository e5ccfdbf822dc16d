"""The records of locks: where they stand, what they say of themselves, and what is let in."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.errors import BadInput
from onceward.locks import records
from onceward.locks.records import (
    HELD,
    WAITING,
    Head,
    Request,
    Stand,
    admit_names,
    admit_owner,
    admit_token,
    name_slot,
    slot_of,
)

ID = "0123456789abcdefghjkmnpqrs"
REQUEST = f"{ID}4d2"


def refused(message: str, call: Any, *args: Any, code: str = "bad_request") -> None:
    with pytest.raises(BadInput, match=message) as raised:
        call(*args)
    assert raised.value.code == code


def test_what_a_record_does_not_say_is_what_it_was_when_it_was_written() -> None:
    head = msgspec.json.decode(b'{"capacity":3,"token":7}', type=Head)
    assert head == Head(3, 7, 0, 0, 0, 0)
    stand = msgspec.json.decode(b'{"id":"r","owner":"ann","since_ms":5}', type=Stand)
    assert stand == Stand("r", "ann", 5, 0)


def test_records_stand_where_they_always_stood() -> None:
    assert records.request_key(REQUEST) == (f"ask#1234#{REQUEST}", "request")
    assert records.renewed_key(REQUEST) == ("ask#1234", REQUEST)
    assert records.head_key("a#b", 64) == ("lock#0016", "a$23b#head")
    assert records.hold_key("a#b", 7, 64) == ("lock#0016", "a$23b#hold#0000000000000007")
    assert records.wait_key("a#b", 7, 64) == ("lock#0016", "a$23b#wait#0000000000000007")
    assert records.stands("a#b", "wait", 64) == ("lock#0016", "a$23b#wait#", "a$23b#wait$")
    assert records.lock_partition("a#b", 64) == "lock#0016"
    assert records.partition_of(7) == "lock#0007"
    assert records.fence_key(7) == ("fence", "0007")
    assert records.gate_key("a#b") == ("gate#16", "a$23b")
    assert records.gate_key("pump") == ("gate#45", "pump")
    kinds = (records.LOCK_DUE, records.GRANT_DUE, records.UNUSED_DUE)
    assert kinds == ("lock", "lock-grant", "lock-unused")
    assert (WAITING, HELD) == ("waiting", "held")


@given(st.text(min_size=1, max_size=20), st.integers(1, 4096))
def test_all_of_a_name_stands_in_one_slot(name: str, slots: int) -> None:
    slot = name_slot(name, slots)
    assert 0 <= slot < slots
    found = {
        records.head_key(name, slots)[0],
        records.hold_key(name, 1, slots)[0],
        records.wait_key(name, 1, slots)[0],
    }
    assert found == {records.partition_of(slot)}
    assert slot_of(f"{ID}{slot:03x}") == slot


@given(st.text(min_size=1, max_size=20), st.integers(0, limits.KEY_NUMBER_MAX))
def test_all_who_hold_a_name_or_wait_for_it_stand_within_its_bounds(name: str, number: int) -> None:
    for what, key_of in (("hold", records.hold_key), ("wait", records.wait_key)):
        partition, start, end = records.stands(name, what, 8)  # type: ignore[arg-type]
        key = key_of(name, number, 8)
        assert key[0] == partition
        assert start < key[1] < end
        assert not start <= records.head_key(name, 8)[1] < end


@pytest.mark.parametrize(
    "id_",
    ["", ID, f"{ID}00", f"{ID}0000", f"{ID}00g", f"{ID}-01", f"{ID[:-1]}é001", 5, None, [], {}],
)
def test_what_is_no_id_of_a_request_is_refused(id_: Any) -> None:
    for call in (slot_of, records.request_key, records.renewed_key):
        refused("is not the id of a request for locks", call, id_, code="bad_key")


@pytest.mark.parametrize(
    ("held", "waiting", "room", "free"),
    [
        (0, 0, True, True),
        (1, 0, True, True),
        (2, 0, False, False),
        (3, 0, False, False),  # with less capacity than it once had
        (1, 1, True, False),
        (2, 1, False, False),
    ],
)
def test_a_newcomer_finds_room_only_where_nobody_waits(
    held: int, waiting: int, room: bool, free: bool
) -> None:
    head = Head(2, 7, held, waiting)
    assert (head.open, head.free) == (room, free)


def test_a_request_names_what_it_waits_for_or_holds() -> None:
    waits = Request("r", "ann", WAITING, 1_000, 0, 5, {"b": 3, "a": 1}, {})
    holds = Request("r", "ann", HELD, 1_000, 0, 5, {}, {"b": 8, "a": 9})
    assert (waits.names, waits.held) == (["b", "a"], False)
    assert (holds.names, holds.held) == (["b", "a"], True)


def test_a_request_has_a_bounded_number_of_names() -> None:
    for count in (1, limits.LOCK_NAMES_MAX):
        admit_names({str(n): 1 for n in range(count)})
    for count in (0, limits.LOCK_NAMES_MAX + 1):
        names = {str(n): 1 for n in range(count)}
        refused(f"a request must have 1 to 16 names, not {count}", admit_names, names)
    for wrong in (["a"], "a", None):
        refused("locks must be a mapping of names to capacities", admit_names, wrong)
    refused("a lock's name must have", admit_names, {"a": 1, "": 1}, code="bad_name")


def test_a_capacity_is_whole_and_within_its_bounds() -> None:
    for capacity in (1, limits.LOCK_CAPACITY_MAX):
        admit_names({"a": capacity})
    for wrong in (0, -1, limits.LOCK_CAPACITY_MAX + 1, 1.0, True, "1", None):
        refused(f"the capacity of 'a' must be 1 to 10000, not {wrong!r}", admit_names, {"a": wrong})


def test_an_owner_has_a_name_of_a_bounded_length_or_none() -> None:
    for owner in ("", "ann", "é" * limits.WORKER_CHARS_MAX):
        admit_owner(owner)
    for wrong in ("x" * (limits.WORKER_CHARS_MAX + 1), None, 5, b"me"):
        refused("an owner's name must be text of at most 256 characters", admit_owner, wrong)


def test_a_token_is_whole_and_above_nothing() -> None:
    for token in (1, limits.KEY_NUMBER_MAX):
        admit_token(token)
    for wrong in (0, -1, limits.KEY_NUMBER_MAX + 1, 1.0, True, "1", None):
        refused("a token must be a positive integer", admit_token, wrong)
