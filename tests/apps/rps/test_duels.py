"""Each pair of players has a match: hidden, timed, logged, and gone with who leaves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from apps.rps import words
from apps.rps.game import Game
from onceward.tables.games import MatchLate, MatchLeft, MatchMoved, Outcome
from tests.apps.rps.carrier import Carrier, Table
from tests.schedule.cluster import virtual
from tests.work.apps import Apps


@asynccontextmanager
async def timed(*names: str, throw_s: float | None = 60.0) -> AsyncIterator[tuple[Apps, Table]]:
    apps = Apps(shared=False)
    app, carrier = apps.make(), Carrier()
    game = Game(app, [carrier], throw_s=throw_s)
    async with app:
        table = Table(app, game, carrier)
        for name in names:
            await table.text(name, f"nick {name}")
        yield apps, table


def heard(table: Table, since: int) -> list[str]:
    return [reply.text for _, reply in table.carrier.sent[since:]]


def matches(apps: Apps) -> list[str]:
    """All there are, by id, the oldest first."""
    return sorted({key[0].partition("#")[2] for key in apps.records if key[0].startswith("match#")})


async def log_of(table: Table, id_: str) -> list[Any]:
    return await table.app.run(lambda tx: table.app.games.log(tx, id_))


@virtual
async def test_a_game_by_text_has_a_log_like_any_other() -> None:
    async with timed("Ann", "Bob", throw_s=None) as (apps, table):
        await table.play("Ann: t r Bob", "Bob: t p Ann")
        [id_] = matches(apps)
        begun, *rest = await log_of(table, id_)
        assert begun.game == "rps"
        assert [(entry.seat, entry.move) for entry in rest] == [
            ("first", "rock"),
            ("second", "paper"),
        ]
        views = await table.app.run(lambda tx: table.app.games.replay(tx, id_))
        assert [view.state for view in views] == [{}, {}, {"first": "rock", "second": "paper"}]
        assert views[-1].outcome == Outcome(("second",))


@virtual
async def test_nothing_but_the_match_knows_what_was_thrown_first() -> None:
    async with timed("Ann", "Bob") as (apps, table):
        await table.play("Ann: t scissors Bob")
        [id_] = matches(apps)
        telling = [key for key, record in apps.records.items() if b"scissors" in record.value]
        kinds = {key[0].partition("#")[0] for key in telling}
        assert kinds <= {"match", "job"}, "the text itself, the reply to Ann, and the match"
        match = await table.app.run(lambda tx: table.app.games.get(tx, id_))
        ids = list(match.begun.players.values())
        for viewer, mine in ((None, None), (ids[1], None), (ids[0], "scissors")):
            seen = table.app.games.view(match, viewer)
            assert seen.mine == mine
            assert seen.state == {}


@virtual
async def test_who_does_not_throw_back_in_time_loses() -> None:
    async with timed("Ann", "Bob") as (apps, table):
        await table.play("Ann: t r Bob")
        before = len(table.carrier.sent)
        await apps.sleep(59)
        assert heard(table, before) == []
        await apps.sleep(2)
        await table.settle()
        assert sorted(heard(table, before)) == [
            words.loss_by_time("Ann"),
            words.win_by_time("Bob"),
        ]
        [id_] = matches(apps)
        assert isinstance((await log_of(table, id_))[-1], MatchLate)
        assert await table.play("Ann: games") == {"Ann": [words.NOTHING_PENDING]}
        assert (await table.play("Ann: score"))["Ann"] == [
            "Total: 1 won, 0 lost, 0 ties. Against Bob: 1 won, 0 lost, 0 ties."
        ]
        assert (await table.play("Bob: top"))["Bob"] == ["1. Ann (1)"]
        # Too late, it is the first throw of another game.
        assert await table.play("Bob: t p Ann") == {
            "Bob": [words.you_wait("paper", "Ann")],
            "Ann": [words.they_wait("Bob")],
        }


@virtual
async def test_who_throws_back_in_time_stops_the_clock() -> None:
    async with timed("Ann", "Bob") as (apps, table):
        await table.play("Ann: t r Bob")
        await apps.sleep(50)
        await table.play("Bob: t r Ann")
        before = len(table.carrier.sent)
        await apps.sleep(100)
        assert heard(table, before) == []


@virtual
async def test_a_match_is_over_when_one_of_its_players_leaves() -> None:
    async with timed("Ann", "Bob", "Cid") as (apps, table):
        await table.play("Ann: t r Bob", "Cid: t r Ann")
        assert await table.play("Ann: quit") == {
            "Ann": [words.OPTED_OUT],
            "Cid": [words.they_left("Ann")],
        }
        for id_ in matches(apps):
            *_, thrown, last = await log_of(table, id_)
            assert isinstance(thrown, MatchMoved)
            assert isinstance(last, MatchLeft)
        before = len(table.carrier.sent)
        await apps.sleep(100)
        assert heard(table, before) == [], "no clock is left"
        left = {key[0].partition("#")[0] for key in [*apps.own, *apps.records]}
        assert "playing" not in left
        assert "rps-thrown" not in left


@virtual
async def test_a_clock_that_ends_while_someone_is_leaving_says_nothing() -> None:
    async with timed("Ann", "Bob") as (apps, table):
        await table.play("Ann: t r Bob")
        await table.app.queues.configure("rps-farewells", paused=True)
        await table.game.accept("carrier", "quit", "+12025550102", "quit")
        before = len(table.carrier.sent)
        await apps.sleep(61)
        assert heard(table, before) == [words.OPTED_OUT]
        await table.app.queues.configure("rps-farewells", paused=False)
        await table.settle()
        assert heard(table, before) == [words.OPTED_OUT, words.they_left("Bob")]
        assert "rps-thrown" not in {key[0].partition("#")[0] for key in apps.own}
