"""The world outside: a receiver of webhooks, and a ledger of what jobs and lock holders do.

Both are in the process of the auditor, so that they note everything and are never killed. The
ledger takes a line of JSON and answers with one; the receiver speaks HTTP, and fails now and then
as receivers do: it answers with an error, answers late, or closes before it has answered.
"""

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onceward.clock import Clock
from tests.chaos.history import Call, FencedWrite, History, Visit

FAILING = 0.05
"""How many webhooks are answered with an error, how many late, and how many not at all."""
LATE_S = 0.3


class Outside:
    """Use it with `async with`."""

    def __init__(self, history: History, chance: random.Random) -> None:
        self._history = history
        self._chance = chance
        self._tokens: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self.tally: Counter[str] = Counter()

    async def __aenter__(self) -> "Outside":
        for serve in (self._serve_ledger, self._serve_hooks):
            self._servers.append(await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1_024))
        self.ledger, self.hooks = (server.sockets[0].getsockname()[1] for server in self._servers)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
        if self._serving:
            await asyncio.wait(self._serving)

    @contextmanager
    def _noted(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """While a connection is served, and whoever made it may be killed."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._writers.add(writer)
        try:
            yield
        except (OSError, EOFError):
            pass
        finally:
            self._serving.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    @property
    def url(self) -> str:
        """Where timers call."""
        return f"http://127.0.0.1:{self.hooks}/fired"

    # The ledger.

    async def _serve_ledger(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with self._noted(writer):
            while line := await reader.readline():
                if not line.endswith(b"\n"):
                    break  # whoever wrote it was killed
                writer.write(json.dumps(self._note(json.loads(line))).encode() + b"\n")
                await writer.drain()

    def _note(self, said: dict[str, Any]) -> dict[str, Any]:
        what = said["what"]
        self.tally[what] += 1
        if what == "write":
            highest = self._tokens.get(said["name"], 0)
            refused = said["token"] < highest
            self._tokens[said["name"]] = max(said["token"], highest)
            self._history.writes.append(
                FencedWrite(said["name"], said["use"], said["token"], said["sent_ns"], refused)
            )
            return {"refused": refused}
        came_ms = time.time() * 1_000
        subject, job, begun_ns = said["subject"], said["job"], said["begun_ns"]
        n, process = said.get("n", 0), said["process"]
        self._history.calls.append(Call(what, subject, job, begun_ns, came_ms, n, process))
        if what == "fired":
            self._history.visits.append(Visit(subject, job, came_ms))
        return {"receipt": len(self._history.calls)}

    # The receiver.

    async def _serve_hooks(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with self._noted(writer):
            while await self._hook(reader, writer):
                await writer.drain()

    async def _hook(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = {}
        for line in head.split("\r\n")[1:-2]:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        timer, job = headers["onceward-timer"], headers["webhook-id"]
        came_ms = time.time() * 1_000
        self._history.visits.append(Visit(timer, job, came_ms, body["number"], body["due_ms"]))
        self.tally["webhook"] += 1
        draw = self._chance.random()
        if draw < FAILING:
            return False
        status = "204 No Content"
        if draw < 2 * FAILING:
            await Clock().sleep(LATE_S)
        elif draw < 3 * FAILING:
            status = "500 Internal Server Error"
        self.tally["webhook answered"] += status.startswith("204")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        return True


async def tell(port: int, **said: Any) -> dict[str, Any]:
    """Tell the ledger something; returns what it answers. Raises `OSError` if that is lost."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(json.dumps({**said, "process": os.getpid()}).encode() + b"\n")
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise ConnectionResetError("the ledger has closed")
    answer: dict[str, Any] = json.loads(line)
    return answer
