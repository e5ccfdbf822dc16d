"""Matches over HTTP: whoever may see something sees it, and no more."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from apps.tictactoe.rules import TicTacToe
from onceward.tables.games import Rules
from tests.schedule.cluster import virtual
from tests.tables.games.playing import Guess
from tests.web.asgi import Caller, keyed, serving
from tests.work.apps import Apps

X_WINS = [("ann", 0), ("ben", 3), ("ann", 1), ("ben", 4), ("ann", 2)]


@asynccontextmanager
async def table(rules: Rules, **policy: Any) -> AsyncIterator[dict[str, Caller]]:
    """Two who play at a table, one who may look on, one who may not, and who manages it."""
    app = Apps(shared=False).make()
    app.game(rules)
    auth, keys = keyed(ann="play:t", ben="play:t", cas="play:*", eve="play:other", boss="table:t")
    async with serving(app, auth) as caller:
        people = {name: Caller(caller.server, key) for name, key in keys.items()}
        made = {"id": "t", "game": rules.name, "policy": policy}
        await people["boss"].ok("POST", "/v1/tables", made)
        for name in ("ann", "ben"):
            await people[name].ok("POST", "/v1/tables/t/join", {})
        yield people


async def on(people: dict[str, Caller]) -> str:
    """The match that is on."""
    app = people["ann"].app
    game = await app.run(lambda tx: app.rooms.map(tx, "table:t", "game"))
    assert game is not None
    match: str = game["now"]["match"]
    return match


@virtual
async def test_a_player_sees_the_own_hidden_move_and_nobody_else_does() -> None:
    async with table(Guess()) as people:
        path = f"/v1/matches/{await on(people)}"
        await people["ann"].ok("POST", "/v1/tables/t/move", {"move": "heads"})
        for name, mine, moves in (
            ("ann", "heads", []),
            ("ben", None, ["heads", "tails"]),
            ("cas", None, []),
            ("boss", None, []),
        ):
            seen = await people[name].ok("GET", path)
            assert (seen["mine"], seen["moves"]) == (mine, moves), name
        assert (await people["eve"]("GET", path)).verdict == (403, "not_allowed")
        for name in ("ann", "cas", "boss"):
            for more in ("/log", "/replay"):
                assert (await people[name]("GET", path + more)).verdict == (409, "match_on")


@virtual
async def test_a_match_that_is_over_can_be_told_again() -> None:
    async with table(TicTacToe()) as people:
        id_ = await on(people)
        for name, cell in X_WINS:
            await people[name].ok("POST", "/v1/tables/t/move", {"move": cell})
        log = await people["cas"].ok("GET", f"/v1/matches/{id_}/log")
        assert log["match"] == id_
        assert [entry["type"] for entry in log["entries"]] == ["begun", *["moved"] * 5]
        assert [entry["move"] for entry in log["entries"][1:]] == [0, 3, 1, 4, 2]
        replay = await people["cas"].ok("GET", f"/v1/matches/{id_}/replay")
        assert [view["number"] for view in replay["views"]] == [0, 1, 2, 3, 4, 5]
        assert replay["views"][-1]["outcome"] == {"winners": ["X"], "why": ""}
        assert (await people["eve"]("GET", f"/v1/matches/{id_}/log")).verdict == (
            403,
            "not_allowed",
        )


@virtual
async def test_a_match_that_is_not_there_is_not_found() -> None:
    async with table(TicTacToe()) as people:
        for id_ in ("nope", "x" * 300, "%23"):
            for more in ("", "/log", "/replay"):
                answer = await people["ann"]("GET", f"/v1/matches/{id_}{more}")
                assert answer.verdict == (404, "no_such_match")


@virtual
async def test_nobody_acts_for_another_or_says_who_has_won() -> None:
    async with table(TicTacToe()) as people:
        before = await on(people)
        for name, what, body in (
            ("ben", "move", {"move": 0, "user": "ann"}),
            ("ben", "leave", {"user": "ann"}),
            ("ann", "result", {"winners": ["ann"]}),
            ("eve", "move", {"move": 0}),
            ("eve", "join", {}),
        ):
            answer = await people[name]("POST", f"/v1/tables/t/{what}", body)
            assert answer.verdict == (403, "not_allowed"), (name, what)
        seen = await people["ann"].ok("GET", f"/v1/matches/{before}")
        assert (seen["number"], seen["outcome"]) == (0, None)
