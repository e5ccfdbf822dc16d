"""Kinds of tables from end to end: by the client over HTTP, and over WebSocket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from apps.tictactoe.rules import TicTacToe
from onceward import tokens
from onceward.app import App
from onceward.client import Client, Live, Room
from onceward.errors import BadInput, OncewardError
from onceward.tables.games import Outcome, Rules, won
from onceward.web.auth import Auth, JwtKey
from tests.client.served import Served

SECRET = "a secret of more than thirty-two bytes"
AUTH = Auth(jwt_keys=[JwtKey("HS256", SECRET, "onceward")])
X_WINS = [("X", 0), ("O", 3), ("X", 1), ("O", 4), ("X", 2)]
LONG_S = 600

pytestmark = [
    pytest.mark.timeout(150),
    pytest.mark.parametrize("over", ["http", "websocket"]),
]


class Trio(Rules):
    """Three players say a number each, in turn; the last one has won."""

    name, seats = "trio", ("A", "B", "C")

    def start(self, seed: str) -> list[int]:
        return []

    def moves(self, said: list[int], seat: str) -> range:
        return range(10)

    def apply(self, said: list[int], seat: str, move: int) -> list[int]:
        return [*said, move]

    def outcome(self, said: list[int]) -> Outcome | None:
        return won("C") if len(said) == 3 else None


class Person:
    """Someone at the table `t`, with a token, who acts over HTTP or WebSocket and sees its room."""

    def __init__(self, client: Client, live: Live, room: Room, over: str) -> None:
        self.client = client
        self.live = live
        self.room = room
        self._over = over
        self._changed = asyncio.Event()
        self._seen: list[tuple[str, Any]] = []
        """All values that a key of the room had, by map and key, the oldest first."""
        for name in ("seats", "table", "game"):
            self._look(name)
            room.map(name).subscribe(lambda *_, name=name: self._look(name))

    def _look(self, name: str) -> None:
        whole = self.room.map(name).whole()
        self._seen += [(f"{name} {key}", value) for key, value in whole.items()]
        self._changed.set()

    async def sees(self, what: str, holds: Callable[[Any], Any]) -> Any:
        """Wait until the room has shown a value of which something holds, at any time."""
        async with asyncio.timeout(120):
            while True:
                for key, value in self._seen:
                    if key == what and holds(value):
                        return value
                self._changed.clear()
                await self._changed.wait()

    async def do(self, what: str, **body: Any) -> dict[str, Any]:
        """Act at the table; returns a place as it came."""
        if self._over == "websocket":
            found = await self.live.act(what, "t", **body)
        else:
            found = msgspec.to_builtins(await getattr(self.client.tables, what)("t", **body))
        assert isinstance(found, dict)
        return found

    async def move(self, move: Any) -> Any:
        """Make a move; returns the view of the game."""
        if self._over == "websocket":
            return (await self.live.act("move", "t", move=move))["answer"]
        return await self.client.tables.move("t", move=move)

    async def players(self) -> dict[str, str | None]:
        """Who sits under each marker."""
        if self._over == "websocket":
            seats = (await self.live.act("get", "t"))["seats"]
        else:
            seats = msgspec.to_builtins((await self.client.tables.get("t")).seats)
        return {marker: seat and seat["user"] for marker, seat in seats.items()}


class Evening:
    """A server with the table `t`, and people who come to it."""

    def __init__(self, stack: AsyncExitStack, url: str, over: str) -> None:
        self._stack = stack
        self._url = url
        self._over = over

    async def person(self, name: str, action: str = "play") -> Person:
        token = tokens.sign(SECRET, user=name, grants=[tokens.Grant(action, "t")])
        client = await self._stack.enter_async_context(Client(self._url, key=token))
        live = await self._stack.enter_async_context(client.live())
        return Person(client, live, await live.join("table:t"), self._over)

    async def people(self, *names: str) -> list[Person]:
        """Some who join, in this order."""
        found = [await self.person(name) for name in names]
        for person in found:
            await person.do("join")
        return found


@asynccontextmanager
async def evening(over: str, game: str = "tictactoe", **policy: Any) -> AsyncIterator[Evening]:
    app = App("memory://", slots=4)
    app.game(TicTacToe())
    app.game(Trio())
    patient = {"turn_s": LONG_S, "grace_s": LONG_S}
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(Served(app, AUTH))
        await app.tables.create("t", policy={**patient, **policy}, game=game)
        yield Evening(stack, served.url, over)


async def play(seated: dict[str, Person], moves: list[tuple[str, int]] = X_WINS) -> Any:
    """Make these moves; returns how the last one was answered."""
    for marker, cell in moves:
        seen = await seated[marker].move(cell)
    return seen


async def test_at_a_speed_table_who_is_late_is_warned_loses_and_leaves(over: str) -> None:
    async with evening(over, kind="speed", turn_s=2, warn_s=1) as here:
        ann, ben, cas = await here.people("ann", "ben", "cas")
        await ben.sees("seats X", lambda seat: seat and seat.get("warned"))
        last = await cas.sees("game last", lambda game: game)
        assert last["outcome"] == {"winners": ["O"], "why": "timeout"}
        await cas.sees("seats X", lambda seat: seat and seat["user"] == "cas")
        assert (await ann.do("place"))["role"] == ""


async def test_at_a_ranked_table_a_game_changes_ratings(over: str) -> None:
    async with evening(over, kind="ranked", turn_s=LONG_S) as here:
        ann, ben, cas = await here.people("ann", "ben", "cas")
        seen = await play({"X": ann, "O": ben})
        assert seen["outcome"]["winners"] == ["X"]
        ended = await cas.sees("table ended", lambda ending: ending)
        assert ended["ratings"] == {"ann": 1_216, "ben": 1_184}
        leaders = await ann.client.tables.leaders("tictactoe")
        assert [(one.user, one.rating) for one in leaders] == [("ann", 1_216), ("ben", 1_184)]
        if over == "websocket":
            told = await ben.live.act("rating", ladder="tictactoe")
            assert told["rating"]["rating"] == 1_184
        # From 1,200 on it is another tier: cas may sit with ann, and ben has to wait for that.
        assert await ben.players() == {"X": "ann", "O": "cas"}
        assert (await ben.do("place"))["lane"] == "main/1/1"
        assert (await ann.do("leave"))["role"] == ""
        assert await ben.players() == {"X": None, "O": "cas"}


async def test_a_party_sits_down_together(over: str) -> None:
    async with evening(over, party_max=2) as here:
        ann, ben = await here.people("ann", "ben")
        host = await here.person("host", "table")
        eve, fay = await here.person("eve"), await here.person("fay")
        place = await host.do("join", user="eve", party=["fay"])
        assert (place["role"], place["position"]) == ("waiting", 1)
        with pytest.raises(OncewardError) as refused:
            await eve.do("join", party=["fay"])
        assert refused.value.code == "not_allowed"
        dan = await here.person("dan")
        assert (await dan.do("join"))["ahead"] == 2
        await play({"X": ann, "O": ben})
        assert await dan.players() == {"X": "eve", "O": "fay"}
        assert [(await one.do("place"))["marker"] for one in (eve, fay)] == ["X", "O"]
        assert (await ann.do("place"))["role"] == "waiting", "the winner made room"


async def test_a_rematch_begins_when_both_want_it(over: str) -> None:
    async with evening(over, rematch_s=LONG_S) as here:
        ann, ben = await here.people("ann", "ben")
        await play({"X": ann, "O": ben})
        await ben.sees("table state", lambda state: state["phase"] == "ready")
        with pytest.raises(BadInput) as refused:
            await ann.move(0)
        assert refused.value.code == "no_game"
        assert (await ann.do("ready"))["phase"] == "ready"
        assert (await ben.do("ready"))["phase"] == "playing"
        await ann.sees("table state", lambda state: state["game"] == 2)
        seen = await play({"X": ann, "O": ben})
        assert seen["outcome"]["winners"] == ["X"]


async def test_a_spectator_sees_all_and_moves_nothing(over: str) -> None:
    async with evening(over) as here:
        ann, ben = await here.people("ann", "ben")
        wat = await here.person("wat")
        assert (await wat.do("watch"))["role"] == "watching"
        await ann.sees("table state", lambda state: state["spectators"] == 1)
        await ann.move(4)
        await wat.sees("game now", lambda game: game["state"][4] == "X")
        with pytest.raises(BadInput) as refused:
            await wat.move(0)
        assert refused.value.code == "not_seated"
        assert (await wat.do("join"))["role"] == "waiting"
        await ben.sees("table state", lambda state: state["waiting"] == 1)
        await ben.do("leave")
        assert await wat.players() == {"X": "ann", "O": "wat"}


async def test_a_bot_plays_with_who_is_alone_and_gives_way(over: str) -> None:
    async with evening(over, bot_s=0.001, bots=["hal"]) as here:
        [ann] = await here.people("ann")
        seat = await ann.sees("seats O", lambda seat: seat)
        assert (seat["user"], seat["bot"]) == ("hal", True)
        game = await ann.sees("game now", lambda game: game)
        ben = await here.person("ben")
        assert (await ben.do("join"))["role"] == "waiting"
        state = game["state"]
        while True:
            free = [cell for cell, mark in enumerate(state) if not mark]
            seen = await ann.move(free[0])
            state = seen["state"]
            if seen["outcome"] is not None:
                break
        # Whoever has lost, the bot or ann, ben plays the other one; after a draw the bot gives way.
        players = await ben.players()
        assert "ben" in players.values()


async def test_of_three_seats_two_change_with_a_game(over: str) -> None:
    async with evening(over, game="trio") as here:
        ann, ben, cas, dan = await here.people("ann", "ben", "cas", "dan")
        assert await dan.players() == {"A": "ann", "B": "ben", "C": "cas"}
        seen = await play({"A": ann, "B": ben, "C": cas}, [("A", 1), ("B", 2), ("C", 3)])
        assert seen["outcome"]["winners"] == ["C"]
        # Of the losers one is needed again, the one who got up first.
        assert await ben.players() == {"A": "dan", "B": "ann", "C": "cas"}
        assert (await ben.do("place"))["position"] == 1
        await ann.sees("game now", lambda game: game["players"]["A"] == "dan")
        await ann.do("leave")
        assert (await ben.do("place"))["marker"] in ("A", "B")


async def test_when_both_leave_the_two_oldest_waiters_have_x_and_o(over: str) -> None:
    async with evening(over) as here:
        ann, ben, cas, dan, eve = await here.people("ann", "ben", "cas", "dan", "eve")
        await asyncio.gather(ann.do("leave"), ben.do("leave"))
        players = await eve.players()
        assert players.keys() == {"X", "O"}
        assert set(players.values()) == {"cas", "dan"}
        assert (await eve.do("place"))["position"] == 1
        for person in (cas, dan):
            marker = (await person.do("place"))["marker"]
            await person.sees("game now", lambda game: set(game["players"]) == {"X", "O"})
            assert players[marker] in ("cas", "dan")


async def test_when_both_are_lost_the_two_oldest_waiters_have_x_and_o(over: str) -> None:
    async with evening(over, grace_s=1) as here:
        ann, ben, _, _, eve = await here.people("ann", "ben", "cas", "dan", "eve")
        await asyncio.gather(ann.live.close(), ben.live.close())
        now = await eve.sees(
            "game now", lambda game: {"cas", "dan"} == set(game["players"].values())
        )
        assert now["players"].keys() == {"X", "O"}
        assert (await eve.do("place"))["position"] == 1
        for person in (ann, ben):
            assert (await person.client.tables.place("t")).role == ""
