"""Metrics of the process and of the disk with its database."""

import os
import resource
import sys
from collections.abc import Mapping
from functools import cache
from glob import escape, glob


def process_metrics() -> dict[str, float]:
    """CPU time, memory, open files and start of the process, as far as the system has them."""
    times = os.times()
    found: dict[str, float] = {
        "process_cpu_seconds": times.user + times.system,
        "process_resident_memory_bytes": _resident_bytes(),
    }
    try:
        # Without the descriptor of the listing itself.
        found["process_open_fds"] = len(os.listdir("/dev/fd")) - 1
    except OSError:
        pass
    found["process_max_fds"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if (started_s := _started_s()) is not None:
        found["process_start_time_seconds"] = started_s
    return found


def disk_metrics(path: str) -> Mapping[str, float]:
    """The size of a SQLite database with its journal, and the free space of its disk. Empty for
    other databases, which have no path."""
    if not path:
        return {}
    try:
        disk = os.statvfs(os.path.dirname(path))
        files = [path, *glob(f"{escape(path)}-log.*")]
        used_bytes = sum(_file_bytes(file) for file in files)
    except OSError:
        return {}
    return {"database_bytes": used_bytes, "disk_free_bytes": disk.f_bavail * disk.f_frsize}


def _file_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0  # a journal segment that was folded in between


def _resident_bytes() -> float:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        # Without /proc, the highest value until now.
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@cache
def _started_s() -> float | None:
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name of the program, in parentheses, can contain anything.
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/stat", "rb") as file:
            [booted] = [line for line in file if line.startswith(b"btime")]
        return int(booted.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return None
