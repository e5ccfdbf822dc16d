"""Endpoints in a process of their own, and what they have heard; and how to set many timers."""

import asyncio
import json
import sys
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

from onceward import engine as engines
from onceward import limits
from onceward.clock import Clock
from onceward.engine.base import Put
from onceward.json_values import encode
from onceward.schedule import Schedule
from onceward.store import Store
from onceward.webhooks.timers import TIMER_DUE, Call, Spec, TimerTable
from onceward.webhooks.timers.records import Timer, mark_of, timer_entry, timer_key
from tests.server_process import ROOT, environment

WRITERS = 16


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
            *(sys.executable, "-m", "tests.webhooks.sink_child", *self._hows),
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

    async def until(self, requests: int) -> None:
        """Wait until so many have come."""
        await self._ask(f"until {requests}")

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


async def fill(database: Path | str, timers: Iterable[tuple[str, str, int]]) -> None:
    """Write timers, each with an id, a URL and a time, to a database that nobody uses, a file or an
    address: records as
    `onceward.webhooks.timers` writes them, as many in a commit as fit."""
    now_ms, slots = Clock().now_ms(), limits.SLOTS_DEFAULT
    due = encode(TIMER_DUE, ("due", "kind"))
    address = database if isinstance(database, str) else f"sqlite:///{database}"
    engine = await engines.create(address).open()

    def records(id_: str, url: str, due_ms: int) -> list[Put]:
        spec = Spec(Call(url), due_ms)
        timer = Timer(spec, due_ms, now_ms, mark_of(spec))
        key = timer_key("", id_, slots)
        return [Put(key, encode(timer, key)), Put(timer_entry("", id_, timer, slots), due)]

    waiting = iter(timers)

    async def write() -> None:
        while some := list(islice(waiting, limits.COMMIT_WRITES_MAX // 2)):
            await engine.commit([put for one in some for put in records(*one)], now_ms)

    await asyncio.gather(*[write() for _ in range(WRITERS)])
    await engine.close()


async def statuses(path: Path, ids: Iterable[str]) -> dict[str, str]:
    """What has become of timers, in a database that nobody uses."""
    engine = await engines.create(f"sqlite:///{path}").open()
    store = Store(engine)
    part = TimerTable(Schedule(store.ids, limits.SLOTS_DEFAULT))
    found = {}
    for id_ in ids:
        found[id_] = (await store.run(partial(part.get, id_=id_))).status
    await engine.close()
    return found
