"""Accepting jobs, and having them done, against those that do the same.

    accept  a job is durable when the caller goes on
    work    accept one, let a handler run it, and go on once it is done

with 1 and with 100 callers in one process; embedded, and on a PostgreSQL server with its
default settings on the same machine. Every run has a process and a database of its own; the
sides alternate. benchmarks/peers.py tells how each is set up.
"""

import argparse
import asyncio
import inspect
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import asyncpg
import peers
import uvloop
from bare import fdatasync_rate
from rich.console import Console
from rich.table import Table

from onceward.testing.postgres import PostgresServer

HERE = Path(__file__).parent
SIDES = {"embedded": peers.EMBEDDED, "postgres": peers.POSTGRES}
MEASURES = ("accept", "work")
PACKAGES = ("huey", "dbos", "procrastinate", "pgmq", "psycopg", "asyncpg", "sqlalchemy")
BARE = "fdatasync"
# What is wanted of us: with many callers, so many times the best that is embedded; with one,
# such a part of the rate of bare syncs; and on PostgreSQL, to be ahead of those.
TIMES_EMBEDDED = 3.0
PART_OF_BARE = 0.7
AHEAD_OF = ("procrastinate", "dbos")
# A run may take so much longer than it measures, before it is given up.
GRACE_S = 90.0
Run = dict[str, Any]


def measure_tasks(side: Any, measure: str, callers: int, seconds: float) -> Run:
    """Let callers that are tasks run for a while, at first to warm up."""

    async def run() -> Run:
        await side.open(measure)
        call = getattr(side, measure)

        async def caller(name: str, until: float, took: list[float]) -> None:
            number = 0
            while (start := time.perf_counter()) < until:
                await call(f"{name}-{number}")
                took.append(time.perf_counter() - start)
                number += 1

        for part in (0.2, 1.0):
            took: list[float] = []
            start, used = time.perf_counter(), time.process_time()
            until = start + seconds * part
            await asyncio.gather(*[caller(f"{part}-{n}", until, took) for n in range(callers)])
            result = summary(took, time.perf_counter() - start, time.process_time() - used)
        await side.close()
        return result

    return uvloop.run(run())


def measure_threads(side: Any, measure: str, callers: int, seconds: float) -> Run:
    """The same for callers that are threads."""
    side.open(measure)
    call = getattr(side, measure)

    def caller(name: str, until: float, took: list[float], failed: list[Exception]) -> None:
        number = 0
        try:
            while (start := time.perf_counter()) < until:
                call(f"{name}-{number}")
                took.append(time.perf_counter() - start)
                number += 1
        except Exception as error:
            failed.append(error)

    for part in (0.2, 1.0):
        took: list[float] = []
        failed: list[Exception] = []
        start, used = time.perf_counter(), time.process_time()
        until = start + seconds * part
        threads = [
            threading.Thread(target=caller, args=(f"{part}-{n}", until, took, failed))
            for n in range(callers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        result = summary(took, time.perf_counter() - start, time.process_time() - used)
    side.close()
    return result


def summary(latencies: list[float], took: float, cpu: float) -> Run:
    latencies.sort()
    count = len(latencies)
    return {
        "per_second": count / took,
        "p50_ms": latencies[count // 2] * 1e3,
        "p99_ms": latencies[int(count * 0.99)] * 1e3,
        "max_ms": latencies[-1] * 1e3,
        "cpu_us": cpu / count * 1e6,
    }


def step(backend: str, name: str, measure: str, url: str, callers: int, seconds: float) -> Run:
    """One side's run, in a process of its own."""
    side = SIDES[backend][name](url, callers)
    asynchronous = inspect.iscoroutinefunction(side.open)
    run = measure_tasks if asynchronous else measure_threads
    return run(side, measure, callers, seconds)


class Bench:
    """Runs the sides in turns and keeps what they measured."""

    def __init__(self, options: argparse.Namespace, folder: str, console: Console) -> None:
        self.options = options
        self.folder = folder
        self.console = console
        self.load = [os.getloadavg()[0]]
        # Backend, measure, callers, side, round.
        self.results: dict[str, dict[str, dict[str, dict[str, list[Run]]]]] = {}

    def run(
        self, backend: str, database: Callable[[], AbstractContextManager[str]], chosen: set[str]
    ) -> None:
        for measure in self.options.measures.split(","):
            for callers in self.options.callers.split(","):
                sides = [
                    name
                    for name, side in SIDES[backend].items()
                    if measure in getattr(side, "measures", MEASURES)
                    and (not chosen or name in chosen)
                ]
                if (backend, measure, callers) == ("embedded", "accept", "1"):
                    sides.append(BARE)
                cases = self.results.setdefault(backend, {}).setdefault(measure, {})
                results = cases.setdefault(callers, {side: [] for side in sides})
                for number in range(self.options.rounds):
                    for side in sides:
                        case = f"{backend}, {measure}, callers {callers}: {side}"
                        self.console.print(
                            f"[dim]{case}, round {number + 1}/{self.options.rounds}[/]"
                        )
                        with database() as url:
                            result = self._measure(backend, side, measure, url, int(callers))
                        if "failed" in result:
                            self.console.print(f"{case} did not run: {result['failed']}")
                        results[side].append(result)
                        self.save()  # whatever becomes of the rest

    def _measure(self, backend: str, side: str, measure: str, url: str, callers: int) -> Run:
        seconds = self.options.seconds
        if side == BARE:
            return fdatasync_rate(self.folder, seconds)
        arguments = json.dumps([backend, side, measure, url, callers, seconds])
        command = [sys.executable, __file__, "--step", arguments]
        bound_s = seconds * 3 + GRACE_S
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=bound_s, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"it took longer than {bound_s:.0f} s"}
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
            return {"failed": lines[-1]}
        return dict(json.loads(done.stdout.splitlines()[-1]))

    # What came out.

    def good(self, backend: str, measure: str, callers: str, side: str) -> list[Run]:
        runs = self.results[backend][measure][callers].get(side, [])
        return [run for run in runs if "failed" not in run]

    def cases(self) -> Iterator[tuple[str, str, str]]:
        for backend, measures in self.results.items():
            for measure, callers in measures.items():
                for count in callers:
                    yield backend, measure, count

    def show(self) -> None:
        for backend, sides in SIDES.items():
            if backend in self.results:
                self.console.print(f"\n{backend}, and what durable means there:")
                for name, side in sides.items():
                    self.console.print(f"  {name}: {side.durable}", highlight=False)
        table = Table(title="jobs accepted, and jobs done; every commit synced")
        for column in ("where", "what", "callers", "side"):
            table.add_column(column)
        for column in ("per second", "p50 ms", "p99 ms", "max ms", "client µs"):
            table.add_column(column, justify="right")
        for case in self.cases():
            backend, measure, callers = case
            for side, runs in self.results[backend][measure][callers].items():
                good = self.good(*case, side)
                name = side if len(good) in (0, len(runs)) else f"{side} ({len(good)} runs)"
                table.add_row(backend, measure, callers, name, *row(good))
            table.add_section()
        self.console.print(table)
        for line in self.verdicts():
            self.console.print(line, highlight=False)
        load = ", ".join(f"{value:.1f}" for value in self.load)
        self.console.print(f"load of the machine, before and after: {load} on {os.cpu_count()}")

    def ratio(self, case: tuple[str, str, str], other: str) -> float | None:
        """Our rate in the other's, None where there is none: of rounds next to each other in
        time, so that what else goes on counts for both."""
        backend, measure, callers = case
        runs = self.results[backend][measure][callers]
        ratios = [
            ours["per_second"] / theirs["per_second"]
            for ours, theirs in zip(runs.get("onceward", ()), runs.get(other, ()), strict=False)
            if "failed" not in ours and "failed" not in theirs
        ]
        return statistics.median(ratios) if ratios else None

    def verdicts(self) -> Iterator[str]:
        """Whether we are as fast as we want to be; and how the others compare."""
        for case in self.cases():
            backend, measure, callers = case
            what = f"{backend}, {measure}, callers {callers}"
            ratios: dict[str, float] = {}
            for side in self.results[backend][measure][callers]:
                ratio = None if side in ("onceward", BARE) else self.ratio(case, side)
                if ratio is not None:
                    ratios[side] = ratio
            if ratios:
                yield f"{what}: " + ", ".join(f"{r:.1f} × {side}" for side, r in ratios.items())
            bare = self.ratio(case, BARE)
            if bare is not None:
                yield judge(
                    f"{bare:.0%} of bare syncs", bare >= PART_OF_BARE, f"{PART_OF_BARE:.0%}"
                )
            if backend == "embedded" and callers != "1" and ratios:
                least = min(ratios.values())
                wanted = f"{TIMES_EMBEDDED:.0f} times"
                yield judge(f"{least:.1f} times the best", least >= TIMES_EMBEDDED, wanted)
            for side in AHEAD_OF if backend == "postgres" else ():
                if side in ratios:
                    yield judge(f"{ratios[side]:.2f} × {side}", ratios[side] > 1, "to be ahead")

    def save(self) -> None:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "load": self.load,
            "packages": {name: version(name) for name in PACKAGES},
        }
        durable = {
            backend: {name: side.durable for name, side in sides.items()}
            for backend, sides in SIDES.items()
        }
        settings = {"seconds": self.options.seconds, "rounds": self.options.rounds}
        self.options.save.parent.mkdir(exist_ok=True)
        document = {"machine": machine, "durable": durable, **settings, "results": self.results}
        self.options.save.write_text(json.dumps(document, indent=1) + "\n")


def median(runs: list[Run], what: str) -> float:
    return statistics.median(run[what] for run in runs)


def row(runs: list[Run]) -> list[str]:
    if not runs:
        return ["did not run", "", "", "", ""]
    cells = [f"{median(runs, 'per_second'):,.0f}"]
    cells += [f"{median(runs, what):.2f}" for what in ("p50_ms", "p99_ms")]
    cells.append(f"{max(run['max_ms'] for run in runs):.1f}")
    cells.append(f"{median(runs, 'cpu_us'):.0f}" if "cpu_us" in runs[0] else "")
    return cells


def judge(found: str, good: bool, wanted: str) -> str:
    return f"  {found}: {'as wanted' if good else 'NOT as wanted'} ({wanted})"


def version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@contextmanager
def sqlite_database(folder: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        yield f"sqlite:///{own}/bench.db"


@contextmanager
def postgres_database(server: PostgresServer) -> Iterator[str]:
    async def execute(*statements: str) -> None:
        connection = await asyncpg.connect(server.url)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    asyncio.run(execute("CREATE DATABASE bench", "CHECKPOINT"))
    yield server.url.removesuffix("postgres") + "bench"
    asyncio.run(execute("DROP DATABASE bench WITH (FORCE)"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default=",".join(SIDES))
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--callers", default="1,100")
    parser.add_argument("--sides", default="", help="only these, separated by semicolons")
    parser.add_argument("--seconds", type=float, default=5, help="for a run of one side")
    parser.add_argument("--rounds", type=int, default=5, help="of all sides")
    parser.add_argument("--folder", default=None, help="where the files go (a real disk)")
    parser.add_argument("--save", type=Path, default=HERE / "results" / "work.json")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(step(*json.loads(options.step))))
        return
    # So that the server and the files go away, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    console = Console(width=None if sys.stdout.isatty() else 110)
    chosen = {side for side in options.sides.split(";") if side}
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(dir=options.folder or HERE, prefix="tmp-")
        )
        bench = Bench(options, folder, console)
        if "embedded" in options.backends.split(","):
            bench.run("embedded", lambda: sqlite_database(folder), chosen)
        if "postgres" in options.backends.split(","):
            server = stack.enter_context(PostgresServer())
            bench.run("postgres", lambda: postgres_database(server), chosen)
        bench.load.append(os.getloadavg()[0])
        bench.show()
        bench.save()
        console.print(f"saved to {options.save}")


if __name__ == "__main__":
    main()
