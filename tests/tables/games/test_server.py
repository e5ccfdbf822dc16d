"""Matches of an application: declared games only, clocks that run by themselves, closed logs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onceward.app import App
from onceward.errors import BadInput, NoSuchMatch, OncewardError
from onceward.store.transaction import Transaction
from onceward.tables.games import Match, Outcome, Rules
from tests.schedule.cluster import virtual
from tests.tables.games.playing import Guess, Nim, Trumps
from tests.work.apps import Apps

PLAYERS = {"first": "ann", "second": "ben"}


@asynccontextmanager
async def playing(*games: Rules, **options: Any) -> AsyncIterator[tuple[Apps, App]]:
    apps = Apps(shared=False)
    app = apps.make()
    for rules in games or (Nim(),):
        app.game(rules, **options)
    async with app:
        yield apps, app


async def begin(app: App, **options: Any) -> Match:
    return await app.run(lambda tx: app.games.begin(tx, "nim", PLAYERS, **options))


async def play(app: App, id_: str, seat: str, move: Any) -> Match:
    async def fn(tx: Transaction) -> Match:
        return await app.games.play(tx, await app.games.get(tx, id_), seat, move)

    return await app.run(fn)


async def get(app: App, id_: str) -> Match:
    return await app.run(lambda tx: app.games.get(tx, id_))


@virtual
async def test_a_clock_ends_a_match_by_itself_and_someone_hears_of_it_in_that_commit() -> None:
    async def late(tx: Transaction, match: Match) -> None:
        assert match.outcome is not None
        tx.put(("late", match.begun.id), list(match.outcome.winners))

    async with playing(late=late) as (apps, app):
        match = await begin(app, turn_s=10.0)
        id_ = match.begun.id
        await apps.sleep(6)
        await play(app, id_, "first", 1)
        await apps.sleep(9)
        assert (await get(app, id_)).outcome is None
        await apps.sleep(2)
        assert (await get(app, id_)).outcome == Outcome(("first",), "timeout")
        assert apps.value(("late", id_)) == ["first"]
        [commit] = apps.commits_of(("late", id_))
        assert any(write.key[0] == f"match#{id_}" for write in commit)


@virtual
async def test_a_clock_goes_on_when_its_node_has_died() -> None:
    apps = Apps()
    first, second = apps.make(), apps.make()
    for app in (first, second):
        app.game(Nim())
    process = await apps.start(first)
    match: Match = await process.spawn(begin(first, turn_s=20.0))
    process.kill()
    await apps.start(second)
    await apps.sleep(60)
    found = await apps.processes[second].spawn(get(second, match.begun.id))
    assert found.outcome == Outcome(("second",), "timeout")


@virtual
async def test_games_that_are_not_declared_here_are_left_alone() -> None:
    apps = Apps()
    knows, ignores, again = apps.make(), apps.make(), apps.make()
    for app in (knows, again):
        app.game(Nim())
    async with knows:
        match = await begin(knows, turn_s=5.0)
        with pytest.raises(OncewardError) as error:
            await knows.run(lambda tx: knows.games.begin(tx, "chess", PLAYERS))
    assert error.value.code == "no_such_game"
    async with ignores:
        await apps.sleep(30)
        assert (await get(ignores, match.begun.id)).outcome is None
    async with again:
        await apps.sleep(30)
        assert (await get(again, match.begun.id)).outcome == Outcome(("second",), "timeout")


@virtual
async def test_a_log_is_open_when_the_match_is_over() -> None:
    async with playing(Nim(), Guess()) as (_, app):
        id_ = (await begin(app)).begun.id
        for what in (app.games.log, app.games.replay):
            with pytest.raises(BadInput) as error:
                await app.run(lambda tx, what=what: what(tx, id_))
            assert error.value.code == "match_on"
            with pytest.raises(NoSuchMatch):
                await app.run(lambda tx, what=what: what(tx, "nope"))
        for seat, move in (("first", 3), ("second", 3), ("first", 1)):
            await play(app, id_, seat, move)
        log = await app.run(lambda tx: app.games.log(tx, id_))
        views = await app.run(lambda tx: app.games.replay(tx, id_))
        assert len(log) == len(views) == 4
        assert [view.state["left"] for view in views] == [7, 4, 1, 0]
        assert views[-1].outcome == Outcome(("first",))


@virtual
async def test_everyone_sees_what_they_may() -> None:
    async with playing(Trumps()) as (_, app):
        players = {"a": "ann", "b": "ben", "c": "cas"}
        match = await app.run(lambda tx: app.games.begin(tx, "trumps", players))
        hand = match.state["hands"]["b"]
        seen = app.games.view(match, "ben")
        assert (seen.seat, seen.moves) == ("b", hand)
        for user in ("dan", None, "b"):
            seen = app.games.view(match, user)
            assert (seen.seat, seen.moves) == (None, [])
            assert seen.state["hands"] == {"a": 3, "b": 3, "c": 3}


@virtual
async def test_what_can_be_no_game_is_refused() -> None:
    app = Apps(shared=False).make()

    class Nameless(Nim):
        name = ""

    class Twice(Nim):
        seats = ("a", "a")

    class Long(Nim):
        name = "x" * 33

    class Numbered(Nim):
        seats = (1, 2)  # type: ignore[assignment]

    for rules in (None, Nim, Rules(), Nameless(), Twice(), Long(), Numbered()):
        with pytest.raises(BadInput):
            app.game(rules)  # type: ignore[arg-type]
    app.game(Nim())
    with pytest.raises(BadInput):
        app.game(Nim())
    async with app:
        with pytest.raises(BadInput):
            app.game(Guess())


@virtual
async def test_a_match_that_was_read_before_undoes_nothing_that_has_happened_since() -> None:
    async with playing() as (_, app):
        stale = await begin(app)
        id_ = stale.begun.id
        await play(app, id_, "first", 3)
        with pytest.raises(BadInput) as error:
            await app.run(lambda tx: app.games.play(tx, stale, "first", 1))
        assert error.value.code == "not_your_turn"
        after = await app.run(lambda tx: app.games.play(tx, stale, "second", 3))
        assert (after.state["left"], after.entries) == (1, 3)
        await app.run(lambda tx: app.games.leave(tx, stale, "second"))
        for over in (app.games.stop, app.games.expire):
            assert (await app.run(lambda tx, over=over: over(tx, stale))).outcome == Outcome(
                ("first",), "left"
            )
        assert len(await app.run(lambda tx: app.games.log(tx, id_))) == 4


@virtual
async def test_players_without_names_are_refused() -> None:
    async with playing() as (_, app):
        for players in ({"first": "ann", "second": ""}, {"first": "ann", "second": 5}):
            with pytest.raises(BadInput):
                await app.run(lambda tx, players=players: app.games.begin(tx, "nim", players))  # type: ignore[misc]
