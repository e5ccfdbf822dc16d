"""A proxy for PostgreSQL that counts the messages of both directions, and cuts at one of them."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

# A client's first requests, for encryption, which the proxy denies.
_ENCRYPTION = (80877103, 80877104)


class Cutter:
    """Cuts one connection at the message with a number, counted over all connections. The message
    itself arrives if `after` is true. `passed` has the letters of the messages until then."""

    def __init__(self, server_port: int, number: int, *, after: bool) -> None:
        self.passed = ""
        self.cut = False
        self._server_port = server_port
        self._number = number
        self._after = after
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return int(self._listener.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        pumps = [
            asyncio.create_task(self._pump(reader, up_writer, writer, asks=True)),
            asyncio.create_task(self._pump(up_reader, writer, up_writer, asks=False)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)
            for side in (writer, up_writer):
                side.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        *,
        asks: bool,
    ) -> None:
        with suppress(EOFError, OSError):
            while asks:  # the first messages of a client have no letter
                head = await reader.readexactly(4)
                message = head + await reader.readexactly(int.from_bytes(head) - 4)
                if int.from_bytes(message[4:8]) not in _ENCRYPTION:
                    writer.write(message)
                    break
                back.write(b"N")
            while True:
                head = await reader.readexactly(5)
                message = head + await reader.readexactly(int.from_bytes(head[1:]) - 4)
                cuts = not self.cut and len(self.passed) == self._number
                if not self.cut:
                    self.passed += chr(head[0])
                if cuts:
                    self.cut = True
                    if self._after:
                        writer.write(message)
                        await writer.drain()
                        writer.close()  # what was written arrives before the end
                    return
                writer.write(message)
                await writer.drain()
