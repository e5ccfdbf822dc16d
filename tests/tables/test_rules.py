"""The rules of a table on plain values: who is next, and who gets up."""

from typing import Any

import pytest

from onceward.api.tables import Seat
from onceward.tables import Policy
from onceward.tables.records import Front, Head, Lane, Wait
from onceward.tables.rules import (
    Up,
    before,
    blocked,
    first_of_all,
    fits,
    free_marker,
    get_up,
    lane_key,
    people,
    pick,
    reach,
    swapped,
    tier_of,
)

TIERED = Policy(tiers=(1_000, 1_200, 1_400), widen_ms=30_000)
THREE = Policy(seats=("A", "B", "C"), party_max=3)


def seat(user: str, since_ms: int = 0, **members: Any) -> Seat:
    return Seat(user, since_ms, **members)


def lane(
    order: int | None = 0, *, priority: int = 0, tier: int = 0, size: int = 1, since_ms: int = 0
) -> Lane:
    """A lane whose first one came as the `order`th to the line; None: nobody waits there."""
    front = None if order is None else Front(0, order, since_ms)
    return Lane(priority, tier, size, front=front)


def head(seats: dict[str, Seat], lanes: dict[str, Lane] | None = None, **members: Any) -> Head:
    return Head("e", seats=seats, lanes=lanes or {}, **members)


# Lanes and tiers.


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (("main",), "main"),
        (("main", 0, 1), "main"),
        (("main", 1), "main/1/1"),
        (("main", 0, 2), "main/0/2"),
        (("vip", 2, 3), "vip/2/3"),
    ],
)
def test_a_lane_has_tier_and_size_in_its_key_if_they_are_not_the_usual(
    given: tuple[Any, ...], key: str
) -> None:
    assert lane_key(*given) == key


def test_a_tier_begins_at_its_rating() -> None:
    ratings = (0, 999, 1_000, 1_199, 1_200, 1_399, 1_400, 9_999)
    assert [tier_of(TIERED, rating) for rating in ratings] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert tier_of(Policy(), 9_999) == 0


def test_people_are_those_who_are_no_bots() -> None:
    assert people({"X": seat("bot", bot=True), "O": seat("ann")}) == {"O": seat("ann")}


def test_one_reaches_a_tier_more_for_each_time_that_one_has_waited() -> None:
    times = (100, 30_099, 30_100, 60_099, 60_100)
    assert [reach(TIERED, 100, now_ms) for now_ms in times] == [0, 0, 1, 1, 2]


def test_one_reaches_nothing_where_there_are_no_tiers_and_all_of_them_if_nothing_widens() -> None:
    assert reach(Policy(), 0, 10**9) == 0
    assert reach(Policy(tiers=(1_000, 1_200), widen_ms=0), 0, 0) == 2


@pytest.mark.parametrize(
    ("tiers", "now_ms", "fitting"),
    [
        ([], 0, True),
        ([1], 0, True),
        ([0], 29_999, False),
        ([2], 29_999, False),
        ([0, 2], 30_000, True),
        ([3], 30_000, False),
        ([3, 1], 59_999, False),
        ([3, 1], 60_000, True),
    ],
)
def test_who_has_waited_long_enough_fits_beside_other_tiers(
    tiers: list[int], now_ms: int, fitting: bool
) -> None:
    assert fits(TIERED, lane(tier=1), tiers, 1, now_ms) == fitting


def test_who_comes_with_others_fits_where_there_is_room_for_all() -> None:
    assert fits(THREE, lane(size=2), [], 2, 0)
    assert not fits(THREE, lane(size=2), [], 1, 0)
    assert not fits(THREE, lane(None), [], 3, 0)


# Who is next.


def test_the_highest_priority_is_next_and_then_who_came_first() -> None:
    lanes = {"a": lane(1, priority=1), "b": lane(5), "c": lane(4), "d": lane(None)}
    assert pick(Policy(), lanes, [], 0) == "c"
    assert first_of_all(lanes) is lanes["c"]
    assert pick(Policy(), {"a": lanes["a"], "d": lanes["d"]}, [], 0) == "a"


def test_nobody_is_next_where_nobody_waits() -> None:
    assert pick(Policy(), {"main": lane(None)}, [], 0) is None
    assert first_of_all({"main": lane(None)}) is None


def test_bots_give_way_and_people_do_not() -> None:
    lanes = {"main": lane()}
    ann, ben, bot = seat("ann"), seat("ben"), seat("bot", bot=True, tier=3)
    assert pick(TIERED, lanes, [ann, bot], 0) == "main"
    assert pick(TIERED, lanes, [ann], 0) == "main"
    assert pick(TIERED, lanes, [ann, ben], 0) is None
    assert pick(TIERED, lanes, [seat("cas", tier=3)], 0) is None


def test_who_does_not_fit_is_passed_by() -> None:
    lanes = {"pair": lane(1, size=2), "one": lane(2)}
    assert pick(THREE, lanes, [seat("ann"), seat("ben")], 0) == "one"
    assert pick(THREE, lanes, [seat("ann")], 0) == "pair"
    assert first_of_all(lanes) is lanes["pair"]


ALONE = {"A": seat("ann"), "B": seat("ben")}


@pytest.mark.parametrize(
    ("seats", "lanes", "found"),
    [
        (ALONE, {"one": lane(2), "pair": lane(1, size=2)}, "pair"),
        ({**ALONE, "C": seat("bot", bot=True)}, {"pair": lane(size=2)}, "pair"),
        # There is room, or none at all.
        ({"A": seat("ann")}, {"pair": lane(size=2)}, None),
        ({**ALONE, "C": seat("cas")}, {"pair": lane(size=2)}, None),
        (ALONE, {"one": lane()}, None),
        # Others are next.
        (ALONE, {"one": lane(1), "pair": lane(2, size=2)}, None),
        (ALONE, {"one": lane(2), "pair": lane(1, size=2, priority=1)}, None),
        (ALONE, {"pair": lane(None, size=2)}, None),
        # Nobody sits there, or those who do came together.
        ({}, {"four": lane(size=4)}, None),
        ({"A": seat("bot", bot=True)}, {"four": lane(size=4)}, None),
        ({"A": seat("ann", party=1), "B": seat("ben")}, {"pair": lane(size=2)}, None),
    ],
)
def test_a_party_that_is_next_is_blocked_by_those_who_wait_each_for_itself(
    seats: dict[str, Seat], lanes: dict[str, Lane], found: str | None
) -> None:
    assert blocked(THREE, head(seats, lanes)) == found


def test_who_comes_gets_the_first_marker_that_is_free_and_else_that_of_a_bot() -> None:
    ann, bot = seat("ann"), seat("bot", bot=True)
    assert free_marker(THREE, {}) == "A"
    assert free_marker(THREE, {"A": bot, "C": ann}) == "B"
    assert free_marker(THREE, {"A": ann, "B": bot, "C": bot}) == "B"


def test_markers_move_on_by_one_among_the_seats_that_are_taken() -> None:
    ann, ben, cas = seat("ann"), seat("ben"), seat("cas")
    assert swapped(THREE, {"C": cas, "B": ben, "A": ann}) == {"A": cas, "B": ann, "C": ben}
    assert list(swapped(THREE, {"C": cas, "A": ann}).items()) == [("A", cas), ("C", ann)]
    assert swapped(THREE, {}) == {}


# Who gets up.

WAITING = {"main": lane()}


def two(ann_wins: int = 0, **members: Any) -> dict[str, Seat]:
    return {"X": seat("ann", wins=ann_wins, **members), "O": seat("ben")}


@pytest.mark.parametrize(
    ("policy", "wins", "ups"),
    [
        (Policy(), 4, ["O"]),
        (Policy(), 5, ["O", "X"]),
        (Policy(), 6, ["O", "X"]),
        (Policy(max_wins=1), 1, ["O", "X"]),
        (Policy(max_wins=0), 0, ["O"]),
        (Policy(max_wins=0), 9, ["O"]),
    ],
)
def test_the_loser_gets_up_for_one_who_waits_and_then_the_winner_who_has_won_enough(
    policy: Policy, wins: int, ups: list[str]
) -> None:
    found = get_up(policy, head(two(wins), WAITING), ["ann"], {}, 0)
    assert found == [Up(marker, "back") for marker in ups]
    assert get_up(policy, head(two(wins)), ["ann"], {}, 0) == [], "nobody waits"


def test_the_loser_goes_where_the_policy_says_and_the_winner_to_the_back() -> None:
    found = get_up(Policy(loser="leave"), head(two(5), WAITING), ["ann"], {}, 0)
    assert found == [Up("O", "leave"), Up("X", "back")]
    found = get_up(Policy(loser="leave"), head(two(), WAITING), ["ann"], {}, 0)
    assert found == [Up("O", "leave")]


@pytest.mark.parametrize(
    ("policy", "draws", "all_up"),
    [
        (Policy(), 0, False),
        (Policy(), 9, False),
        (Policy(draw="stay"), 1, False),
        (Policy(draw="back"), 1, True),
        (Policy(max_draws=2), 1, False),
        (Policy(max_draws=2), 2, True),
        (Policy(max_draws=2), 3, True),
        (Policy(max_draws=1), 1, True),
    ],
)
def test_after_a_draw_all_stay_unless_the_policy_lets_others_play(
    policy: Policy, draws: int, all_up: bool
) -> None:
    found = get_up(policy, head(two(9), WAITING, draws=draws), [], {}, 0)
    assert found == ([Up("X", "back"), Up("O", "back")] if all_up else [])
    assert get_up(policy, head(two(9), draws=draws), [], {}, 0) == [], "nobody waits"


def test_who_is_gone_gets_up_in_any_case_and_goes_where_it_was_said() -> None:
    all_gone = get_up(Policy(), head(two()), [], {"ben": "leave", "ann": "back"}, 0)
    assert all_gone == [Up("X", "back"), Up("O", "leave")]
    assert get_up(Policy(), head(two()), ["ann"], {"ben": "leave"}, 0) == [Up("O", "leave")]


def test_who_is_left_stays_when_others_are_gone_unless_it_has_won_enough() -> None:
    gone = {"ben": "leave"}
    for winners in ([], ["ann"]):
        stays = get_up(Policy(), head(two(4), WAITING), winners, gone, 0)  # type: ignore[arg-type]
        assert stays == [Up("O", "leave")]
        tired = get_up(Policy(), head(two(5), WAITING), winners, gone, 0)  # type: ignore[arg-type]
        assert tired == [Up("O", "leave"), Up("X", "back")]


def at(tiers: dict[str, int], wins: int = 0) -> dict[str, Seat]:
    """Seats by user and tier; the first one has won so often."""
    return {
        marker: seat(user, lane="main", tier=tier, wins=0 if number else wins, since_ms=number)
        for number, (marker, (user, tier)) in enumerate(zip("XOZ", tiers.items(), strict=False))
    }


def rising(
    seats: dict[str, Seat], *waiting: tuple[int, int], is_draw: bool = False, **members: Any
) -> str:
    """The markers that get up after the first one has won, or a draw, if these wait at the time
    100,000: each with a tier, and since when."""
    waits: dict[str, list[Wait]] = {}
    lanes: dict[str, Lane] = {}
    for order, (tier, since_ms) in enumerate(waiting):
        key = lane_key("main", tier)
        waits.setdefault(key, []).append(Wait(("w",), since_ms, order, "main"))
        lanes.setdefault(key, lane(order, tier=tier, since_ms=since_ms))
    policy = Policy(
        seats=tuple("XOZ")[: len(seats)], tiers=TIERED.tiers, widen_ms=30_000, **members
    )
    winners = [] if is_draw else [seats["X"].user]
    found = get_up(policy, head(seats, lanes, order=10), winners, {}, 100_000, waits)
    assert all(up.then == "back" for up in found)
    return "".join(up.marker for up in found)


NEW, OLD = 99_000, 0
TWO = {"ann": 1, "ben": 1}


@pytest.mark.parametrize(
    ("wins", "waiting", "ups"),
    [
        # Who waits may sit beside the winner, or not yet.
        (0, [(1, NEW)], "O"),
        (0, [(3, NEW)], ""),
        (0, [(3, OLD)], "O"),
        # Who has won enough gets up if others take both seats: two who wait, or one and the loser.
        (5, [(1, NEW)], "OX"),
        (5, [(3, NEW), (3, NEW)], "OX"),
        (5, [(3, NEW), (2, OLD)], "OX"),
        # Nobody would play with the one who waits: those who got up would have to wait first.
        (5, [(3, NEW)], ""),
        (5, [(3, NEW), (0, NEW)], ""),
        # The one who waits may sit beside the winner, and nobody beside that one.
        (5, [(3, OLD)], "O"),
    ],
)
def test_with_tiers_players_get_up_if_others_take_all_their_seats(
    wins: int, waiting: list[tuple[int, int]], ups: str
) -> None:
    assert rising(at(TWO, wins), *waiting) == ups


@pytest.mark.parametrize(
    ("waiting", "ups"),
    [([(1, NEW)], "OZ"), ([(3, NEW)], ""), ([(3, OLD)], "O"), ([(3, OLD), (3, OLD)], "OZ")],
)
def test_with_tiers_only_as_many_losers_get_up_as_others_sit_down_for(
    waiting: list[tuple[int, int]], ups: str
) -> None:
    assert rising(at({**TWO, "cas": 1}), *waiting) == ups


@pytest.mark.parametrize(
    ("waiting", "ups"),
    [([(1, NEW)], "XO"), ([(3, NEW)], ""), ([(3, OLD)], "X"), ([(3, NEW), (3, NEW)], "XO")],
)
def test_with_tiers_a_draw_lets_others_play_if_they_take_all_seats(
    waiting: list[tuple[int, int]], ups: str
) -> None:
    assert rising(at(TWO), *waiting, is_draw=True, draw="back") == ups


def test_with_tiers_a_bot_keeps_its_seat_for_who_plays_with_it() -> None:
    seats = {"X": seat("ann", lane="main", tier=1, wins=5), "O": seat("bot", bot=True)}
    assert rising(seats, (3, NEW)) == ""
    assert rising({"X": seats["X"]}, (3, NEW)) == "X"


@pytest.mark.parametrize(("size", "ups"), [(1, "BC"), (2, "BC"), (3, "BCA")])
def test_winners_get_up_for_a_party_that_would_not_fit_beside_them(size: int, ups: str) -> None:
    three = {marker: seat(f"u{marker}", wins=1) for marker in "ABC"}
    lanes = {"none": lane(None), "some": lane(1, size=size), "later": lane(2)}
    found = get_up(THREE, head(three, lanes), ["uA"], {}, 0)
    assert found == [Up(marker, "back") for marker in ups]


def test_a_bot_that_has_won_gives_way_to_a_party() -> None:
    seats = {"A": seat("bot", bot=True), "B": seat("ben"), "C": seat("cas")}
    lanes = {"three": lane(size=3)}
    found = get_up(THREE, head(seats, lanes), ["bot"], {}, 0)
    assert found == [Up("B", "back"), Up("C", "back")]


# How many are before one.


def waits_of(
    waiting: int, order: int | None, *, priority: int = 1, tier: int = 0, size: int = 1
) -> Lane:
    found = lane(order, priority=priority, tier=tier, size=size)
    found.waiting = waiting
    return found


@pytest.mark.parametrize(
    ("other", "count"),
    [
        (waits_of(7, None), 0),
        (waits_of(7, 0, tier=1), 0),
        (waits_of(7, 0, priority=2), 0),
        (waits_of(7, 99, priority=0), 7),
        (waits_of(7, 99, priority=0, size=2), 14),
        (waits_of(6, 0), 3),
        (waits_of(7, 0), 4),
        (waits_of(7, 0, size=3), 12),
        (waits_of(6, 5), 2),
        (waits_of(7, 10), 0),
        (waits_of(7, 12), 0),
    ],
)
def test_of_another_lane_those_are_before_one_who_have_priority_or_came_earlier(
    other: Lane, count: int
) -> None:
    assert before(waits_of(3, 0), other, 10, 20) == count


def test_all_of_another_lane_are_before_the_last_who_came() -> None:
    assert before(waits_of(1, 6), waits_of(3, 5), 6, 6) == 3
    assert before(waits_of(1, 6), waits_of(3, 6), 6, 6) == 0
