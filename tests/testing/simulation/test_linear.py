import pytest

from onceward.testing.simulation.history import NEVER_NS
from onceward.testing.simulation.linear import ANYTHING, SAME, Operation, linearizable


def read(called, returned, value):
    return Operation(called, returned, value, SAME)


def write(called, returned, value):
    return Operation(called, returned, ANYTHING, value)


def swap(called, returned, old, new):
    return Operation(called, returned, old, new)


GOOD = {
    "nothing happened": [],
    "one after the other": [write(0, 1, "a"), read(2, 3, "a"), write(4, 5, None), read(6, 7, None)],
    "a read beside a write sees the old": [write(0, 9, "a"), read(1, 2, None)],
    "a read beside a write sees the new": [write(0, 9, "a"), read(1, 2, "a")],
    "two writes in the order that a read shows": [
        write(0, 9, "a"),
        write(0, 9, "b"),
        read(10, 11, "a"),
    ],
    "a swap chain in any order of calls": [
        swap(0, 9, "b", "c"),
        swap(0, 9, "a", "b"),
        swap(0, 9, None, "a"),
        read(10, 11, "c"),
    ],
    "a write without an answer took effect": [write(0, NEVER_NS, "a"), read(5, 6, "a")],
    "a write without an answer took effect late": [
        write(0, NEVER_NS, "a"),
        read(5, 6, None),
        read(7, 8, "a"),
    ],
    "a write without an answer never took effect": [write(0, NEVER_NS, "a"), read(5, 6, None)],
}
BAD = {
    "a value from nowhere": [read(0, 1, "a")],
    "a stale read": [write(0, 1, "a"), write(2, 3, "b"), read(4, 5, "a")],
    "a lost write": [write(0, 1, "a"), read(2, 3, None)],
    "a read from the future": [read(0, 1, "a"), write(2, 3, "a")],
    "two reads that disagree on the order": [
        write(0, 9, "a"),
        write(0, 9, "b"),
        read(10, 11, "a"),
        read(12, 13, "b"),
    ],
    "two swaps from the same value": [
        write(0, 1, "a"),
        swap(2, 9, "a", "b"),
        swap(2, 9, "a", "c"),
    ],
    "a value that comes back": [
        write(0, 1, "a"),
        swap(2, 3, "a", "b"),
        read(4, 5, "a"),
    ],
    "an effect without an answer that comes and goes": [
        write(0, NEVER_NS, "a"),
        read(5, 6, "a"),
        read(7, 8, None),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_an_order_is_found(name):
    assert linearizable(GOOD[name])
    assert linearizable(list(reversed(GOOD[name])))


@pytest.mark.parametrize("name", BAD)
def test_no_order_can_be_found(name):
    assert not linearizable(BAD[name])
    assert not linearizable(list(reversed(BAD[name])))


def test_a_register_may_start_with_a_value():
    assert linearizable([read(0, 1, "a")], initial="a")
