"""What time brings to a table, on plain values: all of it at the very millisecond."""

from typing import Any

import pytest

from onceward.api.tables import Seat
from onceward.tables import Policy
from onceward.tables.records import Front, Head, Lane
from onceward.tables.rules import (
    blended_ms,
    bot_due_ms,
    estimate_ms,
    late,
    next_ms,
    pace_ms,
    shift,
    to_warn,
)


def seat(user: str, **members: Any) -> Seat:
    return Seat(user, 0, **members)


def playing(*seats: Seat, **members: Any) -> Head:
    return Head("e", "playing", seats=dict(zip("XO", seats, strict=False)), **members)


@pytest.mark.parametrize(
    ("members", "is_late"),
    [
        ({}, False),
        ({"due_ms": 99}, True),
        ({"due_ms": 100}, True),
        ({"due_ms": 101}, False),
        ({"away_ms": 99}, True),
        ({"away_ms": 100}, True),
        ({"away_ms": 101}, False),
        ({"due_ms": 101, "away_ms": 100}, True),
        ({"due_ms": 1}, True),
        ({"away_ms": 1}, True),
    ],
)
def test_who_is_out_of_time_or_away_for_too_long_is_late(
    members: dict[str, int], is_late: bool
) -> None:
    head = playing(seat("ann", **members), seat("ben"))
    assert late(head, 100) == (["ann"] if is_late else [])


def test_who_plays_is_warned_once_so_long_before_the_time_is_over() -> None:
    policy, ann = Policy(warn_ms=15), seat("ann", due_ms=100)
    head = playing(ann, seat("ben"))
    assert to_warn(policy, head, 84) == []
    assert to_warn(policy, head, 85) == to_warn(policy, head, 99) == [ann]
    assert next_ms(policy, head, 0) == 85
    ann.warned = True
    assert to_warn(policy, head, 99) == []
    assert next_ms(policy, head, 0) == 100


def test_who_has_less_time_than_that_is_warned_at_once() -> None:
    policy, ann = Policy(warn_ms=100), seat("ann", due_ms=100)
    assert to_warn(policy, playing(ann), 1) == [ann]
    assert to_warn(policy, playing(ann), 0) == []


def test_nobody_is_warned_who_does_not_play_or_where_no_warnings_are_wanted() -> None:
    head = playing(seat("ann", due_ms=100))
    assert to_warn(Policy(warn_ms=0), head, 99) == []
    assert next_ms(Policy(warn_ms=0), head, 0) == 100
    head.phase = "ready"
    assert to_warn(Policy(), head, 99) == []
    assert next_ms(Policy(), head, 0) == 100


def test_a_bot_comes_so_long_after_a_seat_is_empty_if_a_person_sits_there() -> None:
    policy = Policy(bot_ms=50)
    ann, bot = seat("ann"), seat("bot", bot=True)
    assert bot_due_ms(policy, playing(ann, empty_ms=1_000)) == 1_050
    assert next_ms(policy, playing(ann, empty_ms=1_000), 0) == 1_050
    assert bot_due_ms(policy, playing(ann, bot, empty_ms=1_000)) == 0, "all seats are taken"
    assert bot_due_ms(policy, playing(bot, empty_ms=1_000)) == 0, "bots do not play alone"
    assert bot_due_ms(policy, playing(empty_ms=1_000)) == 0
    assert bot_due_ms(Policy(), playing(ann, empty_ms=1_000)) == 0
    assert bot_due_ms(Policy(bot_ms=50, opens=True), playing(ann, empty_ms=1_000)) == 0


def test_a_table_is_looked_at_when_the_first_of_its_times_comes() -> None:
    policy = Policy(warn_ms=0)
    head = playing(seat("ann", due_ms=300), seat("ben", due_ms=500, away_ms=200))
    assert next_ms(policy, head, 0) == 200
    head.seats["O"].away_ms = 0
    assert next_ms(policy, head, 0) == 300
    assert next_ms(policy, playing(seat("ann"), seat("ben")), 0) == 0


def test_a_table_that_is_paused_or_closed_is_not_looked_at() -> None:
    head = playing(seat("ann", due_ms=300))
    for changed in ({"phase": "closed"}, {"paused_ms": 1}):
        other = Head("e", **{"phase": "playing", **changed}, seats=head.seats)  # type: ignore[arg-type]
        assert next_ms(Policy(), other, 0) == 0


def in_line(**since_ms: int) -> dict[str, Lane]:
    return {key: Lane(0, front=Front(0, 0, since)) for key, since in since_ms.items()}


def test_a_table_is_looked_at_when_someone_in_front_may_sit_with_other_tiers() -> None:
    policy = Policy(tiers=(1_000, 1_200), widen_ms=30)
    head = Head("e", lanes={**in_line(a=100, b=110), "none": Lane(0)})
    assert next_ms(policy, head, 110) == 130
    assert next_ms(policy, head, 129) == 130
    assert next_ms(policy, head, 130) == 140, "of the other"
    assert next_ms(policy, head, 140) == 160
    assert next_ms(policy, head, 160) == 170
    assert next_ms(policy, head, 170) == 0, "all sit with all by now"


def test_nobody_waits_for_other_tiers_where_a_game_is_on_or_nothing_widens() -> None:
    policy, lanes = Policy(tiers=(1_000,), widen_ms=30), in_line(a=100)
    assert next_ms(policy, Head("e", lanes=lanes), 100) == 130
    assert next_ms(policy, playing(lanes=lanes), 100) == 0
    assert next_ms(Policy(widen_ms=30), Head("e", lanes=lanes), 100) == 0
    assert next_ms(Policy(tiers=(1_000,), widen_ms=0), Head("e", lanes=lanes), 100) == 0
    assert next_ms(policy, Head("e"), 100) == 0


def test_after_a_pause_all_clocks_that_were_on_go_on_and_no_others() -> None:
    head = playing(seat("ann", due_ms=100, away_ms=200), seat("ben"), empty_ms=300, paced_ms=400)
    head.measured_ms = 380
    shift(head, 50)
    ann, ben = head.seats.values()
    assert (ann.due_ms, ann.away_ms, head.empty_ms, head.paced_ms) == (150, 250, 350, 450)
    assert (ben.due_ms, ben.away_ms, head.measured_ms) == (0, 0, 430)
    idle = playing()
    shift(idle, 50)
    assert (idle.empty_ms, idle.paced_ms, idle.measured_ms) == (0, 0, 0)


@pytest.mark.parametrize(("seats", "pace"), [("A", 600), ("AB", 600), ("ABC", 300), ("ABCD", 200)])
def test_at_first_all_but_one_are_taken_to_change_with_each_game(seats: str, pace: int) -> None:
    policy = Policy(seats=tuple(seats), game_ms=600)
    assert pace_ms(policy, playing()) == pace
    assert pace_ms(policy, playing(pace_ms=7)) == 7, "as it was measured"


def test_a_wait_is_a_share_for_each_one_before_and_the_rest_of_the_running_one() -> None:
    policy = Policy(game_ms=600)
    assert estimate_ms(policy, playing(), 0, 10_000) == 600
    assert estimate_ms(policy, playing(), 2, 10_000) == 1_800
    assert estimate_ms(policy, playing(paced_ms=9_900), 2, 10_000) == 1_700
    # However long a game takes, those before still have theirs to play.
    assert estimate_ms(policy, playing(paced_ms=1), 2, 10_000) == 1_200
    assert estimate_ms(policy, playing(paced_ms=1), 0, 10_000) == 0, "any time now"


def test_the_pace_is_three_quarters_of_what_it_was_and_a_quarter_of_the_last_one() -> None:
    policy, head = Policy(game_ms=60_000), playing()
    found = []
    for took_ms in (20_000, 20_000, 20_000, 100_000):
        head.pace_ms = blended_ms(policy, head, took_ms)
        found.append(head.pace_ms)
    assert found == [50_000, 42_500, 36_875, 52_656]
