"""A real server in a process of its own, and plain connections to it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
ANSWER_S = 30


class Served:
    """`onceward serve`, until it is told to stop."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port

    async def connect(self) -> "Connection":
        return Connection(*await asyncio.open_connection("127.0.0.1", self.port))

    async def stop(self) -> int:
        """Tell it to stop; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), ANSWER_S)


class Connection:
    """Sends bytes as they are, and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def ask(self, method: str, path: str, body: Any = None) -> None:
        """Send a whole request."""
        raw = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n\r\n"
        await self.send(head.encode() + raw)

    async def answer(self) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        async with asyncio.timeout(ANSWER_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(re.findall(r"content-length: (\d+)", head)[0])
            body = await self.reader.readexactly(length)
        return int(head.split()[1]), json.loads(body)

    async def ended(self) -> bool:
        """Wait for the end of the connection; says whether nothing came before."""
        try:
            return await asyncio.wait_for(self.reader.read(), ANSWER_S) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


def start(folder: Path, *arguments: str) -> "tuple[subprocess.Popen[str], int]":
    """The same for tests without an event loop: the process, once it serves, and its port."""
    process = subprocess.Popen(
        (sys.executable, "-m", "onceward", "serve", "--port", "0", *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, _port(process.stdout.readline())


async def launch(folder: Path, *arguments: str, **environment: str) -> Process:
    """Start `onceward serve` in a folder."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "onceward", "serve", "--port", "0", *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )


async def listening(process: Process) -> Served:
    """Wait until it says where it serves."""
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), ANSWER_S)).decode()
    return Served(process, _port(line))


def _port(line: str) -> int:
    found = re.search(r"at http://\S+:(\d+) ", line)
    assert found is not None, f"it did not start: {line!r}"
    return int(found[1])


@asynccontextmanager
async def served(folder: Path, *arguments: str, **environment: str) -> AsyncIterator[Served]:
    """A server that runs while the context does."""
    process = await launch(folder, *arguments, **environment)
    try:
        yield await listening(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
