"""CPU time of operations that share commits, compared between two versions of the code.

    python -m benchmarks.sharing --run accept        one case, CPU microseconds per operation
    python -m benchmarks.sharing --against OTHER     this tree and another one in turns

A case performs a fixed number of operations. For a comparison each tree has a process, and they
take turns of a fraction of a second: so other load on the machine affects both. The table shows
medians, the median of the ratios of the pairs, and the ratio of the least figures. Cases that end
in `-pg` run on a PostgreSQL server on the same machine, and count the CPU time of the client.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import uvloop

from onceward.api.room_changes import MapSet
from onceward.app import App
from onceward.rooms.frames import Join, Step
from onceward.testing.postgres import PostgresServer

BODY = {"text": "x" * 100}
ROOMS = 200
PG = "-pg"


async def spread(callers: int, each: int, call: Callable[[int, int], Awaitable[object]]) -> int:
    """Make `each` calls from each of `callers` tasks; returns the number of calls."""

    async def caller(number: int) -> None:
        for turn in range(each):
            await call(number, turn)

    await asyncio.gather(*[caller(number) for number in range(callers)])
    return callers * each


async def accept(app: App, scale: int, run: str) -> int:
    return await spread(100, scale, lambda n, t: app.send("q", BODY, key=f"{run}-{n}-{t}"))


async def accept_one(app: App, scale: int, run: str) -> int:
    return await spread(1, 50 * scale, lambda n, t: app.send("q", BODY, key=f"{run}-{t}"))


async def accept_many(app: App, scale: int, run: str) -> int:
    def messages(n: int, t: int) -> list[dict[str, Any]]:
        return [{"body": BODY, "key": f"{run}-{n}-{t}-{m}"} for m in range(100)]

    return 100 * await spread(2, scale, lambda n, t: app.send_many("q", messages(n, t)))


async def work(app: App, scale: int, run: str) -> int:
    async def call(n: int, t: int) -> None:
        receipt = await app.send("work", BODY, key=f"{run}-{n}-{t}")
        await app.wait(receipt.id, 60)

    return await spread(100, scale, call)


async def complete(app: App, scale: int, run: str) -> int:
    """Jobs that other workers complete, claimed in batches."""
    count = 100 * scale
    for start in range(0, count, 1000):
        messages = [{"body": 1, "key": f"{run}-{start + n}"} for n in range(1000)]
        await app.send_many("claimed", messages[: count - start])
    left = count
    while left:
        claims = await app.claim("claimed", "w", lease_s=60, max=min(100, left))
        left -= len(claims)
        await asyncio.gather(*[app.complete(claim.id, claim.token) for claim in claims])
    return count


async def join(app: App, scale: int, run: str) -> int:
    table = f"t{run}"
    await app.tables.create(table, policy={"idle_s": 0, "grace_s": 0})
    return await spread(64, scale, lambda n, t: app.tables.join(table, f"u{n}-{t}"))


async def lock(app: App, scale: int, run: str) -> int:
    async def call(n: int, t: int) -> None:
        async with app.locks.hold(f"own-{n}", wait_s=60):
            pass

    return await spread(100, scale, call)


class Wire:
    """A connection without a network: it counts the messages it is sent."""

    pending = 0
    idle: asyncio.Event

    def send(self, frames: bytes) -> None:
        Wire.pending -= 1
        if not Wire.pending:
            Wire.idle.set()

    def close(self, code: int, reason: str) -> None: ...
    def authenticate(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Visitor:
    """A connected user."""

    until_ms = None

    def __init__(self, name: str) -> None:
        self.name = self.user = name

    def may(self, action: str, name: str) -> bool:
        return True


async def rooms(app: App, scale: int, run: str) -> int:
    """Steps of many rooms in the same turn of the event loop."""
    Wire.idle = asyncio.Event()
    members: list[Any] = []
    for number in range(ROOMS):
        session = app.hub.connect(Wire(), Visitor(f"u{number}"))  # type: ignore[arg-type]
        room = f"r{run}-{number}"
        members.append(await app.hub.join(session, Join(room, f"c{number}", create=True)))
    await asyncio.sleep(0.05)  # until all have joined
    for n in range(1, scale + 1):
        Wire.idle.clear()
        Wire.pending = len(members)
        for member in members:
            member.submit(Step(n, [MapSet("m", "k", n)]))
        await Wire.idle.wait()
    return ROOMS * scale


CASES: dict[str, tuple[Callable[[App, int, str], Awaitable[int]], int]] = {
    "accept": (accept, 30),
    "accept-one": (accept_one, 5),
    "accept-many": (accept_many, 15),
    "work": (work, 15),
    "complete": (complete, 10),
    "join": (join, 10),
    "lock": (lock, 10),
    "rooms": (rooms, 15),
}
"""Each case with its scale."""


async def measure(name: str, url: str) -> None:
    """Print the CPU time of an operation in microseconds, once for each line of input."""
    case, scale = CASES[name.removesuffix(PG)]
    app = App(url)

    @app.handler("work", concurrency=100)
    async def handle(job: Any) -> int:
        return 1

    async with app:
        await case(app, scale, "warm")
        for number, _ in enumerate(sys.stdin):
            begun = time.process_time()
            count = await case(app, scale, str(number))
            print((time.process_time() - begun) / count * 1e6, flush=True)


def run(name: str) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder,
        PostgresServer() if name.endswith(PG) else nullcontext() as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        url = f"sqlite:///{folder}/bench.db" if server is None else server.url
        runner.run(measure(name, url))


class Side:
    """A process of one tree."""

    def __init__(self, tree: Path, name: str) -> None:
        command = [sys.executable, "-P", __file__, "--run", name]
        env = {**os.environ, "PYTHONPATH": str(tree)}
        self._process = subprocess.Popen(
            command, env=env, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def turn(self) -> float:
        """The CPU time of an operation in one more turn, in microseconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def compare(other: Path, names: list[str], pairs: int) -> None:
    here = Path(__file__).resolve().parent.parent
    print(f"{'case':12} {'other':>9} {'here':>9} {'ratio':>7} {'of least':>9}")
    for name in names:
        sides = [Side(tree, name) for tree in (other, here)]
        turns = []
        for number in range(pairs + 1):
            order = sides if number % 2 else sides[::-1]
            found = {side: side.turn() for side in order}
            turns.append([found[side] for side in sides])
        for side in sides:
            side.close()
        del turns[0]
        before, after = (statistics.median(turn[at] for turn in turns) for at in (0, 1))
        ratio = statistics.median(turn[1] / turn[0] for turn in turns)
        least = min(turn[1] for turn in turns) / min(turn[0] for turn in turns)
        print(f"{name:12} {before:9.1f} {after:9.1f} {ratio:7.3f} {least:9.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", choices=[*CASES, *[name + PG for name in CASES]])
    parser.add_argument("--against", type=Path, help="another tree")
    parser.add_argument("--only", default=",".join(CASES), help="cases, separated by commas")
    parser.add_argument("--pairs", type=int, default=15)
    options = parser.parse_args()
    if options.run:
        run(options.run)
    elif options.against:
        compare(options.against.resolve(), options.only.split(","), options.pairs)
    else:
        parser.error("give --run or --against")


if __name__ == "__main__":
    main()
