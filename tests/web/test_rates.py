"""Stores of requests that fill up evenly, by themselves."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.clock import Clock
from onceward.errors import Unavailable
from onceward.meters import Meters
from onceward.web.rates import Rates

START_NS = 1_000_000_000


class Stopped(Clock):
    """Shows what it is told to."""

    def __init__(self) -> None:
        self.at_ns = START_NS
        super().__init__(boot_ns=lambda: self.at_ns)


def told_s(refused: Unavailable) -> float:
    """How long to wait, as a refusal says."""
    wait_s = refused.details["retry_after_s"]
    assert refused.code == "rate_limited"
    assert isinstance(wait_s, float)
    assert wait_s > 0
    return wait_s


class Callers:
    """Rates, and what comes of asking."""

    def __init__(self, per_second: float, at_once: int = 0) -> None:
        self.clock, self.meters = Stopped(), Meters()
        self.rates = Rates(per_second, at_once, self.clock, self.meters)

    def wait_s(self, name: str = "ann") -> float:
        """Make a request; says how long to wait for the next one if it is refused, or 0."""
        try:
            self.rates.take(name)
        except Unavailable as refused:
            return told_s(refused)
        return 0.0

    def passed(self, count: int, name: str = "ann") -> int:
        """How many of so many requests are taken, at this moment."""
        return sum(not self.wait_s(name) for _ in range(count))


@given(
    st.floats(0.01, 1e6),
    st.integers(1, 50),
    st.lists(st.integers(0, 3_000_000_000), min_size=1, max_size=60),
)
def test_never_more_than_a_burst_and_the_rate_since(
    per_second: float, at_once: int, gaps_ns: list[int]
) -> None:
    callers = Callers(per_second, at_once)
    taken_ns: list[int] = []
    for gap_ns in gaps_ns:
        callers.clock.at_ns += gap_ns
        if not callers.wait_s():
            taken_ns.append(callers.clock.at_ns)
    assert taken_ns[0] == START_NS + gaps_ns[0]
    for first, since_ns in enumerate(taken_ns):
        for last in range(first, len(taken_ns)):
            allowed = at_once + (taken_ns[last] - since_ns) // round(1e9 / per_second)
            assert last - first + 1 <= allowed


@given(st.floats(0.01, 1e6), st.integers(1, 20))
def test_who_waits_as_long_as_told_is_taken_and_not_sooner(per_second: float, at_once: int) -> None:
    callers = Callers(per_second, at_once)
    assert callers.passed(at_once + 3) == at_once
    wait_ns = round(callers.wait_s() * 1e9)
    callers.clock.at_ns += wait_ns - 1
    assert callers.passed(1) == 0
    callers.clock.at_ns += 1
    assert callers.passed(1) == 1


@pytest.mark.parametrize(("per_second", "gap_s"), [(0.01, 100.0), (1, 1.0), (8, 0.125)])
def test_the_next_comes_when_one_has_filled_up(per_second: float, gap_s: float) -> None:
    callers = Callers(per_second, 1)
    assert (callers.wait_s(), callers.wait_s()) == (0, gap_s)


def test_without_a_burst_it_is_as_many_as_in_a_second_and_at_least_one() -> None:
    assert Callers(7.9).passed(20) == 7
    assert Callers(0.1).passed(20) == 1


def test_a_store_is_never_fuller_than_full() -> None:
    callers = Callers(10, 3)
    callers.clock.at_ns += 3_600_000_000_000
    assert callers.passed(20) == 3
    callers.clock.at_ns += 100_000_000
    assert callers.passed(20) == 1


def test_callers_have_stores_of_their_own() -> None:
    callers = Callers(1, 2)
    assert callers.passed(5) == 2
    assert callers.passed(5, "ben") == 2
    assert callers.meters.total("throttled") == 6


def test_of_very_many_callers_those_who_asked_last_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "RATED_CALLERS_MAX", 3)
    callers = Callers(1, 1)
    for name in "abc":
        assert (callers.passed(2, name), len(callers.rates._full_ns)) == (1, "abc".index(name) + 1)
    assert callers.passed(1, "a") == 0  # and is the last one now
    assert callers.passed(1, "d") == 1
    assert (len(callers.rates._full_ns), len(callers.rates._told_ns)) == (3, 3)
    assert callers.passed(1, "a") == 0
    assert callers.passed(1, "b") == 1  # it was forgotten


def test_it_is_logged_who_asks_too_often_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    callers = Callers(2, 1)
    with caplog.at_level(logging.WARNING, "onceward.http"):
        callers.passed(50)
        assert caplog.messages == ["'ann' makes more than 2 requests a second"]
        callers.clock.at_ns += int(limits.RATED_TOLD_S * 1e9) - 1
        callers.passed(50)
        assert len(caplog.messages) == 1
        callers.clock.at_ns += 1
        callers.passed(50)
        assert len(caplog.messages) == 2
