"""A table with a long waitlist, against the usual queue in PostgreSQL.

With 1,000 and 100,000 waiting users, one caller at a time joins, asks for a position, leaves from
anywhere, and seats the first waiting user, hundreds of times in turn. Every response means durable
(fsync); a bare synced write is measured as well. Sides and sizes alternate, so that other activity
of the disk affects all of them. Before each measurement is a pause, in which recent writes are
folded into the table, or vacuumed. The whole is repeated with new databases; the results are
medians of these runs.

    onceward    a table on SQLite: join, place, leave and result, including the live view
    skip-locked rows with a serial number in PostgreSQL, on the same machine: INSERT; count(*) of
                the lower numbers; DELETE; and of the first by SELECT … FOR UPDATE SKIP LOCKED
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from rich.console import Console
from rich.table import Table

from onceward.app import App
from onceward.testing.postgres import PostgresServer

HERE = Path(__file__).parent
DEEDS = ("join", "position", "leave", "next")
JUDGED = ("join", "position", "leave")
MEDIAN_MS, P99_MS, TIMES = 2.0, 10.0, 2.0  # targets for the longest waitlist
SYNC = "bare sync"
FILLERS = 64
TURN = 10  # rounds of one side before the next side
POLICY = {"idle_s": 0, "grace_s": 0, "max_wins": 0}


class Ours:
    """A table of an application on SQLite."""

    def __init__(self, folder: Path) -> None:
        self.app = App(f"sqlite:///{folder}/seats.db")

    async def open(self) -> None:
        await self.app.start()
        await self.app.tables.create("t", policy=POLICY)
        for user in ("first", "second"):
            await self.app.tables.join("t", user)

    async def join(self, user: str) -> None:
        await self.app.tables.join("t", user)

    async def position(self, user: str) -> int:
        return (await self.app.tables.place("t", user)).position

    async def leave(self, user: str) -> None:
        await self.app.tables.leave("t", user)

    async def next(self) -> str:
        """The loser goes to the end of the waitlist, and the first waiting user sits down."""
        ending = await self.app.tables.result("t", ["first"])
        return next(user for user in ending.players.values() if user != "first")

    async def close(self) -> None:
        await self.app.stop()


class SkipLocked:
    """A queue as it is usually implemented in PostgreSQL."""

    def __init__(self, url: str, count: int) -> None:
        self.url = url
        self.schema = f"line{count}"

    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(
            self.url, min_size=4, max_size=16, server_settings={"search_path": self.schema}
        )
        await self.pool.execute(
            f"""
            CREATE SCHEMA {self.schema};
            CREATE TABLE waiting (
                number bigserial PRIMARY KEY, name text NOT NULL UNIQUE,
                since timestamptz NOT NULL DEFAULT now()
            )
            """
        )

    async def join(self, user: str) -> None:
        await self.pool.execute("INSERT INTO waiting (name) VALUES ($1)", user)

    async def position(self, user: str) -> int:
        found: int = await self.pool.fetchval(
            "SELECT count(*) FROM waiting "
            "WHERE number <= (SELECT number FROM waiting WHERE name = $1)",
            user,
        )
        return found

    async def leave(self, user: str) -> None:
        await self.pool.execute("DELETE FROM waiting WHERE name = $1", user)

    async def next(self) -> str:
        """The first waiting user goes to the end, like a loser."""
        async with self.pool.acquire() as link, link.transaction():
            user: str = await link.fetchval(
                "DELETE FROM waiting WHERE number = (SELECT number FROM waiting ORDER BY number "
                "FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING name"
            )
            await link.execute("INSERT INTO waiting (name) VALUES ($1)", user)
        return user

    async def close(self) -> None:
        await self.pool.close()


async def fill(side: Any, count: int) -> float:
    """Add `count` waiting users; returns the number per second."""
    left = iter(range(count))

    async def some() -> None:
        for number in left:
            await side.join(f"w{number}")

    begun = time.perf_counter()
    await asyncio.gather(*[some() for _ in range(FILLERS)])
    return count / (time.perf_counter() - begun)


class Measured:
    """The durations of all operations of one side in seconds, and of 4 KiB synced writes."""

    def __init__(self, side: Any, count: int, rounds: int, folder: Path) -> None:
        self.took: dict[str, list[float]] = {name: [] for name in (*DEEDS, SYNC)}
        self.joins_per_s = 0.0
        self._side = side
        self._chance = random.Random(1)
        # Users at the front will be seated: they are not queried, and do not leave.
        self._there = [f"w{number}" for number in range(rounds + FILLERS, count)]
        self._number = 0
        self._file = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY)
        os.pwrite(self._file, bytes(4_096), 0)

    async def round(self) -> None:
        side, there, chance = self._side, self._there, self._chance
        self._number += 1
        new = f"n{self._number}"
        await self._timed("join", side.join(new))
        there.append(new)
        await self._timed("position", side.position(chance.choice(there)))
        place = chance.randrange(len(there))
        there[place], there[-1] = there[-1], there[place]
        await self._timed("leave", side.leave(there.pop()))
        await self._timed("next", side.next())
        await self._timed(SYNC, self._sync())

    async def _sync(self) -> None:
        os.pwrite(self._file, bytes(4_096), 0)
        os.fdatasync(self._file)

    async def _timed(self, name: str, deed: Awaitable[Any]) -> None:
        begun = time.perf_counter()
        await deed
        self.took[name].append(time.perf_counter() - begun)


def summary(took: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "median_ms": 1_000 * statistics.median(some),
            "p99_ms": 1_000 * sorted(some)[int(len(some) * 0.99)],
        }
        for name, some in took.items()
    }


async def run(options: argparse.Namespace, url: str, folder: Path) -> dict[str, Any]:
    measured: dict[str, Measured] = {}
    async with AsyncExitStack() as stack:
        for count in options.lines:
            for name in ("onceward", "skip-locked"):
                own = folder / f"{name}-{count}"
                own.mkdir()
                side: Any = Ours(own) if name == "onceward" else SkipLocked(url, count)
                await side.open()
                stack.push_async_callback(side.close)
                one = measured[f"{name} {count}"] = Measured(side, count, options.rounds, own)
                one.joins_per_s = await fill(side, count)
        await asyncio.sleep(options.rest)
        for _ in range(0, options.rounds, TURN):
            for one in measured.values():
                for _ in range(TURN):
                    await one.round()
    return {
        key: {"joins_per_s": one.joins_per_s, **summary(one.took)} for key, one in measured.items()
    }


def middle(runs: list[Any]) -> Any:
    """The median of each figure."""
    if isinstance(runs[0], dict):
        return {key: middle([run[key] for run in runs]) for key in runs[0]}
    return statistics.median(runs)


def show(options: argparse.Namespace, results: dict[str, Any]) -> None:
    title = f"{options.rounds} of each, one caller; median / p99 in ms, of {options.runs} runs"
    table = Table(title=title)
    table.add_column("line", justify="right")
    table.add_column("")
    for name in (*DEEDS, SYNC):
        table.add_column(name, justify="right")
    table.add_column("joins/s", justify="right")
    for key, found in results.items():
        name, count = key.rsplit(" ", 1)
        measured = [found[deed] for deed in (*DEEDS, SYNC)]
        cells = [f"{one['median_ms']:.2f} / {one['p99_ms']:.2f}" for one in measured]
        table.add_row(f"{int(count):,}", name, *cells, f"{found['joins_per_s']:,.0f}")
    console = Console(width=120)
    console.print(table)
    few, many = min(options.lines), max(options.lines)
    for side in ("onceward", "skip-locked"):
        before, after = results[f"{side} {few}"], results[f"{side} {many}"]
        ratios = ", ".join(
            f"{name} {after[name]['median_ms'] / before[name]['median_ms']:.2f}" for name in DEEDS
        )
        console.print(f"{side}: {many:,} against {few:,}, times the median: {ratios}")
    ours = results[f"onceward {many}"]
    for name in JUDGED:
        times = ours[name]["median_ms"] / results[f"onceward {few}"][name]["median_ms"]
        median, p99 = ours[name]["median_ms"], ours[name]["p99_ms"]
        fine = median < MEDIAN_MS and p99 < P99_MS and times <= TIMES
        console.print(
            f"{name}: {median:.2f} ms (aim: {MEDIAN_MS:g}), p99 {p99:.2f} ms (aim: {P99_MS:g}), "
            f"{times:.2f} times (aim: {TIMES:g}): {'reached' if fine else 'missed'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--rounds", type=int, default=800, help="rounds of each operation [800]")
    parser.add_argument("--rest", type=float, default=15.0, help="seconds before measuring [15]")
    parser.add_argument("--folder", help="folder for the database, on the disk to measure")
    parser.add_argument("--runs", type=int, default=3, help="runs with new databases [3]")
    parser.add_argument("--save", type=Path, default=HERE / "results" / "seats.json")
    options = parser.parse_args()
    if options.rounds > min(options.lines) * 8 // 10:
        parser.error("rounds must be fewer than those who wait in front")
    runs = [once(options) for _ in range(options.runs)]
    results = middle(runs)
    show(options, results)
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    options.save.parent.mkdir(exist_ok=True)
    facts = {"machine": machine, "rounds": options.rounds, "results": results, "runs": runs}
    options.save.write_text(json.dumps(facts, indent=1) + "\n")


def once(options: argparse.Namespace) -> dict[str, Any]:
    """One run, with new databases."""
    with (
        PostgresServer() as server,
        tempfile.TemporaryDirectory(dir=options.folder or HERE, prefix="tmp-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(run(options, server.url, Path(folder)))


if __name__ == "__main__":
    main()
