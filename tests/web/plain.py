"""HTTP without any client: a request is written to a socket, and the answer read from it."""

import asyncio
import json
import re
from typing import Any

from onceward.clock import Clock


class Plain:
    """One connection to a server, made again when it was lost."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """The status and the answer to a request, made again until there is one that is no
        trouble of the server."""
        clock = Clock()
        while True:
            try:
                status, answer = await self._ask(path, json.dumps(body).encode())
                if status < 500:
                    return status, answer
            except (EOFError, OSError):
                self.close()
            await clock.sleep(0.05)

    async def _ask(self, path: str, body: bytes) -> tuple[int, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        assert length is not None
        return int(head.split()[1]), json.loads(await reader.readexactly(int(length[1])))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None
