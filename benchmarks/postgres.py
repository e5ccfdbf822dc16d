"""The PostgreSQL engine against the two usual ways to run the same transaction.

Each transaction reads 2 records, and commits 3 puts and 1 delete of 200-byte values that check both
reads, durably (fsync). A server with its default settings runs on the same machine. The sides run
in separate processes, alternating, each on a separate table.

    statements  one round trip for each statement: BEGIN, 2 SELECT … FOR UPDATE, 3 upserts,
                1 DELETE, COMMIT, on a connection from a pool
        function    one call of a function in the server for each transaction, including reads
    onceward    the engine: a get, then a commit
    store       the same as a transaction of the store
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import uvloop
from rich.console import Console
from rich.table import Table

from onceward.engine.base import ABSENT, Delete, Put
from onceward.engine.postgres import PostgresEngine
from onceward.store import Store
from onceward.testing.postgres import PostgresServer

HERE = Path(__file__).parent
PARTITIONS = [f"part#{i:02d}" for i in range(64)]
STATE = {"state": "x" * 188}
VALUE = json.dumps(STATE).encode()
TEXT = VALUE.decode()
ALIVE = 64
CONNECTIONS_MAX = 16
SIDES = ("statements", "function", "onceward", "store")
Key = tuple[str, str]
# A transaction: keys to read and remove, read and change, insert, and put blindly.
Transaction = Callable[[Key, Key, Key, Key], Awaitable[None]]

_SCHEMA = """
DROP SCHEMA IF EXISTS peer CASCADE;
CREATE SCHEMA peer;
CREATE TABLE peer.record (
    partition text COLLATE "C" NOT NULL, sort text COLLATE "C" NOT NULL,
    value text NOT NULL, version bigint NOT NULL, expires_at_ms bigint,
    PRIMARY KEY (partition, sort)
) WITH (fillfactor = 85);
CREATE INDEX ON peer.record (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
CREATE SEQUENCE peer.version;
CREATE FUNCTION peer.transact(
    dying text[], changing text[], born text[], head text[], content text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    made bigint := nextval('peer.version');
    first bigint;
    second bigint;
BEGIN
    SELECT version INTO first FROM peer.record
        WHERE partition = dying[1] AND sort = dying[2] FOR UPDATE;
    SELECT version INTO second FROM peer.record
        WHERE partition = changing[1] AND sort = changing[2] FOR UPDATE;
    IF first IS NULL OR second IS NULL THEN
        RAISE EXCEPTION 'changed meanwhile';
    END IF;
    INSERT INTO peer.record VALUES (born[1], born[2], content, made)
        ON CONFLICT (partition, sort) DO UPDATE SET value = content, version = made;
    INSERT INTO peer.record VALUES (changing[1], changing[2], content, made)
        ON CONFLICT (partition, sort) DO UPDATE SET value = content, version = made;
    INSERT INTO peer.record VALUES (head[1], head[2], content, made)
        ON CONFLICT (partition, sort) DO UPDATE SET value = content, version = made;
    DELETE FROM peer.record WHERE partition = dying[1] AND sort = dying[2];
    RETURN made;
END $$;
"""
_SELECT = "SELECT value, version FROM peer.record WHERE partition = $1 AND sort = $2 FOR UPDATE"
_UPSERT = """
INSERT INTO peer.record VALUES ($1, $2, $3, nextval('peer.version'))
ON CONFLICT (partition, sort) DO UPDATE SET value = excluded.value, version = excluded.version
"""
_DELETE = "DELETE FROM peer.record WHERE partition = $1 AND sort = $2"


class Pool:
    """A FIFO pool of connections without resets."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._count = count
        self._free: list[Any] = []
        self._waiting: deque[asyncio.Future[Any]] = deque()

    async def open(self) -> None:
        self._free = [await asyncpg.connect(self._url) for _ in range(self._count)]

    @asynccontextmanager
    async def connection(self) -> Any:
        if self._free:
            connection = self._free.pop()
        else:
            self._waiting.append(asyncio.get_running_loop().create_future())
            connection = await self._waiting[-1]
        yield connection
        if self._waiting:
            self._waiting.popleft().set_result(connection)
        else:
            self._free.append(connection)

    async def close(self) -> None:
        for connection in self._free:
            await connection.close()


class Statements:
    """One round trip for each statement."""

    def __init__(self, url: str, callers: int) -> None:
        self.pool = Pool(url, min(callers, CONNECTIONS_MAX))

    async def open(self) -> None:
        await self.pool.open()

    async def close(self) -> None:
        await self.pool.close()

    async def fill(self, keys: list[Key]) -> None:
        async with self.pool.connection() as connection:
            await connection.executemany(_UPSERT, [(*key, TEXT) for key in keys])

    async def transact(self, dying: Key, changing: Key, born: Key, head: Key) -> None:
        async with self.pool.connection() as connection:
            await connection.execute("BEGIN")
            first = await connection.fetchrow(_SELECT, *dying)
            second = await connection.fetchrow(_SELECT, *changing)
            assert first is not None
            assert second is not None
            for key in (born, changing, head):
                await connection.execute(_UPSERT, *key, TEXT)
            await connection.execute(_DELETE, *dying)
            await connection.execute("COMMIT")


class Function(Statements):
    """One call for each transaction."""

    async def transact(self, dying: Key, changing: Key, born: Key, head: Key) -> None:
        async with self.pool.connection() as connection:
            await connection.fetchval(
                "SELECT peer.transact($1, $2, $3, $4, $5)", dying, changing, born, head, TEXT
            )


class Onceward:
    """The engine."""

    def __init__(self, url: str, callers: int) -> None:
        self.engine = PostgresEngine(url)

    async def open(self) -> None:
        await self.engine.open()

    async def close(self) -> None:
        await self.engine.close()

    async def fill(self, keys: list[Key]) -> None:
        await self.engine.commit([Put(key, VALUE, None, ABSENT) for key in keys], 0)

    async def transact(self, dying: Key, changing: Key, born: Key, head: Key) -> None:
        a, b = await self.engine.get([dying, changing], 0)
        assert a is not None
        assert b is not None
        await self.engine.commit(
            [
                Put(born, VALUE, None, ABSENT),
                Put(changing, VALUE, None, b.version),
                Put(head, VALUE),
                Delete(dying, a.version),
            ],
            0,
        )


class InStore(Onceward):
    """The engine through the store, as in applications."""

    async def open(self) -> None:
        await super().open()
        self.store = Store(self.engine)

    async def transact(self, dying: Key, changing: Key, born: Key, head: Key) -> None:
        async def fn(tx: Any) -> None:
            await tx.get_many([dying, changing])
            tx.put(born, STATE)
            tx.put(changing, STATE)
            tx.put(head, STATE)
            tx.delete(dying)

        await self.store.run(fn)


CLASSES = dict(zip(SIDES, (Statements, Function, Onceward, InStore), strict=True))


async def work(side: str, url: str, callers: int, seconds: float) -> dict[str, float]:
    """The run of one side, in a separate process."""
    peer = CLASSES[side](url, callers)
    await peer.open()
    latencies: list[float] = []
    chance = random.Random(1)

    async def caller(number: int, until: float) -> None:
        """The life of a job: put as new, read and put again, read and deleted."""
        head = ("head", f"{number:016d}")

        def new_key() -> Key:
            name = f"{chance.getrandbits(64):016x}#{number:04d}"
            return PARTITIONS[chance.getrandbits(6)], name

        alive = deque(new_key() for _ in range(ALIVE))
        await peer.fill(list(alive))
        while (start := time.perf_counter()) < until:
            born = new_key()
            await peer.transact(alive[0], alive[ALIVE // 2], born, head)
            latencies.append(time.perf_counter() - start)
            alive.popleft()
            alive.append(born)

    start, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*[caller(number, start + seconds) for number in range(callers)])
    took = time.perf_counter() - start
    cpu = time.process_time() - used
    await peer.close()
    latencies.sort()
    count = len(latencies)
    return {
        "count": count,
        "per_second": count / took,
        "p50_ms": latencies[count // 2] * 1e3,
        "p99_ms": latencies[int(count * 0.99)] * 1e3,
        "max_ms": latencies[-1] * 1e3,
        "client_us": cpu / count * 1e6,
    }


async def clean(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("DROP SCHEMA IF EXISTS onceward CASCADE")
    await connection.execute(_SCHEMA)
    await connection.execute("CHECKPOINT")
    await connection.close()


def cpu_seconds(pid: int) -> float:
    """The processor time of a process, its children, and children that have ended."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            own, parent = int(file.parent.name), file.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if own == pid:
            ticks += sum(map(int, parent[11:15]))
        elif int(parent[1]) == pid:
            ticks += sum(map(int, parent[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Bench:
    """Runs the sides alternately and keeps the results."""

    def __init__(self, server: PostgresServer, seconds: float, rounds: int) -> None:
        self.server = server
        self.seconds = seconds
        self.rounds = rounds
        self.console = Console(width=None if sys.stdout.isatty() else 100)
        self.results: dict[str, dict[str, list[dict[str, float]]]] = {}

    def compare(self, callers: int, sides: list[str]) -> None:
        case = f"{callers} caller{'s' if callers > 1 else ''}"
        for number in range(self.rounds):
            for side in sides:
                seconds = self.seconds / self.rounds
                self.console.print(
                    f"[dim]{case}: {side}, round {number + 1}/{self.rounds}, {seconds:.0f} s[/]"
                )
                asyncio.run(clean(self.server.url))
                used = cpu_seconds(self.server.pid)
                command = [
                    sys.executable,
                    "-m",
                    "benchmarks.postgres",
                    "--work",
                    side,
                    self.server.url,
                ]
                done = subprocess.run(
                    [*command, str(callers), str(seconds)], stdout=subprocess.PIPE, check=True
                )
                measured = json.loads(done.stdout)
                count = measured.pop("count")
                used = cpu_seconds(self.server.pid) - used
                measured["server_us"] = used / count * 1e6
                self.results.setdefault(case, {}).setdefault(side, []).append(measured)

    def median(self, case: str, side: str, what: str) -> float:
        return statistics.median(run[what] for run in self.results[case][side])

    def show(self) -> None:
        table = Table(title="transactions of 2 checked reads, 3 puts, 1 delete; durable")
        numbers = ("per second", "p50 ms", "p99 ms", "max ms", "client µs", "server µs")
        for column in ("case", "side", *numbers):
            table.add_column(column, justify="left" if column in ("case", "side") else "right")
        for case, sides in self.results.items():
            for side, runs in sides.items():
                row = [f"{self.median(case, side, 'per_second'):,.0f}"]
                row += [f"{self.median(case, side, w):.2f}" for w in ("p50_ms", "p99_ms")]
                row.append(f"{max(run['max_ms'] for run in runs):.1f}")
                row += [f"{self.median(case, side, w):.0f}" for w in ("client_us", "server_us")]
                table.add_row(case, side, *row)
        self.console.print(table)
        for case, sides in self.results.items():
            for side in ("statements", "function"):
                if {side, "onceward"} <= set(sides):
                    rate, effort = self.ratios(case, side)
                    self.console.print(
                        f"{case}: {rate:.1f} times the rate of {side}, with {effort:.2f} of the "
                        "processor time for each transaction"
                    )

    def ratios(self, case: str, side: str) -> tuple[float, float]:
        """Compares adjacent rounds, so that other load on the machine affects both."""
        pairs = list(zip(self.results[case]["onceward"], self.results[case][side], strict=True))
        return (
            statistics.median(ours["per_second"] / theirs["per_second"] for ours, theirs in pairs),
            statistics.median(
                (ours["client_us"] + ours["server_us"])
                / (theirs["client_us"] + theirs["server_us"])
                for ours, theirs in pairs
            ),
        )

    def save(self, path: Path) -> None:
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "asyncpg": asyncpg.__version__,
            "system": platform.platform(),
        }
        path.parent.mkdir(exist_ok=True)
        settings = {"seconds": self.seconds, "rounds": self.rounds}
        document = {"machine": machine, **settings, "results": self.results}
        path.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--callers", default="1,16,64")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--seconds", type=float, default=30, help="seconds per side of a case [30]")
    parser.add_argument(
        "--rounds", type=int, default=10, help="rounds to split the seconds into [10]"
    )
    parser.add_argument("--save", type=Path, default=HERE / "results" / "postgres.json")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        side, url, callers, seconds = options.work
        print(json.dumps(uvloop.run(work(side, url, int(callers), float(seconds)))))
        return
    with PostgresServer() as server:
        bench = Bench(server, options.seconds, options.rounds)
        for callers in options.callers.split(","):
            bench.compare(int(callers), options.sides.split(","))
        bench.show()
        bench.save(options.save)
        bench.console.print(f"saved to {options.save}")


if __name__ == "__main__":
    main()
