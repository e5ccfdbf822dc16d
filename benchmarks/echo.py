"""A process that echoes its input: `python -m benchmarks.echo` prints its port.

It serves until its standard input ends, which includes the end of its parent process.
"""

import asyncio
import socket
import sys
from typing import Any

import uvloop


class Echo(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self._write = transport.write

    def data_received(self, data: bytes) -> None:
        self._write(data)


async def serve() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    server = await asyncio.get_running_loop().create_server(Echo, sock=listening)
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
