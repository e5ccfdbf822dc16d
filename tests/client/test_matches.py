"""Matches by the client."""

import pytest

from onceward.api.matches import Outcome
from onceward.app import App
from onceward.client import Client
from onceward.errors import NoSuchMatch, OncewardError
from tests.client.served import Served
from tests.tables.games.playing import Guess


async def test_a_match_is_seen_and_told_again() -> None:
    app = App("memory://", slots=4)
    app.game(Guess())
    async with Served(app) as served, Client(served.url) as client:
        await client.tables.create(id="t", game="guess")
        for user in ("developer", "ben"):
            await client.tables.join("t", user=user)
        game = await app.run(lambda tx: app.rooms.map(tx, "table:t", "game"))
        assert game is not None
        id_ = game["now"]["match"]
        await client.tables.move("t", move="heads")
        seen = await client.matches.get(id_)
        assert (seen.seat, seen.mine, seen.awaited) == ("even", "heads", ["odd"])
        with pytest.raises(OncewardError) as error:
            await client.matches.log(id_)
        assert error.value.code == "match_on"
        await client.tables.move("t", move="heads", user="ben")
        assert [entry["type"] for entry in await client.matches.log(id_)] == [
            "begun",
            "moved",
            "moved",
        ]
        views = await client.matches.replay(id_)
        assert views[-1].outcome == Outcome(("even",))
        with pytest.raises(NoSuchMatch):
            await client.matches.get("nope")
