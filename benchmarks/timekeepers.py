"""The sides of benchmarks/timers.py: Onceward and other systems with timers.

Each side has a database with many timers that are due in a year. It creates more, each made durable
by a separate call, and calls `fire` with the number of each when it is due, in the same process.
All have the fastest options with synced commits; `durable` describes the guarantee.
"""

import asyncio
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import punctual
from benchmarks.punctual import Timer

FAR_S = 365 * 24 * 3_600
CALLERS = 64
FILL_COMMIT = 20
THREADS = 4


def fire(number: int) -> None:
    punctual.fires.add(number)


def far_ms() -> int:
    return (int(time.time()) + FAR_S) * 1_000


class Onceward:
    """Onceward: a timer sends a job to a queue, and a handler in the same process runs it."""

    durable = (
        "a timer is synced when it is set; its coming due and its job are synced before it fires, "
        "and so are the lease and the result; what a crash cuts off runs again under the same id"
    )

    def __init__(self, folder: Path | str, callers: int = CALLERS) -> None:
        from onceward import App

        self.app = App(f"sqlite:///{folder}/bench.db")

    def fill(self, count: int) -> None:
        asyncio.run(self._fill(count))

    async def _fill(self, count: int) -> None:
        due_ms, waiting = far_ms(), iter(range(count))

        async def several(numbers: list[int], tx: Any) -> None:
            for number in numbers:
                await self.app.timers.set(queue="bench", body=-number, at_ms=due_ms, tx=tx)

        async def caller() -> None:
            while numbers := list(islice(waiting, FILL_COMMIT)):
                await self.app.store.run(partial(several, numbers))

        await self.app.start(work=False)
        await asyncio.gather(*[caller() for _ in range(CALLERS)])
        await self.app.stop()

    async def open(self, measure: str = "timers") -> None:
        @self.app.handler("bench", concurrency=CALLERS)
        async def handle(job: Any) -> None:
            fire(job.body)

        await self.app.start()

    async def set(self, timers: list[Timer]) -> None:
        waiting = iter(timers)

        async def caller() -> None:
            for number, due_ms in waiting:
                await self.app.timers.set(queue="bench", body=number, at_ms=due_ms)

        await asyncio.gather(*[caller() for _ in range(CALLERS)])

    async def close(self) -> None:
        await self.app.stop()


class APScheduler:
    """Version 3, with a scheduler thread and ten threads for jobs. Jobs are in SQLite by
    SQLAlchemy, with a WAL. Late jobs always run."""

    durable = (
        "a timer is synced when it is set; its deletion is synced after it was passed "
        "to a thread, so a crash repeats or loses it; no result is stored"
    )

    def __init__(self, folder: Path | str, callers: int = CALLERS) -> None:
        self.path = Path(folder) / "bench.db"

    def _scheduler(self, *pragmas: str) -> Any:
        from apscheduler.executors.pool import ThreadPoolExecutor as Threads
        from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
        from apscheduler.schedulers.background import BackgroundScheduler
        from sqlalchemy import create_engine, event

        engine = create_engine(f"sqlite:///{self.path}")

        @event.listens_for(engine, "connect")
        def connect(connection: Any, record: Any) -> None:
            for pragma in ("journal_mode = wal", *pragmas):
                connection.execute(f"PRAGMA {pragma}")

        return BackgroundScheduler(
            jobstores={"default": SQLAlchemyJobStore(engine=engine)},
            executors={"default": Threads(10)},
            job_defaults={"misfire_grace_time": None},
            timezone="UTC",
        )

    def fill(self, count: int) -> None:
        self.scheduler = self._scheduler("synchronous = off")
        self.scheduler.start(paused=True)
        due_ms = far_ms()
        self._add([(-number, due_ms) for number in range(1, count + 1)])
        self.scheduler.shutdown()

    async def open(self, measure: str = "timers") -> None:
        self.scheduler = self._scheduler("synchronous = full")
        self.scheduler.start()

    async def set(self, timers: list[Timer]) -> None:
        self.scheduler.pause()  # otherwise it scans its jobs after each call
        await asyncio.to_thread(self._add, timers)
        self.scheduler.resume()

    def _add(self, timers: list[Timer]) -> None:
        from datetime import UTC, datetime

        for number, due_ms in timers:
            due = datetime.fromtimestamp(due_ms / 1_000, UTC)
            self.scheduler.add_job(
                "benchmarks.timekeepers:fire", "date", run_date=due, args=[number]
            )

    async def close(self) -> None:
        self.scheduler.shutdown()


class DBOSDelayed:
    """Delayed workflows of a queue, on SQLite with a WAL. DBOS looks for due ones once a second,
    which cannot be changed; its queue is polled more often than by default."""

    durable = (
        "a timer is synced when it is set, and so are its coming due, its start and its result; "
        "what a crash cuts off runs again"
    )

    def __init__(self, folder: Path | str, callers: int = CALLERS) -> None:
        self.path = Path(folder) / "bench.db"

    def _launch(self) -> None:
        import dbos

        with sqlite3.connect(self.path) as database:
            database.execute("PRAGMA journal_mode = wal")
        database.close()
        self.library = dbos
        dbos.DBOS(
            config={
                "name": "bench",
                "application_version": "1",
                "system_database_url": f"sqlite:///{self.path}",
                "sys_db_pool_size": THREADS,  # connections wait for each other by polling
                "log_level": "ERROR",
            }
        )

        @dbos.DBOS.workflow()
        def handle(number: int) -> None:
            fire(number)

        @dbos.DBOS.workflow()
        async def sleep(number: int, seconds: float) -> None:
            await dbos.DBOS.sleep_async(seconds)
            fire(number)

        self.handle, self.sleep = handle, sleep
        dbos.DBOS.launch()
        dbos.DBOS.register_queue("bench", polling_interval_sec=0.05)

    def fill(self, count: int) -> None:
        """Create one timer, and copy its row, since the others would be the same."""
        self._launch()
        self._enqueue((0, far_ms()))
        self.library.DBOS.destroy()
        with sqlite3.connect(self.path) as database:
            rows = database.execute("PRAGMA table_info(workflow_status)").fetchall()
            others = ", ".join(row[1] for row in rows if row[1] != "workflow_uuid")
            database.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                f"INSERT INTO workflow_status (workflow_uuid, {others}) "
                f"SELECT workflow_uuid || '-' || i, {others} FROM workflow_status, n "
                "WHERE status = 'DELAYED'",
                (count - 1,),
            )
            found = database.execute(
                "SELECT count(*) FROM workflow_status WHERE status = 'DELAYED'"
            ).fetchone()
            assert found == (count,), found
        database.close()

    async def open(self, measure: str = "timers") -> None:
        await asyncio.to_thread(self._launch)
        self.threads = ThreadPoolExecutor(THREADS)

    async def set(self, timers: list[Timer]) -> None:
        loop = asyncio.get_running_loop()
        setting = [loop.run_in_executor(self.threads, self._enqueue, timer) for timer in timers]
        await asyncio.gather(*setting)

    def _enqueue(self, timer: Timer) -> None:
        number, due_ms = timer
        delay_s = max(due_ms / 1_000 - time.time(), 0.0)
        with self.library.SetEnqueueOptions(delay_seconds=delay_s):
            self.library.DBOS.enqueue_workflow("bench", self.handle, number)

    async def close(self) -> None:
        self.library.DBOS.destroy()


class DBOSSleep(DBOSDelayed):
    """Workflows that sleep durably, each in memory until it wakes up. Only those that are due in
    the run sleep; the others are delayed, since DBOS would start each of them again."""

    durable = (
        "the start of a timer is synced when it is set, its time a moment later, and "
        "its result; an interrupted timer is resumed; each one uses memory while it "
        "waits"
    )

    async def set(self, timers: list[Timer]) -> None:
        waiting = iter(timers)

        async def caller() -> None:
            for number, due_ms in waiting:
                delay_s = max(due_ms / 1_000 - time.time(), 0.001)
                await self.library.DBOS.start_workflow_async(self.sleep, number, delay_s)

        await asyncio.gather(*[caller() for _ in range(THREADS)])


SIDES: dict[str, Any] = {
    "onceward": Onceward,
    "apscheduler": APScheduler,
    "dbos delayed": DBOSDelayed,
    "dbos sleep": DBOSSleep,
}
