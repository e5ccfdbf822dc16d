"""Two real servers on one database: what only one of them knows is asked of that one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from onceward import limits
from onceward.app import App
from onceward.engine.memory import Memory, MemoryEngine
from onceward.rooms.owners import HUBS
from onceward.web.auth import Auth
from onceward.web.server import Server
from tests.web.listening import listening
from tests.web.peer import ANSWER_S, Peer, join_large_rooms


class Pair:
    """Both servers, and rooms that each of them serves."""

    def __init__(self) -> None:
        self.apps: list[App] = []
        self.ports: list[int] = []

    def room_of(self, number: int) -> str:
        own = self.apps[number].hub.owners.own
        return next(id_ for id_ in map(str, range(1000)) if own(id_))

    async def even(self) -> bool:
        """Whether both know each other, and have a half of the slots each."""
        known = await self.apps[0].store.run(lambda tx: tx.scan(HUBS))
        shares = [len(app.node.placement.owned) for app in self.apps]
        return len(known) == 2 and shares == [2, 2]

    async def ask(self, number: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.ports[number]}/v1/rooms{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, json=body) as answer,
        ):
            return answer.status, await answer.json()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    memory, pair, changed = Memory(), Pair(), asyncio.Event()
    async with AsyncExitStack() as stack:
        for number in range(2):
            app = App(MemoryEngine(memory), name=f"node{number}", node_lease_s=4, slots=4)
            server = await stack.enter_async_context(Server(app, Auth(dev=True)))
            _, port = await stack.enter_async_context(listening(server))
            app.node.placement.on_change(lambda *_: changed.set())
            app.store.on_change(HUBS, lambda _: changed.set())
            app.hub.owners.announce(f"http://127.0.0.1:{port}")
            pair.apps.append(app)
            pair.ports.append(port)
        async with asyncio.timeout(ANSWER_S):
            while not await pair.even():
                await changed.wait()
                changed.clear()
        yield pair


async def test_people_on_both_are_in_one_room_and_http_sees_them(pair: Pair) -> None:
    room = pair.room_of(0)
    peers = [await Peer.connect(port) for port in pair.ports]
    for peer, name in zip(peers, ("ann", "ben"), strict=True):
        await peer.send({"t": "hello", "token": f"dev:{name}"})
        await peer.send({"t": "join", "room": room, "client": name, "create": True})
        await peer.until(t="snapshot")
    ann, ben = peers
    op = {"op": "map.set", "map": "m", "key": "k", "value": 1}
    await ben.send({"t": "ops", "room": room, "n": 1, "ops": [op]})
    assert (await ben.until(t="ack"))["seq"] == 1
    assert (await ann.until(t="change"))["by"] == "ben"
    await ben.send({"t": "presence.set", "room": room, "name": "here", "value": True})
    await ann.until(t="presence")
    for number in range(2):
        status, found = await pair.ask(number, "GET", f"/{room}/members")
        assert (status, [m["user"] for m in found["members"]]) == (200, ["ann", "ben"])
        _, found = await pair.ask(number, "GET", f"/{room}/presences/here")
        assert found["values"] == {"ben": True}
        said = {"event": f"e{number}"}
        assert (await pair.ask(number, "POST", f"/{room}/broadcast", said))[1] == {"members": 2}
        for peer in peers:
            assert (await peer.until(t="said"))["event"] == f"e{number}"
    status, found = await pair.ask(1, "POST", f"/{room}/broadcast", {"event": "e", "to": "nobody"})
    assert (status, found["code"]) == (404, "no_such_member")
    status, found = await pair.ask(1, "DELETE", f"/{room}/presences/here")
    assert (status, found) == (200, {"dropped": True})
    assert (await ann.until(t="gone"))["user"] == "ben"
    await ben.leave()
    await ann.until(t="went")
    await ann.leave()


async def test_nobody_else_is_taken_for_a_node(pair: Pair) -> None:
    headers = ("Authorization: Node guessed", "Onceward-User: ann")
    peer, status, _, _ = await Peer.ask(pair.ports[0], "/v1/ws", *headers)
    assert status == 401
    await peer.leave()


async def test_a_node_that_is_not_there_makes_its_rooms_wait(pair: Pair) -> None:
    room = pair.room_of(0)
    assert (await pair.ask(1, "POST", "", {"id": room}))[0] == 200
    owners, moved = pair.apps[0].hub.owners, asyncio.Event()
    await owners.close()
    pair.apps[0].store.on_change(HUBS, lambda _: moved.set())
    owners.announce("http://127.0.0.1:1")  # nobody listens there
    async with asyncio.timeout(ANSWER_S):
        await moved.wait()
    status, found = await pair.ask(1, "GET", f"/{room}/members")
    assert (status, found["code"], found["retry"]) == (503, "room_moved", True)
    peer = await Peer.connect(pair.ports[1])
    await peer.send({"t": "hello"}, {"t": "join", "room": room, "client": "c"})
    assert (await peer.until(t="left"))["code"] == "room_moved"
    await peer.leave()


async def test_large_rooms_of_another_node_can_be_joined_together_by_who_reads_slowly(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READER_BYTES_MAX", 10_000)
    await join_large_rooms(pair.ports[1], *pair.apps)
