"""Many clients in rooms of ten that reconnect at once after a restart of their server.

    python returning.py PORT CONNECTIONS

The first client of each room changes it a few times. The program prints `ready` when all clients
have seen the changes. Then, for each line on standard input, it waits until all clients have lost
their connection and reconnected. All must also have seen one more change, each change once and in
order. It prints one line of JSON: the time since the server was reachable again, and the number of
clients that are missing.
"""

import asyncio
import contextlib
import json
import resource
import sys
import time
from typing import Any

import uvloop

ROOM_SIZE = 10
CHANGES = 3
_HEAD = (
    b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
# Concurrent, but not all in one turn of this process's loop.
CONNECTING_MAX = 500


def framed(value: Any) -> bytes:
    """A message with a zero mask."""
    data = json.dumps(value).encode()
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2)
    return b"\x81" + size + b"\0\0\0\0" + data


class Guest(asyncio.Protocol):
    """One client, over all its connections."""

    def __init__(self, crowd: "Crowd", number: int) -> None:
        self.crowd = crowd
        self.number = number
        self.room = f"back{number // ROOM_SIZE}"
        self.epoch, self.seq, self.gaps = "", 0, 0
        self.digest = self.digest_joined = ""
        self.buffer = b""
        self.open = self.there = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.buffer, self.open = b"", False
        join = {"t": "join", "room": self.room, "client": f"c{self.number}", "create": True}
        if self.epoch:
            join |= {"epoch": self.epoch, "seq": self.seq, "digest": self.digest}
        transport.write(
            _HEAD + framed({"t": "hello", "token": f"dev:u{self.number}"}) + framed(join)
        )

    def connection_lost(self, error: Exception | None) -> None:
        if self.there:
            self.there = False
            self.crowd.here -= 1
        self.crowd.lost.put_nowait(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.open:
            _, end, rest = self.buffer.partition(b"\r\n\r\n")
            if not end:
                return
            self.open, self.buffer = True, rest
        at, buffer = 0, self.buffer
        while len(buffer) - at >= 2:
            size, start = buffer[at + 1], at + 2
            if size >= 126:
                width = 2 if size == 126 else 8
                size, start = int.from_bytes(buffer[start : start + width]), start + width
            if len(buffer) < start + size:
                break
            if buffer[at] == 0x81:
                self.take(buffer[start : start + size])
            elif buffer[at] == 0x89:
                self.transport.write(b"\x8a\x80\0\0\0\0")
            at = start + size
        self.buffer = buffer[at:]

    def take(self, message: bytes) -> None:
        if message.startswith((b'{"t":"came"', b'{"t":"went"', b'{"t":"welcome"')):
            return
        told = json.loads(message)
        if told["t"] in ("change", "ack"):
            self.gaps += told["seq"] != self.seq + 1
            self.seq, self.digest = told["seq"], told["digest"]
        elif told["t"] == "joined":
            self.epoch, self.digest_joined = told["epoch"], told.get("digest", "")
            if told.get("reset", "") not in ("", "new"):
                self.gaps += 1
            if self.number % ROOM_SIZE == 0:
                for n in range(told["n"] + 1, self.crowd.changes + 1):
                    op = {"op": "map.set", "map": "m", "key": "k", "value": n}
                    self.transport.write(
                        framed({"t": "ops", "room": self.room, "n": n, "ops": [op]})
                    )
        elif told["t"] == "snapshot":
            self.seq, self.digest = told["seq"], self.digest_joined
        if not self.there and self.seq >= self.crowd.changes:
            self.there = True
            self.crowd.here += 1
            self.crowd.news.set()


class Crowd:
    """All clients."""

    def __init__(self, port: int, size: int) -> None:
        self.port = port
        self.here = 0
        self.changes = CHANGES
        self.news = asyncio.Event()
        self.lost: asyncio.Queue[Guest] = asyncio.Queue()
        self.guests = [Guest(self, number) for number in range(size)]
        self.reached = 0.0

    async def all_here(self) -> None:
        while self.here < len(self.guests):
            self.news.clear()
            await self.news.wait()

    async def bring_back(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            guest = await self.lost.get()
            while True:
                try:
                    await loop.create_connection(lambda guest=guest: guest, "127.0.0.1", self.port)
                    self.reached = self.reached or time.monotonic()
                    break
                except OSError:
                    await asyncio.sleep(0.02)


async def main(port: int, size: int) -> None:
    crowd = Crowd(port, size)
    for guest in crowd.guests:
        crowd.lost.put_nowait(guest)
    workers = [asyncio.create_task(crowd.bring_back()) for _ in range(CONNECTING_MAX)]
    await crowd.all_here()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        crowd.changes += 1
        while crowd.here:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        crowd.reached = 0.0
        await crowd.all_here()
        took_s = time.monotonic() - crowd.reached
        gaps = sum(guest.gaps for guest in crowd.guests)
        print(json.dumps({"back": crowd.here, "seconds": took_s, "gaps": gaps}), flush=True)
    for worker in workers:
        worker.cancel()


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
