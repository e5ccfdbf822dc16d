"""Ratings: what one loses the others win, and surprises count for more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import limits
from onceward.api.tables import Rating
from onceward.tables.rating import expected, rated

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
    after = rated({"a": Rating(20), "b": Rating(16)}, ["a"], 32, 0)
    assert after["b"].rating == 0
    after = rated({"a": Rating(17), "b": Rating(17)}, ["a"], 32, 0)
    assert after["b"].rating == 1


def test_no_rating_rises_above_the_highest() -> None:
    most = limits.SEATS_RATING_MAX
    after = rated({"a": Rating(most - 16), "b": Rating(most - 15)}, ["b"], 32, 0)
    assert (after["a"].rating, after["b"].rating) == (most - 32, most)


@pytest.mark.parametrize(
    ("mine", "other", "share"),
    [(1_200, 1_200, 1 / 2), (1_200, 1_600, 1 / 11), (1_600, 1_200, 10 / 11), (0, 800, 1 / 101)],
)
def test_who_is_400_better_wins_ten_times_as_often(mine: int, other: int, share: float) -> None:
    assert expected(mine, other) == pytest.approx(share)


def test_each_pair_of_several_counts_by_a_share() -> None:
    even = {user: Rating(1_200) for user in "abc"}
    won = rated(even, ["a"], 32, 0)
    assert [won[user].rating for user in "abc"] == [1_216, 1_192, 1_192]
    both = rated(even, ["b", "c"], 32, 0)
    assert [both[user].rating for user in "abc"] == [1_184, 1_208, 1_208]
    uneven = {"a": Rating(1_600), "b": Rating(1_200), "c": Rating(1_200), "d": Rating(1_200)}
    drawn = rated(uneven, [], 66, 0)
    assert [drawn[user].rating for user in "abcd"] == [1_573, 1_209, 1_209, 1_209]


def test_a_draw_between_equals_changes_nothing_but_is_counted() -> None:
    before = {"a": Rating(1_200, 7, 3, 2, 1), "b": Rating(1_200, 1, 0, 1, 2)}
    assert rated(before, [], 32, 9) == {
        "a": Rating(1_200, 8, 3, 3, 9),
        "b": Rating(1_200, 2, 0, 2, 9),
    }
    assert rated(before, ["b"], 32, 9) == {
        "a": Rating(1_184, 8, 3, 2, 9),
        "b": Rating(1_216, 2, 1, 1, 9),
    }
