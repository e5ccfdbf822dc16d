import random
from itertools import combinations, permutations

import pytest

from onceward.testing.simulation import linear
from onceward.testing.simulation.history import NEVER_NS, Violation
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


def explained(order) -> bool:
    value, latest_call = None, -1
    for op in order:
        if op.returned_ns < latest_call or op.sees not in (ANYTHING, value):
            return False
        latest_call = max(latest_call, op.called_ns)
        value = value if op.leaves is SAME else op.leaves
    return True


def linearizable_by_brute_force(operations) -> bool:
    must = [op for op in operations if op.returned_ns != NEVER_NS]
    may = [op for op in operations if op.returned_ns == NEVER_NS]
    return any(
        explained(order)
        for count in range(len(may) + 1)
        for some in combinations(may, count)
        for order in permutations([*must, *some])
    )


def random_history(draw: random.Random) -> list[Operation]:
    operations = []
    for number in range(draw.randint(1, 6)):
        called_ns = draw.randrange(12)
        returned_ns = called_ns + 1 + draw.randrange(8)
        if draw.random() < 0.2:
            returned_ns = NEVER_NS
        sees = draw.choice([ANYTHING, None, *range(number)])
        leaves = draw.choice([SAME, None, number, number])
        if sees is ANYTHING and leaves is SAME:
            sees = None
        operations.append(Operation(called_ns, returned_ns, sees, leaves))
    return operations


def test_the_search_finds_what_trying_all_orders_finds():
    draw, right = random.Random(0), 0
    for _ in range(1500):
        history = random_history(draw)
        expected = linearizable_by_brute_force(history)
        assert linearizable(history) == expected, history
        right += expected
    assert 300 < right < 1200


def test_many_operations_at_the_same_time_are_decided_in_few_steps(monkeypatch):
    monkeypatch.setattr(linear, "STEPS_MAX", 1_000)
    crowd = [write(0, 100, f"w{n}") for n in range(8)]
    crowd += [Operation(0, 100, f"w{n}", f"s{n}") for n in range(8)]
    crowd += [read(0, 100, f"s{n}") for n in range(8)]
    assert linearizable([*crowd, read(101, 102, "s3")])
    assert not linearizable([*crowd, read(101, 102, "s3"), read(103, 104, "s4")])


@pytest.mark.parametrize("returned_ns", [100, NEVER_NS])
def test_writes_that_nobody_sees_take_one_step_each(monkeypatch, returned_ns):
    crowd = [write(0, returned_ns, f"w{n}") for n in range(20)]
    monkeypatch.setattr(linear, "STEPS_MAX", 21)
    assert not linearizable([*crowd, read(0, 100, "from nowhere")])
    monkeypatch.setattr(linear, "STEPS_MAX", 20)
    with pytest.raises(Violation):
        linearizable([*crowd, read(0, 100, "from nowhere")])


def test_a_value_is_written_once():
    with pytest.raises(ValueError, match="a is written twice"):
        linearizable([write(0, 1, "a"), write(2, 3, "a")])


def test_a_search_that_takes_too_long_is_given_up_loudly(monkeypatch):
    monkeypatch.setattr(linear, "STEPS_MAX", 10)
    crowd = [Operation(0, 100, None, f"v{n}") for n in range(9)]
    with pytest.raises(Violation, match="no order in 10 steps") as found:
        linearizable([*crowd, *[Operation(0, 100, f"v{n}", None) for n in range(9)]])
    assert found.value.kind == "undecided"
