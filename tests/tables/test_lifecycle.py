"""What time does at tables: warnings, ends, grace, and signs of life."""

from typing import Any

import pytest

from onceward.errors import BadInput, KeyReused, NoSuchTable
from onceward.tables import Ending, Table
from tests.tables.club import Club, new_club, problems


@pytest.fixture
async def club() -> Club:
    return await new_club()


class Nim:
    """Take one to three of what is left; who takes the last has won."""

    def __init__(self, club: Club) -> None:
        self.club = club
        self.endings: list[Ending] = []

    async def begin(self, tx: Any, table: Table) -> None:
        tx.put(("nim", table.id), 7)
        await self.club.seats.turn(tx, table.id, [table.players["X"]])

    async def move(self, tx: Any, table: Table, user: str, move: Any) -> Any:
        left = await tx.get(("nim", table.id))
        if move not in (1, 2, 3) or move > left:
            raise BadInput("take one, two or three", code="bad_move")
        tx.put(("nim", table.id), left - move)
        if left == move:
            await self.club.seats.result(tx, table.id, [user], game=table.number)
        else:
            others = [other for other in table.players.values() if other != user]
            await self.club.seats.turn(tx, table.id, others)
        return left - move

    async def ended(self, tx: Any, table: Table, ending: Ending) -> None:
        self.endings.append(ending)


async def nim(club: Club, **policy: Any) -> Nim:
    game = club.seats.referees["nim"] = Nim(club)
    await club.create(game="nim", **policy)
    return game


async def test_a_referee_judges_moves_and_ends_the_game(club: Club) -> None:
    game = await nim(club)
    await club.join("ann", "ben", "cas")
    assert await club.do("move", "ann", 3) == 4
    for user, move, expected in (
        ("ann", 1, "not_your_turn"),
        ("cas", 1, "not_seated"),
        ("ben", 9, "bad_move"),
    ):
        with pytest.raises(BadInput) as refused:
            await club.do("move", user, move)
        assert refused.value.code == expected
    assert await club.do("move", "ben", 1) == 3
    assert await club.do("move", "ann", 3) == 0
    assert game.endings[0].winners == ("ann",)
    table = await club.get()
    assert (table.players, table.number) == ({"X": "ann", "O": "cas"}, 2)
    assert table.seats["X"] is not None
    assert table.seats["X"].turn


async def test_a_move_with_a_key_is_made_once(club: Club) -> None:
    await nim(club)
    await club.join("ann", "ben")
    assert await club.do("move", "ann", 3, key="one") == 4
    assert await club.do("move", "ben", 1, key="one") == 3
    before = club.head()
    assert await club.do("move", "ben", 1, key="one") == 3
    assert club.head() == before
    with pytest.raises(BadInput):
        await club.do("move", "ann", 1, key="\ud800")


async def test_another_move_with_the_key_of_the_last_one_is_refused(club: Club) -> None:
    await nim(club)
    await club.join("ann", "ben", "cas")
    assert await club.do("move", "ann", 2, key="one") == 5
    for other in (1, 2.0, "2", None):
        with pytest.raises(KeyReused) as refused:
            await club.do("move", "ann", other, key="one")
        assert refused.value.code == "key_reused"
    assert await club.do("move", "ann", 2, key="one") == 5
    assert await club.do("move", "ben", 3, key="one") == 2, "keys are each player's own"
    assert await club.do("move", "ann", 2, key="two") == 0
    # Also by then, when ben waits, and plays again.
    with pytest.raises(KeyReused):
        await club.do("move", "ben", 1, key="one")
    assert await club.do("move", "ben", 3, key="one") == 2


async def test_who_does_not_move_is_warned_and_then_has_lost(club: Club) -> None:
    game = await nim(club, turn_s=30, warn_s=10)
    await club.join("ann", "ben", "cas")
    await club.do("move", "ann", 1)
    await club.pass_ms(19_999)
    assert not club.head().seats["O"].warned
    await club.pass_ms(1)
    assert club.head().seats["O"].warned
    assert club.screen.shown["t"]["seats", "O"]["warned"]
    await club.do("move", "ben", 1)
    assert not club.head().seats["O"].warned
    await club.pass_ms(29_999)
    assert not game.endings
    await club.pass_ms(1)
    assert (game.endings[0].winners, game.endings[0].reason) == (("ben",), "idle")
    assert await club.players() == {"X": "cas", "O": "ben"}
    assert (await club.place("ann")).position == 1


async def test_a_turn_that_is_kept_goes_on_with_its_time(club: Club) -> None:
    await club.create(turn_s=30)
    await club.join("ann", "ben")
    await club.do("turn", ["ann", "ben"])
    await club.pass_ms(10_000)
    await club.do("turn", ["ben"], keep=True)
    seats = club.head().seats
    assert (seats["X"].due_ms, seats["O"].due_ms) == (0, club.clock.at_ms + 20_000)


async def test_who_is_idle_in_a_game_without_turns_loses_it(club: Club) -> None:
    await club.create(idle_s=20, idle="leave")
    await club.join("ann", "ben", "cas")
    await club.pass_ms(15_000)
    await club.join("ben")  # does something
    await club.pass_ms(5_000)
    assert await club.players() == {"X": "cas", "O": "ben"}
    assert (await club.place("ann")).role == ""


async def test_when_nobody_does_anything_the_game_does_not_count(club: Club) -> None:
    game = await nim(club, idle_s=20, idle="leave", rated=True)
    club.seats.referees["nim"] = game
    await club.join("ann", "ben")
    await club.do("turn", ["ann", "ben"])
    await club.pass_ms(60_000)
    assert (game.endings[0].winners, game.endings[0].reason) == ((), "void")
    assert await club.players() == {}
    assert not club.records("rating")


async def test_a_seat_is_kept_for_the_time_of_grace(club: Club) -> None:
    await club.create(grace_s=10, idle_s=0)
    await club.join("ann", "ben", "cas")
    await club.do("away", "ann")
    await club.pass_ms(5_000)
    await club.do("away", "ann")  # a second connection: the time goes on
    await club.pass_ms(4_000)
    await club.do("back", "ann")
    await club.pass_ms(60_000)
    assert await club.players() == {"X": "ann", "O": "ben"}
    await club.do("away", "ann")
    await club.pass_ms(10_000)
    assert await club.players() == {"X": "cas", "O": "ben"}
    assert (await club.place("ann")).role == ""
    assert club.screen.shown["t"]["table", "ended"]["reason"] == "lost"


async def test_who_comes_back_during_a_pause_is_there_after_it(club: Club) -> None:
    await club.create(grace_s=10, idle_s=0)
    await club.join("ann", "ben")
    await club.do("away", "ann")
    await club.do("pause")
    await club.pass_ms(60_000)
    await club.do("back", "ann")
    await club.do("resume")
    await club.pass_ms(60_000)
    assert await club.players() == {"X": "ann", "O": "ben"}


async def test_what_is_due_at_a_closed_table_leaves_nothing_behind(club: Club) -> None:
    await club.create(idle_s=10, waiting_s=20)
    await club.join("ann", "ben", "cas")
    await club.do("close")
    for entry in [key for key in club.records("due") if "seats-purge" not in key[1]]:
        await club.act(entry)
    assert problems(club.engine) == []
    await club.pass_ms(3 * 24 * 3_600_000)
    assert not club.records("due")
    with pytest.raises(NoSuchTable):
        await club.get()
    assert problems(club.engine) == []


async def test_grace_counts_while_no_game_is_on_too(club: Club) -> None:
    await club.create(grace_s=10)
    await club.join("ann")
    await club.do("away", "ann")
    await club.pass_ms(10_000)
    assert await club.players() == {}


async def test_who_waits_without_a_sign_of_life_loses_the_place(club: Club) -> None:
    await club.create(waiting_s=60, idle_s=0)
    await club.join("ann", "ben", "cas", "dan")
    await club.do("watch", "eve")
    await club.pass_ms(50_000)
    await club.do("heartbeat", "dan")
    await club.pass_ms(10_000)
    assert (await club.place("cas")).role == ""
    assert (await club.place("eve")).role == ""
    assert (await club.place("dan")).position == 1
    await club.pass_ms(49_999)
    assert (await club.place("dan")).position == 1
    await club.pass_ms(1)
    assert (await club.place("dan")).role == ""
    assert not club.records("lane")


async def test_who_went_back_to_the_line_has_the_whole_time_again(club: Club) -> None:
    await club.create(waiting_s=60, idle_s=0)
    await club.join("ann", "ben", "cas")
    await club.pass_ms(50_000)
    await club.result("ann")
    await club.pass_ms(20_000)
    await club.result("ann")  # cas goes back, after a time at the table
    await club.pass_ms(59_999)
    assert (await club.place("cas")).role == "waiting"
    await club.pass_ms(1)
    assert (await club.place("cas")).role == ""


async def test_who_sits_alone_without_a_sign_of_life_loses_the_seat(club: Club) -> None:
    await club.create(waiting_s=60)
    await club.join("ann")
    await club.pass_ms(50_000)
    await club.do("heartbeat", "ann")
    await club.pass_ms(59_000)
    assert await club.players() == {"X": "ann"}
    await club.pass_ms(1_000)
    assert await club.players() == {}


async def test_what_is_due_too_late_changes_nothing(club: Club) -> None:
    await club.create(idle_s=10)
    await club.join("ann", "ben")
    [entry] = [key for key in club.records("due") if key[1].endswith("seats-clock")]
    await club.do("close")
    await club.create()
    await club.act(entry)
    assert (await club.get()).phase == "waiting"
    await club.act(("due#0000", entry[1].replace("#t#", "#none#")))


async def test_a_commit_may_hold_a_seat_and_something_else_or_neither(club: Club) -> None:
    await club.create()

    async def pay_and_join(tx: Any) -> None:
        tx.put(("paid", "ann"), True)
        await club.seats.join(tx, "t", "ann")
        raise BadInput("no money")

    with pytest.raises(BadInput, match="no money"):
        await club.run(pay_and_join)
    assert (await club.place("ann")).role == ""
