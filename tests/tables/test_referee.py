"""Games at tables: the rules judge, the table says who plays, and it all is one commit."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from apps.tictactoe.rules import TicTacToe
from onceward import limits
from onceward.app import App
from onceward.errors import BadInput, OncewardError
from onceward.tables.games import (
    MatchLate,
    MatchLeft,
    MatchStopped,
    MatchView,
    Outcome,
    Rules,
    replay,
)
from onceward.tables.live_view import room_of
from onceward.tables.referee import place, read, table_of
from tests.schedule.cluster import virtual
from tests.tables.games.playing import Guess, Trumps
from tests.work.apps import Apps

X_WINS = [("X", 0), ("O", 3), ("X", 1), ("O", 4), ("X", 2)]
O_WINS = [("X", 8), ("O", 3), ("X", 1), ("O", 4), ("X", 2), ("O", 5)]
DRAWS = [*zip("XOXOXOXOX", (0, 1, 2, 4, 3, 5, 7, 6, 8), strict=True)]


class Hall:
    """A table of an application in virtual time."""

    def __init__(self, apps: Apps, app: App) -> None:
        self.apps = apps
        self.app = app

    async def players(self) -> dict[str, str]:
        return (await self.app.tables.get("t")).players

    async def play(self, moves: list[tuple[str, int]]) -> Any:
        """Let those who are seated make moves; returns what the last of them sees."""
        players, seen = await self.players(), None
        for marker, cell in moves:
            seen = await self.app.tables.move("t", players[marker], cell)
        return seen

    async def live(self) -> dict[str, Any]:
        """The game as all see it."""
        found = await self.app.run(lambda tx: self.app.rooms.map(tx, room_of("t"), "game"))
        return found or {}

    async def log(self, match: str) -> list[Any]:
        return await self.app.run(lambda tx: self.app.games.log(tx, match))

    async def waits(self, user: str) -> int:
        """Someone's position in line; 0 for who does not wait."""
        return (await self.app.tables.place("t", user)).position


def plain(view: MatchView) -> Any:
    return msgspec.json.decode(msgspec.json.encode(view))


@asynccontextmanager
async def hall(*users: str, game: Any = None, **policy: Any) -> AsyncIterator[Hall]:
    apps = Apps(shared=False)
    app = apps.make()
    rules = game or TicTacToe()
    app.game(rules)
    async with app:
        await app.tables.create("t", game=rules.name, policy=policy)
        for user in users:
            await app.tables.join("t", user)
        yield Hall(apps, app)


@virtual
async def test_a_win_is_found_here_and_the_next_game_begins_in_that_commit() -> None:
    async with hall("ann", "ben", "cas") as here:
        assert (await here.live())["now"]["players"] == {"X": "ann", "O": "ben"}
        seen = await here.play(X_WINS)
        assert isinstance(seen, MatchView)
        assert seen.outcome == Outcome(("X",))
        assert await here.players() == {"X": "ann", "O": "cas"}
        assert await here.waits("ben") == 1
        live = await here.live()
        assert live["last"]["match"] == seen.match
        assert live["last"]["state"] == ["X", "X", "X", "O", "O", "", "", "", ""]
        assert (live["now"]["players"], live["now"]["state"]) == (
            {"X": "ann", "O": "cas"},
            [""] * 9,
        )
        [commit] = here.apps.commits_of(
            (f"match#{seen.match}", "log#0000000000000006"), internal=True
        )
        kinds = {write.key[0].partition("#")[0] for write in commit}
        assert {"match", "playing", "table", "stand", "lane", "room"} <= kinds
        assert len({write.key for write in commit if write.key[1] == "head"}) >= 4


@virtual
async def test_a_loss_sends_the_first_one_to_the_back() -> None:
    async with hall("ann", "ben", "cas") as here:
        await here.play(O_WINS)
        assert await here.players() == {"X": "cas", "O": "ben"}
        assert await here.waits("ann") == 1


@virtual
async def test_a_draw_swaps_markers_and_both_stay() -> None:
    async with hall("ann", "ben", "cas") as here:
        seen = await here.play(DRAWS)
        assert seen.outcome == Outcome()
        assert await here.players() == {"X": "ben", "O": "ann"}
        assert (await here.live())["now"]["players"] == {"X": "ben", "O": "ann"}
        assert await here.waits("cas") == 1


@virtual
async def test_after_max_wins_the_winner_goes_to_the_back_too() -> None:
    async with hall("ann", "ben", "cas", "dan", max_wins=2) as here:
        await here.play(X_WINS)
        await here.play(X_WINS)
        assert set((await here.players()).values()) == {"dan", "ben"}
        assert {await here.waits("ann"), await here.waits("cas")} == {1, 2}


@virtual
async def test_who_does_not_move_in_time_loses_and_is_moved_on() -> None:
    async with hall("ann", "ben", "cas", turn_s=30, idle="back") as here:
        await here.play([("X", 4)])
        await here.apps.sleep(29)
        match = (await here.live())["now"]["match"]
        await here.apps.sleep(2)
        last = (await here.live())["last"]
        assert (last["match"], last["outcome"]) == (match, {"winners": ["X"], "why": "timeout"})
        assert isinstance((await here.log(match))[-1], MatchLate)
        assert await here.players() == {"X": "ann", "O": "cas"}
        assert await here.waits("ben") == 1


@virtual
async def test_each_move_gives_the_other_one_the_whole_time() -> None:
    async with hall("ann", "ben", turn_s=30) as here:
        for move in DRAWS[:-1]:
            await here.apps.sleep(29)
            await here.play([move])
        assert "last" not in await here.live()


@virtual
async def test_a_lost_connection_is_waited_for_and_then_loses() -> None:
    async with hall("ann", "ben", "cas", turn_s=0, grace_s=20) as here:
        tables = here.app.tables
        match = (await here.live())["now"]["match"]
        await tables.away("t", "ann")
        await here.apps.sleep(19)
        await tables.back("t", "ann")
        await here.apps.sleep(30)
        assert (await here.live())["now"]["match"] == match
        await here.play([("X", 0)])
        await tables.away("t", "ann")
        await here.apps.sleep(21)
        assert (await here.live())["last"]["outcome"] == {"winners": ["O"], "why": "left"}
        assert isinstance((await here.log(match))[-1], MatchLeft)
        assert await here.players() == {"X": "cas", "O": "ben"}
        assert (await tables.place("t", "ann")).role == ""


@virtual
async def test_who_leaves_loses_and_a_closed_table_counts_for_nobody() -> None:
    async with hall("ann", "ben", "cas") as here:
        match = (await here.live())["now"]["match"]
        await here.app.tables.leave("t", "ben")
        assert (await here.live())["last"]["outcome"] == {"winners": ["X"], "why": "left"}
        assert isinstance((await here.log(match))[-1], MatchLeft)
        match = (await here.live())["now"]["match"]
        await here.app.tables.close("t")
        assert isinstance((await here.log(match))[-1], MatchStopped)


@virtual
async def test_who_cheats_gets_an_error_and_changes_nothing() -> None:
    async with hall("ann", "ben", "cas") as here:
        await here.play([("X", 4), ("O", 0)])
        now = (await here.live())["now"]
        before = here.apps.records
        for user, move, code in (
            ("ben", 1, "not_your_turn"),
            ("cas", 1, "not_seated"),
            ("eve", 1, "not_seated"),
            ("ann", 4, "bad_move"),
            ("ann", 0, "bad_move"),
            ("ann", 9, "bad_move"),
            ("ann", -1, "bad_move"),
            ("ann", "1", "bad_move"),
            ("ann", {"winner": "X"}, "bad_move"),
            ("ann", {"move": 1, "outcome": {"winners": ["X"]}}, "bad_move"),
            ("ann", None, "bad_move"),
            ("ann", {"move": 1, "number": 1}, "stale_move"),
            ("ann", {"move": 1, "number": "2"}, "wrong_type"),
            ("ann", {"move": 1, "match": "another"}, "other_game"),
        ):
            with pytest.raises(OncewardError) as error:
                await here.app.tables.move("t", user, move)
            assert error.value.code == code, (user, move)
        assert here.apps.records == before
        await here.app.tables.move("t", "ann", {"move": 1, "number": 2, "match": now["match"]})
        with pytest.raises(BadInput) as error:
            await here.app.tables.move("t", "ann", 2)
        assert error.value.code == "not_your_turn", "twice"


@virtual
async def test_a_hidden_move_is_in_no_live_view_and_gives_nobody_more_time() -> None:
    async with hall("ann", "ben", game=Guess(), turn_s=30) as here:
        await here.apps.sleep(20)
        seen = await here.app.tables.move("t", "ann", "heads")
        assert seen.mine == "heads"
        assert "heads" not in str(await here.live())
        room = await here.app.run(lambda tx: here.app.rooms.load(tx, room_of("t")))
        assert "heads" not in str(room.state.plain())
        assert (await here.live())["now"]["awaited"] == ["odd"]
        await here.apps.sleep(11)
        assert (await here.live())["last"]["outcome"] == {"winners": ["even"], "why": "timeout"}


@virtual
async def test_secrets_of_players_are_not_in_the_live_view() -> None:
    async with hall("ann", "ben", "cas", game=Trumps()) as here:
        now = (await here.live())["now"]
        assert now["state"]["hands"] == {"a": 3, "b": 3, "c": 3}
        assert "seed" not in str(now)


@virtual
async def test_of_moves_that_come_at_once_on_two_nodes_each_counts_once_or_not_at_all() -> None:
    apps = Apps()
    nodes = [apps.make(), apps.make()]
    for app in nodes:
        app.game(TicTacToe())
        app.game(Guess())
        await app.start()
    first, second = nodes
    await first.tables.create("t", game="tictactoe")
    await first.tables.create("g", game="guess")
    for table in ("t", "g"):
        for user in ("ann", "ben"):
            await first.tables.join(table, user)
    # Someone who clicks everywhere makes one move.
    clicks = [nodes[cell % 2].tables.move("t", "ann", cell) for cell in range(9)]
    done = await asyncio.gather(*clicks, return_exceptions=True)
    assert [type(one) for one in done].count(MatchView) == 1
    assert {one.code for one in done if isinstance(one, OncewardError)} == {"not_your_turn"}
    # Two who move at the same instant finish one round, again and again.
    for number in range(1, 20):
        guesses = [
            first.tables.move("g", "ann", "heads"),
            second.tables.move("g", "ben", "heads"),
        ]
        seen = await asyncio.gather(*guesses)
        assert sorted(one.outcome is None for one in seen) == [False, True]
        assert (await second.tables.get("g")).number == number + 1
    for app in nodes:
        await app.stop()


@virtual
async def test_a_bot_plays_on_until_the_end() -> None:
    async with hall("ann", bot_s=5) as here:
        await here.apps.sleep(6)
        table = await here.app.tables.get("t")
        [bot] = [marker for marker, seat in table.seats.items() if seat and seat.bot]
        mine = "X" if bot == "O" else "O"
        for _ in range(9):
            now = (await here.live())["now"]
            assert now["awaited"] == [mine]
            free = [cell for cell, mark in enumerate(now["state"]) if not mark]
            seen = await here.app.tables.move("t", "ann", free[-1])
            if seen.outcome is not None:
                break
        assert seen.outcome is not None


@virtual
async def test_whatever_people_try_logs_tell_the_games_and_the_view_is_the_match() -> None:
    users = ["ann", "ben", "cas", "dan"]
    async with hall(*users, turn_s=20, max_wins=3) as here:
        chance, tables = random.Random(7), here.app.tables
        ended: list[str] = []
        for _ in range(500):
            user, now = chance.choice(users), (await here.live()).get("now")
            try:
                what = chance.random()
                if what < 0.7 and now is not None:
                    user = now["players"][now["awaited"][0]]
                if what < 0.9:
                    await tables.move("t", user, chance.randrange(9))
                elif what < 0.92:
                    await tables.leave("t", user)
                elif what < 0.97:
                    await tables.join("t", user)
                else:
                    await here.apps.sleep(chance.randrange(40))
            except BadInput:
                pass
            table, live = await tables.get("t"), await here.live()
            match = await here.app.run(lambda tx: here.app.games.at(tx, place("t")))
            assert (match is not None) == (table.phase == "playing") == ("now" in live)
            if match is not None:
                assert match.begun.players == table.players
                assert live["now"] == plain(here.app.games.view(match))
                waits = [m for m, seat in table.seats.items() if seat and seat.turn]
                assert waits == match.awaited
            if "last" in live and live["last"]["match"] not in ended:
                ended.append(live["last"]["match"])
                log = await here.log(ended[-1])
                last = replay(TicTacToe(), log)[-1]
                assert live["last"] == plain(here.app.games.view(last))
        assert len(ended) > 15
        kinds = {type(entry) for id_ in ended for entry in await here.log(id_)}
        assert {MatchLate, MatchLeft} <= kinds


@virtual
async def test_of_three_two_can_be_lost_at_the_same_time_and_the_log_says_so() -> None:
    async with hall("ann", "ben", "cas", game=Trumps(), turn_s=0, grace_s=20) as here:
        match = (await here.live())["now"]["match"]
        for user in ("ann", "cas"):
            await here.app.tables.away("t", user)
        await here.apps.sleep(21)
        last = (await here.live())["last"]
        assert (last["match"], last["outcome"]) == (match, {"winners": ["b"], "why": "left"})
        assert await here.players() == {"b": "ben"}
        assert (await here.log(match))[-1].others == ("c",)


@virtual
async def test_of_three_those_who_are_late_lose_and_who_has_moved_wins() -> None:
    async with hall("ann", "ben", "cas", game=Trumps(), turn_s=20) as here:
        now = (await here.live())["now"]
        found = await here.app.run(lambda tx: here.app.games.get(tx, now["match"]))
        await here.app.tables.move("t", "ben", found.state["hands"]["b"][0])
        await here.apps.sleep(21)
        assert (await here.live())["last"]["outcome"] == {"winners": ["b"], "why": "timeout"}


@virtual
async def test_a_result_that_is_told_from_outside_is_in_the_log_as_that() -> None:
    async with hall("ann", "ben", "cas") as here:
        match = (await here.live())["now"]["match"]
        await here.app.tables.result("t", ["ben"])
        last = (await here.live())["last"]
        assert (last["match"], last["outcome"]) == (match, {"winners": ["O"], "why": "told"})
        assert await here.players() == {"X": "cas", "O": "ben"}
        [_, end] = await here.log(match)
        assert replay(TicTacToe(), await here.log(match))[-1].outcome == Outcome(("O",), "told")
        assert end.winners == ("O",)


@virtual
async def test_a_move_whose_answer_was_lost_gets_the_same_one_again() -> None:
    async with hall("ann", "ben", "cas") as here:
        await here.play(X_WINS[:-1])
        first = await here.app.tables.move("t", "ann", 2, key="last")
        again = await here.app.tables.move("t", "ann", 2, key="last")
        assert first == again
        assert again.outcome == Outcome(("X",))
        assert (await here.app.tables.get("t")).number == 2


class Crowd(Rules):
    """Whoever moves first has won; as many play as may."""

    name, seats = "crowd", tuple("abcdefgh"[: limits.SEATS_MAX])

    def start(self, seed: str) -> Any:
        return None

    def moves(self, state: Any, seat: str) -> list[int]:
        return [1]

    def apply(self, state: Any, seat: str, move: Any) -> Any:
        return seat

    def outcome(self, state: Any) -> Outcome | None:
        return None if state is None else Outcome((state,))


@virtual
async def test_as_many_as_may_play_can_all_be_moved_on_in_one_commit() -> None:
    users = [f"user-{number}" for number in range(3 * limits.SEATS_MAX)]
    async with hall(*users, game=Crowd(), rated=True, max_wins=1, turn_s=30) as here:
        await here.app.tables.move("t", "user-0", 1)
        assert list((await here.players()).values()) == users[8:16]
        await here.apps.sleep(31)  # and by the clock
        assert (await here.live())["last"]["outcome"]["why"] == "timeout"
        assert len(max(here.apps.commits, key=len)) <= limits.COMMIT_WRITES_MAX


@virtual
async def test_a_table_has_the_seats_of_its_game() -> None:
    async with hall(game=Trumps()) as here:
        tables = here.app.tables
        assert (await tables.get("t")).policy.seats == ("a", "b", "c")
        await tables.create("u", game="trumps", policy={"seats": ["a", "b", "c"]})
        for seats in (["a", "b"], ["X", "O"], ["c", "b", "a"]):
            with pytest.raises(BadInput) as error:
                await tables.create("v", game="trumps", policy={"seats": seats})
            assert error.value.code == "bad_policy"
        assert (await tables.create("v")).policy.seats == ("X", "O")


def test_a_move_comes_alone_or_with_what_was_seen() -> None:
    assert read(4).move == 4
    assert read({"move": 4, "number": 2, "match": "m"}).number == 2
    assert read({"from": 1, "to": 2}).move == {"from": 1, "to": 2}
    assert read({"move": 4, "more": 2}).move == {"move": 4, "more": 2}


def test_the_place_of_a_table_is_no_other_place() -> None:
    for name in ("t", "a#b", "table", "ü/$"):
        assert table_of(place(name)) == name
    for other in ("", "x", "table", "rps#a#b", "table#a#b"):
        assert table_of(other) is None
