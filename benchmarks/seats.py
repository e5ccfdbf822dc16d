"""A table with a long line, against the usual line in PostgreSQL.

So many people wait (1,000, then 100,000); then one caller at a time joins, asks for a position,
leaves from anywhere, and lets the first in line sit down, thousands of times in turn. All of it is
durable (fsync) when it is answered; beside it a bare synced write is measured. Between the two is
a rest, in which what was written in a hurry is folded into the table, or vacuumed.

    onceward    a table on SQLite: join, place, leave and result, live view included
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
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from rich.console import Console
from rich.table import Table

from onceward.app import App
from onceward.testing.postgres import PostgresServer

DEEDS = ("join", "position", "leave", "next")
SYNC = "bare sync"
FILLERS = 64
POLICY = {"idle_ms": 0, "grace_ms": 0, "max_wins": 0}


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
        """The loser goes to the back, and the first in line sits down."""
        ending = await self.app.tables.result("t", ["first"])
        return next(user for user in ending.players.values() if user != "first")

    async def close(self) -> None:
        await self.app.stop()


class SkipLocked:
    """A line as it is usually built."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(self.url, min_size=4, max_size=16)
        await self.pool.execute(
            """
            DROP TABLE IF EXISTS waiting;
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
        """The first in line goes to the back, as a loser does."""
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
    """Let so many stand in line; says how many a second."""
    left = iter(range(count))

    async def some() -> None:
        for number in left:
            await side.join(f"w{number}")

    begun = time.perf_counter()
    await asyncio.gather(*[some() for _ in range(FILLERS)])
    return count / (time.perf_counter() - begun)


async def measure(side: Any, count: int, rounds: int, folder: str) -> dict[str, list[float]]:
    """Seconds that each deed took, one after another, and a synced write of 4 KiB."""
    chance = random.Random(1)
    there = [f"w{number}" for number in range(count)]
    took: dict[str, list[float]] = {name: [] for name in (*DEEDS, SYNC)}
    file = os.open(f"{folder}/sync", os.O_CREAT | os.O_WRONLY)
    os.pwrite(file, bytes(4_096), 0)

    async def sync() -> None:
        os.pwrite(file, bytes(4_096), 0)
        os.fdatasync(file)

    async def timed(name: str, deed: Callable[[], Awaitable[Any]]) -> Any:
        begun = time.perf_counter()
        found = await deed()
        took[name].append(time.perf_counter() - begun)
        return found

    for number in range(rounds):
        new = f"n{number}"
        await timed("join", lambda new=new: side.join(new))  # type: ignore[misc]
        there.append(new)
        # Those in front come to sit down: they are not asked for, and do not leave.
        user = there[chance.randrange(rounds, len(there))]
        await timed("position", lambda user=user: side.position(user))  # type: ignore[misc]
        place = chance.randrange(rounds, len(there))
        there[place], there[-1] = there[-1], there[place]
        gone = there.pop()
        await timed("leave", lambda gone=gone: side.leave(gone))  # type: ignore[misc]
        await timed("next", side.next)
        await timed(SYNC, sync)
    os.close(file)
    return took


def summary(took: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "median_ms": 1_000 * statistics.median(some),
            "p99_ms": 1_000 * sorted(some)[int(len(some) * 0.99)],
        }
        for name, some in took.items()
    }


async def run(options: argparse.Namespace, url: str) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for count in options.lines:
        for name in ("onceward", "skip-locked"):
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                side: Any = Ours(Path(folder)) if name == "onceward" else SkipLocked(url)
                await side.open()
                try:
                    filled = await fill(side, count)
                    await asyncio.sleep(options.rest)
                    took = await measure(side, count, options.rounds, folder)
                finally:
                    await side.close()
            results[f"{name} {count}"] = {"joins_per_s": filled, **summary(took)}
    return results


def show(options: argparse.Namespace, results: dict[str, Any]) -> None:
    table = Table(title=f"{options.rounds} of each, one caller; median / p99 in ms")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--rounds", type=int, default=900, help="of each deed (900)")
    parser.add_argument("--rest", type=float, default=15.0, help="seconds before measuring (15)")
    parser.add_argument("--folder", help="for the database; on the disk that is to be measured")
    parser.add_argument("--json", help="write the figures there")
    options = parser.parse_args()
    if options.rounds >= min(options.lines):
        parser.error("rounds must be fewer than those who wait")
    with PostgresServer() as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results = runner.run(run(options, server.url))
    show(options, results)
    if options.json:
        facts = {"machine": platform.platform(), "rounds": options.rounds, "results": results}
        Path(options.json).write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
