"""Who plays with whom: lanes, tiers, parties, readiness, bots, and tables that are opened."""

from typing import Any

import pytest

from onceward import limits
from onceward.api.tables import Rating
from onceward.errors import BadInput
from onceward.tables import Ending, Table
from onceward.tables.records import rating_key
from tests.tables.club import Club, new_club, problems


@pytest.fixture
async def club() -> Club:
    return await new_club()


def code(error: pytest.ExceptionInfo[BadInput]) -> str:
    return error.value.code


async def test_lanes_of_higher_priority_are_served_first(club: Club) -> None:
    await club.create(lanes=["vip", "main"])
    await club.join("ann", "ben", "cas", "dan")
    assert (await club.join("eve", lane="vip")).ahead == 0
    assert (await club.place("cas")).ahead == 1
    await club.result("ann")
    assert await club.players() == {"X": "ann", "O": "eve"}
    with pytest.raises(BadInput, match="use one of vip, main"):
        await club.join("fay", lane="first")


async def give(club: Club, **ratings: int) -> None:
    """Let people have ratings on the ladder `chess`."""

    async def fn(tx: Any) -> None:
        for user, rating in ratings.items():
            tx.put(rating_key("chess", user), Rating(rating, 1))

    await club.run(fn)


async def test_tiers_sit_together_after_they_have_waited(club: Club) -> None:
    await club.create(kind="ranked", tiers=[1_100, 1_300], widen_s=10, ladder="chess")

    await give(club, low=900, high=1_500, high2=1_400)
    await club.join("low", "high")
    assert (await club.place("high")).role == "waiting"
    await club.pass_ms(9_999)
    await club.do("heartbeat", "low")
    assert (await club.place("high")).role == "waiting"
    await club.pass_ms(10_001)
    assert await club.players() == {"X": "low", "O": "high"}
    await club.join("high2")
    await club.result("high")
    # The loser would have to wait; the winner and the one of its own tier play at once.
    assert await club.players() == {"X": "high2", "O": "high"}
    leaders = await club.run(lambda tx: club.seats.leaders(tx, "chess"))
    assert [leader.user for leader in leaders] == ["high", "low"]
    assert leaders[0].rating > 1_500
    assert leaders[1].won == 0


async def test_who_has_won_enough_stays_while_nobody_can_take_the_seat(club: Club) -> None:
    await club.create(max_wins=2, tiers=[1_100, 1_300], widen_s=10, ladder="chess")
    await give(club, ann=1_200, ben=1_200, high=1_500, high2=1_500)
    await club.join("ann", "ben", "high")
    for number in (1, 2, 3):
        await club.result("ann", game=number)
        assert await club.players() == {"X": "ann", "O": "ben"}, "high may not sit with them yet"
    assert (await club.place("high")).position == 1
    # With another one of its tier there is a game for those who wait.
    await club.join("high2")
    await club.result("ann", game=4)
    assert await club.players() == {"X": "high", "O": "high2"}
    assert [(await club.place(user)).position for user in ("ben", "ann")] == [1, 2]
    # Once someone may sit with others, the loser gets up and the winner stays.
    await club.leave("high2")
    await club.leave("high")
    assert await club.players() == {"X": "ben", "O": "ann"}
    await club.join("high")
    await club.result("ann", game=6)
    await club.result("ann", game=7)
    await club.pass_ms(10_000)
    await club.result("ann", game=8)
    assert await club.players() == {"X": "high", "O": "ann"}


async def test_ratings_change_with_the_result(club: Club) -> None:
    await club.create(kind="ranked", tiers=[])
    await club.join("ann", "ben")
    ending = await club.result("ann")
    assert ending.ratings == {"ann": 1_216, "ben": 1_184}
    await club.result()
    ladder = await club.run(lambda tx: club.seats.leaders(tx, "tables"))
    assert [(one.user, one.games, one.won, one.drawn) for one in ladder] == [
        ("ann", 2, 1, 1),
        ("ben", 2, 0, 1),
    ]
    assert len(club.records("ladder")) == 2
    after = await club.run(
        lambda tx: club.seats.leaders(tx, "tables", after=(ladder[0].rating, "ann"), limit=1)
    )
    assert [one.user for one in after] == ["ben"]
    found = await club.run(lambda tx: club.seats.rating(tx, "tables", "ann"))
    assert found is not None
    assert found.rating == ladder[0].rating
    assert await club.run(lambda tx: club.seats.rating(tx, "tables", "zoe")) is None


async def test_a_party_sits_down_together(club: Club) -> None:
    await club.create(seats=["A", "B", "C", "D"], party_max=3)
    await club.join("ann", party=["abe", "amy"])
    assert set((await club.players()).values()) == {"ann", "abe", "amy"}
    ben = await club.join("ben", party=["bob"])
    assert (ben.role, ben.position, ben.waiting) == ("waiting", 1, 2)
    assert (await club.join("cas")).marker == "D"  # alone, so there is room
    await club.result("ann")
    # The two are first, and need two seats: the three who lost have made room.
    assert {"ann", "ben", "bob"} < set((await club.players()).values())


async def test_the_winner_makes_room_for_a_party_that_is_next(club: Club) -> None:
    await club.create(party_max=2)
    await club.join("ann", "ben")
    await club.join("cas", party=["cal"])
    await club.join("dan")
    await club.result("ann")
    assert await club.players() == {"X": "cas", "O": "cal"}
    assert [user for (user,) in club.line()["main"]] == ["dan", "ben", "ann"]


async def test_who_sits_alone_makes_room_for_a_party(club: Club) -> None:
    await club.create(party_max=2)
    await club.join("ann")
    await club.join("cas", party=["cal"])
    assert await club.players() == {"X": "cas", "O": "cal"}
    assert (await club.place("ann")).position == 1


async def test_a_party_of_people_who_are_there_already_is_refused(club: Club) -> None:
    await club.create(party_max=2)
    await club.join("ann", "ben", "cas")
    for party in (["ann"], ["cas"], ["dan", "dan"], ["new", "new2"]):
        with pytest.raises(BadInput):
            await club.join("new", party=party)
    assert (await club.place("new")).role == ""
    await club.join("eve", party=["fay"])
    assert (await club.leave("fay")).role == ""
    assert (await club.place("eve")).role == ""


async def test_a_game_begins_when_all_are_ready(club: Club) -> None:
    await club.create(ready_s=10)
    await club.join("ann", "ben", "cas")
    assert (await club.get()).phase == "ready"
    await club.do("ready", "ann")
    assert (await club.get()).phase == "ready"
    await club.do("ready", "ann")
    await club.pass_ms(10_000)
    # ben did not answer, and cas is asked now.
    assert await club.players() == {"X": "ann", "O": "cas"}
    assert (await club.place("ben")).role == ""
    await club.do("ready", "cas")
    assert (await club.get()).phase == "playing"
    with pytest.raises(BadInput) as refused:
        await club.do("ready", "ben")
    assert code(refused) == "not_seated"


async def test_a_rematch_takes_both(club: Club) -> None:
    await club.create(rematch_s=20)
    await club.join("ann", "ben")
    assert (await club.get()).phase == "playing"
    await club.result("ann")
    assert (await club.get()).phase == "ready"
    await club.do("ready", "ann")
    await club.do("ready", "ben")
    table = await club.get()
    assert (table.phase, table.number) == ("playing", 2)
    await club.result("ann")
    await club.do("ready", "ben")
    await club.pass_ms(20_000)
    assert await club.players() == {"O": "ben"}


async def test_after_a_break_the_next_game_begins(club: Club) -> None:
    await club.create(break_s=3, idle_s=0, max_wins=0)
    await club.join("ann", "ben", "cas")
    assert (await club.get()).phase == "playing", "the first one begins at once"
    await club.result("ann", game=1)
    table = await club.get()
    assert (table.phase, table.number, table.players) == ("waiting", 1, {"X": "ann", "O": "cas"})
    state = club.screen.shown["t"]["table", "state"]
    assert state["starts_ms"] == club.clock.at_ms + 3_000
    with pytest.raises(BadInput) as refused:
        await club.result("ann", game=1)
    assert code(refused) == "no_game"
    await club.pass_ms(2_000)
    # Whoever leaves in the break is replaced, and has lost nothing.
    await club.leave("cas")
    assert await club.players() == {"X": "ann", "O": "ben"}
    await club.pass_ms(999)
    assert (await club.get()).phase == "waiting"
    await club.pass_ms(1)
    table = await club.get()
    assert (table.phase, table.number) == ("playing", 2)
    assert "starts_ms" not in club.screen.shown["t"]["table", "state"]
    # Clocks of a break stand still while the table is paused.
    await club.result("ben", game=2)
    await club.pass_ms(1_000)
    await club.do("pause")
    await club.pass_ms(60_000)
    await club.do("resume")
    await club.pass_ms(1_999)
    assert (await club.get()).phase == "waiting"
    await club.pass_ms(1)
    assert (await club.get()).number == 3
    # When a seat was empty for longer than a break, there is nothing to wait for.
    await club.leave("ann")
    await club.pass_ms(10_000)
    await club.join("dan")
    assert (await club.get()).phase == "playing"


async def test_after_a_break_players_are_asked_whether_they_are_ready(club: Club) -> None:
    await club.create(break_s=3, rematch_s=10, idle_s=0)
    await club.join("ann", "ben")
    await club.result("ann", game=1)
    await club.do("ready", "ann")
    assert (await club.get()).phase == "waiting", "not yet"
    await club.pass_ms(3_000)
    assert (await club.get()).phase == "ready"
    await club.do("ready", "ann")
    await club.do("ready", "ben")
    assert (await club.get()).phase == "playing"


async def test_bots_take_empty_seats_and_give_way(club: Club) -> None:
    await club.create(bot_s=5)
    await club.join("ann")
    await club.pass_ms(5_000)
    table = await club.get()
    assert (table.players, table.phase) == ({"X": "ann", "O": "bot"}, "playing")
    assert (await club.join("ben")).role == "waiting"
    await club.result("bot")
    # Who lost to a bot is not sent to the back of a line that has nobody else.
    assert set((await club.players()).values()) == {"ann", "ben"}
    with pytest.raises(BadInput) as refused:
        await club.join("bot")
    assert code(refused) == "bad_name"
    await club.leave("ben")
    await club.leave("ann")
    assert await club.players() == {}
    await club.pass_ms(60_000)
    assert await club.players() == {}


async def test_enough_people_who_wait_get_a_table(club: Club) -> None:
    await club.create("pool", opens=True, tiers=[1_300], widen_s=10)

    async def give(tx: Any) -> None:
        tx.put(rating_key("tables", "pro"), Rating(1_500, 9))

    await club.run(give)
    await club.join("pro", table="pool")
    assert (await club.join("ann", table="pool")).role == "waiting"
    place = await club.join("ben", table="pool")
    assert place.role == ""
    table = await club.get(place.opened)
    assert (table.players, table.phase) == ({"X": "ann", "O": "ben"}, "playing")
    assert table.pool == "pool"
    last = club.screen.shown["pool"]["opened", "last"]
    assert last == {"table": place.opened, "users": ["ann", "ben"]}
    await club.join("cas", table="pool")
    assert (await club.place("pro", table="pool")).role == "waiting"
    await club.pass_ms(10_000)
    other = await club.get((await club.place("pro", table="pool")).opened)
    assert other.players == {"X": "pro", "O": "cas"}
    with pytest.raises(BadInput) as refused:
        await club.join("dan", table=other.id)
    assert code(refused) == "table_full"
    await club.leave("pro", table=other.id)
    await club.leave("cas", table=other.id)
    assert (await club.get(other.id)).phase == "closed"


async def test_many_who_wait_get_their_tables_one_after_another(club: Club) -> None:
    await club.create("pool", opens=True)
    await club.do("pause", table="pool")
    await club.join(*[f"u{n}" for n in range(9)], table="pool")
    await club.do("resume", table="pool")
    await club.settle()
    assert club.head("pool").opened == 4
    assert (await club.place("u8", table="pool")).position == 1


async def test_all_of_a_large_table_can_change_places_in_one_commit(club: Club) -> None:
    markers = [f"m{n}" for n in range(8)]
    await club.create(
        seats=markers,
        lanes=["vip", "main"],
        kind="ranked",
        tiers=[1_000],
        draw="back",
        widen_s=0.001,
    )
    await club.join(*[f"u{n}" for n in range(8)])
    await club.join(*[f"v{n}" for n in range(8)], lane="vip")
    await club.join(*[f"w{n}" for n in range(8)])
    await club.result()
    assert set((await club.players()).values()) == {f"v{n}" for n in range(8)}
    assert club.largest_commit < 90


class Decided:
    """After a few games that are played, each is over as it begins."""

    played = 3

    def __init__(self, club: Club, winners: int) -> None:
        self.club, self.winners = club, winners

    async def begin(self, tx: Any, table: Table) -> None:
        if table.number > self.played:
            await self.end(tx, table)

    async def end(self, tx: Any, table: Table) -> None:
        winners = list(table.players.values())[: self.winners]
        await self.club.seats.result(tx, table.id, winners, game=table.number)

    async def move(self, tx: Any, table: Table, user: str, move: Any) -> Any:
        raise BadInput("it is over")

    async def ended(self, tx: Any, table: Table, ending: Ending) -> None:
        pass


@pytest.mark.parametrize("winners", [0, 1, 7])
async def test_games_that_are_over_at_once_go_on_also_where_all_change_many_seats(
    club: Club, winners: int
) -> None:
    markers = [f"seat{number}" for number in range(limits.SEATS_MAX)]
    game = club.seats.referees["decided"] = Decided(club, winners)
    policy = {"kind": "ranked", "tiers": [], "seats": markers, "draw": "back", "max_wins": 1}
    await club.create(game="decided", **policy)
    users = [f"user{number}" for number in range(4 * limits.SEATS_MAX)]
    await club.join(*users)
    for _ in range(game.played):
        table = await club.get()
        assert table.phase == "playing"
        await club.run(lambda tx, table=table: game.end(tx, table))
        await club.settle()
    table = await club.get()
    assert (table.number, table.paused) == (game.played + limits.SEATS_UNPLAYED_MAX, True)
    assert table.waiting + len(table.players) == len(users)
    assert max(len(commit) for commit in club.engine.commits) < limits.COMMIT_WRITES_MAX - 10
    assert not problems(club.engine)
