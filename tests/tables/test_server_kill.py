"""A server that is killed while people join and play: nobody is lost, and nobody is there twice."""

import asyncio
import os
from pathlib import Path

import pytest

from onceward.client import Client
from onceward.client.rooms.live import Live
from onceward.errors import OncewardError
from tests.server_process import ServerProcess

SOAK = os.environ.get("ONCEWARD_SOAK") == "1"
KILLS, PEOPLE, CONNECTIONS = (30, 900, 20) if SOAK else (1, 40, 4)
POLICY = {"idle_s": 0, "grace_s": 60, "waiting_s": 0, "max_wins": 3}

pytestmark = [pytest.mark.tables, pytest.mark.timeout(2_700 if SOAK else 300)]


async def insist(live: Live, do: str, **body: object) -> None:
    """Ask until there is an answer: to join or leave twice is once."""
    while True:
        try:
            await live.act(do, "t", **body)
            return
        except OncewardError as error:
            if not error.kind.retry:
                raise


class Evening:
    """People who come one after another, and games that end, while the server comes and goes."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.joined: dict[str, None] = {}
        self.came = asyncio.Event()
        self.ended = 0

    async def join(self, live: Live, users: list[str]) -> None:
        for user in users:
            await insist(live, "join", user=user)
            self.joined[user] = None
            self.came.set()

    async def play(self, client: Client) -> None:
        """End games, each once, until everyone has come."""
        while len(self.joined) < PEOPLE:
            table = await client.tables.get("t")
            if table.phase == "playing":
                winner = table.players["X"]
                try:
                    await client.tables.result("t", winners=[winner], game=table.number)
                    self.ended += 1
                except OncewardError as error:
                    if error.code != "outcome_unknown":
                        raise
            else:
                await asyncio.sleep(0)

    async def kill(self) -> None:
        for number in range(1, KILLS + 1):
            while len(self.joined) < number * PEOPLE // (KILLS + 1):
                self.came.clear()
                await self.came.wait()
            self.server.kill()
            self.server.start()
            await asyncio.to_thread(self.server.until_ready)


async def test_a_server_killed_while_people_join_loses_nobody(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        users = [f"u{number}" for number in range(PEOPLE)]
        evening = Evening(server)
        async with Client(server.url) as client:
            await client.tables.create(id="t", policy=POLICY)
            lives = [Live(server.url, token=f"dev:c{n}") for n in range(CONNECTIONS)]
            for live in lives:
                await live.open()
            work = [evening.join(live, users[n::CONNECTIONS]) for n, live in enumerate(lives)]
            await asyncio.gather(*work, evening.play(client), evening.kill())
            for live in lives:
                await live.close()
            table = await client.tables.get("t")
            assert table.phase == "playing"
            assert table.number >= evening.ended
            assert table.waiting == PEOPLE - 2
            places = [await client.tables.place("t", user=user) for user in users]
            seated = sorted(place.marker for place in places if place.role == "seated")
            assert seated == ["O", "X"]
            waiting = sorted((p.number, p.position) for p in places if p.role == "waiting")
            assert [position for _, position in waiting] == list(range(1, PEOPLE - 1))
        assert server.kills == KILLS
        assert server.stop() == 0
    assert "Traceback" not in server.log.read_text()
