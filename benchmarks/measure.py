"""Measures repeated calls of concurrent callers, and summarizes the results.

Needs only the standard library: it also runs in environments where Onceward is not installed.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from onceward.clock import boot_ns

# The body of all messages, and the number of order keys.
BODY: dict[str, Any] = {"text": "x" * 100}
ORDER_KEYS = 10
# The children of one parent in the measure `fan_out`.
CHILDREN = 10_000
# Plain functions run in this number of threads. With the measure `blocked`, each waits.
THREADS = 8
BLOCKED_S = 0.005
# The first part of the time is for warm-up and does not count.
WARM_PART = 0.2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

Figures = dict[str, float]
"""Results of a run: `per_second`, `p50_ms`, `p99_ms`, `max_ms`, and `cpu_us` per call."""


def summary(took_ns: Sequence[int], passed_ns: int, cpu_s: float | None = None) -> Figures:
    """The figures of calls with these durations, in a total time."""
    if not took_ns:
        raise ValueError("no call ended; measure for longer")
    ordered = sorted(took_ns)
    calls = len(ordered)
    figures = {
        "per_second": calls / max(passed_ns, 1) * 1e9,
        "p50_ms": ordered[calls // 2] / 1e6,
        "p99_ms": ordered[int(calls * 0.99)] / 1e6,
        "max_ms": ordered[-1] / 1e6,
    }
    if cpu_s is not None:
        figures["cpu_us"] = cpu_s / calls * 1e6
    return figures


async def measure_tasks(
    call: Callable[[str], Awaitable[object]], callers: int, seconds: float
) -> Figures:
    """Call it from `callers` tasks, each at least once and with a new name, after a warm-up. Raises
    the errors of calls."""

    async def caller(name: str, until_ns: int, took_ns: list[int]) -> None:
        for number in count():
            start_ns = boot_ns()
            await call(f"{name}-{number}")
            took_ns.append(boot_ns() - start_ns)
            if boot_ns() >= until_ns:
                return

    figures: Figures = {}
    for part in (WARM_PART, 1.0):
        took_ns: list[int] = []
        start_ns, used_s = boot_ns(), cpu_seconds()
        until_ns = start_ns + int(seconds * part * 1e9)
        tasks = [
            asyncio.create_task(caller(f"{n}-{part}", until_ns, took_ns)) for n in range(callers)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        figures = summary(took_ns, boot_ns() - start_ns, cpu_seconds() - used_s)
    return figures


async def measure_fan_out(call: Callable[[str, int], Awaitable[object]]) -> Figures:
    """Run one parent with `CHILDREN` children, after a smaller one. The duration is that of the
    whole call."""
    figures: Figures = {}
    for children in (CHILDREN // 100, CHILDREN):
        start_ns, used_s = boot_ns(), cpu_seconds()
        await call(f"parent-{children}", children)
        passed_ns = boot_ns() - start_ns
        figures = {
            "per_second": children / passed_ns * 1e9,
            **dict.fromkeys(("p50_ms", "p99_ms", "max_ms"), passed_ns / 1e6),
            "cpu_us": (cpu_seconds() - used_s) / children * 1e6,
        }
    return figures


def measure_threads(call: Callable[[str], object], callers: int, seconds: float) -> Figures:
    """The same for callers that are threads."""

    def caller(name: str, until_ns: int, took_ns: list[int], failed: list[Exception]) -> None:
        try:
            for number in count():
                start_ns = boot_ns()
                call(f"{name}-{number}")
                took_ns.append(boot_ns() - start_ns)
                if boot_ns() >= until_ns:
                    return
        except Exception as error:
            failed.append(error)

    figures: Figures = {}
    for part in (WARM_PART, 1.0):
        took_ns: list[int] = []
        failed: list[Exception] = []
        start_ns, used_s = boot_ns(), cpu_seconds()
        until_ns = start_ns + int(seconds * part * 1e9)
        threads = [
            threading.Thread(target=caller, args=(f"{n}-{part}", until_ns, took_ns, failed))
            for n in range(callers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        figures = summary(took_ns, boot_ns() - start_ns, cpu_seconds() - used_s)
    return figures


def body_of(measure: str) -> dict[str, Any]:
    """The body of messages for a handler."""
    return {**BODY, "wait_s": BLOCKED_S} if measure == "blocked" else BODY


def plain(body: Any) -> str:
    """The handler of measures with threads: blocks its thread if the body has a time for it."""
    if "wait_s" in body:
        time.sleep(body["wait_s"])
    return str(body["text"][:1])


def caller_number(name: str) -> int:
    """The number of the caller that uses a name."""
    return int(name.partition("-")[0])


def cpu_seconds() -> float:
    """The processor time of this process and its running children."""
    times = os.times()
    return times.user + times.system + sum(map(_cpu_seconds_of, _children()))


def _children() -> list[int]:
    try:
        return below(os.getpid())
    except OSError:
        return []  # not supported by the system


def _cpu_seconds_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has just ended
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int | None = None) -> float | None:
    """The resident memory of a process and its descendants; None if the system does not report
    it."""
    root = os.getpid() if pid is None else pid
    try:
        return sum(map(_resident_mib, [root, *below(root)]))
    except OSError:
        return None


def _resident_mib(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES / 2**20
    except ProcessLookupError:
        return 0.0  # it has just ended


def below(pid: int) -> list[int]:
    """The descendants of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            children = [int(child) for child in (task / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            try:
                found += [child, *below(child)]
            except FileNotFoundError:
                continue
    return found
