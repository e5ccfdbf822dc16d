"""Endpoints in a process of their own, and what they have heard; and how to set many timers."""

import asyncio
import json
import sys
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

from onceward.app import App
from onceward.parts.timers import Call, Spec
from onceward.transaction import Transaction
from tests.server_process import ROOT, environment

# So many timers fit into one commit.
TOGETHER = 32
SETTERS = 32


class Request(NamedTuple):
    """A POST that an endpoint has got."""

    id: str
    timer: str
    at_ms: float
    endpoint: int


class Sink:
    """The process. Use it with `async with`."""

    def __init__(self, folder: Path, *hows: str) -> None:
        self._file = folder / "heard.json"
        self._hows = hows
        self.urls: list[str] = []

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.service.sink_child", *self._hows),
            stdin=pipe,
            stdout=pipe,
            cwd=ROOT,
            env=environment(),
        )
        ports = await self._line()
        self.urls = [f"http://127.0.0.1:{port}/" for port in ports.split()]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        await self._process.wait()

    async def until(self, timers: int) -> None:
        """Wait until so many different timers have called."""
        await self._ask(f"until {timers}")

    async def heard(self) -> list[Request]:
        """All that has come, in its order."""
        await self._ask(f"save {self._file}")
        return [Request(*one) for one in json.loads(self._file.read_text())]

    async def _ask(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        assert await self._line() == "done"

    async def _line(self) -> str:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the endpoints have ended by themselves"
        return line.decode().strip()


async def set_many(app: App, timers: Sequence[tuple[str, str, int]]) -> None:
    """Set timers, each with an id, a URL and a time, many in a commit."""
    waiting = iter(timers)

    async def several(some: list[tuple[str, str, int]], tx: Transaction) -> None:
        for id_, url, due_ms in some:
            await app.timers.put(Spec(Call(url), due_ms), id_, replace=False, tx=tx)

    async def setter() -> None:
        while some := list(islice(waiting, TOGETHER)):
            await app.run(partial(several, some))

    await asyncio.gather(*[setter() for _ in range(SETTERS)])
