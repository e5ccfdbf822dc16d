"""A server on a disk that stands still for a while: it is not ready, but alive, and goes on."""

import asyncio
import threading
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from onceward.app import App
from onceward.clock import Clock
from onceward.engine.sqlite import SQLiteEngine
from onceward.engine.sqlite.disk import Disk
from tests.client.served import Served


class Stalling(Disk):
    """Makes nothing durable while it is told to wait."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        self.goes = threading.Event()
        self.goes.set()

    def write_durably(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        if not self.goes.is_set():
            self.waits.set()
            self.goes.wait()
        super().write_durably(fd, data, offset)


def slow(path: Path, disk: Disk) -> App:
    """An application whose writes seem to take a second each: so they are made in a thread."""
    seconds = count()
    engine = SQLiteEngine(str(path), disk=disk, elapsed_ns=lambda: next(seconds) * 1_000_000_000)
    return App(engine, slots=4)


async def call(session: aiohttp.ClientSession, method: str, path: str) -> tuple[int, Any]:
    async with session.request(method, path, json={"body": 1, "key": path}) as response:
        return response.status, await response.json()


async def test_a_disk_that_stands_still_makes_it_unready_until_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.limits.PROBE_S", 0.1)
    disk = Stalling()
    async with (
        asyncio.timeout(50),
        Served(slow(tmp_path / "app.db", disk)) as served,
        aiohttp.ClientSession(served.url) as session,
    ):
        assert (await call(session, "POST", "/v1/inbox/mail"))[0] == 202
        disk.goes.clear()
        try:
            sending = asyncio.create_task(call(session, "POST", "/v1/inbox/post"))
            await asyncio.to_thread(disk.waits.wait)
            status, problem = await call(session, "GET", "/readyz")
            assert (status, problem["code"]) == (503, "engine_unreachable")
            assert problem["detail"].endswith("did not respond within 0.1 s; check the database")
            assert (await call(session, "GET", "/healthz"))[0] == 200
            assert not sending.done()
        finally:
            disk.goes.set()
        assert (await sending)[0] == 202
        monkeypatch.setattr("onceward.limits.PROBE_S", 40)
        # The last result is shared for a while.
        while (await call(session, "GET", "/readyz"))[0] != 200:
            await Clock().sleep(0.05)
