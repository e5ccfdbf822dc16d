"""What long runs measure: shown, and kept beside the results of benchmarks."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.server_process import ROOT

RESULTS = ROOT / "benchmarks" / "results"


def lateness(late_ms: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    late = sorted(late_ms)
    found = {"p50_ms": late[len(late) // 2], "p99_ms": late[int(len(late) * 0.99)]}
    return {name: round(value, 1) for name, value in (found | {"max_ms": late[-1]}).items()}


def show(name: str, figures: dict[str, Any], wanted: dict[str, bool], soak: bool) -> None:
    """Print figures, and whether they are as wanted; those of a long run are kept."""
    load = os.getloadavg()[0]
    print(f"\n{name}: {figures}, load {load:.1f} on {os.cpu_count()} cores")
    if soak:
        for what, met in wanted.items():
            print(f"  {what}: {'as wanted' if met else 'NOT as wanted'}")
        document = {"figures": figures, "wanted": wanted, "load": load, "cores": os.cpu_count()}
        RESULTS.mkdir(exist_ok=True)
        file = RESULTS / f"soak-timers-{name}.json"
        file.write_text(json.dumps(document, indent=1) + "\n")


def rss_bytes(pid: int) -> int:
    """How much memory a process takes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
