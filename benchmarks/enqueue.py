"""Jobs enqueued in transactions of the application, and worked off, on PostgreSQL.

16 callers insert a row of their own and enqueue a job in one transaction, for some seconds. A
worker in the same process handles the jobs at the same time. The measure is jobs per second until
the last one is handled. A server with its default settings (fsync) runs on the same machine. The
sides alternate, each in a database of its own. Sides that are not installed do not take part.

    python -m benchmarks.enqueue [--rounds 3] [--seconds 3] [SIDE…]
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from onceward.testing.postgres import PostgresServer

CALLERS = 16
BODY = {"text": "x" * 100}
TEXT = json.dumps(BODY)
WAIT_S = 120

Enqueue = Callable[[Any], Awaitable[Any]]
Handled = Callable[[int], None]


@asynccontextmanager
async def outbox(url: str, jobs: str, handled: Handled) -> AsyncIterator[Enqueue]:
    from onceward import App, sql

    connection = await asyncpg.connect(url)
    for statement in sql.statements("postgresql"):
        await connection.execute(statement)
    await connection.close()
    app = App(jobs)
    app.sql_outbox(url)

    @app.handler("bench", concurrency=64)
    async def handle(job: Any) -> str:
        handled(1)
        return str(job.body["text"][:1])

    async with app:
        yield lambda use: use.fetchval("SELECT onceward_enqueue('bench', $1)", TEXT)


@asynccontextmanager
async def onceward(url: str, handled: Handled) -> AsyncIterator[Enqueue]:
    """The jobs are in the same server."""
    async with outbox(url, f"{url}?schema=onceward", handled) as enqueue:
        yield enqueue


@asynccontextmanager
async def onceward_sqlite(url: str, handled: Handled) -> AsyncIterator[Enqueue]:
    """The jobs are in an SQLite file."""
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        async with outbox(url, f"sqlite:///{folder}/jobs.db", handled) as enqueue:
            yield enqueue


@asynccontextmanager
async def procrastinate(url: str, handled: Handled) -> AsyncIterator[Enqueue]:
    """A worker with 64 jobs at once, woken by notifications."""
    import procrastinate as library

    app = library.App(connector=library.PsycopgConnector(conninfo=url, min_size=2, max_size=16))

    @app.task(queue="bench", name="handle")
    async def handle(body: Any) -> str:
        return str(body["text"][:1])

    await app.open_async()
    await app.schema_manager.apply_schema_async()
    finish = app.job_manager.finish_job

    async def finished(*args: Any, **options: Any) -> None:
        await finish(*args, **options)
        handled(1)

    app.job_manager.finish_job = finished  # type: ignore[method-assign]
    worker = asyncio.create_task(
        app.run_worker_async(queues=["bench"], concurrency=64, install_signal_handlers=False)
    )
    arguments = json.dumps({"body": BODY})
    statement = (
        "SELECT procrastinate_defer_jobs_v1(ARRAY[ROW('bench', 'handle', 0, NULL, NULL, $1::jsonb, "
        "NULL)]::procrastinate_job_to_defer_v1[])"
    )
    try:
        yield lambda use: use.fetchval(statement, arguments)
    finally:
        worker.cancel()
        await asyncio.wait([worker])
        await app.close_async()


@asynccontextmanager
async def _pgmq(url: str, handled: Handled, batch: int) -> AsyncIterator[Enqueue]:
    import pgmq.install

    connection = await asyncpg.connect(url)
    await connection.execute(pgmq.install.get_embedded_install_sql())
    await connection.execute("SELECT pgmq.create('bench')")
    await connection.close()

    async def serve() -> None:
        own = await asyncpg.connect(url)
        read = f"SELECT * FROM pgmq.read_with_poll('bench', 60, {batch}, 5, 1)"
        try:
            while True:
                ids = [message["msg_id"] for message in await own.fetch(read)]
                await own.fetch("SELECT pgmq.delete('bench', $1::bigint[])", ids)
                handled(len(ids))
        finally:
            own.terminate()

    workers = [asyncio.create_task(serve()) for _ in range(4)]
    try:
        yield lambda use: use.fetchval("SELECT pgmq.send('bench', $1::jsonb)", TEXT)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)


@asynccontextmanager
async def pgmq_single(url: str, handled: Handled) -> AsyncIterator[Enqueue]:
    """Four workers that read and delete one message at a time; no retries, no results."""
    async with _pgmq(url, handled, 1) as enqueue:
        yield enqueue


@asynccontextmanager
async def pgmq_batch(url: str, handled: Handled) -> AsyncIterator[Enqueue]:
    """Four workers that read and delete 16 messages at a time."""
    async with _pgmq(url, handled, 16) as enqueue:
        yield enqueue


@asynccontextmanager
async def pgqueuer(url: str, handled: Handled) -> AsyncIterator[Enqueue]:
    """Batches of 100, woken by notifications."""
    import pgqueuer as library

    connection = await asyncpg.connect(url)
    queries = library.Queries(library.AsyncpgDriver(connection))
    await queries.install()
    queue = library.PgQueuer(library.AsyncpgDriver(connection))

    @queue.entrypoint("bench")
    async def handle(job: Any) -> None:
        assert json.loads(job.payload)["text"][:1] == "x"
        handled(1)

    worker = asyncio.create_task(queue.run(batch_size=100))
    payload = TEXT.encode()
    try:
        yield lambda use: library.Queries(library.AsyncpgDriver(use)).enqueue("bench", payload)
    finally:
        queue.shutdown.set()
        with suppress(Exception):
            await asyncio.wait_for(worker, 10)
        await connection.close()


@asynccontextmanager
async def dbos(url: str, handled: Handled) -> AsyncIterator[Enqueue]:
    """A queue with asynchronous workflows, enqueued by its SQL function."""
    import dbos as library

    library.DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "sys_db_pool_size": 16,
            "log_level": "ERROR",
            "application_version": "1",
        }
    )

    @library.DBOS.workflow(name="handle")
    async def handle(body: Any) -> str:
        handled(1)
        return str(body["text"][:1])

    await asyncio.to_thread(library.DBOS.launch)
    await asyncio.to_thread(library.DBOS.register_queue, "bench", polling_interval_sec=0.01)
    try:
        yield lambda use: use.fetchval(
            "SELECT dbos.enqueue_workflow('handle', 'bench', ARRAY[$1::json])", TEXT
        )
    finally:
        await asyncio.to_thread(library.DBOS.destroy)


SIDES = {
    "onceward": onceward,
    "onceward, jobs in SQLite": onceward_sqlite,
    "procrastinate": procrastinate,
    "DBOS": dbos,
    "pgqueuer": pgqueuer,
    "pgmq, one at a time": pgmq_single,
    "pgmq, batches of 16": pgmq_batch,
}


async def measure(url: str, side: Any, seconds: float) -> tuple[int, float, float]:
    """Jobs, and the seconds until all were enqueued and until all were handled."""
    count = sent = 0
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def handled(number: int) -> None:
        nonlocal count
        count += number
        loop.call_soon_threadsafe(changed.set)

    async with (
        side(url, handled) as enqueue,
        asyncpg.create_pool(url, min_size=CALLERS, max_size=CALLERS) as pool,
    ):
        await pool.execute("CREATE TABLE orders (number bigserial PRIMARY KEY, item text)")
        begun = time.perf_counter()

        async def call() -> None:
            nonlocal sent
            async with pool.acquire() as use:
                while time.perf_counter() - begun < seconds:
                    async with use.transaction():
                        await use.execute("INSERT INTO orders (item) VALUES ('lamp')")
                        await enqueue(use)
                    sent += 1

        await asyncio.gather(*[call() for _ in range(CALLERS)])
        enqueued_s = time.perf_counter() - begun
        async with asyncio.timeout(WAIT_S):
            while count < sent:
                changed.clear()
                await changed.wait()
        return sent, enqueued_s, time.perf_counter() - begun


async def in_new_database(server: PostgresServer, number: int, side: Any, seconds: float) -> Any:
    admin = await asyncpg.connect(server.url)
    await admin.execute(f"CREATE DATABASE bench_{number}")
    await admin.close()
    url = f"{server.url.rpartition('/')[0]}/bench_{number}"
    return await measure(url, side, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("sides", nargs="*", default=list(SIDES))
    options = parser.parse_args()
    found: dict[str, list[tuple[int, float, float]]] = {}
    with PostgresServer() as server:
        number = 0
        for _ in range(options.rounds):
            for name in options.sides:
                number += 1
                try:
                    one = asyncio.run(in_new_database(server, number, SIDES[name], options.seconds))
                except ModuleNotFoundError as missing:
                    print(f"{name}: not installed ({missing.name})", flush=True)
                    continue
                found.setdefault(name, []).append(one)
                jobs, enqueued_s, all_s = one
                print(f"{name}: {jobs / enqueued_s:.0f} enqueued/s, {jobs / all_s:.0f} jobs/s")
    print(f"\nmedians of {options.rounds} rounds of {options.seconds:g} s, {CALLERS} callers")
    for name, rounds in found.items():
        enqueued = statistics.median(jobs / enqueued_s for jobs, enqueued_s, _ in rounds)
        handled = statistics.median(jobs / all_s for jobs, _, all_s in rounds)
        print(f"{name:26} {enqueued:8.0f} enqueued/s {handled:8.0f} handled/s")


if __name__ == "__main__":
    main()
