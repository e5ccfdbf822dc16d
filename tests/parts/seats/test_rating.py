"""Ratings: what one loses the others win, and surprises count for more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.parts.seats.rating import expected, rated
from onceward.parts.seats.records import Rating

RATINGS = st.integers(500, 3_000)


@given(st.lists(RATINGS, min_size=2, max_size=8), st.data())
def test_the_sum_of_all_ratings_stays(ratings: list[int], data: st.DataObject) -> None:
    before = {f"u{place}": Rating(rating) for place, rating in enumerate(ratings)}
    winners = data.draw(st.sets(st.sampled_from(sorted(before))))
    after = rated(before, winners, 32, 5)
    assert sum(one.rating for one in after.values()) == sum(ratings)
    for user in before:
        assert abs(after[user].rating - before[user].rating) <= 32 + len(ratings)
        assert after[user].games == 1
        assert after[user].won == (user in winners)
        assert after[user].drawn == (not winners)


@given(RATINGS, RATINGS)
def test_expectations_of_two_make_one_game(one: int, other: int) -> None:
    assert expected(one, other) + expected(other, one) == pytest.approx(1)


def test_the_winner_rises_and_a_surprise_counts_for_more() -> None:
    even = rated({"a": Rating(1_200), "b": Rating(1_200)}, ["a"], 32, 0)
    assert (even["a"].rating, even["b"].rating) == (1_216, 1_184)
    surprise = rated({"a": Rating(1_000), "b": Rating(1_400)}, ["a"], 32, 0)
    assert surprise["a"].rating > 1_016
    drawn = rated({"a": Rating(1_000), "b": Rating(1_400)}, [], 32, 0)
    assert drawn["a"].rating > 1_000


def test_no_rating_falls_below_nothing() -> None:
    after = rated({"a": Rating(3), "b": Rating(3)}, ["a"], 32, 0)
    assert after["b"].rating == 0
