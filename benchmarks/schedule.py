"""The schedule with a million waiting jobs.

    insert    jobs due far in the future: one per commit by 128 callers, then 40 per commit
    start     a new process on that database: opening it, taking the slots, claiming the first
              job, which has been due for a while; and its memory
    dispatch  jobs that are all due at the same moment, with those others waiting behind
    traffic   send, claim and complete by 64 workers of one queue: on an empty database, and
              on one with an equal number of ready jobs in a queue without workers

Each step runs in a separate process; the two sides of `traffic` alternate.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import uvloop
from rich.console import Console
from rich.table import Table

from onceward.engine import create
from onceward.node import Node
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.testing.postgres import PostgresServer

HERE = Path(__file__).parent
BODY = {"text": "x" * 100}
FAR_MS = 365 * 24 * 3_600_000
CALLERS = 128
WORKERS = 64
# Two writes each, three if ready at once.
JOBS_PER_COMMIT = 40
CLAIM = {"lease_ms": 60_000, "wait_s": 60.0}


def memory_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def send(node: Node, queue: str, count: int, at_once: int, due_ms: int = 0) -> float:
    """Send jobs, `at_once` per commit; returns the duration."""
    left = -(-count // at_once)

    async def fn(tx: Transaction) -> None:
        for _ in range(at_once):
            await node.schedule.send(tx, queue, BODY, due_ms=due_ms)

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await node.store.run(fn)

    start = time.perf_counter()
    await asyncio.gather(*[caller() for _ in range(CALLERS if at_once == 1 else 8)])
    return time.perf_counter() - start


async def fill(url: str, entries: int, queue: str, due_in_ms: int) -> dict[str, float]:
    """Insert jobs, a tenth of them one by one, and one job that will be overdue."""
    before = memory_mib()
    async with create(url) as engine:
        node = await Node(Store(engine)).start()
        due_ms = node.store.clock.now_ms() + due_in_ms if due_in_ms else 0
        singles = entries // 10
        single_s = await send(node, queue, singles, 1, due_ms)
        batches_s = await send(node, queue, entries - singles, JOBS_PER_COMMIT, due_ms)
        memory = memory_mib() - before
        await node.stop()
        await send(node, "first", 1, 1, node.store.clock.now_ms() + 500)
    return {
        "single_per_second": singles / single_s,
        "batched_per_second": (entries - singles) / batches_s,
        "memory_mib": memory,
    }


async def start(url: str) -> dict[str, float]:
    """Start a node, and wait for the overdue job."""
    before, begin = memory_mib(), time.perf_counter()
    async with create(url) as engine:
        opened = time.perf_counter()
        node = await Node(Store(engine)).start()
        started = time.perf_counter()
        [_] = await node.claims.claim("first", "worker", **CLAIM)
        first = time.perf_counter()
        memory = memory_mib() - before
        await node.stop()
    return {
        "open_s": opened - begin,
        "start_s": started - opened,
        "first_job_s": first - begin,
        "memory_mib": memory,
    }


async def dispatch(url: str, entries: int) -> dict[str, float]:
    """Insert jobs that are due at the same moment, and wait until all are ready."""
    async with create(url) as engine:
        node = await Node(Store(engine)).start()
        clock = node.store.clock
        due_ms = clock.now_ms() + 10_000 + entries // 2
        await send(node, "due", entries, JOBS_PER_COMMIT, due_ms)
        assert clock.now_ms() < due_ms, "too slow to have them all due at once"
        await clock.sleep_until(due_ms)
        before, begin = node.dispatcher.acted, time.perf_counter()
        first = 0.0
        while (acted := node.dispatcher.acted - before) < entries:
            if acted and not first:
                first = time.perf_counter() - begin
            await clock.sleep(0.001)
        took = time.perf_counter() - begin
        await node.stop()
    return {"per_second": entries / took, "first_ms": first * 1e3}


async def traffic(url: str, seconds: float) -> dict[str, float]:
    """Workers that repeatedly send a job, claim one and complete it."""
    latencies: list[float] = []
    async with create(url) as engine:
        node = await Node(Store(engine)).start()

        async def one(worker: str) -> None:
            async def send_one(tx: Transaction) -> None:
                await node.schedule.send(tx, "live", BODY)

            await node.store.run(send_one)
            [claim] = await node.claims.claim("live", worker, **CLAIM)
            await node.store.run(lambda tx: node.schedule.complete(tx, claim.id, claim.token))

        async def work(worker: str, until: float) -> None:
            while (start := time.perf_counter()) < until:
                await one(worker)
                latencies.append(time.perf_counter() - start)

        for count in (0.2, 1.0):  # the first part is for warm-up
            latencies.clear()
            start, cpu = time.perf_counter(), time.process_time()
            until = start + count * seconds
            await asyncio.gather(*[work(f"w{n}", until) for n in range(WORKERS)])
            took, cpu = time.perf_counter() - start, time.process_time() - cpu
        await node.stop()
    latencies.sort()
    return {
        "per_second": len(latencies) / took,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
        "cpu_us": cpu / len(latencies) * 1e6,
    }


STEPS: dict[str, Callable[..., Any]] = {
    "fill": fill,
    "start": start,
    "dispatch": dispatch,
    "traffic": traffic,
}


class Bench:
    """Runs the steps on one engine after the other, and keeps the results."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.options = options
        self.console = console
        self.results: dict[str, dict[str, Any]] = {}

    def run(self, engine: str, database: Callable[[str], str]) -> None:
        entries, due = self.options.entries, self.options.due
        results = self.results[engine] = {}
        many = database("many")
        results["insert"] = self.step(engine, "fill", many, entries, "far", FAR_MS)
        results["start"] = self.step(engine, "start", many)
        results["dispatch"] = self.step(engine, "dispatch", many, due)
        empty, paused = database("empty"), database("paused")
        self.step(engine, "fill", paused, entries, "paused", 0)
        rounds: dict[str, list[dict[str, float]]] = {"empty": [], "paused": []}
        sides = [("empty", empty), ("paused", paused)]
        for _ in range(self.options.rounds):
            for side, url in sides:
                seconds = self.options.seconds / self.options.rounds
                rounds[side].append(self.step(engine, "traffic", url, seconds))
            sides.reverse()
        results["traffic"] = rounds

    def step(self, engine: str, name: str, *arguments: Any) -> dict[str, float]:
        self.console.print(f"[dim]{engine}: {name} {' '.join(map(str, arguments[1:]))}[/]")
        command = [
            sys.executable,
            "-m",
            "benchmarks.schedule",
            "--step",
            json.dumps([name, *arguments]),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def traffic_rate(self, engine: str, side: str) -> float:
        return statistics.median(run["per_second"] for run in self.results[engine]["traffic"][side])

    def traffic_ratio(self, engine: str, what: str) -> float:
        """Compares adjacent rounds, so that other load on the machine affects both."""
        rounds = self.results[engine]["traffic"]
        pairs = zip(rounds["paused"], rounds["empty"], strict=True)
        return statistics.median(paused[what] / empty[what] for paused, empty in pairs)

    def show(self) -> None:
        entries, due = f"{self.options.entries:,}", f"{self.options.due:,}"
        table = Table(title=f"the schedule with {entries} jobs that wait")
        table.add_column("what")
        for engine in self.results:
            table.add_column(engine, justify="right")
        rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
            ("insert, one per commit, /s", lambda r: f"{r['insert']['single_per_second']:,.0f}"),
            (
                f"insert, {JOBS_PER_COMMIT} per commit, /s",
                lambda r: f"{r['insert']['batched_per_second']:,.0f}",
            ),
            ("memory after that, MiB", lambda r: f"{r['insert']['memory_mib']:,.0f}"),
            ("open the database, s", lambda r: f"{r['start']['open_s']:.2f}"),
            ("start the node, s", lambda r: f"{r['start']['start_s']:.2f}"),
            ("first job handed out after, s", lambda r: f"{r['start']['first_job_s']:.2f}"),
            ("memory then, MiB", lambda r: f"{r['start']['memory_mib']:,.0f}"),
            (f"{due} due at once, /s", lambda r: f"{r['dispatch']['per_second']:,.0f}"),
            ("the first of them after, ms", lambda r: f"{r['dispatch']['first_ms']:.1f}"),
        ]
        for what, value in rows:
            table.add_row(what, *[value(results) for results in self.results.values()])
        for side, what in (("empty", "nothing else"), ("paused", f"{entries} ready elsewhere")):
            rates = [f"{self.traffic_rate(engine, side):,.0f}" for engine in self.results]
            table.add_row(f"jobs through one queue, {what}, /s", *rates)
        self.console.print(table)
        for engine in self.results:
            self.console.print(
                f"{engine}: {self.traffic_ratio(engine, 'per_second'):.0%} of the rate with "
                f"{entries} ready elsewhere, {self.traffic_ratio(engine, 'cpu_us'):.0%} of the "
                "node's time for each job"
            )

    def save(self, path: Path) -> None:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "sqlite": apsw.sqlite_lib_version(),
            "system": platform.platform(),
        }
        chosen = ("entries", "due", "seconds", "rounds")
        settings = {name: getattr(self.options, name) for name in chosen}
        path.parent.mkdir(exist_ok=True)
        document = {"machine": machine, **settings, "results": self.results}
        path.write_text(json.dumps(document, indent=1) + "\n")


def new_postgres_database(server: PostgresServer, name: str) -> str:
    async def create() -> None:
        connection = await asyncpg.connect(server.url)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    asyncio.run(create())
    return server.url.removesuffix("postgres") + name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--due", type=int, default=None, help="jobs due at once [a tenth]")
    parser.add_argument(
        "--seconds", type=float, default=60, help="seconds of traffic per side [60]"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds to split the seconds into [5]"
    )
    parser.add_argument("--engines", default="sqlite,postgres")
    parser.add_argument("--folder", default=None, help="folder for files (on a real disk)")
    parser.add_argument("--save", type=Path, default=HERE / "results" / "schedule.json")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        name, *arguments = json.loads(options.step)
        print(json.dumps(uvloop.run(STEPS[name](*arguments))))
        return
    if options.due is None:
        options.due = options.entries // 10
    bench = Bench(options, Console())
    engines = options.engines.split(",")
    with ExitStack() as stack:
        if "sqlite" in engines:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(dir=options.folder or HERE, prefix="tmp-")
            )
            bench.run("sqlite", lambda name: f"sqlite:///{folder}/{name}.db")
        if "postgres" in engines:
            server = stack.enter_context(PostgresServer())
            bench.run("postgres", lambda name: new_postgres_database(server, name))
    bench.show()
    bench.save(options.save)
    bench.console.print(f"saved to {options.save}")


if __name__ == "__main__":
    main()
