"""The effect of poison jobs: the latency of healthy jobs beside the same number of failing ones.

First the capacity is measured: the jobs per second of one process with a constant backlog. Then
healthy jobs are sent at 30% of it, alone and together with an equal number of poison jobs in the
same queue, which fail at every attempt. The latency of a healthy job is the time from its planned
sending until its end is durable. The two kinds alternate, each on a new database.

By default a handler takes 25 to 75 ms, so that its concurrency is the bottleneck, as with most
handlers. Retries rank behind first attempts, so poison jobs get only free capacity. With `--work-ms
5` the process is the bottleneck: poison jobs with five attempts each exceed its capacity, and slow
down all other jobs of the process.
"""

import argparse
import asyncio
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.table import Table

from onceward.app import App
from onceward.engine.base import Put
from onceward.store.store import Commit
from onceward.testing.postgres import PostgresServer

PART = 0.3
CONCURRENCY = 16
AHEAD = 200


class Application(App):
    """An application that counts the attempts of poison jobs."""

    poisoned = 0


def application(url: str, work_s: float, attempts: int) -> Application:
    # The end of a run does not wait for the remaining poison jobs.
    app = Application(url, name="poison", drain_s=1)

    @app.handler("q", concurrency=CONCURRENCY, attempts_max=attempts)
    async def work(job: Any) -> None:
        await asyncio.sleep(work_s * random.uniform(0.5, 1.5))
        if job.body["poison"]:
            app.poisoned += 1
            raise ValueError("poison")
        job.tx.put(("effect", job.id), 1)

    return app


class Ends:
    """Records the ends of jobs as they become durable."""

    def __init__(self, app: App) -> None:
        self.at_s: dict[str, float] = {}
        self.news = asyncio.Event()
        app.store.on_durable(self.saw)

    def saw(self, commit: Commit) -> None:
        for write in commit.writes:
            if (
                type(write) is Put
                and write.key[1].endswith("#job")
                and b'"stage":"succeeded"' in write.value
            ):
                self.at_s[write.key[1].removesuffix("#job")] = time.perf_counter()
                self.news.set()

    async def until(self, count: int) -> None:
        while len(self.at_s) < count:
            self.news.clear()
            await self.news.wait()


async def capacity(url: str, seconds: float, work_s: float) -> float:
    """Jobs per second with a constant backlog."""
    async with application(url, work_s, 5) as app:
        ends, sent = Ends(app), 0
        start_s = time.perf_counter()
        measured_s, measured = start_s + 1, 0  # the first second is for warm-up
        while (now_s := time.perf_counter()) < start_s + 1 + seconds:
            if now_s < measured_s:
                measured = len(ends.at_s)
            while sent - len(ends.at_s) < AHEAD:
                await app.send("q", {"poison": False})
                sent += 1
            await ends.until(max(sent - AHEAD + 1, 0))
        return (len(ends.at_s) - measured) / seconds


async def latencies(
    url: str, rate: float, seconds: float, work_s: float, attempts: int, poison: bool
) -> tuple[list[float], int]:
    """The duration of each healthy job, and the number of attempts of poison jobs."""
    async with application(url, work_s, attempts) as app:
        ends, meant_s = Ends(app), {}
        start_s = time.perf_counter()

        async def send(at_s: float, bad: bool) -> None:
            id_ = (await app.send("q", {"poison": bad})).id
            if not bad:
                meant_s[id_] = at_s

        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                at_s = start_s + number / rate
                if (left_s := at_s - time.perf_counter()) > 0:
                    await asyncio.sleep(left_s)
                group.create_task(send(at_s, False))
                if poison:
                    group.create_task(send(at_s, True))
        await ends.until(len(meant_s))
    return [ends.at_s[id_] - at_s for id_, at_s in meant_s.items()], app.poisoned


@contextmanager
def databases(kind: str) -> Iterator[Iterator[str]]:
    """The URLs of new databases."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "sqlite":
            yield (f"sqlite:///{Path(folder) / str(n)}.db" for n in range(1_000))
        else:
            with PostgresServer() as server:
                yield (f"{server.url}?schema=poison_{n}" for n in range(1_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds per run [20]")
    parser.add_argument("--runs", type=int, default=3, help="runs of each kind [3]")
    parser.add_argument("--attempts", type=int, default=5, help="attempts per poison job [5]")
    parser.add_argument("--work-ms", type=float, default=50.0, help="duration of a handler [50]")
    wanted = parser.parse_args()
    logging.disable()
    work_s = wanted.work_ms / 1000
    with databases(wanted.engine) as urls, asyncio.Runner(loop_factory=uvloop.new_event_loop) as go:
        most = go.run(capacity(next(urls), wanted.seconds / 2, work_s))
        rate = PART * most
        results: dict[bool, list[tuple[float, float, int]]] = {False: [], True: []}
        for _ in range(wanted.runs):
            for poison in (False, True):
                times, tried = go.run(
                    latencies(next(urls), rate, wanted.seconds, work_s, wanted.attempts, poison)
                )
                cuts = statistics.quantiles(times, n=100)
                results[poison].append((cuts[49] * 1000, cuts[98] * 1000, tried))
    table = Table(title=f"{wanted.engine}: capacity {most:.0f} jobs/s, healthy {rate:.0f}/s")
    for column in ("", "p50 ms", "p99 ms", "attempts at poison"):
        table.add_column(column, justify="right")
    for poison, runs in results.items():
        for p50, p99, tried in runs:
            table.add_row(
                "with poison" if poison else "alone", f"{p50:.1f}", f"{p99:.1f}", f"{tried}"
            )
    Console().print(table)
    p99s = {kind: statistics.median(p99 for _, p99, _ in runs) for kind, runs in results.items()}
    ratio = p99s[True] / p99s[False]
    print(
        f"p99 with poison is {ratio:.2f} times that without: {'fine' if ratio < 2 else 'too much'}"
    )


if __name__ == "__main__":
    main()
