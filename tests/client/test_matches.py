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
        await client.create_table("t", game="guess")
        for user in ("developer", "ben"):
            await client.join_table("t", user=user)
        game = await app.run(lambda tx: app.rooms.map(tx, "table:t", "game"))
        assert game is not None
        id_ = game["now"]["match"]
        await client.move("t", "heads")
        seen = await client.match(id_)
        assert (seen.seat, seen.mine, seen.awaited) == ("even", "heads", ["odd"])
        with pytest.raises(OncewardError) as error:
            await client.match_log(id_)
        assert error.value.code == "match_on"
        await client.move("t", "heads", user="ben")
        assert [entry["type"] for entry in await client.match_log(id_)] == [
            "begun",
            "moved",
            "moved",
        ]
        views = await client.match_replay(id_)
        assert views[-1].outcome == Outcome(("even",))
        with pytest.raises(NoSuchMatch):
            await client.match("nope")
