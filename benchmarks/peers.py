"""Job queues that run in one process, or on PostgreSQL.

Each side uses a separate database and has two measures. `accept` returns once a job is durable.
`work` sends a job, and returns after a handler has run it. Callers are tasks or threads, as is
usual for the side. All have the fastest options with synced commits; `durable` describes the
guarantee.
"""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.measure import BODY, THREADS, body_of, plain

CONNECTIONS_MAX = 16
POLL_S = 0.0005
# Far more than a run takes.
WAIT_S = 60


class Huey:
    """SqliteHuey with WAL and fsync, called by threads. Its worker is a thread of the same process,
    and polls every half a millisecond."""

    durable = (
        "accept: the task is synced; work: it is deleted and synced before it runs, "
        "so a crash loses it; no result is stored"
    )
    results = False
    threads = 1

    def __init__(self, url: str, callers: int) -> None:
        from huey import SqliteHuey

        self.path = url.removeprefix("sqlite:///")
        self.huey = SqliteHuey(
            filename=self.path, fsync=True, journal_mode="wal", results=self.results, timeout=WAIT_S
        )
        self.ended: dict[str, Callable[[], None]] = {}
        self.stopped = threading.Event()
        self.workers: list[threading.Thread] = []
        self.body = BODY
        self.handle = self.huey.task(name="handle")(plain)

    def open(self, measure: str) -> None:
        from huey.consumer import Worker
        from huey.signals import SIGNAL_COMPLETE

        @self.huey.signal(SIGNAL_COMPLETE)
        def complete(signal: str, task: Any) -> None:
            self.ended.pop(task.id)()

        def run() -> None:
            worker = Worker(self.huey, self.stopped, POLL_S, POLL_S, 1.0)
            while not self.stopped.is_set():
                worker.loop()

        if measure not in ("accept", "fill"):
            self.body = body_of(measure)
            self.workers = [threading.Thread(target=run) for _ in range(self.threads)]
            for worker in self.workers:
                worker.start()

    def accept(self, key: str) -> None:
        self.huey.enqueue(self.handle.s(BODY))

    def fill(self, count: int) -> None:
        """Insert rows of a queue without workers, in its own format."""
        data = self.huey.serialize_task(self.handle.s(BODY))
        rows = ((f"{self.huey.name}-waiting", data, 0.0) for _ in range(count))
        sql = "INSERT INTO task (queue, data, priority) VALUES (?, ?, ?)"
        with sqlite3.connect(self.path) as database:
            database.executemany(sql, rows)
        database.close()

    def work(self, key: str) -> None:
        ended = threading.Event()
        self._start(ended.set)
        assert ended.wait(WAIT_S)

    def _start(self, ended: Callable[[], None]) -> None:
        task = self.handle.s(self.body)
        self.ended[task.id] = ended
        self.huey.enqueue(task)

    def close(self) -> None:
        self.stopped.set()
        for worker in self.workers:
            worker.join()


class HueyThreads(Huey):
    """The same with eight threads, as `huey_consumer.py -k thread -w 8` has them."""

    threads = THREADS


class HueyOnLoop:
    """The same, called by tasks of one thread.

    Each blocks the others during its commit, so they do not compete for the interpreter and for the
    lock of the storage.
    """

    durable = Huey.durable

    def __init__(self, url: str, callers: int) -> None:
        self.inner = Huey(url, callers)

    async def open(self, measure: str) -> None:
        self.inner.open(measure)

    async def accept(self, key: str) -> None:
        await asyncio.sleep(0)  # the wait for other callers counts as well
        self.inner.accept(key)

    async def work(self, key: str) -> None:
        await asyncio.sleep(0)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self.inner._start(lambda: loop.call_soon_threadsafe(ended.set))
        async with asyncio.timeout(WAIT_S):
            await ended.wait()

    async def close(self) -> None:
        self.inner.close()


class HueyResults(Huey):
    """The same, with results."""

    durable = (
        "work: the task is deleted before it runs, and its result is stored "
        "afterwards, both synced; a crash in between loses it"
    )
    results = True
    measures = ("work",)  # `accept` is the same


class HueyThreadsResults(HueyThreads):
    """Eight threads, with results."""

    durable = HueyResults.durable
    results = True


class DBOS:
    """Workflows without steps, run in threads of the same process. A client enqueues them, so that
    `accept` is measured alone. For `work` they are started directly, without a queue, which would
    need a third commit and polling."""

    durable = (
        "accept: the enqueued workflow is synced; work: the workflow and its result "
        "are synced, and an interrupted workflow is resumed"
    )
    connections = CONNECTIONS_MAX

    def __init__(self, url: str, callers: int) -> None:
        self.url = url
        self.callers = callers

    def open(self, measure: str) -> None:
        import dbos

        # DBOS needs some connections for itself.
        connections = max(min(self.callers, self.connections), 4)
        self.dbos = dbos.DBOS(
            config={
                "name": "bench",
                "system_database_url": self.url,
                "sys_db_pool_size": connections,
                "log_level": "ERROR",
            }
        )

        @dbos.DBOS.workflow()
        def handle(body: Any) -> str:
            return body["text"][:1]

        self.handle = handle
        self.start = dbos.DBOS.start_workflow
        self.destroy = dbos.DBOS.destroy
        dbos.DBOS.launch()
        self.client = dbos.DBOSClient(
            system_database_url=self.url, system_database_pool_size=connections
        )
        self.options = {"workflow_name": "handle", "queue_name": "nobody"}

    def accept(self, key: str) -> None:
        self.client.enqueue(self.options, BODY)

    def work(self, key: str) -> None:
        assert self.start(self.handle, BODY).get_result() == "x"

    def close(self) -> None:
        self.client.destroy()
        self.destroy()


class DBOSOnSQLite(DBOS):
    """With a WAL, which DBOS does not enable by default, and few connections, since they wait for
    each other by polling."""

    connections = 4

    def __init__(self, url: str, callers: int) -> None:
        super().__init__(url, callers)
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            database.execute("PRAGMA journal_mode = wal")
        database.close()


class DBOSFanOut:
    """A workflow that enqueues children on a queue and waits for their handles, as the tutorial on
    queues shows it, with asynchronous workflows. The queue polls every 10 ms."""

    durable = (
        "each child is a workflow in a queue; its start and result are synced, and an interrupted "
        "one is resumed"
    )

    def __init__(self, url: str, callers: int) -> None:
        self.url = url

    async def open(self, measure: str) -> None:
        import dbos

        self.dbos = dbos.DBOS
        dbos.DBOS(
            config={
                "name": "bench",
                "system_database_url": self.url,
                "sys_db_pool_size": CONNECTIONS_MAX,
                "log_level": "ERROR",
            }
        )

        @dbos.DBOS.workflow()
        async def child(body: Any) -> str:
            return body["text"][:1]

        @dbos.DBOS.workflow()
        async def parent(children: int) -> int:
            handles = [
                await dbos.DBOS.enqueue_workflow_async("bench", child, BODY)
                for _ in range(children)
            ]
            found = [await handle.get_result() for handle in handles]
            assert found == ["x"] * children
            return children

        self.parent = parent
        await asyncio.to_thread(dbos.DBOS.launch)
        await asyncio.to_thread(dbos.DBOS.register_queue, "bench", polling_interval_sec=0.01)

    async def fan_out(self, name: str, children: int) -> None:
        handle = await self.dbos.start_workflow_async(self.parent, children)
        assert await handle.get_result() == children

    async def close(self) -> None:
        await asyncio.to_thread(self.dbos.destroy)


class Procrastinate:
    """The async connector, and a worker in the same process, woken by notifications."""

    durable = (
        "accept: the job is synced; work: its start and end are synced as well, but "
        "no result is stored; an interrupted job stays as it is until somebody "
        "retries it"
    )

    def __init__(self, url: str, callers: int) -> None:
        import procrastinate

        self.callers = callers
        connector = procrastinate.PsycopgConnector(
            conninfo=url, min_size=2, max_size=min(callers, CONNECTIONS_MAX) + 2
        )
        self.app = procrastinate.App(connector=connector)
        self.ended: dict[int, asyncio.Event] = {}
        self.worker: asyncio.Task[None] | None = None

    async def open(self, measure: str) -> None:
        @self.app.task(queue="bench")
        async def handle(body: Any) -> str:
            return body["text"][:1]

        self.handle = handle
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()
        if measure == "work":
            self._tell_ends()
            self.worker = asyncio.create_task(
                self.app.run_worker_async(
                    queues=["bench"],
                    concurrency=max(self.callers, 16),
                    install_signal_handlers=False,
                    fetch_job_polling_interval=1.0,
                )
            )

    def _tell_ends(self) -> None:
        finish = self.app.job_manager.finish_job

        async def finish_and_tell(job: Any, *args: Any, **options: Any) -> None:
            await finish(job, *args, **options)
            self._ended(job.id).set()

        self.app.job_manager.finish_job = finish_and_tell

    def _ended(self, id_: int) -> asyncio.Event:
        return self.ended.setdefault(id_, asyncio.Event())

    async def accept(self, key: str) -> None:
        await self.handle.defer_async(body=BODY)

    async def work(self, key: str) -> None:
        id_ = await self.handle.defer_async(body=BODY)
        async with asyncio.timeout(WAIT_S):
            await self._ended(id_).wait()
        del self.ended[id_]

    async def close(self) -> None:
        if self.worker is not None:
            self.worker.cancel()
            await asyncio.wait([self.worker])
        await self.app.close_async()


class Pgmq:
    """The SQL-only installation, with asyncpg. Workers read up to 16 messages at once and delete
    them together; they wait by polling in the server."""

    durable = (
        "accept: the message is synced; work: its read and its deletion are synced, "
        "up to 16 messages in a commit; no result is stored; an interrupted message "
        "is read again"
    )
    workers_count = 4
    batch = 16

    def __init__(self, url: str, callers: int) -> None:
        self.url = url
        self.callers = callers
        self.ended: dict[int, asyncio.Event] = {}
        self.workers: list[asyncio.Task[None]] = []

    async def open(self, measure: str) -> None:
        import asyncpg
        import pgmq.install

        self.pool = await asyncpg.create_pool(
            self.url,
            min_size=min(self.callers, CONNECTIONS_MAX),
            max_size=min(self.callers, CONNECTIONS_MAX),
            reset=_nothing,
        )
        async with self.pool.acquire() as connection:
            await connection.execute(pgmq.install.get_embedded_install_sql())
            await connection.execute("SELECT pgmq.create('bench')")
        if measure == "work":
            for _ in range(min(self.callers, self.workers_count)):
                connection = await asyncpg.connect(self.url)
                self.workers.append(asyncio.create_task(self._serve(connection)))

    async def _serve(self, connection: Any) -> None:
        read = f"SELECT * FROM pgmq.read_with_poll('bench', 60, {self.batch}, 5, 1)"
        try:
            while True:
                messages = await connection.fetch(read)
                ids = [message["msg_id"] for message in messages]
                for message in messages:
                    assert json.loads(message["message"])["text"][:1] == "x"
                await connection.fetch("SELECT pgmq.delete('bench', $1::bigint[])", ids)
                for id_ in ids:
                    self._ended(id_).set()
        finally:
            connection.terminate()

    def _ended(self, id_: int) -> asyncio.Event:
        return self.ended.setdefault(id_, asyncio.Event())

    async def _send(self) -> int:
        async with self.pool.acquire() as connection:
            sent = "SELECT * FROM pgmq.send('bench', $1::jsonb)"
            return int(await connection.fetchval(sent, json.dumps(BODY)))

    async def accept(self, key: str) -> None:
        await self._send()

    async def work(self, key: str) -> None:
        id_ = await self._send()
        async with asyncio.timeout(WAIT_S):
            await self._ended(id_).wait()
        del self.ended[id_]

    async def close(self) -> None:
        for worker in self.workers:
            worker.cancel()
        if self.workers:
            await asyncio.wait(self.workers)
        await self.pool.close()


async def _nothing(connection: Any) -> None:
    """Replaces the reset of a connection, which costs a round trip."""
