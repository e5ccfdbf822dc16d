"""The SQLite engine against the same records as rows in SQLite with the same group commit.

Each transaction reads 2 records, and commits 3 puts and 1 delete of 200-byte values that check both
reads, durably (fsync). Both sides run in separate processes, alternating.

    short    every key is put, overwritten and deleted again; random names, 32,768 alive
    slow     the same, with 1 ms added to every sync (needs a C compiler)
    large    short, with 10 million other records in the table
        ordered  short, with keys in the order of their creation
        uniform  keys drawn uniformly from 10 million records; and bare writes of the same pattern,
                 for the longest stalls of the disk itself
        callers  short with 1, 16 and 512 callers; one caller against bare fdatasync
"""

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import apsw
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.bare import TimedDisk, stalls
from benchmarks.machine import fdatasync_rate
from benchmarks.rows import RowEngine, fill
from onceward.engine.base import ABSENT, Delete, Put
from onceward.engine.sqlite import SQLiteEngine
from onceward.errors import Conflict

HERE = Path(__file__).parent
PARTITIONS = [f"part#{i:02d}" for i in range(64)]
VALUE = json.dumps({"state": "x" * 188}).encode()
OTHERS = 10_000_000
CACHE_BYTES = 64 << 20
MEMTABLE_BYTES = 128 << 20


class Caller:
    """A caller that commits one transaction after the other."""

    def __init__(
        self, engine: Any, number: int, latencies: list[float], gate: asyncio.Barrier
    ) -> None:
        self.engine = engine
        self.number = number
        self.latencies = latencies
        self.gate = gate
        self.begun = 0.0
        self.conflicts = 0
        self.random = random.Random(number)

    async def run(self, transaction: Any, seconds: float) -> None:
        """Start when all callers are ready."""
        await self.gate.wait()
        self.begun = time.perf_counter()
        until = self.begun + seconds
        while (start := time.perf_counter()) < until:
            try:
                await transaction()
            except Conflict:
                self.conflicts += 1
                continue
            self.latencies.append(time.perf_counter() - start)

    async def ordered(self, seconds: float) -> None:
        await self.short(seconds, ordered=True)

    async def short(self, seconds: float, ordered: bool = False) -> None:
        """The life of a job: put as new, read and put again, read and deleted. As in the schedule,
        a job is in one of 64 slots. Each caller has 256 jobs at a time."""
        head = ("head", f"{self.number:016d}")
        alive: deque[tuple[str, str]] = deque()
        # Generated in advance, so that names cost the benchmark little, and reused long after they
        # are gone. They sort behind all others of their partition, like later ids.
        names = (10**12 + i if ordered else self.random.getrandbits(64) for i in range(1024))
        pool = deque(
            (PARTITIONS[self.random.getrandbits(6)], f"{name:016x}#{self.number:04d}")
            for name in names
        )

        def new_key() -> tuple[str, str]:
            pool.rotate(-1)
            return pool[-1]

        for _ in range(256):
            alive.append(new_key())
            await self.engine.commit([Put(alive[-1], VALUE, None, ABSENT)], 0)

        async def transaction() -> None:
            dying, changing, born = alive[0], alive[128], new_key()
            a, b = await self.engine.get([dying, changing], 0)
            await self.engine.commit(
                [
                    Put(born, VALUE, None, ABSENT),
                    Put(changing, VALUE, None, b.version),
                    Put(head, VALUE),
                    Delete(dying, a.version),
                ],
                0,
            )
            alive.popleft()
            alive.append(born)

        await self.run(transaction, seconds)

    async def uniform(self, seconds: float) -> None:
        """Random records of ten million: two read and changed, one replaced, one removed."""
        each = OTHERS // 64

        def key() -> tuple[str, str]:
            return PARTITIONS[self.random.randrange(64)], f"{self.random.randrange(each):016d}"

        async def transaction() -> None:
            first, second, third, fourth = key(), key(), key(), key()
            a, b = await self.engine.get([first, second], 0)
            await self.engine.commit(
                [
                    Put(first, VALUE, None, ABSENT if a is None else a.version),
                    Put(second, VALUE, None, ABSENT if b is None else b.version),
                    Put(third, VALUE),
                    Delete(fourth),
                ],
                0,
            )

        await self.run(transaction, seconds)


def memory_mib() -> float:
    """The resident memory of this process (the memory for latencies is subtracted later)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def work(side: str, workload: str, path: str, callers: int, seconds: float) -> None:
    """The run of one side, in a separate process; prints its results as JSON."""
    memory_before = memory_mib()
    disk = TimedDisk()
    engine: Any = (
        SQLiteEngine(path, memtable_bytes=MEMTABLE_BYTES, cache_bytes=CACHE_BYTES, disk=disk)
        if side == "onceward"
        else RowEngine(path, CACHE_BYTES)
    )
    await engine.open()
    latencies: list[float] = []
    gate = asyncio.Barrier(callers)
    crowd = [Caller(engine, i, latencies, gate) for i in range(callers)]
    peak_mib = 0.0

    async def watch_memory() -> None:
        nonlocal peak_mib
        while True:
            peak_mib = max(peak_mib, memory_mib() - len(latencies) * 32 / 2**20)
            await asyncio.sleep(0.25)

    watcher = asyncio.create_task(watch_memory())
    await asyncio.gather(*[getattr(caller, workload)(seconds) for caller in crowd])
    took = time.perf_counter() - min(caller.begun for caller in crowd)
    watcher.cancel()
    await engine.close()
    count = len(latencies)
    latencies.sort()
    print(
        json.dumps(
            {
                "per_second": count / took,
                "p50_ms": latencies[count // 2] * 1e3,
                "p99_ms": latencies[int(count * 0.99)] * 1e3,
                "max_ms": latencies[-1] * 1e3,
                "memory_mib": peak_mib - memory_before,
                "conflicts": sum(c.conflicts for c in crowd),
                "disk_ms": disk.longest_s * 1e3,
            }
        )
    )


class Bench:
    """Runs cases side by side and keeps the results."""

    def __init__(self, folder: str, seconds: float, rounds: int, console: Console) -> None:
        self.folder = folder
        self.seconds = seconds
        self.rounds = rounds
        self.console = console
        self.results: dict[str, dict[str, list[dict[str, float]]]] = {}
        self._filled: str | None = None

    def compare(
        self,
        case: str,
        workload: str,
        callers: int = 128,
        *,
        large: bool = False,
        preload: str | None = None,
        sides: tuple[str, ...] = ("rows", "onceward"),
        part: float = 1,
    ) -> None:
        """Run the sides alternately; each run takes `part` of the given seconds."""
        seconds = self.seconds * part
        for number in range(self.rounds):
            for side in sides:
                self.console.print(
                    f"[dim]{case}: {side}, round {number + 1}/{self.rounds}, {seconds:.0f} s[/]"
                )
                if side == "fdatasync":
                    measured = fdatasync_rate(self.folder, seconds)
                elif side == "bare":
                    measured = stalls(self.folder, self._large(), seconds)
                else:
                    measured = self._measure(side, workload, callers, seconds, large, preload)
                self.results.setdefault(case, {}).setdefault(side, []).append(measured)

    def _measure(
        self,
        side: str,
        workload: str,
        callers: int,
        seconds: float,
        large: bool,
        preload: str | None,
    ) -> dict[str, float]:
        path = os.path.join(self.folder, f"{side}.db")
        for leftover in Path(self.folder).glob(f"{side}.db*"):
            leftover.unlink()
        if large:
            shutil.copyfile(self._large(), path)
            os.sync()
        command = [
            sys.executable,
            "-m",
            "benchmarks.engine",
            "--work",
            side,
            workload,
            path,
            str(callers),
        ]
        environment = {**os.environ, **({"LD_PRELOAD": preload} if preload else {})}
        done = subprocess.run(
            [*command, str(seconds)], env=environment, stdout=subprocess.PIPE, check=True
        )
        return json.loads(done.stdout)

    def _large(self) -> str:
        if self._filled is None:
            self.console.print(f"[dim]filling a table with {OTHERS:,} records[/]")
            self._filled = os.path.join(self.folder, "filled")
            fill(self._filled, PARTITIONS, OTHERS, VALUE.decode())
        return self._filled

    def median(self, case: str, side: str, what: str) -> float:
        return statistics.median(run[what] for run in self.results[case][side])

    def show(self) -> None:
        table = Table(title="transactions of 2 checked reads, 3 puts, 1 delete; durable")
        for column in ("case", "side", "per second", "p50 ms", "p99 ms", "max ms", "MiB"):
            table.add_column(column, justify="left" if column in ("case", "side") else "right")
        for case, sides in self.results.items():
            for side, runs in sides.items():
                row = [f"{self.median(case, side, 'per_second'):,.0f}"]
                row += [f"{self.median(case, side, w):.2f}" for w in ("p50_ms", "p99_ms")]
                row.append(f"{max(run['max_ms'] for run in runs):.1f}")
                row.append(f"{max(run.get('memory_mib', 0) for run in runs):,.0f}")
                table.add_row(case, side, *row)
        self.console.print(table)
        for line in self.ratios():
            self.console.print(line)

    def ratios(self) -> list[str]:
        lines = []
        for case, sides in self.results.items():
            if {"rows", "onceward"} <= set(sides):
                rate = [self.median(case, side, "per_second") for side in ("onceward", "rows")]
                p99 = [self.median(case, side, "p99_ms") for side in ("onceward", "rows")]
                lines.append(
                    f"{case}: {rate[0] / rate[1]:.1f} times the rate, "
                    f"p99 {p99[0] / p99[1]:.2f} of the rows'"
                )
            if {"fdatasync", "onceward"} <= set(sides):
                rate = [self.median(case, side, "per_second") for side in ("onceward", "fdatasync")]
                lines.append(f"{case}: {rate[0] / rate[1]:.0%} of the fdatasync rate")
        for case, sides in self.results.items():
            for run, bare in zip(sides.get("onceward", ()), sides.get("bare", ()), strict=False):
                lines.append(
                    f"{case}: longest {run['max_ms']:.0f} ms, of which a single write to the disk "
                    f"{run['disk_ms']:.0f} ms; a bare write {bare['max_ms']:.0f} ms"
                )
        if {"short", "large"} <= set(self.results):
            rate = [self.median(case, "onceward", "per_second") for case in ("large", "short")]
            lines.append(f"large: {rate[0] / rate[1]:.0%} of the rate on an empty table")
        return lines

    def save(self, path: Path) -> None:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "sqlite": apsw.sqlite_lib_version(),
            "system": platform.platform(),
        }
        path.parent.mkdir(exist_ok=True)
        settings = {"seconds": self.seconds, "rounds": self.rounds}
        document = {"machine": machine, **settings, "results": self.results}
        path.write_text(json.dumps(document, indent=1) + "\n")


def slow_sync_library(folder: str) -> str | None:
    library = os.path.join(folder, "slow_sync.so")
    try:
        command = ["cc", "-shared", "-fPIC", "-o", library, str(HERE / "slow_sync.c"), "-ldl"]
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="short,slow,ordered,large,uniform,callers")
    parser.add_argument(
        "--seconds", type=float, default=60, help="seconds per run of one side [60]"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of both sides [3]")
    parser.add_argument("--folder", default=None, help="folder for files (on a real disk)")
    parser.add_argument("--save", type=Path, default=HERE / "results" / "engine.json")
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        side, workload, path, callers, seconds = options.work
        uvloop.run(work(side, workload, path, int(callers), float(seconds)))
        return
    console = Console()
    cases = options.cases.split(",")
    with tempfile.TemporaryDirectory(dir=options.folder or HERE, prefix="tmp-") as folder:
        bench = Bench(folder, options.seconds, options.rounds, console)
        if "short" in cases:
            bench.compare("short", "short")
        if "slow" in cases:
            library = slow_sync_library(folder)
            if library is None:
                console.print("slow: skipped, there is no C compiler")
            else:
                bench.compare("slow", "short", preload=library)
        if "ordered" in cases:
            bench.compare("ordered", "ordered", part=1 / 3)
        if "large" in cases:
            bench.compare("large", "short", large=True)
        if "uniform" in cases:
            bench.compare("uniform", "uniform", large=True, sides=("rows", "bare", "onceward"))
        if "callers" in cases:
            sides = ("rows", "onceward", "fdatasync")
            bench.compare("1 caller", "short", 1, sides=sides, part=1 / 3)
            bench.compare("16 callers", "short", 16, part=1 / 3)
            bench.compare("512 callers", "short", 512, part=1 / 3)
        bench.show()
        bench.save(options.save)
        console.print(f"saved to {options.save}")


if __name__ == "__main__":
    main()
