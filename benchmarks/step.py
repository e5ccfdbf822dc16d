"""One run of one side, in a separate process: prints its figures as JSON on the last line.

    python -m benchmarks.step '{"side": "benchmarks.peers:Huey", "measure": "work",
        "url": "sqlite:///…", "callers": 100, "seconds": 2, "size": 0}'

A side is a class that takes a URL and the number of callers. It has `open(measure)` and `close()`,
and one method for each measure it supports. If they are not coroutines, callers are threads. With
the measure `fill`, it only creates a number of waiting jobs; for `timers`, it has `set`.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys
from typing import Any

from benchmarks.measure import (
    Figures,
    measure_fan_out,
    measure_tasks,
    measure_threads,
    memory_mib,
)
from benchmarks.punctual import measure_punctuality

TIMERS_PER_SECOND = 200
# The methods of measures, if the name differs.
METHODS = {"waiting": "work", "threads": "work", "blocked": "work"}


async def run_tasks(side: Any, measure: str, callers: int, seconds: float, size: int) -> Figures:
    await side.open(measure)
    try:
        if measure == "fill":
            await side.fill(size)
            figures: Figures = {}
        elif measure == "fan_out":
            figures = await measure_fan_out(side.fan_out)
        elif measure == "timers":
            count = max(int(TIMERS_PER_SECOND * seconds), 1)
            figures = await measure_punctuality(side, count, seconds)
        else:
            call = getattr(side, METHODS.get(measure, measure))
            figures = await measure_tasks(call, callers, seconds)
        return with_memory(figures)
    finally:
        await side.close()


def run_threads(side: Any, measure: str, callers: int, seconds: float, size: int) -> Figures:
    side.open(measure)
    try:
        if measure == "fill":
            side.fill(size)
            return {}
        call = getattr(side, METHODS.get(measure, measure))
        return with_memory(measure_threads(call, callers, seconds))
    finally:
        side.close()


def with_memory(figures: Figures) -> Figures:
    mib = memory_mib()
    return figures if mib is None else {**figures, "mib": mib}


def run(
    side: str, measure: str, url: str, callers: int = 1, seconds: float = 1.0, size: int = 0
) -> Figures:
    module, _, name = side.partition(":")
    made = getattr(importlib.import_module(module), name)(url, callers)
    if not inspect.iscoroutinefunction(made.open):
        return run_threads(made, measure, callers, seconds, size)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run_tasks(made, measure, callers, seconds, size))


def main() -> None:
    figures: dict[str, Any]
    try:
        figures = dict(run(**json.loads(sys.argv[1])))
    except Exception as error:
        if os.environ.get("BENCH_TRACE"):
            raise
        figures = {"failed": f"{type(error).__name__}: {error}"}
    print("\n" + json.dumps(figures), flush=True)
    os._exit(0)  # a side may leave threads running


if __name__ == "__main__":
    main()
