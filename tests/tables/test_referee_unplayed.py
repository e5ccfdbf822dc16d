"""Games that are over before anyone can move: they count, and a table has enough of them."""

from typing import Any

import pytest

from onceward import limits
from onceward.errors import BadInput
from onceward.tables.games import Outcome, won
from onceward.tables.live_view import room_of
from tests.schedule.cluster import virtual
from tests.tables.games.playing import Nim
from tests.tables.test_referee import Hall, hall

MAX = limits.SEATS_UNPLAYED_MAX
WHY = f"{MAX} games in a row ended before a move was possible"


class Dealt(Nim):
    """The first games are won by the deal."""

    name = "dealt"

    def __init__(self, lucky: int) -> None:
        self.lucky = lucky

    def start(self, seed: str) -> Any:
        self.lucky -= 1
        return {"left": 0 if self.lucky >= 0 else 7, "taker": "first"}


class Rushed(Nim):
    """Whoever moves first wins, and that is always the same."""

    name = "rushed"

    def movers(self, state: Any, number: int) -> tuple[str]:
        return ("second",)

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        return {"left": 0, "taker": seat}


async def state(here: Hall) -> dict[str, Any]:
    """What all see of the table."""
    found = await here.app.run(lambda tx: here.app.rooms.map(tx, room_of("t"), "table"))
    assert found is not None
    return dict(found["state"])


@virtual
@pytest.mark.parametrize("outcome", [won("first"), Outcome()])
async def test_a_table_pauses_when_no_game_can_be_played_and_says_why(outcome: Outcome) -> None:
    class Decided(Dealt):
        def outcome(self, state: Any) -> Outcome | None:
            return outcome

    async with hall("ann", "ben", "cas", game=Decided(0)) as here:
        await here.apps.sleep(30)
        table = await here.app.tables.get("t")
        assert (table.paused, table.paused_why, table.number) == (True, WHY, MAX)
        seen = await state(here)
        assert (seen["paused"], seen["paused_why"]) == (True, WHY)
        where = [(await here.app.tables.place("t", user)).role for user in ("ann", "ben", "cas")]
        assert sorted(where)[0] != ""  # nobody is lost
        assert len(max(here.apps.commits, key=len)) <= limits.COMMIT_WRITES_MAX / 2
        with pytest.raises(BadInput) as refused:
            await here.app.tables.move("t", "ann", 1)
        assert refused.value.code in ("no_game", "not_seated")


@virtual
async def test_a_paused_table_tries_again_when_it_is_told_to() -> None:
    game = Dealt(MAX)
    async with hall("ann", "ben", game=game) as here:
        await here.apps.sleep(10)
        assert (await here.app.tables.get("t")).paused_why == WHY
        await here.app.tables.resume("t")
        table = await here.app.tables.get("t")
        assert (table.paused, table.paused_why, table.number) == (False, "", MAX + 1)
        assert "paused_why" not in await state(here)
        assert (await here.app.tables.move("t", "ann", 3)).state["left"] == 4


@virtual
async def test_a_game_that_the_deal_has_won_counts_and_the_next_one_is_played() -> None:
    for lucky in (1, MAX - 1):
        async with hall("ann", "ben", game=Dealt(lucky), rated=True) as here:
            await here.apps.sleep(10)
            table = await here.app.tables.get("t")
            assert (table.phase, table.paused, table.number) == ("playing", False, lucky + 1)
            assert table.players["first"] == "ann"
            rating = await here.app.tables.rating("dealt", "ann")
            assert rating is not None
            assert (rating.games, rating.won) == (lucky, lucky)
            last = (await here.live())["last"]
            assert last["outcome"] == {"winners": ["first"], "why": ""}


@virtual
async def test_games_in_between_that_are_played_begin_the_count_anew() -> None:
    game = Dealt(MAX - 1)
    async with hall("ann", "ben", game=game) as here:
        await here.apps.sleep(10)
        game.lucky = MAX - 1
        await here.app.tables.leave("t", "ben")
        await here.app.tables.join("t", "ben")
        await here.apps.sleep(10)
        table = await here.app.tables.get("t")
        assert (table.phase, table.paused, table.number) == ("playing", False, 2 * MAX)


@virtual
async def test_bots_that_win_before_a_person_can_move_do_not_play_for_ever() -> None:
    async with hall("ann", game=Rushed(), bot_s=5) as here:
        await here.apps.sleep(10)
        table = await here.app.tables.get("t")
        assert table.players == {"first": "ann", "second": "bot"}
        assert (table.paused_why, table.number) == (WHY, MAX)
        assert (await here.live())["last"]["outcome"] == {"winners": ["second"], "why": ""}


class Crowded(Nim):
    """A few games are decided by the first move, all others by the deal."""

    name, seats = "crowded", tuple(f"seat{number}" for number in range(limits.SEATS_MAX))
    played = 3

    def __init__(self) -> None:
        self.begun = 0

    def start(self, seed: str) -> Any:
        self.begun += 1
        return {"left": 7 if self.begun <= self.played else 0, "taker": self.seats[0]}

    def movers(self, state: Any, number: int) -> tuple[str]:
        return (self.seats[0],)

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        return {"left": 0, "taker": seat}


@virtual
async def test_many_who_change_seats_leave_room_for_a_game_that_is_over_at_once() -> None:
    users = [f"user{number}" for number in range(3 * limits.SEATS_MAX)]
    async with hall(*users, game=Crowded(), rated=True, max_wins=1) as here:
        for _ in range(Crowded.played):
            await here.apps.sleep(1)
            first = (await here.app.tables.get("t")).players[Crowded.seats[0]]
            await here.app.tables.move("t", first, 3)
        await here.apps.sleep(30)
        table = await here.app.tables.get("t")
        assert (table.paused_why, table.number) == (WHY, Crowded.played + MAX)
        assert table.waiting + len(table.players) == len(users)
