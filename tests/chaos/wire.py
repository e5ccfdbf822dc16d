"""A port that leads to another one, until it does not: connections that are cut, deaf, mute, slow.

Bytes that are swallowed never come later: a connection that was deaf or mute once stays so until
it is cut, as one does whose packets go nowhere.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from onceward.clock import Clock

UP, DOWN = "up", "down"
"""Towards the server, and back."""
_CHUNK_BYTES = 1 << 16


class _Link:
    """One connection, and the one that it leads to."""

    def __init__(self, sides: dict[str, asyncio.StreamWriter], swallowed: set[str]) -> None:
        self.sides = sides
        """Where each direction leads."""
        self.swallowed = swallowed

    def cut(self) -> None:
        for writer in self.sides.values():
            writer.transport.abort()


class Wire:
    """Use it with `async with`. `port` stays the same, whatever becomes of the server's."""

    def __init__(self, target: int) -> None:
        self.target = target
        """The port that it leads to."""
        self.port = 0
        self.passed = 0
        """How many connections it has passed on."""
        self._delay_s = 0.0
        self._swallowed: set[str] = set()
        self._links: set[_Link] = set()
        self._clock = Clock()
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Wire":
        self._listener = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, backlog=1_024
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        while self._serving:
            await asyncio.wait(self._serving)

    def cut(self) -> int:
        """Cut all connections, for both sides; says how many there were."""
        links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    @asynccontextmanager
    async def half_open(self, direction: str, *, lasting: bool = False) -> AsyncIterator[None]:
        """Let nothing through in one direction, also on new connections. Afterwards those are cut
        that were there meanwhile; or, if it is `lasting`, they stay, and somebody has to notice."""
        self._swallowed.add(direction)
        for link in self._links:
            link.swallowed.add(direction)
        try:
            yield
        finally:
            self._swallowed.discard(direction)
            if not lasting:
                for link in list(self._links):
                    if link.swallowed:
                        link.cut()

    @asynccontextmanager
    async def delayed(self, seconds: float) -> AsyncIterator[None]:
        """Let everything take so much longer, in both directions."""
        self._delay_s = seconds
        try:
            yield
        finally:
            self._delay_s = 0.0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self.passed += 1
        link = _Link({UP: there[1], DOWN: writer}, set(self._swallowed))
        self._links.add(link)
        try:
            up = asyncio.create_task(self._pump(reader, link, UP))
            down = asyncio.create_task(self._pump(there[0], link, DOWN))
            await asyncio.wait([up, down])
        finally:
            self._links.discard(link)
            link.cut()

    async def _pump(self, reader: asyncio.StreamReader, link: _Link, direction: str) -> None:
        """Pass on what comes, and its end."""
        writer = link.sides[direction]
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if self._delay_s:
                    await self._clock.sleep(self._delay_s)
                if direction not in link.swallowed:
                    writer.write(data)
                    await writer.drain()
        # Whoever is gone is gone for the other side, too, unless it cannot hear of it.
        if direction not in link.swallowed:
            writer.close()
