"""Processes of the SQL shop (`shop_child.py`), which are killed and paused, and a judge."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import asyncpg

from onceward import Job, Transaction
from onceward.app import App
from onceward.clock import Clock
from onceward.engine.postgres import PostgresEngine
from onceward.sql.records import Drain, drain_key
from onceward.store import Store
from onceward.store.transaction import Row
from tests.server_process import ROOT, environment

ITEMS = ("lamp", "sofa", "rug")
STOCK = 1_000_000
LEASE_S = 1.0


class Crew:
    """Customers and nodes of one shop. Each process that was killed starts again."""

    def __init__(self, url: str, folder: Path, random: Random, nodes: int, customers: int) -> None:
        self.url = url
        self.jobs = url if url.startswith("postgresql:") else f"sqlite:///{folder / 'jobs.db'}"
        self.kills = self.pauses = 0
        self._folder = folder
        self._random = random
        self._clock = Clock()
        self._roles = ["node"] * nodes + ["customer"] * customers
        self._keepers: list[asyncio.Task[None]] = []
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._paused: set[int] = set()

    @property
    def settings(self) -> dict[str, str]:
        return {
            "SHOP_DATABASE": self.url,
            "ONCEWARD_DATABASE": self.jobs,
            "SHOP_LEASE_S": str(LEASE_S),
        }

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Start all processes. At the end, kill them."""
        self._keepers = [asyncio.create_task(self._keep(*one)) for one in enumerate(self._roles)]
        try:
            yield
        finally:
            await self._end(self._keepers)

    async def _end(self, keepers: Sequence[asyncio.Task[None]]) -> None:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.wait(keepers)
        for keeper in keepers:
            if not keeper.cancelled():
                keeper.result()

    async def _keep(self, number: int, role: str) -> None:
        log = self._folder / f"{role}{number}.log"
        while True:
            with open(log, "ab") as file:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "tests.examples.shop_child", str(self._folder), role),
                    cwd=ROOT,
                    env={**environment(), **self.settings},
                    stderr=file,
                )
            self._processes[number] = process
            try:
                await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            ended = f"{role} {number} has ended by itself: {log.read_text()[-2_000:]}"
            assert process.returncode == -signal.SIGKILL, ended

    def kill(self, number: int | None = None) -> None:
        """Kill a process: one that is awake, unless it is given."""
        self.kills += 1
        number = self._random.choice(self.awake) if number is None else number
        self._send(self._processes[number], signal.SIGKILL)

    async def pause(self, number: int | None = None) -> None:
        """Pause a process for longer than its lease, unless only two are awake."""
        if len(self.awake) < 3:
            return
        self.pauses += 1
        number = self._random.choice(self.awake) if number is None else number
        process = self._processes[number]
        self._paused.add(number)
        self._send(process, signal.SIGSTOP)
        try:
            await self._clock.sleep(2.5 * LEASE_S)
        finally:
            self._send(process, signal.SIGCONT)
            self._paused.discard(number)

    @property
    def awake(self) -> list[int]:
        return [number for number in self._processes if number not in self._paused]

    def number_of(self, node: str) -> int:
        """The number of the process that runs a node."""
        [number] = [n for n, process in self._processes.items() if node == f"node{process.pid}"]
        return number

    def _send(self, process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        """`Process.send_signal` would reap a process that has just ended, before `_keep` does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)

    async def progress(self, invoices: int) -> None:
        """Wait for a number of further invoices."""
        [(before,)] = await self.query("SELECT count(*) FROM invoices")
        await self._until(f"SELECT count(*) >= {before + invoices} FROM invoices")

    async def finish(self) -> None:
        """Stop the customers, and wait until their orders are done."""
        nodes = self._roles.count("node")
        await self._end(self._keepers[nodes:])
        self._keepers = self._keepers[:nodes]
        await self._until(
            "SELECT (SELECT count(*) FROM orders) <= (SELECT count(*) FROM invoices) "
            "AND NOT EXISTS (SELECT 1 FROM onceward_outbox)"
        )

    async def _until(self, query: str) -> None:
        while True:
            [(found,)] = await self.query(query)
            if found:
                return
            for keeper in self._keepers:
                if keeper.done():
                    keeper.result()
            await self._clock.sleep(0.05)

    async def query(self, text: str) -> list[Sequence[Any]]:
        """The rows of a statement."""
        if self.url.startswith("postgresql:"):
            connection = await asyncpg.connect(self.url)
            try:
                return [tuple(row) for row in await connection.fetch(text)]
            finally:
                await connection.close()
        with contextlib.closing(sqlite3.connect(self._folder / "shop.db", timeout=60)) as file:
            return list(file.execute(text))

    async def judge(self) -> int:
        """Compare the tables of the shop, Onceward's records and what customers know, after all
        processes have ended. Returns the number of orders."""
        orders = await self.query("SELECT number, item FROM orders ORDER BY id")
        sales = await self.query('SELECT number, item, "left" FROM sales ORDER BY id')
        invoices = await self.query("SELECT serial, number FROM invoices ORDER BY serial")
        numbers = sorted(number for number, _ in orders)
        files = self._folder.glob("orders.*")
        committed = {line for file in files for line in file.read_text().split("\n")[:-1]}
        assert committed <= set(numbers), "a committed order is missing"
        assert sorted(number for number, *_ in sales) == numbers, "an order is not sold once"
        assert sorted(number for _, number in invoices) == numbers, "an order is not billed once"
        assert [serial for serial, _ in invoices] == [*range(1, len(orders) + 1)], "serials"
        left = dict(await self.query('SELECT item, "left" FROM stock'))
        sold = Counter(item for _, item in orders)
        for item in ITEMS:
            assert left[item] == STOCK - sold[item], f"stock of {item}"
            mine = [(number, stock) for number, other, stock in sales if other == item]
            placed = [number for number, other in orders if other == item]
            assert [number for number, _ in mine] == placed, f"{item} was sold in another order"
            assert [stock for _, stock in mine] == [STOCK - n - 1 for n in range(len(mine))]
        assert await self.query("SELECT count(*) FROM onceward_outbox_failed") == [(0,)]
        app = App(self.jobs)
        if self.jobs != self.url:  # invoices are written before their jobs end

            @app.handler("invoices", attempts_max=1)
            async def bill(job: Job) -> None:
                serial = await job.sql_step(self.url, _again, name="write_invoice")
                job.tx.put(("invoices", job.body), serial)

        async with app:
            records = await _records(app)
            while self.jobs != self.url and len(records) < len(orders):
                await self._clock.sleep(0.05)
                records = await _records(app)
            for queue in ("orders", "invoices"):
                assert await app.queues.failed(queue) == []
        assert records == {number: serial for serial, number in invoices}
        return len(orders)


def _again(connection: Any) -> None:
    raise AssertionError("a recorded step runs again")


async def _records(app: App) -> dict[str, int]:
    found: dict[str, int] = {}
    while rows := await app.run(partial(_after, last=max(found, default=""))):
        found |= {row.key[1]: row.value for row in rows}
    return found


async def _after(tx: Transaction, last: str) -> list[Row]:
    return await tx.scan("invoices", start=f"{last}!" if last else "", limit=500)


class Drainers:
    """The leases of the outbox, as far as they are seen."""

    def __init__(self, url: str) -> None:
        self.seen: list[Drain] = []
        self._url = url
        self._changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _watch(self) -> None:
        engine = await PostgresEngine(self._url).open()
        store = Store(engine)
        try:
            with engine.watch("outbox") as watch:
                while True:
                    watch.clear()
                    held = await store.run(lambda tx: tx.get(drain_key("shop"), Drain))
                    if held is not None and held not in self.seen[-1:]:
                        self.seen.append(held)
                        self._changed.set()
                    await watch.wait(1)
        finally:
            await engine.close()

    async def next(self, after: Drain | None = None) -> Drain:
        """The lease of the current drainer, which is another one than that of a lease."""
        while not self.seen or (after is not None and self.seen[-1].token == after.token):
            self._changed.clear()
            await self._changed.wait()
        return self.seen[-1]

    def judge(self) -> int:
        """A lease begins after the end of the one before. Returns the number of drainers."""
        for old, new in pairwise(self.seen):
            if old.token != new.token:
                begun_ms = new.until_ms - int(LEASE_S * 1000)
                assert begun_ms >= old.until_ms, f"{new} began before the end of {old}"
        return len({held.token for held in self.seen})
