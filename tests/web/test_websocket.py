"""The WebSocket protocol on real connections, with a listener that notes what it hears."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.frames import Opcode

from onceward import limits
from onceward.errors import TABLE, BadInput, OncewardError
from onceward.rooms.wire import frame
from onceward.web.connections import Connections
from onceward.web.handshake import Admission
from onceward.web.http import Request, Response, Scope, problem
from onceward.web.websocket import WebSocket
from tests.web.listening import listening
from tests.web.peer import ANSWER_S, Closed, Peer, framed


class Ear:
    """A listener that sends back what it hears."""

    def __init__(self, wire: WebSocket) -> None:
        self.wire = wire
        self.heard: list[bytes] = []
        self.gone = asyncio.Event()
        wire.authenticate()

    def receive(self, message: bytes) -> None:
        self.heard.append(message)
        if len(message) < 1000:
            self.wire.send(frame(message))

    def drain(self) -> None:
        self.wire.close(TABLE["node_stopped"].close, "node_stopped")

    def cut_off(self) -> None:
        self.wire.close(TABLE["slow_reader"].close, "slow_reader")

    def lost(self) -> None:
        self.gone.set()


class Place:
    """A server whose application takes every connection, and keeps its ears."""

    def __init__(self) -> None:
        self.ears: list[Ear] = []
        self.connections = Connections()
        self.rate = 1e9
        self.port = 0
        self.scope: Scope | None = None
        self.refuse = False
        self.accepts = asyncio.Event()
        self.accepts.set()
        self.asked = asyncio.Event()

    @property
    def wire(self) -> WebSocket:
        """The one connection that asks or is accepted."""
        (found,) = [one for one in self.connections._all if isinstance(one, WebSocket)]
        return found

    def takes(self, descriptor: int, connections: int) -> bool:
        return True

    def vouch(self, request: Request) -> bool:
        return True

    def refusal(self, scope: Scope, error: OncewardError) -> Response:
        return problem(error)

    async def answer(self, request: Request) -> Response:
        return Response(200)

    async def admit(self, request: Request) -> Admission:
        self.scope = request.scope
        if self.refuse:
            raise BadInput("no", code="origin_refused")
        self.asked.set()
        await self.accepts.wait()
        return Admission(None, None)

    async def hear(self, wire: WebSocket, admission: Admission) -> None:
        self.ears.append(Ear(wire))
        await wire.hear(self.ears[-1], self.rate)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(ANSWER_S):
            while not holds():  # noqa: ASYNC110 - nobody else could tell
                await asyncio.sleep(0)

    async def connect(self) -> tuple[Peer, Ear]:
        peer = await Peer.connect(self.port)
        await self.until(lambda: bool(self.ears))
        return peer, self.ears[-1]


@asynccontextmanager
async def standing() -> AsyncIterator[Place]:
    place = Place()
    async with listening(place) as (_, place.port):
        yield place


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with standing() as place:
        yield place


async def test_messages_come_and_go(place: Place) -> None:
    peer, ear = await place.connect()
    await peer.send("one", "two", "drei €")
    assert [await peer.text() for _ in range(3)] == ["one", "two", "drei €"]
    assert ear.heard == [b"one", b"two", "drei €".encode()]
    await peer.leave()
    await asyncio.wait_for(ear.gone.wait(), ANSWER_S)


async def test_a_frame_of_any_size_can_be_read(place: Place) -> None:
    peer, ear = await place.connect()
    for size in (0, 125, 126, 65_535, 65_536, 200_000):
        ear.wire.send(frame(b"x" * size))
        assert len(await peer.text()) == size
    await peer.leave()


async def test_a_message_in_fragments_is_one(place: Place) -> None:
    peer, ear = await place.connect()
    await peer.raw(framed(b"a", fin=False))
    await peer.raw(framed(b"1", Opcode.PING))
    await peer.raw(framed(b"b", Opcode.CONT, fin=False) + framed(b"c", Opcode.CONT))
    assert await peer.text() == "abc"
    await peer.raw(framed(b"2", Opcode.PING) + framed(b"d"))
    await peer.text()
    assert (await peer.frame()).data == b"2"
    assert peer.pongs == [b"1"]
    assert ear.heard == [b"abc", b"d"]
    await peer.leave()


async def test_a_message_may_have_any_number_of_fragments(place: Place) -> None:
    peer, ear = await place.connect()
    await peer.raw(framed(b"", fin=False) + framed(b"x", Opcode.CONT, fin=False) * 1_000)
    await peer.raw(framed(b"y", Opcode.CONT))
    await place.until(lambda: bool(ear.heard))
    assert ear.heard == [b"x" * 1_000 + b"y"]
    await peer.leave()


async def test_what_was_sent_with_the_request_is_heard(place: Place) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        + framed(b"early")
    )
    await reader.readuntil(b"\r\n\r\n")
    peer = Peer(reader, writer)
    assert await peer.text() == "early"
    await peer.leave()


async def test_the_request_is_told_to_the_application(place: Place) -> None:
    peer = await Peer.connect(
        place.port, "/v1/ws?a=%20b", "Origin: https://x.test", "Sec-WebSocket-Protocol: a, b.c"
    )
    assert place.scope["raw_path"] == b"/v1/ws"
    assert place.scope["query_string"] == b"a=%20b"
    assert place.scope["subprotocols"] == ["a", "b.c"]
    assert (b"origin", b"https://x.test") in place.scope["headers"]
    await peer.leave()


async def test_a_request_is_refused_with_an_answer(place: Place) -> None:
    place.refuse = True
    peer, status, _, body = await Peer.ask(place.port)
    assert status == 403
    assert json.loads(body)["code"] == "origin_refused"
    await peer.leave()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("Sec-WebSocket-Version: 12", 400),
        ("Sec-WebSocket-Key: short", 400),
        ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", 400),  # twice
    ],
)
async def test_a_bad_handshake_is_refused(place: Place, line: str, status: int) -> None:
    peer, answered, _, _ = await Peer.ask(place.port, "/", line)
    assert answered == status
    assert not place.ears
    await peer.leave()


async def test_a_request_to_speak_it_comes_after_the_answer_before_it(place: Place) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n")
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    answers = await asyncio.wait_for(reader.read(), ANSWER_S)
    assert answers.startswith(b"HTTP/1.1 200")
    assert b"missing Sec-WebSocket-Key" in answers
    writer.close()
    await writer.wait_closed()


async def test_nothing_is_read_before_the_application_accepts(place: Place) -> None:
    place.accepts.clear()
    _, writer = await asyncio.open_connection("127.0.0.1", place.port)
    asked = (
        b"GET /first HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n"
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    writer.write(asked + framed(b"x" * 900_000))
    await asyncio.wait_for(place.asked.wait(), ANSWER_S)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not place.wire._transport.is_reading()
    assert len(place.wire._early) <= limits.ANONYMOUS_READ_BYTES
    place.accepts.set()
    await place.until(lambda: bool(place.ears) and bool(place.ears[0].heard))
    writer.close()
    await writer.wait_closed()


BAD = [
    pytest.param(framed(b"x" * (limits.FRAME_BYTES_MAX + 1)), 4413, id="too large"),
    pytest.param(
        framed(b"x" * (limits.FRAME_BYTES_MAX // 2), fin=False)
        + framed(b"x" * (limits.FRAME_BYTES_MAX // 2 + 1), Opcode.CONT),
        4413,
        id="too large in fragments",
    ),
    pytest.param(b"\xc1\x81abcdx", 1002, id="compressed"),
    pytest.param(framed(b"x", Opcode.BINARY), 1003, id="binary"),
    pytest.param(framed(b"x", Opcode.BINARY, fin=False), 1003, id="binary in fragments"),
    pytest.param(framed(b"x", Opcode.CONT), 1002, id="the rest of nothing"),
    pytest.param(b"\x81\x01x", 1002, id="not masked"),
    pytest.param(b"\x83\x81abcdx", 1002, id="unknown opcode"),
    pytest.param(framed(b"", fin=False) + framed(b""), 1002, id="two messages in one"),
]


@pytest.mark.parametrize(("data", "code"), BAD)
async def test_what_is_no_message_ends_the_connection(place: Place, data: bytes, code: int) -> None:
    peer, ear = await place.connect()
    await peer.send("before")
    await peer.raw(data)
    assert await peer.text() == "before"
    with pytest.raises(Closed) as closed:
        await peer.text()
    assert closed.value.code == code
    await asyncio.wait_for(ear.gone.wait(), ANSWER_S)
    assert ear.heard == [b"before"]
    await peer.leave()


async def test_the_close_code_reaches_a_peer_that_goes_on_sending(place: Place) -> None:
    # What a server leaves unread when it closes resets the connection.
    for _ in range(10):
        peer, _ = await place.connect()
        await peer.raw(framed(b"x" * (4 * limits.FRAME_BYTES_MAX)))
        assert (await peer.closed()).code == TABLE["frame_too_large"].close
        await peer.leave()


async def test_a_peer_that_sends_without_end_is_left_after_a_while(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLOSE_S", 0.1)
    monkeypatch.setattr(limits, "LINGER_BYTES_MAX", 100_000)
    peer, ear = await place.connect()
    peer.writer.write(framed(b"x" * (limits.FRAME_BYTES_MAX + 1)) + b"x" * (16 << 20))
    await asyncio.wait_for(ear.gone.wait(), ANSWER_S)
    await peer.leave()


async def test_a_bomb_is_never_unpacked(place: Place) -> None:
    peer, _, head, _ = await Peer.ask(
        place.port, "/", "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
    )
    assert "extensions" not in head.lower()
    await peer.leave()


async def test_a_reader_that_does_not_read_is_cut_off_and_others_are_not(place: Place) -> None:
    slow, slow_ear = await place.connect()
    slow.reader._transport.pause_reading()  # type: ignore[attr-defined]
    good, good_ear = await place.connect()
    shared = frame(b"x" * 50_000)
    for _ in range(400):
        slow_ear.wire.send(shared)
        good_ear.wire.send(shared)
        assert len(await good.text()) == 50_000
        assert slow_ear.wire._backlog_bytes <= limits.READER_BYTES_MAX
    assert slow_ear.wire._closing
    slow.reader._transport.resume_reading()  # type: ignore[attr-defined]
    closed = await slow.closed()
    assert closed.code in (TABLE["slow_reader"].close, 1006)
    await asyncio.wait_for(slow_ear.gone.wait(), ANSWER_S)
    await good.send("still here")
    assert await good.text() == "still here"
    await slow.leave()
    await good.leave()


async def test_one_large_message_does_not_cut_a_reader_off(place: Place) -> None:
    peer, ear = await place.connect()
    large = frame(b"x" * 8_000_000)
    ear.wire.send(large)
    ear.wire.send(frame(b"next"))
    assert len(await peer.text()) == 8_000_000
    assert await peer.text() == "next"
    await peer.leave()


async def test_nothing_is_read_while_the_listener_pauses(place: Place) -> None:
    peer, ear = await place.connect()
    ear.wire.pause()
    ear.wire.pause()
    await peer.send("waits")
    other, _ = await place.connect()
    await other.send("does not wait")
    assert await other.text() == "does not wait"
    assert ear.heard == []
    ear.wire.resume()
    assert await peer.text() == "waits"
    await peer.leave()
    await other.leave()


async def test_a_fast_sender_is_read_no_faster_than_its_rate(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.rate = 10.0
    peer, _ = await place.connect()
    held: list[str] = []
    hold = WebSocket._hold
    monkeypatch.setattr(WebSocket, "_hold", lambda wire, why: (held.append(why), hold(wire, why)))
    await peer.send(*["x"] * 11)
    for _ in range(11):
        await peer.text()
    assert held == ["rate"]
    await peer.send("later")
    assert await peer.text() == "later"  # nothing is lost
    await peer.leave()


async def test_large_messages_count_for_more(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.rate = 10.0
    peer, ear = await place.connect()
    held: list[str] = []
    hold = WebSocket._hold
    monkeypatch.setattr(WebSocket, "_hold", lambda wire, why: (held.append(why), hold(wire, why)))
    await peer.send("x" * 200_000)
    await place.until(lambda: bool(ear.heard))
    assert set(held) == {"rate"}
    await peer.leave()


async def test_a_peer_that_answers_no_ping_is_gone(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PING_S", 0.3)
    mute, ear = await place.connect()
    assert (await mute.frame()).opcode is Opcode.PING
    await asyncio.wait_for(ear.gone.wait(), ANSWER_S)
    await mute.leave()


async def test_a_peer_that_answers_pings_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PING_S", 1.0)
    peer, ear = await place.connect()
    for _ in range(2):
        ping = await peer.frame()
        assert ping.opcode is Opcode.PING
        await peer.raw(framed(bytes(ping.data), Opcode.PONG))
    assert not ear.gone.is_set()
    await peer.leave()


async def test_who_does_not_answer_the_end_is_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLOSE_S", 0.01)
    peer, ear = await place.connect()
    ear.wire.close(4400, "it is over, " + "€" * 100)
    ear.wire.close(4401, "twice is once")
    ear.wire.send(frame(b"too late"))
    frame_ = await peer.frame()
    assert (frame_.opcode, bytes(frame_.data)[:2]) == (Opcode.CLOSE, (4400).to_bytes(2))
    await asyncio.wait_for(ear.gone.wait(), ANSWER_S)
    await peer.leave()


async def test_the_peer_may_close(place: Place) -> None:
    peer, ear = await place.connect()
    await peer.raw(framed((1000).to_bytes(2) + b"bye", Opcode.CLOSE))
    assert (await peer.closed()).code == 1000
    await asyncio.wait_for(ear.gone.wait(), ANSWER_S)
    await peer.leave()


async def test_the_server_says_that_it_stops() -> None:
    async with standing() as place:
        peer, _ = await place.connect()
        closing = asyncio.create_task(peer.closed())
    assert (await closing).code == TABLE["node_stopped"].close
    await peer.leave()


@pytest.mark.parametrize("ends", [False, True])
async def test_it_is_known_when_most_was_taken(place: Place, ends: bool) -> None:
    peer, ear = await place.connect()
    await asyncio.wait_for(ear.wire.drained(), ANSWER_S)
    its = ear.wire._transport.get_extra_info("socket")
    its.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    reading = peer.reader._transport  # type: ignore[attr-defined]
    reading.pause_reading()
    ear.wire.send(frame(b"x" * 8_000_000))
    ear.wire.send(frame(b"next"))
    drained = asyncio.create_task(ear.wire.drained())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not drained.done()
    if ends:
        ear.wire.close(TABLE["node_stopped"].close, "node_stopped")
    else:
        reading.resume_reading()
        assert len(await peer.text()) == 8_000_000
    await asyncio.wait_for(drained, ANSWER_S)
    await peer.leave()
