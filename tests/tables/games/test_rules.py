"""Chance comes from a seed: the same again, and each as likely."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.tables.games import DRAW, Outcome, Rules, drawn, shuffled, won


class Words(Rules):
    """Each says one of some letters, and all that was said is the state."""

    seats = ("a", "b", "c")

    def moves(self, state: str, seat: str) -> Any:
        return iter(state)

    def apply(self, state: str, seat: str, move: str) -> str:
        return f"{state}{seat}{move}"


WORDS = Words()


@given(st.text(), st.integers(1, 10**9), st.integers(0, 100))
def test_what_is_drawn_is_in_range_and_the_same_again(seed: str, below: int, number: int) -> None:
    assert 0 <= drawn(seed, below, number) < below
    assert drawn(seed, below, number) == drawn(seed, below, number)
    assert drawn(seed, below) == drawn(seed, below, 0)


@given(st.text(), st.lists(st.integers()))
def test_what_is_shuffled_is_all_there(seed: str, items: list[int]) -> None:
    assert Counter(shuffled(seed, items)) == Counter(items)
    assert shuffled(seed, items) == shuffled(seed, items)


def test_every_order_comes_up() -> None:
    orders = Counter(tuple(shuffled(f"{seed}", "abc")) for seed in range(600))
    assert len(orders) == 6
    assert min(orders.values()) > 60  # a tenth; by chance it is a sixth


def test_other_numbers_are_drawn_with_another_number_or_seed() -> None:
    draws = {drawn(seed, 10**9, number) for seed in ("a", "b") for number in range(50)}
    assert len(draws) == 100


def test_who_has_won_is_said_and_nobody_is_a_draw() -> None:
    assert won("a", "c") == Outcome(("a", "c"), "")
    assert DRAW == Outcome() == Outcome((), "")


def test_turns_go_round_in_the_order_of_seats() -> None:
    assert [list(WORDS.movers("", number)) for number in range(7)] == [[s] for s in "abcabca"]


def test_all_move_at_once_where_the_rules_say_so() -> None:
    class Together(Words):
        simultaneous = True

    assert [list(Together().movers("", number)) for number in range(2)] == [["a", "b", "c"]] * 2


def test_all_of_a_state_is_seen_where_the_rules_hide_nothing() -> None:
    for seat in (None, "a"):
        assert WORDS.view("xyz", seat) == "xyz"


def test_the_moves_of_a_round_count_one_after_the_other() -> None:
    assert WORDS.reveal("", {"a": "1", "c": "3"}) == "a1c3"
    assert WORDS.reveal("x", {}) == "x"


def test_a_bot_makes_any_of_its_moves_and_the_same_for_the_same_seed() -> None:
    made = [WORDS.bot("xyz", "a", f"{seed}") for seed in range(50)]
    assert set(made) == set("xyz")
    assert made == [WORDS.bot("xyz", "a", f"{seed}") for seed in range(50)]


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
