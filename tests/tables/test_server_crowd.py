"""A thousand people join one table at the same instant, on one process and on three; and games
that are played on three, of which each is killed in the middle."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from onceward import engine
from onceward.client import Client
from onceward.client.rooms.live import Live
from onceward.client.rooms.room import Room
from onceward.errors import OncewardError
from onceward.schedule.placement import slot_key
from onceward.testing.postgres import PostgresServer
from tests.server_process import ServerProcess
from tests.tables.crowd import Crowd

SOAK = os.environ.get("ONCEWARD_SOAK") == "1"
PEOPLE, CONNECTIONS, LEAVING = (1_000, 50, 200) if SOAK else (60, 8, 12)
GAMES = 20 if SOAK else 1
X_WINS = [("X", 0), ("O", 3), ("X", 1), ("O", 4), ("X", 2)]
MODULE = """\
import onceward
from apps.rps import Game, Phones, Web
from apps.tictactoe import Club

app = onceward.App("{url}", slots=8, node_lease_s=2.0)
policy = {{"turn_s": 600, "grace_s": 600, "max_wins": 0}}
tables = {{"main": policy, "brief": {{**policy, "turn_s": 3, "idle": "leave"}}}}
app.mount("/tictactoe", Club(app, tables).site())
app.mount("/rps", Game(app, [Phones(), Web()], throw_s=600).site())
"""

pytestmark = [pytest.mark.tables, pytest.mark.timeout(600 if SOAK else 300)]


async def test_nobody_is_overtaken_or_seated_twice_on_sqlite(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        await Crowd([server.url], PEOPLE, CONNECTIONS, LEAVING).run()
        assert server.stop() == 0
    assert server.log.read_text().count("Traceback") == 0


class Nodes:
    """Three servers on one database in PostgreSQL."""

    def __init__(self, database: str, servers: list[ServerProcess]) -> None:
        self.database = database
        self.servers = servers

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    async def owner(self, id_: str) -> int:
        """Which one of them owns the slot of something, as soon as one does."""
        opened = await engine.open(self.database)
        try:
            async with asyncio.timeout(60):
                while True:
                    found = await self._owner(opened, id_)
                    if found is not None:
                        return found
        finally:
            await opened.close()

    async def _owner(self, opened: engine.Engine, id_: str) -> int | None:
        now_ms = await opened.now_ms() or 0
        [config] = await opened.get([("config", "schedule")], now_ms)
        assert config is not None
        slot = crc32(id_.encode()) % msgspec.json.decode(config.value)["slots"]
        [held] = await opened.get([slot_key(slot)], now_ms)
        owner = "" if held is None else msgspec.json.decode(held.value).get("owner")
        [hub] = await opened.get([("hub", owner or "nobody")], now_ms)
        url = "" if hub is None else msgspec.json.decode(hub.value)["url"]
        ports = [f":{server.port}" for server in self.servers]
        return next((at for at, port in enumerate(ports) if url.endswith(port)), None)

    async def kill(self, at: int) -> None:
        self.servers[at].kill()
        self.servers[at].start()
        await asyncio.to_thread(self.servers[at].until_ready)


@pytest.fixture(scope="module")
def nodes(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with ExitStack() as stack:
        url = f"{server.url}?schema=crowd"
        servers = []
        for _ in range(3):
            folder = tmp_path_factory.mktemp("node")
            (folder / "playing.py").write_text(MODULE.format(url=url))
            servers.append(stack.enter_context(ServerProcess(folder, "--app", "playing:app")))
        yield Nodes(url, servers)
        for node in servers:
            assert node.stop() == 0
            assert node.log.read_text().count("Traceback") == 0


async def test_nobody_is_overtaken_or_seated_twice_on_three_processes(nodes: Nodes) -> None:
    await Crowd(nodes.urls, PEOPLE, CONNECTIONS, LEAVING).run()


class Person:
    """Someone who plays over one of the nodes, and sees the table there."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url
        self.live = Live(url, token=f"dev:{name}")
        self.room: Room

    async def come(self, table: str) -> None:
        self.room = await self.live.join(f"table:{table}")
        await self.insist("join", table)

    async def insist(self, do: str, table: str, **body: Any) -> Any:
        """Do something however often the way there is lost."""
        while True:
            try:
                return await self.live.act(do, table, **body)
            except OncewardError as error:
                if not error.kind.retry:
                    raise

    async def sees(self, what: str, match: Any, map_: str = "game") -> Any:
        """Wait until the live view of the game is such."""
        shown = self.room.map(map_)
        async with asyncio.timeout(120):
            seen = asyncio.Event()
            end = shown.subscribe(lambda *_: seen.set())
            try:
                while not match(shown.get(what)):
                    seen.clear()
                    await seen.wait()
            finally:
                end()
        return shown.get(what)


@pytest.fixture
async def people(nodes: Nodes) -> AsyncIterator[list[Person]]:
    async with AsyncExitStack() as stack:
        named = zip(("ann", "ben", "cas"), nodes.urls, strict=True)
        found = [Person(name, url) for name, url in named]
        for person in found:
            await stack.enter_async_context(person.live)
        yield found


async def test_a_game_goes_on_when_the_node_that_owns_its_table_is_killed(
    nodes: Nodes, people: list[Person]
) -> None:
    async with Client(nodes.urls[0]) as client:
        await client.call("GET", "tictactoe", "tables", type=Any)
    for person in people:
        await person.come("main")
    seated = {"X": people[0], "O": people[1]}
    waits = people[2]
    match = ""
    for _ in range(GAMES):
        now = await waits.sees("now", lambda game, old=match: game and game["match"] != old)
        match = now["match"]
        for at, (marker, cell) in enumerate(X_WINS):
            if at == 2:
                # It shows the table, and may be the one that a player is connected to.
                await nodes.kill(await nodes.owner("table:main"))
            move = {"move": cell, "number": at, "match": match}
            seen = await seated[marker].insist("move", "main", move=move, key=f"{match}:{at}")
            assert seen["answer"]["match"] == match
        assert seen["answer"]["outcome"]["winners"] == ["X"]
        last = await waits.sees("last", lambda game, id_=match: game and game["match"] == id_)
        assert last["state"] == ["X", "X", "X", "O", "O", "", "", "", ""]
        # The loser is at the back, and who waited has sat down: on every node.
        seated["O"], waits = waits, seated["O"]
        for person in people:
            table = await person.insist("get", "main")
            assert table["seats"]["O"]["user"] == seated["O"].name
            assert table["waiting"] == 1
    async with Client(nodes.urls[1]) as client:
        log = await client.matches.log(match)
        assert [entry["type"] for entry in log] == ["begun", *["moved"] * 5]


async def test_a_clock_runs_out_though_the_node_that_keeps_it_is_killed(
    nodes: Nodes, people: list[Person]
) -> None:
    ann, ben, _ = people
    async with Client(nodes.urls[0]) as client:
        await client.call("GET", "tictactoe", "tables", type=Any)
    await ann.come("brief")
    await ben.come("brief")
    await nodes.kill(await nodes.owner("brief"))
    last = await ben.sees("last", lambda game: game is not None)
    assert last["outcome"] == {"winners": ["O"], "why": "timeout"}
    assert (await ann.insist("place", "brief"))["role"] == ""


async def test_someone_at_a_page_and_someone_on_a_phone_finish_a_game_though_nodes_are_killed(
    nodes: Nodes,
) -> None:
    pages = [Client(url, key="dev:wendy") for url in nodes.urls]
    async with AsyncExitStack() as stack:
        for page in pages:
            await stack.enter_async_context(page)
        phone = "+12025550123"

        async def text(at: int, said: str) -> None:
            body = {"id": f"phone-{said}", "from": phone, "text": said}
            await pages[at].call("POST", "rps", "phones", "texts", type=Any, body=body)

        async def act(at: int, said: str) -> None:
            body = {"id": f"page-{said}", "text": said}
            await pages[at].call("POST", "rps", "play", "texts", type=Any, body=body)

        wendy = Person("wendy", nodes.urls[2])
        await stack.enter_async_context(wendy.live)
        await pages[2].call("GET", "rps", "play", "me", type=Any)
        wendy.room = await wendy.live.join("rps:@wendy")

        async def answered(at: int) -> None:
            """Wait until the phone has received a text."""
            after = "0"
            async with asyncio.timeout(120):
                while True:
                    asked = {"after": after}
                    shown = await pages[at].call(
                        "GET", "rps", "phones", "texts", type=Any, query=asked
                    )
                    if any(not text["sent"] for text in shown["texts"]):
                        return
                    after = str(shown["after"])

        async def hears(at: int, what: str) -> Any:
            """Wait until there is news of that, and look at it over any of them."""
            async with asyncio.timeout(120):
                for number in itertools.count():
                    me = await pages[at].call("GET", "rps", "play", "me", type=Any)
                    if any(what in one["text"] for one in me["heard"]):
                        return me
                    await wendy.sees("number", lambda told, n=number: (told or 0) > n, map_="news")

        await act(0, "nick Wendy")
        await text(1, "nick Pete")
        await hears(2, "Wendy")
        await answered(1)  # the names are taken by two jobs, in any order
        await act(2, "throw rock Pete")
        me = await hears(0, "Pete")
        assert [game["mine"] for game in me["games"]] == ["rock"]
        for at in (0, 1) if SOAK else (1,):
            await nodes.kill(at)
        await text(2, "throw paper Wendy")
        me = await hears(1, "paper")
        assert me["score"]["losses"] == 1
        assert me["games"] == []
