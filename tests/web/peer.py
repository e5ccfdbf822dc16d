"""The far end of a WebSocket connection, which can send whatever it likes."""

import asyncio
import json
import socket
from typing import Any

from websockets.frames import Close, Frame, Opcode

from onceward.app import App
from onceward.store.transaction import Transaction

ANSWER_S = 30
_HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
)


class Closed(Exception):
    """The server has closed the connection."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


class Peer:
    """Sends frames as they are told, and reads those of the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.pongs: list[bytes] = []

    @classmethod
    async def ask(
        cls, port: int, path: str = "/v1/ws", *headers: str
    ) -> "tuple[Peer, int, str, bytes]":
        """Ask to speak WebSocket: also the status, head and body of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        more = "".join(f"{header}\r\n" for header in headers)
        writer.write(_HANDSHAKE.format(path=path, port=port, more=more).encode())
        async with asyncio.timeout(ANSWER_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            status = int(head.split()[1])
            body = b"" if status == 101 else await reader.read()
        return cls(reader, writer), status, head, body

    @classmethod
    async def connect(cls, port: int, path: str = "/v1/ws", *headers: str) -> "Peer":
        peer, status, head, body = await cls.ask(port, path, *headers)
        assert status == 101, (head, body)
        return peer

    async def send(self, *messages: Any) -> None:
        """Each as a text message: text as it is, anything else as JSON."""
        for message in messages:
            text = message if isinstance(message, str) else json.dumps(message)
            self.writer.write(framed(text.encode()))
        await self.writer.drain()

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        try:
            await self.writer.drain()
        except ConnectionError:
            pass  # the server has had enough

    async def frame(self) -> Frame:
        """The next frame, whatever it is. Raises `Closed` with 1006 if none comes."""
        try:
            async with asyncio.timeout(ANSWER_S):
                first, second = await self.reader.readexactly(2)
                size_bytes = second & 0x7F
                if size_bytes >= 126:
                    width = 2 if size_bytes == 126 else 8
                    size_bytes = int.from_bytes(await self.reader.readexactly(width))
                data = await self.reader.readexactly(size_bytes)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Closed(1006) from error
        assert not second & 0x80, "a server does not mask"
        return Frame(Opcode(first & 0x0F), data, fin=bool(first & 0x80))

    async def text(self) -> str:
        """The next message. Pings are answered. Raises `Closed`."""
        while True:
            frame = await self.frame()
            if frame.opcode is Opcode.TEXT:
                assert frame.fin
                return bytes(frame.data).decode()
            if frame.opcode is Opcode.PONG:
                self.pongs.append(bytes(frame.data))
            elif frame.opcode is Opcode.PING:
                await self.raw(framed(bytes(frame.data), Opcode.PONG))
            elif frame.opcode is Opcode.CLOSE:
                close = Close.parse(bytes(frame.data))
                await self.raw(framed(bytes(frame.data), Opcode.CLOSE))
                raise Closed(close.code, close.reason)

    async def receive(self) -> Any:
        """The next message, as JSON. Raises `Closed`."""
        return json.loads(await self.text())

    async def until(self, **members: Any) -> Any:
        """The next message that has these members; those before it are passed over."""
        while True:
            message = await self.receive()
            if all(message.get(name) == value for name, value in members.items()):
                return message

    async def closed(self) -> Closed:
        """Read until the server closes; says how."""
        while True:
            try:
                await self.text()
            except Closed as closed:
                return closed

    async def leave(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


async def join_large_rooms(port: int, *apps: App) -> None:
    """Make large rooms that the first application serves, and join them all at once at the port
    of the last one: nothing is read until no more can be under way, and then all must come."""
    own = apps[0].hub.owners.own
    rooms = [id_ for id_ in map(str, range(1_000)) if own(id_)][:20]
    for id_ in rooms:

        async def fill(tx: Transaction, id_: str = id_) -> None:
            await apps[0].rooms.create(tx, id_)
            await apps[0].rooms.map_set(tx, id_, "m", "k", "x" * 200_000)

        await apps[0].run(fill)
    peer = await Peer.connect(port)
    await peer.send({"t": "hello"})
    await peer.until(t="welcome")
    [session] = apps[-1].hub.sessions
    # The network itself keeps little, whatever the machine is set to.
    its = session._wire._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    its.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    reading = peer.reader._transport  # type: ignore[attr-defined]
    reading.pause_reading()
    await peer.send(*[{"t": "join", "room": id_, "client": "c"} for id_ in rooms])
    async with asyncio.timeout(ANSWER_S):
        while not session._wire._full:  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0)
    for _ in range(500):  # whoever would go on to the next room has gone on
        await asyncio.sleep(0)
    reading.resume_reading()
    for id_ in rooms:
        assert (await peer.until(t="joined"))["room"] == id_
        assert len((await peer.until(t="snapshot"))["maps"]["m"]["k"]) == 200_000
    await peer.leave()


def framed(data: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    """A frame from a client."""
    return Frame(opcode, data, fin=fin).serialize(mask=True)
