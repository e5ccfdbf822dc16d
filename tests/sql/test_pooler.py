"""Databases of applications behind pgbouncer, whose connections change between transactions."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import psycopg
import pytest

import onceward
from onceward import sql
from onceward.testing.postgres import PostgresServer
from tests.server_process import free_port
from tests.sql.shops import make_postgres, paid

WAIT_S = 60.0
PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")


@pytest.fixture
def shop(server: PostgresServer, schema: str) -> str:
    return make_postgres(server, schema)


@pytest.fixture
def pooled(shop: str) -> Iterator[str]:
    """The URL of the shop through a pooler in transaction mode, with two connections."""
    assert PROGRAM is not None
    port, name = free_port(), shop.rpartition("/")[2]
    host = shop.rpartition("@")[2].partition("/")[0].replace(":", " port=")
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n{name} = host={host} user=postgres pool_size=2\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = transaction\n"
        )
        user = 65534 if os.geteuid() == 0 else None  # it refuses to run as root
        process = subprocess.Popen([PROGRAM, "-q", settings], user=user, stderr=subprocess.PIPE)
        try:
            url = f"postgresql://postgres@127.0.0.1:{port}/{name}"
            while True:
                assert process.poll() is None, "the pooler has ended"
                try:
                    psycopg.connect(url).close()
                    break
                except psycopg.OperationalError:
                    continue
            yield url
        finally:
            process.kill()
            process.communicate()


async def test_outboxes_and_steps_work_behind_a_pooler(pooled: str, shop: str) -> None:
    app = onceward.App("memory://", slots=1)
    app.sql_outbox(pooled)
    pool = asyncpg.create_pool(pooled, min_size=1, statement_cache_size=0)
    databases: dict[str, Any] = {"url": pooled, "schema": f"{pooled}?schema=public", "pool": pool}

    async def pay(connection: Any, name: str) -> str:
        await connection.execute("INSERT INTO paid (job) VALUES ($1)", name)
        return name

    @app.handler("q", attempts_max=1)
    async def work(job: onceward.Job) -> None:
        for number in range(3):
            step = f"{job.body} {number}"
            await job.sql_step(databases[job.body], pay, step, name=step)

    async with pool, app, asyncio.timeout(WAIT_S):
        for name in databases:
            async with pool.acquire() as connection, connection.transaction():
                message = await sql.enqueue_async(connection, "q", name)
            while (receipt := await _receipt(app, message)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0)
            job = await app.wait(receipt.id)
            assert job.state == "succeeded", job.reason
        assert list(app.alarms) == []
    assert sorted(map(str, paid(shop))) == sorted(
        f"{name} {number}" for name in databases for number in range(3)
    )


async def _receipt(app: onceward.App, message: str) -> Any:
    return await app.store.run(lambda tx: app.inbox.find(tx, "q", message))
