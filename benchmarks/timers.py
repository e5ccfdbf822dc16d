"""Due timers beside many pending ones, against other systems with timers.

    set     timers made durable, one call each
    spread  timers that are due one after the other: how late each fires
    burst   timers that are due at the same moment: how late, and how many fire per second

with 100,000 others pending. Every run has a separate process and a copy of a database; the sides
alternate. benchmarks/timekeepers.py describes the setup of each.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks import timekeepers
from benchmarks.machine import fdatasync_rate, installed
from benchmarks.punctual import WARM, Keeper

HERE = Path(__file__).parent
PACKAGES = ("apscheduler", "dbos", "sqlalchemy", "onceward")
# The target outside of bursts: the 99th percentile of lateness.
LATE_MS = 50.0
# The time limit of a run, and of filling a database.
RUN_S = 600.0
Run = dict[str, Any]


async def step(name: str, folder: str, spread: int, seconds: float, burst: int) -> Run:
    """The run of one side, in a separate process."""
    side = timekeepers.SIDES[name](Path(folder))
    await side.open()
    keeper = Keeper(side)
    await keeper.fired([0] * WARM)
    result = {
        "spread": await keeper.fired([int(n * seconds * 1e3 / spread) for n in range(spread)]),
        "burst": await keeper.fired([0] * burst),
    }
    await side.close()
    return {**result, **keeper.wrong()}


class Bench:
    """Runs the sides alternately and keeps the results."""

    def __init__(self, options: argparse.Namespace, folder: Path, console: Console) -> None:
        self.options = options
        self.folder = folder
        self.console = console
        self.sides = [side for side in timekeepers.SIDES if side in options.sides.split(",")]
        self.load = [os.getloadavg()[0]]
        self.bare: Run = {}
        self.results: dict[str, list[Run]] = {side: [] for side in self.sides}

    def run(self) -> None:
        self.bare = fdatasync_rate(str(self.folder), 1.0)
        filled = {}
        for side in self.sides:
            self.console.print(f"[dim]{side}: {self.options.pending:,} pending timers[/]")
            filled[side] = self.folder / side.replace(" ", "-")
            filled[side].mkdir()
            problem = self._call("--fill", [side, str(filled[side]), self.options.pending])
            if "failed" in problem:
                self.console.print(f"{side} could not be filled: {problem['failed']}")
        for number in range(self.options.rounds):
            for side in self.sides:
                self.console.print(f"[dim]{side}, round {number + 1}/{self.options.rounds}[/]")
                with tempfile.TemporaryDirectory(dir=self.folder) as own:
                    shutil.copytree(filled[side], own, dirs_exist_ok=True)
                    os.sync()
                    o = self.options
                    result = self._call("--step", [side, own, o.spread, o.seconds, o.burst])
                if "failed" in result:
                    self.console.print(f"{side} did not run: {result['failed']}")
                self.results[side].append(result)
                self.save()  # keep the results even if a later run fails
        self.load.append(os.getloadavg()[0])

    def _call(self, what: str, arguments: list[Any]) -> Run:
        command = [sys.executable, "-m", "benchmarks.timers", what, json.dumps(arguments)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=RUN_S, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"it took longer than {RUN_S:.0f} s"}
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
            return {"failed": lines[-1]}
        return dict(json.loads(done.stdout.splitlines()[-1]))

    # Results.

    def median(self, side: str, phase: str, what: str) -> float | None:
        found = [run[phase][what] for run in self.results[side] if "failed" not in run]
        return statistics.median(found) if found else None

    def show(self) -> None:
        self.console.print("\nwhat can be relied on:")
        for side in self.sides:
            self.console.print(f"  {side}: {timekeepers.SIDES[side].durable}", highlight=False)
        o = self.options
        titles = {
            "spread": f"{o.spread:,} timers due over {o.seconds:g} s",
            "burst": f"{o.burst:,} timers due at one moment",
        }
        for phase, title in titles.items():
            table = Table(title=f"{title}, with {o.pending:,} others pending")
            table.add_column("side")
            columns = ["set/s", "p50 ms late", "p99 ms late", "max ms late"]
            for column in (*columns, *(["fires/s"] if phase == "burst" else [])):
                table.add_column(column, justify="right")
            for side in self.sides:
                table.add_row(side, *self._row(side, phase))
            self.console.print(table)
        for line in self.verdicts():
            self.console.print(line, highlight=False)
        load = ", ".join(f"{value:.1f}" for value in self.load)
        self.console.print(f"bare syncs per second: {self.bare['per_second']:,.0f}")
        self.console.print(f"load of the machine, before and after: {load} on {os.cpu_count()}")

    def _row(self, side: str, phase: str) -> list[str]:
        if self.median(side, phase, "p50_ms") is None:
            return ["did not run"]
        row = [f"{self.median(side, phase, 'set_per_second'):,.0f}"]
        row += [f"{self.median(side, phase, what):,.1f}" for what in ("p50_ms", "p99_ms")]
        good = [run for run in self.results[side] if "failed" not in run]
        row.append(f"{max(run[phase]['max_ms'] for run in good):,.1f}")
        if phase == "burst":
            row.append(f"{self.median(side, phase, 'per_second'):,.0f}")
        return row

    def verdicts(self) -> Iterator[str]:
        """Comparisons with the others, and whether the target of lateness is met."""
        for phase, what, words in (
            ("spread", "p50_ms", "their median lateness in ours"),
            ("spread", "p99_ms", "their p99 lateness in ours"),
            ("burst", "per_second", "our fires per second in theirs"),
        ):
            ratios = {
                side: ratio
                for side in self.sides
                if side != "onceward" and (ratio := self.ratio(side, phase, what)) is not None
            }
            if ratios:
                found = ", ".join(f"{ratio:.1f} × {side}" for side, ratio in ratios.items())
                yield f"{phase}, {words}: {found}"
        for side in self.sides:
            for run in self.results[side]:
                if run.get("doubled") or run.get("lost"):
                    yield f"{side}: {run['lost']} lost, {run['doubled']} fired twice"
        late_ms = self.median("onceward", "spread", "p99_ms") if "onceward" in self.sides else None
        if late_ms is not None:
            good = "as wanted" if late_ms <= LATE_MS else "NOT as wanted"
            yield f"onceward, p99 {late_ms:.1f} ms late: {good} ({LATE_MS:.0f} ms)"

    def ratio(self, side: str, phase: str, what: str) -> float | None:
        """Compares adjacent rounds, so that other load on the machine affects both."""
        ratios = [
            ours[phase][what] / theirs[phase][what]
            for ours, theirs in zip(
                self.results.get("onceward", ()), self.results[side], strict=False
            )
            if "failed" not in ours and "failed" not in theirs
        ]
        if not ratios:
            return None
        ratio = statistics.median(ratios)
        return ratio if what == "per_second" else 1 / ratio

    def save(self) -> None:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "load": self.load,
            "bare": self.bare,
            "packages": {name: installed(name) for name in PACKAGES},
        }
        promises = {side: timekeepers.SIDES[side].durable for side in self.sides}
        names = ("pending", "spread", "seconds", "burst", "rounds")
        settings = {name: getattr(self.options, name) for name in names}
        document = {"machine": machine, "promises": promises, **settings, "results": self.results}
        self.options.save.parent.mkdir(exist_ok=True)
        self.options.save.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", default=",".join(timekeepers.SIDES))
    parser.add_argument("--pending", type=int, default=100_000, help="timers due in a year")
    parser.add_argument("--spread", type=int, default=2_000, help="timers due one after the other")
    parser.add_argument("--seconds", type=float, default=20, help="time over which they are due")
    parser.add_argument("--burst", type=int, default=3_000, help="timers due at the same moment")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all sides [3]")
    parser.add_argument("--folder", default=None, help="folder for files (on a real disk)")
    parser.add_argument("--save", type=Path, default=HERE / "results" / "timers.json")
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        name, folder, count = json.loads(options.fill)
        timekeepers.SIDES[name](Path(folder)).fill(count)
        print("{}")
        return
    if options.step:
        try:
            result = uvloop.run(step(*json.loads(options.step)))
        except Exception as error:
            result = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)
        os._exit(0)  # a side may leave threads running
    console = Console(width=None if sys.stdout.isatty() else 110)
    with tempfile.TemporaryDirectory(dir=options.folder or HERE, prefix="tmp-") as folder:
        bench = Bench(options, Path(folder), console)
        bench.run()
        bench.save()
        bench.show()


if __name__ == "__main__":
    main()
