"""A process to be killed: its jobs have children, wait for the first of some, and for events.

Run as `python -m tests.family_child URL NAME PARENTS`. It sends the jobs and their events under the
keys of all processes, prints a line for each child that it runs, and ends by itself when all is
done and cleaned up.
"""

import asyncio
import sys
from contextlib import suppress
from typing import Any

import uvloop

from onceward.app import App
from onceward.errors import AlreadyEnded, OncewardError
from onceward.keys import Key
from onceward.store.transaction import Transaction
from onceward.work.children import ChildJob
from onceward.work.job import Job

CHILDREN = 12
RIVALS = 3
EVENTS = 3
SLOTS = 4
LEASE_S = 1.0


def effect_key(id_: str) -> Key:
    """Where the effects of a job are counted."""
    return "effect", id_


async def effect(job: Job) -> None:
    key = effect_key(job.id)
    job.tx.put(key, (await job.tx.get(key) or 0) + 1)


def task(name: str, n: int) -> ChildJob[Any]:
    return ChildJob("task", {"name": name, "n": n})


class Child:
    """The application."""

    def __init__(self, url: str, name: str, parents: int) -> None:
        self.app = App(url, name=name, slots=SLOTS, node_lease_s=LEASE_S, drain_s=LEASE_S)
        self.app.handler("task", lease_s=LEASE_S, concurrency=4, attempts_max=0)(self.task)
        self.app.handler("parent", lease_s=LEASE_S, concurrency=8, attempts_max=0)(self.parent)
        self.parents = parents

    async def task(self, job: Job) -> int:
        print(job.id, flush=True)
        await self.app.store.clock.sleep(0.002)
        await effect(job)
        return int(job.body["n"]) ** 2

    async def parent(self, job: Job) -> Any:
        squares = await job.gather(*[task("all", n) for n in range(CHILDREN)])
        first = await job.wait_any(*[task("any", n) for n in range(RIVALS)])
        events = [await job.wait_for("go") for _ in range(EVENTS)]
        await effect(job)
        return {"squares": squares, "first": first, "events": events}

    async def run(self) -> None:
        async with self.app as app:
            ids = [(await app.send("parent", n, key=f"parent {n}")).id for n in range(self.parents)]
            for number in range(EVENTS):
                for id_ in ids:
                    with suppress(AlreadyEnded):
                        await app.emit(id_, "go", number, key=f"go {number}")
            for id_ in ids:
                await app.wait(id_)
            while await self.left():
                await app.store.clock.sleep(0.05)

    async def left(self) -> bool:
        """Whether there is something to be cleaned up."""

        async def look(tx: Transaction) -> bool:
            rows = [await tx.scan(f"family#{slot:04d}", limit=1) for slot in range(SLOTS)]
            return any(rows)

        try:
            return await self.app.store.run(look)
        except OncewardError:
            return True


if __name__ == "__main__":
    url, name, parents = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Child(url, name, int(parents)).run())
