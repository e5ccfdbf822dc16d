"""Rooms with many readers, against Socket.IO, `ws`, Durable Objects, Hocuspocus and Colyseus.

    fan-out     one room with 100 and 1,000 readers; with 64 changes in flight, and one at a
    time half load   latency of changes at half of the rate found before many rooms  1,000 rooms
    of 10, each with one change in flight idle        memory for each of 10,000 connections in
    1,000 rooms return      10,000 connections that reconnect at once after the server was
    killed mute        100 readers beside 1,000 connections that never read

The server has one core, and the readers another. One program, reader.c, reads from all servers
and counts messages, while the processor time of the server is measured. Rates are per second of
the server's processor time. targets.py has the targets.

    python -m benchmarks.rooms [--quick] [--measures "fan-out,many rooms"] [--seconds 4]
        [--rounds 3]

The whole takes about 20 minutes; one measure with `--quick` less than two.
"""

import argparse
import json
import os
import platform
import resource
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.table import Table

from benchmarks.measure import below, memory_mib
from benchmarks.rooms.sides import SIDES, Side, compile_reader, install, large, packages, running
from benchmarks.rooms.targets import MAP, OURS, Run, judged, ratio

HERE = Path(__file__).parent
# Other sides run when they are named, and in `make bench-peers`.
USUAL = (OURS, MAP, "ws", "Socket.IO")
MEASURES = ("fan-out", "half load", "many rooms", "idle", "return", "mute")
# Measures of Onceward only.
ALONE = {"return": (MAP,), "mute": (OURS,)}
WINDOW = 64
TICKS = os.sysconf("SC_CLK_TCK")
# Memory does not vary between rounds.
ONCE = ("idle",)
# Beside connections that never read: messages of a size and number that fill all buffers to them
# before the end.
LARGE_BYTES, LARGE_PER_S, LARGE_S = 60_000, 5, 18.0
CUT_OFF_S = 20.0  # until the server has closed the last of them
READY_S = 300.0  # until all have reconnected


class Bench:
    """Runs the sides alternately and keeps the results."""

    def __init__(self, options: argparse.Namespace, folder: str, console: Console) -> None:
        self.options = options
        self.folder = folder
        self.console = console
        cores = sorted(os.sched_getaffinity(0))
        self.server_core, self.load_core = cores[0], cores[-1]
        self.reader = compile_reader(folder)
        self.results: dict[str, dict[str, list[Run]]] = {}

    def run(self) -> None:
        begun = time.monotonic()
        rounds = self.options.rounds
        for number in range(rounds):
            for measure in self.options.measures.split(","):
                if measure in ONCE and number:
                    continue
                for name in self.options.sides.split(";"):
                    if name not in ALONE.get(measure, SIDES):
                        continue
                    after = f"{time.monotonic() - begun:5.0f} s"
                    where = f"round {number + 1} of {rounds}"
                    self.console.print(f"[dim]{after}  {where}  {measure}: {name}[/]")
                    for case, result in self.measure(measure, SIDES[name]):
                        self.results.setdefault(case, {}).setdefault(name, []).append(result)
                        self.save()

    def measure(self, measure: str, side: Side) -> list[tuple[str, Run]]:
        many = self.options.many
        found: list[tuple[str, Run]] = []
        try:
            if measure == "fan-out":
                for readers in self.options.readers:
                    for window in self.options.windows:
                        case = saturated(readers, window)
                        found.append((case, self.load(side, readers, 1, window)))
            elif measure == "half load":
                for readers in self.options.readers:
                    known = self.results.get(saturated(readers), {}).get(side.name)
                    most = known[-1] if known else self.load(side, readers, 1, WINDOW)
                    rate = most["delivered"] / most["seconds"] / readers / 2
                    half = self.load(side, readers, 1, 100_000, rate)
                    found.append((f"half load, {readers:,} readers", half))
            elif measure == "many rooms":
                found.append((f"{many // 10:,} rooms of 10", self.load(side, many, many // 10, 1)))
            elif measure == "idle":
                found.append((f"{many:,} idle connections", self.idle(side, many)))
            elif measure == "return":
                found.append((f"{many:,} connections come back", self.come_back(side, many)))
            elif measure == "mute":
                found.append((f"{many // 10:,} never read", self.mute(side, 100, many // 10)))
            else:
                raise SystemExit(f"unknown measure {measure!r}; use {', '.join(MEASURES)}")
        except (RuntimeError, subprocess.SubprocessError, OSError) as error:
            self.console.print(f"{measure}: {side.name} did not run: {error}")
        return found

    def load(
        self,
        side: Side,
        readers: int,
        rooms: int,
        window: int,
        rate: float = 0.0,
        mutes: int = 0,
        seconds: float = 0.0,
    ) -> Run:
        """Run the readers; returns the received messages and the server's processor time."""
        with ExitStack() as stack:
            own = stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder))
            pid, port = stack.enter_context(running(side, own, self.server_core))
            baseline = resident_bytes(pid)
            for _ in range(mutes):
                stack.enter_context(mute(port, side))
            arguments = [self.reader, str(port), side.path, str(readers), str(rooms)]
            arguments += [str(seconds or self.options.seconds), str(window), f"{rate:.3f}"]
            arguments += [side.ready, side.setup, side.message, side.after]
            process = subprocess.Popen(
                arguments,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=lambda: os.sched_setaffinity(0, {self.load_core}),
            )
            marks: dict[str, float] = {}
            assert process.stderr is not None
            for line in process.stderr:
                marks[line.strip()] = cpu_seconds(pid)
                if line.strip() == "ready":
                    grown = resident_bytes(pid) - baseline
            out, _ = process.communicate(timeout=60)
            if process.returncode:
                raise RuntimeError(f"the readers failed: {list(marks)[-1:]}")
            result: Run = json.loads(out)
            result["cpu_s"] = marks["done"] - marks["measuring"]
            result["per_cpu_second"] = result["delivered"] / max(result["cpu_s"], 0.01)
            result["grown_bytes"] = grown
            result["bytes_per_connection"] = grown / (readers + rooms)
            result["resident_bytes"] = resident_bytes(pid)
            if mutes:
                result["mutes"] = mutes
                result["cut_off"] = mutes - connections_left(port)
                result["peak_bytes"] = peak_bytes(pid) - baseline
            return result

    def idle(self, side: Side, many: int) -> Run:
        """Measure memory only."""
        return self.load(side, many, many // 10, 1, rate=0.001, seconds=1.0)

    def mute(self, side: Side, readers: int, mutes: int) -> Run:
        """Measure beside connections that join and never read."""
        side = large(side, LARGE_BYTES)
        return self.load(side, readers, 1, 100_000, LARGE_PER_S, mutes, LARGE_S)

    def come_back(self, side: Side, many: int) -> Run:
        """Kill the server, restart it at the same address, and wait until all clients reconnect."""
        with ExitStack() as stack:
            own = stack.enter_context(tempfile.TemporaryDirectory(dir=self.folder))
            first = ExitStack()
            pid, port = first.enter_context(running(side, own, self.server_core))
            guests = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "benchmarks.rooms.returning", str(port), str(many)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    preexec_fn=lambda: os.sched_setaffinity(0, {self.load_core}),
                )
            )
            assert guests.stdin is not None
            assert guests.stdout is not None
            if line_within(guests.stdout, READY_S).strip() != "ready":
                raise RuntimeError("some clients did not connect initially")
            guests.stdin.write("\n")
            guests.stdin.flush()
            os.kill(pid, signal.SIGKILL)
            first.close()
            stack.enter_context(running(side, own, self.server_core, port))
            result: Run = json.loads(line_within(guests.stdout, READY_S))
            guests.stdin.close()
            return result

    # Results.

    def show(self) -> None:
        table = Table(title="rooms, the server on one core")
        for column in ("what", "side"):
            table.add_column(column)
        for column in ("per cpu second", "per second", "p50 ms", "p99 ms", "closed", "KB each"):
            table.add_column(column, justify="right")
        for case, sides in self.results.items():
            for name, runs in sides.items():
                table.add_row(case, name, *row(runs))
            table.add_section()
        self.console.print(table)
        for case, sides in self.results.items():
            for ours in (OURS, MAP):
                for name in sides:
                    if name not in (OURS, MAP) and (times := ratio(sides, ours, name)):
                        self.console.print(f"{case}: {ours} is {times:.2f} × {name}")
        self.console.print("\nwanted of us:")
        for target, found, met in judged(self.results):
            self.console.print(f"  {'met    ' if met else 'NOT MET'}  {target}: {found}")

    def save(self) -> None:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "load": os.getloadavg()[0],
            "packages": packages(),
        }
        document = {
            "machine": machine,
            "seconds": self.options.seconds,
            "rounds": self.options.rounds,
            "targets": [
                {"target": target, "found": found, "met": met}
                for target, found, met in judged(self.results)
            ],
            "results": self.results,
        }
        self.options.save.parent.mkdir(exist_ok=True)
        self.options.save.write_text(json.dumps(document, indent=1) + "\n")


def mute(port: int, side: Side) -> socket.socket:
    """A connection that joins the first room, and never reads again."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.sendall(
        f"GET {side.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    connection.recv(4096)
    setup = side.setup.replace("{room}", "0").replace("{i}", f"m{connection.fileno()}")
    for line in setup.splitlines():
        connection.sendall(bytes([0x81, 0x80 | len(line)]) + b"\0\0\0\0" + line.encode())
    return connection


def saturated(readers: int, window: int = WINDOW) -> str:
    """The name of a case."""
    return f"fan-out, {readers:,} readers, {window} under way"


def connections_left(port: int) -> int:
    """The number of connections of Onceward's server after it has closed slow readers."""
    until = time.monotonic() + CUT_OFF_S
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        [left] = [line.split()[1] for line in lines if line.startswith("onceward_connections ")]
        if not float(left) or time.monotonic() > until:
            return int(float(left))
        time.sleep(0.2)


def row(runs: list[Run]) -> list[str]:
    runs = [run for run in runs if "delivered" in run]
    if not runs:
        return [""] * 6

    def median(what: str) -> float:
        return statistics.median(run[what] for run in runs)

    per_second = statistics.median(run["delivered"] / run["seconds"] for run in runs)
    return [
        f"{median('per_cpu_second'):,.0f}",
        f"{per_second:,.0f}",
        f"{median('p50_ms'):.2f}",
        f"{median('p99_ms'):.2f}",
        f"{max(run['closed'] for run in runs)}",
        f"{median('bytes_per_connection') / 1000:.1f}",
    ]


def cpu_seconds(pid: int) -> float:
    """The processor time of a process and its descendants."""
    ticks = 0
    for one in (pid, *below(pid)):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def resident_bytes(pid: int) -> int:
    return int((memory_mib(pid) or 0.0) * 2**20)


def line_within(stream: IO[str], seconds: float) -> str:
    """The next line of a process's output. Raises `TimeoutError`."""
    if not select.select([stream], [], [], seconds)[0]:
        raise TimeoutError(f"no output for {seconds:.0f} s")
    return stream.readline()


def peak_bytes(pid: int) -> int:
    """The peak memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    [peak] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peak) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rooms", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--sides", default=";".join(USUAL), help="sides, separated by semicolons")
    parser.add_argument("--readers", type=int, nargs="+", default=[100, 1_000])
    parser.add_argument("--windows", type=int, nargs="+", default=[WINDOW, 1], help="in flight")
    parser.add_argument("--many", type=int, default=10_000, help="connections of large cases")
    parser.add_argument("--seconds", type=float, default=4, help="seconds per run of one side [4]")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all sides [3]")
    parser.add_argument("--folder", default=None, help="folder for files (on a real disk)")
    parser.add_argument("--save", type=Path, default=HERE.parent / "results" / "rooms.json")
    parser.add_argument("--quick", action="store_true", help="one round of short runs")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds = 2.0, 1
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    install()
    console = Console(width=None if sys.stdout.isatty() else 130)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder or HERE.parent, prefix="tmp-") as folder:
        bench = Bench(options, folder, console)
        bench.run()
        bench.show()
        bench.save()
    console.print(f"saved to {options.save}, after {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
