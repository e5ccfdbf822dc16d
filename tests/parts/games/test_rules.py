"""Chance comes from a seed: the same again, and each as likely."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.parts.games import Rules, drawn, shuffled


@given(st.text(), st.integers(1, 10**9), st.integers(0, 100))
def test_what_is_drawn_is_in_range_and_the_same_again(seed: str, below: int, number: int) -> None:
    assert 0 <= drawn(seed, below, number) < below
    assert drawn(seed, below, number) == drawn(seed, below, number)


@given(st.text(), st.lists(st.integers()))
def test_what_is_shuffled_is_all_there(seed: str, items: list[int]) -> None:
    assert Counter(shuffled(seed, items)) == Counter(items)
    assert shuffled(seed, items) == shuffled(seed, items)


def test_every_order_comes_up() -> None:
    orders = Counter(tuple(shuffled(f"{seed}", "abc")) for seed in range(600))
    assert len(orders) == 6
    assert min(orders.values()) > 60  # a tenth; by chance it is a sixth


def test_rules_that_lack_something_say_so() -> None:
    rules = Rules()
    for call in (
        lambda: rules.start(""),
        lambda: rules.moves(None, "X"),
        lambda: rules.apply(None, "X", 1),
        lambda: rules.outcome(None),
    ):
        with pytest.raises(NotImplementedError):
            call()
