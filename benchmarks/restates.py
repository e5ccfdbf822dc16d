"""Restate: its server, and a service in the process that calls it.

`accept` sends to a service. `work` calls it and waits. `ordered` calls an object for each key,
which processes one call at a time. A timer is a send with a delay.
"""

import asyncio
import json
import os
from pathlib import Path
from time import time
from typing import Any

from benchmarks import punctual
from benchmarks.measure import BODY, ORDER_KEYS, caller_number
from benchmarks.servers import Server, free_port

CALLERS = 64
# The delay of calls that should not run: a day.
NEVER_MS = 24 * 3_600_000
READY_S = 30.0
SERVER = (
    Path(__file__).parent.parent
    / ".venv-node/node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
)


class Restate:
    """A single node with one log, which is the default."""

    durable = (
        "accept: the call is in the server's log (RocksDB with a synced write-ahead "
        "log); work and ordered: its result is synced as well; an interrupted call is "
        "retried"
    )

    def __init__(self, url: str, callers: int) -> None:
        self.folder = url
        self.callers = callers

    async def open(self, measure: str) -> None:
        import aiohttp

        if not SERVER.exists():
            raise RuntimeError("restate-server is not installed; run scripts/npm-bench.sh")
        ports = {name: free_port() for name in ("ingress", "admin", "node", "service")}
        environment = {
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ports['ingress']}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{ports['admin']}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{ports['node']}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{ports['node']}",
            "RESTATE_BASE_DIR": str(self.folder),
            "RESTATE_LOG_FILTER": "error",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "1",
            "HOME": os.environ.get("HOME", "/tmp"),
        }
        self.server = await asyncio.to_thread(
            Server, [str(SERVER)], self.folder, ports["ingress"], environment
        )
        self.stopped = asyncio.Event()
        self.service = asyncio.create_task(self._serve(ports["service"]))
        # Shorter than the idle timeout of servers: they could close a connection as it is reused.
        connector = aiohttp.TCPConnector(limit=max(self.callers, CALLERS), keepalive_timeout=1.0)
        self.http = aiohttp.ClientSession(
            f"http://127.0.0.1:{ports['ingress']}", connector=connector
        )
        async with asyncio.timeout(READY_S):
            await self._register(ports)

    async def _serve(self, port: int) -> None:
        import hypercorn
        import hypercorn.asyncio
        import restate

        service, line = restate.Service("Bench"), restate.VirtualObject("Line")
        active: set[str] = set()

        @service.handler()
        async def handle(ctx: restate.Context, body: Any) -> str:
            return str(body["text"][:1])

        @service.handler()
        async def fire(ctx: restate.Context, number: int) -> None:
            punctual.fires.add(number)

        @line.handler()
        async def one(ctx: restate.ObjectContext, body: Any) -> str:
            assert ctx.key() not in active, "two calls of one key run at once"
            active.add(ctx.key())
            await asyncio.sleep(0)
            active.remove(ctx.key())
            return str(body["text"][:1])

        config = hypercorn.Config()
        config.bind = [f"127.0.0.1:{port}"]
        config.loglevel = "ERROR"
        await hypercorn.asyncio.serve(
            restate.app([service, line]),  # type: ignore[arg-type]
            config,
            shutdown_trigger=self.stopped.wait,
        )

    async def _register(self, ports: dict[str, int]) -> None:
        body = {"uri": f"http://127.0.0.1:{ports['service']}", "force": True}
        while True:
            try:
                url = f"http://127.0.0.1:{ports['admin']}/deployments"
                async with self.http.post(url, json=body) as answer:
                    if answer.status < 300:
                        return
                    found = await answer.text()
                    if answer.status < 500:
                        raise RuntimeError(f"restate-server rejects the service: {found[:200]}")
            except OSError:
                pass
            await asyncio.sleep(0.05)

    async def _post(self, path: str, body: Any, key: str = "") -> Any:
        headers = {"content-type": "application/json"}
        if key:
            headers["idempotency-key"] = key
        async with self.http.post(path, data=json.dumps(body), headers=headers) as answer:
            found = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{answer.status}: {found.decode()[:200]}")
            return json.loads(found) if found else None

    async def accept(self, name: str) -> None:
        await self._post(f"/Bench/handle/send?delay={NEVER_MS}ms", BODY, name)

    async def work(self, name: str) -> None:
        assert await self._post("/Bench/handle", BODY, name) == "x"

    async def ordered(self, name: str) -> None:
        key = caller_number(name) % ORDER_KEYS
        assert await self._post(f"/Line/{key}/one", BODY, name) == "x"

    async def set(self, timers: list[punctual.Timer]) -> None:
        waiting = iter(timers)

        async def caller() -> None:
            for number, due_ms in waiting:
                delay_ms = max(due_ms - int(time() * 1000), 0)
                await self._post(f"/Bench/fire/send?delay={delay_ms}ms", number)

        await asyncio.gather(*[caller() for _ in range(CALLERS)])

    async def fill(self, count: int) -> None:
        """Send a number of calls that are due in a day."""
        waiting = iter(range(count))

        async def caller() -> None:
            for number in waiting:
                await self.accept(f"waiting-{number}")

        await asyncio.gather(*[caller() for _ in range(CALLERS)])

    async def close(self) -> None:
        await self.http.close()
        await asyncio.to_thread(
            self.server.stop
        )  # first, since the service waits for its connections
        self.stopped.set()
        await asyncio.wait([self.service], timeout=5)
