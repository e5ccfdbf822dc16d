"""How many requests a receiver gets at once follows from how it answers."""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

import pytest

from onceward import limits
from onceward.webhooks.concurrency import Concurrency

FIRST, BASE = limits.HOST_REQUESTS_FIRST, limits.HOST_REQUESTS_BASE


class Receiver:
    """Gets as many requests at once as it may, in virtual time."""

    def __init__(self, takes_s: Callable[[int], float], room: int = 10**9) -> None:
        self.rules = Concurrency(1_000)
        self._takes_s = takes_s
        self._room = room
        self._random = Random(1)
        self._now_s = 0.0
        self._under_way: list[tuple[float, int, float, bool]] = []
        self.well = 0
        self.refused = 0

    def run(self, requests: int) -> None:
        for _ in range(requests):
            while len(self._under_way) >= self.rules.limit:
                self._end_one()
            refused = len(self._under_way) >= self._room
            takes_s = 0.001 if refused else self._takes_s(len(self._under_way) + 1)
            takes_s *= self._random.uniform(0.8, 1.2)
            ends = (self._now_s + takes_s, self.rules.start(), takes_s, refused)
            heappush(self._under_way, ends)

    def _end_one(self) -> None:
        under_way = len(self._under_way)
        self._now_s, number, took_s, refused = heappop(self._under_way)
        self.rules.learn_time(took_s)
        if refused:
            self.refused += 1
            self.rules.failed(number)
        else:
            self.well += 1
            self.rules.answered(number, took_s, under_way)


def test_the_limit_doubles_in_the_time_of_a_request_up_to_the_most() -> None:
    receiver = Receiver(lambda count: 0.2)
    seen = []
    while receiver.rules.limit < 1_000:
        seen.append(receiver.rules.limit)
        receiver.run(receiver.rules.limit)
    assert len(seen) <= 16
    receiver.run(5_000)
    assert receiver.rules.limit == 1_000


@pytest.mark.parametrize("room", [1, 3, 10, 50, 200])
def test_a_receiver_that_refuses_beyond_some_refuses_few(room: int) -> None:
    receiver = Receiver(lambda count: 0.2, room)
    receiver.run(4_000)
    assert receiver.refused <= 0.05 * (receiver.refused + receiver.well)
    assert receiver.rules.limit > room / 2


def test_a_receiver_that_becomes_slow_gets_less_but_not_less_than_some() -> None:
    receiver = Receiver(lambda count: 0.1 * max(1.0, count / 50))
    receiver.run(10_000)
    assert BASE <= receiver.rules.limit <= 150
    slow = Receiver(lambda count: 0.01 if count == 1 else 5.0)
    slow.run(500)
    assert slow.rules.limit >= BASE


def test_what_began_before_the_limit_was_lowered_does_not_lower_it_again() -> None:
    rules = Concurrency(1_000)
    numbers = [rules.start() for _ in range(100)]
    for number in numbers[:50]:
        rules.answered(number, 0.1, 100)
    limit = rules.limit
    for number in numbers[50:]:
        rules.failed(number)
    assert rules.limit == int(limit * 0.7)
    rules.failed(rules.start())
    assert rules.limit == int(int(limit) * 0.7 * 0.7)


def test_after_an_outage_it_soon_gets_nearly_as_many_as_before() -> None:
    receiver = Receiver(lambda count: 0.2)
    receiver.run(3_000)
    before = receiver.rules.limit
    for _ in range(100):
        receiver.rules.failed(receiver.rules.start())
    assert receiver.rules.limit == 1
    receiver.run(before)
    assert receiver.rules.limit > before / 4


def test_a_limit_that_is_not_used_does_not_grow_far() -> None:
    rules = Concurrency(1_000)
    for _ in range(1_000):
        rules.answered(rules.start(), 0.1, 1)
    assert rules.limit == BASE
    assert Concurrency(1).limit == 1
    assert Concurrency(0).limit == 1


def test_when_a_turn_comes_counts_with_the_growth() -> None:
    rules = Concurrency(1_000)
    assert rules.turn_s(100) == 0
    rules.learn_time(0.2)
    turns = [rules.turn_s(count) for count in range(1, 5_000)]
    assert turns == sorted(turns)
    assert turns[-1] < 0.2 * 14
    rules.failed(rules.start())
    assert not rules.doubles
    assert rules.turn_s(10) == pytest.approx(10 * 0.2 / (0.7 * FIRST))
