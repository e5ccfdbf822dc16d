"""What people do at tables, one after another."""

from typing import Any

import pytest

from onceward.errors import BadInput, NoSuchTable, OncewardError
from onceward.tables import Ending, Table
from tests.tables.club import Club, new_club


@pytest.fixture
async def club() -> Club:
    return await new_club()


def code(error: pytest.ExceptionInfo[OncewardError]) -> str:
    return error.value.code


async def test_who_joins_takes_the_first_free_marker_or_stands_in_line(club: Club) -> None:
    await club.create()
    assert (await club.join("ann")).marker == "X"
    assert (await club.join("ben")).marker == "O"
    cas = await club.join("cas")
    assert (cas.role, cas.position, cas.ahead, cas.waiting) == ("waiting", 1, 0, 1)
    assert (await club.join("dan")).position == 2
    table = await club.get()
    assert (table.phase, table.number) == ("playing", 1)


async def test_to_join_twice_is_once(club: Club) -> None:
    await club.create()
    await club.join("ann", "ben", "cas")
    before = club.head()
    assert (await club.join("ann")).marker == "X"
    assert (await club.join("cas")).position == 1
    assert club.head() == before


async def test_the_loser_goes_to_the_back_and_the_first_in_line_sits_down(club: Club) -> None:
    await club.create()
    await club.join("ann", "ben", "cas", "dan")
    ending = await club.result("ann", game=1)
    assert ending == Ending(1, {"X": "ann", "O": "ben"}, ("ann",), "result")
    assert await club.players() == {"X": "ann", "O": "cas"}
    assert (await club.place("ben")).position == 2
    assert (await club.get()).number == 2


async def test_with_nobody_waiting_both_stay(club: Club) -> None:
    await club.create(max_wins=1)
    await club.join("ann", "ben")
    for game in (1, 2, 3):
        await club.result("ann", game=game)
    assert await club.players() == {"X": "ann", "O": "ben"}
    assert club.head().seats["X"].wins == 3


async def test_who_has_won_enough_goes_to_the_back_too_behind_the_loser(club: Club) -> None:
    await club.create(max_wins=2)
    await club.join("ann", "ben", "cas", "dan", "eve")
    await club.result("ann")
    await club.result("ann")
    assert await club.players() == {"X": "dan", "O": "eve"}
    assert club.line()["main"] == [("ben",), ("cas",), ("ann",)]


async def test_a_draw_swaps_markers(club: Club) -> None:
    await club.create()
    await club.join("ann", "ben", "cas")
    await club.do("draw", game=1)
    assert await club.players() == {"X": "ben", "O": "ann"}


async def test_after_too_many_draws_all_go_to_the_back(club: Club) -> None:
    await club.create(max_draws=2)
    await club.join("ann", "ben", "cas")
    await club.result()
    assert club.line()["main"] == [("cas",)]
    await club.result()
    assert await club.players() == {"X": "cas", "O": "ben"}
    assert club.line()["main"] == [("ann",)]


async def test_who_leaves_a_game_has_lost_it_and_is_gone(club: Club) -> None:
    await club.create()
    await club.join("ann", "ben", "cas")
    assert (await club.leave("ann")).role == ""
    assert await club.players() == {"X": "cas", "O": "ben"}
    assert club.screen.shown["t"]["table", "ended"]["reason"] == "left"
    assert club.head().seats["O"].wins == 1
    assert (await club.leave("ann")).role == ""


async def test_a_result_counts_only_for_the_game_that_is_on(club: Club) -> None:
    await club.create()
    with pytest.raises(BadInput) as refused:
        await club.result("ann")
    assert code(refused) == "no_game"
    await club.join("ann", "ben")
    for winners, game, expected in (
        (["ann"], 2, "other_game"),
        (["zoe"], 1, "not_seated"),
    ):
        with pytest.raises(BadInput) as refused:
            await club.result(*winners, game=game)
        assert code(refused) == expected
    await club.result("ann", game=1)
    with pytest.raises(BadInput) as refused:
        await club.result("ann", game=1)
    assert code(refused) == "other_game"


async def test_spectators_are_counted_and_may_join(club: Club) -> None:
    await club.create(spectators_max=1)
    assert (await club.do("watch", "ann")).role == "watching"
    assert (await club.do("watch", "ann")).role == "watching"
    assert (await club.get()).spectators == 1
    with pytest.raises(BadInput) as refused:
        await club.do("watch", "ben")
    assert code(refused) == "table_full"
    assert (await club.join("ann")).marker == "X"
    assert (await club.get()).spectators == 0
    assert (await club.do("watch", "ann")).role == "seated"
    await club.do("watch", "ben")
    await club.leave("ben")
    assert (await club.get()).spectators == 0


async def test_a_line_has_an_end(club: Club) -> None:
    await club.create(waitlist_max=1)
    await club.join("ann", "ben", "cas")
    with pytest.raises(BadInput) as refused:
        await club.join("dan")
    assert code(refused) == "table_full"
    assert (await club.place("dan")).role == ""


async def test_a_paused_table_seats_nobody_and_its_clocks_stand_still(club: Club) -> None:
    await club.create(idle_s=10, waiting_s=60)
    await club.join("ann", "ben", "cas")
    await club.do("pause")
    await club.do("pause")
    await club.pass_ms(200_000)
    await club.leave("ann")
    assert await club.players() == {"O": "ben"}
    assert (await club.get()).paused
    await club.do("resume")
    await club.do("resume")
    assert await club.players() == {"X": "cas", "O": "ben"}


async def test_a_closed_table_is_over_for_everyone_at_once(club: Club) -> None:
    await club.create()
    await club.join("ann", "ben", *[f"u{n}" for n in range(100)])
    table = await club.do("close")
    assert (table.phase, table.players, table.waiting) == ("closed", {}, 0)
    assert (await club.do("close")).phase == "closed"
    for name in ("join", "leave", "watch", "ready"):
        with pytest.raises(BadInput) as refused:
            await club.do(name, "ann")
        assert code(refused) == "table_closed"
    assert (await club.place("ann")).role == ""
    await club.pass_ms(10)
    assert not club.records("stand", "lane", "heartbeat")
    await club.create()
    assert (await club.join("ann")).marker == "X"
    await club.pass_ms(3 * 24 * 3_600_000)
    assert "t" in club.screen.shown


async def test_what_a_closed_table_showed_goes_in_the_end(club: Club) -> None:
    await club.create()
    await club.do("close")
    await club.settle()
    assert club.screen.shown["t"]["table", "state"]["phase"] == "closed"
    await club.pass_ms(3 * 24 * 3_600_000)
    assert not club.screen.shown
    with pytest.raises(NoSuchTable):
        await club.get()


async def test_tables_are_listed_by_their_ids(club: Club) -> None:
    for id_ in ("b 1", "a", "b 2", "c#"):
        await club.create(id_)

    async def find(**options: Any) -> list[str]:
        found: list[Table] = await club.run(lambda tx: club.seats.find(tx, **options))
        return [table.id for table in found]

    assert await find() == ["a", "b 1", "b 2", "c#"]
    assert await find(prefix="b ") == ["b 1", "b 2"]
    assert await find(after="b 1", limit=1) == ["b 2"]
    for options in ({"limit": 0}, {"prefix": "\ud800"}, {"after": "x" * 100}):
        with pytest.raises(BadInput):
            await find(**options)


@pytest.mark.parametrize("id_", ["\ud800", "x" * 65, "a\x00", 7])
async def test_what_cannot_be_a_table_is_refused(club: Club, id_: Any) -> None:
    with pytest.raises(BadInput) as refused:
        await club.create(id_)
    assert code(refused) == "bad_name"


@pytest.mark.parametrize("user", ["", "\ud800", "x" * 329, "a\x00", None])
async def test_what_cannot_be_a_user_is_refused(club: Club, user: Any) -> None:
    await club.create()
    for name in ("join", "watch", "ready", "place"):
        with pytest.raises(BadInput) as refused:
            await club.do(name, user)
        assert code(refused) == "bad_name"


async def test_a_table_cannot_be_made_twice_or_for_an_unknown_game(club: Club) -> None:
    await club.create()
    with pytest.raises(BadInput) as refused:
        await club.create()
    assert code(refused) == "table_exists"
    with pytest.raises(BadInput) as refused:
        await club.create("u", game="nim")
    assert code(refused) == "no_game"
    with pytest.raises(BadInput) as refused:
        await club.run(lambda tx: club.seats.create(tx, "u", meta={"a": "x" * 20_000}))
    assert code(refused) == "value_too_large"
    for name in ("join", "place", "leave", "heartbeat"):
        with pytest.raises(NoSuchTable):
            await club.do(name, "ann", table="none")


async def test_whoever_waits_is_told_how_long_it_takes(club: Club) -> None:
    await club.create(game_s=40, idle_s=0)
    await club.join("ann", "ben")
    club.clock.at_ms += 5_000
    await club.join("cas", "dan")

    async def waits() -> dict[str, int]:
        places = [await club.place(user) for user in ("ben", "cas", "dan")]
        return {place.user: place.wait_ms for place in places if place.role == "waiting"}

    assert await waits() == {"cas": 35_000, "dan": 75_000}, "the game is on for 5 s"
    club.clock.at_ms += 15_000
    assert await waits() == {"cas": 20_000, "dan": 60_000}
    await club.result("ann")
    assert (await club.get()).pace_ms == 35_000, "(3 * 40 + 20) / 4"
    assert await waits() == {"dan": 35_000, "ben": 70_000}
    club.clock.at_ms += 50_000
    assert await waits() == {"dan": 0, "ben": 35_000}, "dan still has a whole game to play"
    await club.result()
    assert await waits() == {"dan": 35_000, "ben": 70_000}, "a draw: a new game begins"
    await club.do("pause")
    club.clock.at_ms += 50_000
    assert await waits() == {"dan": 35_000, "ben": 70_000}, "clocks stand still"
    await club.do("resume")
    club.clock.at_ms += 10_000
    await club.result("ann")
    assert (await club.get()).pace_ms == 41_250, "(3 * 35 + 60) / 4: without the pause"
