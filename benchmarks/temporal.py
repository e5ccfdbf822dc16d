"""Temporal: its dev server on a file, and a worker in the process that calls it.

`accept` starts a workflow without workers. `work` waits for one that a worker runs. `ordered` uses
a workflow for each key, which processes updates one after the other. A timer is a workflow with a
delay. `fan_out` splits the work into child workflows of 500 activities each, as the documentation
of Temporal recommends: a workflow can have at most 2,000 of either in progress.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import punctual
from benchmarks.measure import BODY, ORDER_KEYS, caller_number
from benchmarks.servers import Server, free_port

CALLERS = 64
CHUNK = 500
READY_S = 30.0
try:
    from temporalio import activity, workflow
except ImportError:  # only its name and its guarantee are needed
    workflow = None  # type: ignore[assignment]
else:

    @workflow.defn(sandboxed=False)
    class Handle:
        @workflow.run
        async def run(self, body: Any) -> str:
            return str(body["text"][:1])

    @activity.defn
    async def item(body: Any) -> str:
        return str(body["text"][:1])

    @workflow.defn(sandboxed=False)
    class Chunk:
        @workflow.run
        async def run(self, items: int) -> int:
            limit = timedelta(seconds=60)
            calls = [
                workflow.execute_activity(item, BODY, start_to_close_timeout=limit)
                for _ in range(items)
            ]
            assert await asyncio.gather(*calls) == ["x"] * items
            return items

    @workflow.defn(sandboxed=False)
    class FanOut:
        @workflow.run
        async def run(self, items: int) -> int:
            chunks = [min(CHUNK, items - first) for first in range(0, items, CHUNK)]
            calls = [workflow.execute_child_workflow(Chunk.run, chunk) for chunk in chunks]
            return sum(await asyncio.gather(*calls))

    @workflow.defn(sandboxed=False)
    class Fire:
        @workflow.run
        async def run(self, number: int) -> None:
            punctual.fires.add(number)

    @workflow.defn(sandboxed=False)
    class Line:
        """One workflow per key: updates without an await run one after the other."""

        def __init__(self) -> None:
            self.count = 0

        @workflow.run
        async def run(self) -> None:
            await workflow.wait_condition(lambda: False)

        @workflow.update
        def handle(self, body: Any) -> int:
            self.count += 1
            return self.count


class Temporal:
    """`temporal server start-dev --db-filename`, without its web page."""

    durable = (
        "accept: the workflow is in the SQLite file of the dev server (WAL, "
        "synchronous=full); work: its start, task and result are synced; ordered: "
        "each update is synced; an interrupted task is retried; fan-out: the start and result of "
        "each activity are synced"
    )

    def __init__(self, url: str, callers: int) -> None:
        self.folder = url
        self.callers = callers
        self.worker: asyncio.Task[None] | None = None

    async def open(self, measure: str) -> None:
        from temporalio.client import Client
        from temporalio.worker import Worker

        port = free_port()
        program = str(Path(sys.executable).parent / "temporal")
        command = [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1"]
        command += ["--port", str(port), "--http-port", str(free_port())]
        command += ["--db-filename", str(Path(self.folder) / "temporal.db"), "--log-level", "error"]
        command += ["--sqlite-pragma", "synchronous=2", "--sqlite-pragma", "journal_mode=wal"]
        self.server = await asyncio.to_thread(Server, command, self.folder, port)
        async with asyncio.timeout(READY_S):
            self.client = await self._connect(Client, f"127.0.0.1:{port}")
        if measure != "accept":
            made = Worker(
                self.client,
                task_queue="bench",
                workflows=[Handle, Fire, Line, Chunk, FanOut],
                activities=[item],
                max_concurrent_workflow_tasks=200,
                max_concurrent_workflow_task_polls=10,
            )
            self.worker = asyncio.create_task(made.run())
        if measure == "ordered":
            self.lines = [
                await self.client.start_workflow(Line.run, id=f"line-{key}", task_queue="bench")
                for key in range(ORDER_KEYS)
            ]

    async def _connect(self, client: Any, address: str) -> Any:
        """Connect with retries: the port is open before the namespace exists."""
        while True:
            try:
                found = await client.connect(address)
                await found.count_workflows()
                return found
            except Exception:
                await asyncio.sleep(0.05)

    async def accept(self, name: str) -> None:
        await self.client.start_workflow(Handle.run, BODY, id=name, task_queue="nobody")

    async def work(self, name: str) -> None:
        found = await self.client.execute_workflow(Handle.run, BODY, id=name, task_queue="bench")
        assert found == "x"

    async def ordered(self, name: str) -> None:
        line = self.lines[caller_number(name) % ORDER_KEYS]
        assert await line.execute_update(Line.handle, BODY) > 0

    async def fan_out(self, name: str, children: int) -> None:
        found = await self.client.execute_workflow(
            FanOut.run, children, id=name, task_queue="bench"
        )
        assert found == children

    async def set(self, timers: list[punctual.Timer]) -> None:
        from time import time

        waiting = iter(timers)

        async def caller() -> None:
            for number, due_ms in waiting:
                delay = timedelta(seconds=max(due_ms / 1000 - time(), 0.0))
                await self.client.start_workflow(
                    Fire.run, number, id=f"timer-{number}", task_queue="bench", start_delay=delay
                )

        await asyncio.gather(*[caller() for _ in range(CALLERS)])

    async def close(self) -> None:
        if self.worker is not None:
            self.worker.cancel()
            await asyncio.wait([self.worker])
        await asyncio.to_thread(self.server.stop)
