"""Clients of a room whose database fails over to a standby that lacks some of its steps."""

import asyncio
import json

import aiohttp

from onceward.app import App
from onceward.client.rooms.live import Live
from onceward.client.rooms.room import Room
from onceward.clock import Clock
from onceward.errors import OutcomeUnknown, Unavailable
from onceward.store.transaction import Transaction
from tests.client.served import Served
from tests.failover import Servers, address


class Gate(Clock):
    """Does not come back before it may, nor ever asks for a sign of life."""

    def __init__(self) -> None:
        super().__init__()
        self.back = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await (self.back.wait() if seconds < 15 else asyncio.Event().wait())


async def told(room: Room, key: str) -> None:
    """Wait until the room has something under a key."""
    changed = asyncio.Event()
    end = room.map("m").subscribe(lambda value, who: changed.set())
    while key not in room.map("m"):
        changed.clear()
        await changed.wait()
    end()


async def test_clients_converge_after_a_failover_that_lost_steps(
    servers: Servers, schema: str
) -> None:
    """They have a lost step at the position where another step stands now."""
    standby, gate = servers.follow(), Gate()
    app = App(address(schema, servers.primary, standby), slots=4)
    async with (
        Served(app) as served,
        Live(served.url, clock=gate) as staying,
        Live(served.url, clock=gate) as leaving,
    ):
        ann = await staying.join("board", create=True)
        ben = await leaving.join("board")
        await ann.map("m").set("kept", 1)
        standby.catch_up()
        standby.cut_off()
        await ann.map("m").set("lost", 1)
        await told(ben, "lost")
        assert ann.position[1] == ben.position[1] == 2
        leaving.restart()
        servers.fail_over(standby)
        await set_new(app)
        gate.back.set()
        for room in (ann, ben):
            await told(room, "new")
        await ann.map("m").set("more", 1)
        await told(ben, "more")
        assert ann.map("m").whole() == ben.map("m").whole() == {"kept": 1, "new": 1, "more": 1}
        assert ann.position == ben.position
        await see_alarm(served.url)


async def see_alarm(url: str) -> None:
    """Operators see what was lost at all the places where they look."""
    async with aiohttp.ClientSession(url) as session:
        texts = {}
        for path in ("/readyz", "/metrics", "/v1/overview"):
            async with session.get(path) as response:
                texts[path] = await response.text()
    # The outbox in the same database has an alarm as well, until it has connected again.
    alarms = json.loads(texts["/readyz"])["alarms"]
    assert {alarm["code"] for alarm in alarms} - {"outbox_unavailable"} == {"commits_lost"}
    assert 'onceward_alarm{code="commits_lost"} 1' in texts["/metrics"]
    seen = [a for a in json.loads(texts["/v1/overview"])["attention"] if a["kind"] == "alarm"]
    assert "accept_lost_commits()" in str(seen)


async def set_new(app: App) -> None:
    """Another step, from a handler."""

    async def set_(tx: Transaction) -> None:
        await app.rooms.map_set(tx, "board", "m", "new", 1)

    while True:
        try:
            return await app.run(set_)
        except (Unavailable, OutcomeUnknown):
            await asyncio.sleep(0)
