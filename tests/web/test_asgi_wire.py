"""Rooms on a server that is mounted in another application, behind another ASGI server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from fastapi import FastAPI

from onceward import limits
from onceward.app import App
from onceward.errors import TABLE
from onceward.rooms.wire import frame
from onceward.web.asgi_wire import AsgiWire
from onceward.web.auth import Auth
from onceward.web.server import Server
from tests.web.listening import listening
from tests.web.peer import ANSWER_S, Peer

OP = {"op": "map.set", "map": "m", "key": "k", "value": 1}


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server below /onceward of an application of FastAPI, on uvicorn's own protocols."""
    async with Server(App("memory://"), Auth(dev=True)) as server:
        web = FastAPI()
        web.mount("/onceward", server)
        async with listening(web, http="httptools", ws="websockets-sansio") as (_, port):
            yield port


async def test_rooms_work_in_a_mounted_server(port: int) -> None:
    ann, ben = [await Peer.connect(port, "/onceward/v1/ws") for _ in range(2)]
    for peer, name in ((ann, "ann"), (ben, "ben")):
        await peer.send({"t": "hello", "token": f"dev:{name}"})
        await peer.send({"t": "join", "room": "r", "client": name, "create": True})
        await peer.until(t="snapshot")
    await ann.send({"t": "ops", "room": "r", "n": 1, "ops": [OP]})
    assert (await ann.until(t="ack"))["seq"] == 1
    change = await ben.until(t="change")
    assert (change["by"], change["ops"]) == ("ann", [OP])
    await ann.leave()
    await ben.until(t="went")
    await ben.send("no JSON")
    closed = await ben.closed()
    assert (closed.code, closed.reason) == (TABLE["not_json"].close, "not_json")
    await ben.leave()


async def test_a_request_elsewhere_is_refused(port: int) -> None:
    peer, status, _, _ = await Peer.ask(port, "/onceward/v1/rooms")
    assert status == 404
    await peer.leave()


class Ear:
    wire: AsgiWire

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.gone = False

    def receive(self, message: bytes) -> None:
        self.heard.append(message)

    def drain(self) -> None: ...

    def cut_off(self) -> None:
        self.wire.close(TABLE["slow_reader"].close, "slow_reader")

    def lost(self) -> None:
        self.gone = True


class Far:
    """The ASGI server's side: what comes, and what is sent."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self.sent: list[object] = []
        self.takes = asyncio.Event()
        self.takes.set()

    def text(self, text: str | None) -> None:
        self.coming.put_nowait({"type": "websocket.receive", "text": text, "bytes": b""})

    async def send(self, message: object) -> None:
        await self.takes.wait()
        self.sent.append(message)


async def hear(far: Far, ear: Ear, rate: float = 1e9) -> tuple[AsgiWire, "asyncio.Task[None]"]:
    wire = ear.wire = AsgiWire(far.coming.get, far.send)
    hearing = asyncio.create_task(wire.hear(ear, rate))
    await asyncio.sleep(0)
    return wire, hearing


@pytest.mark.parametrize(
    ("text", "code"),
    [(None, 1003), ("x" * (limits.FRAME_BYTES_MAX + 1), TABLE["frame_too_large"].close)],
)
async def test_what_is_no_message_ends_the_connection(text: str | None, code: int) -> None:
    far, ear = Far(), Ear()
    _, hearing = await hear(far, ear)
    far.text("before")
    far.text(text)
    far.text("after")
    await asyncio.wait_for(hearing, ANSWER_S)
    assert ear.heard == [b"before"]
    assert ear.gone
    assert far.sent[-1]["code"] == code  # type: ignore[index]


async def test_a_reader_that_does_not_read_is_cut_off() -> None:
    far, ear = Far(), Ear()
    far.takes.clear()
    wire, hearing = await hear(far, ear)
    for _ in range(100):
        wire.send(frame(b"x" * 50_000))
        assert wire._out_bytes <= limits.READER_BYTES_MAX + 60_000
    far.takes.set()
    await asyncio.wait_for(hearing, ANSWER_S)
    assert far.sent[-1]["reason"] == "slow_reader"  # type: ignore[index]


async def test_nothing_is_read_while_the_listener_pauses() -> None:
    far, ear = Far(), Ear()
    wire, hearing = await hear(far, ear)
    wire.pause()
    far.text("waits")
    for _ in range(10):
        await asyncio.sleep(0)
    assert ear.heard == []
    wire.resume()
    far.coming.put_nowait({"type": "websocket.disconnect"})
    await asyncio.wait_for(hearing, ANSWER_S)
    assert ear.heard == [b"waits"]
    assert ear.gone


async def test_one_who_takes_not_even_the_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLOSE_S", 0.0)
    far, ear = Far(), Ear()
    far.takes.clear()
    wire, hearing = await hear(far, ear)
    wire.send(frame(b"x"))
    wire.close(TABLE["slow_reader"].close, "slow_reader")
    await asyncio.wait_for(hearing, ANSWER_S)
    assert ear.gone
    assert far.sent == []


async def test_it_is_known_when_all_was_taken() -> None:
    far, ear = Far(), Ear()
    far.takes.clear()
    wire, hearing = await hear(far, ear)
    await asyncio.wait_for(wire.drained(), ANSWER_S)
    wire.send(frame(b"x"))
    drained = asyncio.create_task(wire.drained())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not drained.done()
    far.takes.set()
    await asyncio.wait_for(drained, ANSWER_S)
    far.coming.put_nowait({"type": "websocket.disconnect"})
    await asyncio.wait_for(hearing, ANSWER_S)
    await asyncio.wait_for(wire.drained(), ANSWER_S)
