"""A worker to be killed and stopped: handles jobs of several steps on PostgreSQL.

Run as `python -m tests.worker_child URL NAME FOLDER LEASE_S`. Whatever its steps do to the
outside is a line in a file of that job in FOLDER: no database to undo it.
"""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from onceward.app import App
from onceward.clock import boot_ns
from onceward.errors import NotDone
from onceward.keys import Key
from onceward.work.job import Job

STEPS = ("first", "second", "third")
POISON_ATTEMPTS = 3


class Line(msgspec.Struct, array_like=True):
    """Something that happened to a job, outside of the database."""

    what: str
    """A step's name, when it runs; `recorded` and its name, once that is recorded."""
    at_ns: int
    attempt: int
    token: str
    process: int


def effect_key(id_: str) -> Key:
    """Where the effects of a job are counted."""
    return "effect", id_


def line(job: Job, what: str, at_ns: int) -> Line:
    """What a job has to tell in this process."""
    return Line(what, at_ns, job.attempt, job.token, os.getpid())


def write(folder: Path, id_: str, told: Line) -> None:
    """Append a line to a job's file, in one piece."""
    with open(folder / id_, "ab", buffering=0) as file:
        file.write(msgspec.json.encode(told) + b"\n")


def read(folder: Path, id_: str) -> list[Line]:
    file = folder / id_
    if not file.exists():
        return []
    return [msgspec.json.decode(text, type=Line) for text in file.read_bytes().splitlines()]


def paid(lines: list[Line]) -> list[Line]:
    """The payments that were taken: not those of an attempt which come after a later one has asked
    about them."""
    taken: list[Line] = []
    asked = 0
    for told in lines:
        if told.what == "asked":
            asked = max(asked, told.attempt)
        elif told.what == "pay" and told.attempt >= asked:
            taken.append(told)
    return taken


class Child:
    """The application, with its handlers."""

    def __init__(self, url: str, name: str, folder: Path, lease_s: float) -> None:
        self.folder = folder
        self.app = app = App(url, name=name, slots=16, node_lease_s=lease_s, drain_s=lease_s)
        app.handler("work", lease_s=lease_s, concurrency=8, attempts_max=0)(self.work)
        app.handler(
            "raising",
            lease_s=lease_s,
            attempts_max=POISON_ATTEMPTS,
            retry_first_s=0.01,
            retry_max_s=0.05,
        )(self.poison)
        app.handler("killing", lease_s=lease_s, attempts_max=POISON_ATTEMPTS)(self.poison)

    async def step(self, job: Job, name: str, at_ns: int) -> str:
        """What a step does: note that it ran, and take its time."""
        write(self.folder, job.id, line(job, name, at_ns))
        await self.app.store.clock.sleep(0.05)
        return job.token

    def begin(self, job: Job, name: str) -> Any:
        # Read first of all: what counts is when it began.
        at_ns = boot_ns()
        return self.step(job, name, at_ns)

    def ask(self, job: Job) -> str:
        """What became of a payment: the file tells. Like a bank that is asked so, it takes none
        of the attempts before any more (`paid`): one may only stand still and come later."""
        write(self.folder, job.id, line(job, "asked", boot_ns()))
        for told in paid(read(self.folder, job.id)):
            return told.token
        raise NotDone("nothing was paid, and nothing will be")

    async def work(self, job: Job) -> dict[str, str]:
        done: dict[str, str] = {}
        for name in STEPS:
            done[name] = await job.step(name, self.begin, job, name)
            self.recorded(job, name)
        done["pay"] = await job.step(
            "pay", self.begin, job, "pay", at_most_once=True, ask=lambda: self.ask(job)
        )
        self.recorded(job, "pay")
        key = effect_key(job.id)
        job.tx.put(key, (await job.tx.get(key) or 0) + 1)
        return done

    def recorded(self, job: Job, name: str) -> None:
        write(self.folder, job.id, line(job, f"recorded {name}", boot_ns()))

    async def poison(self, job: Job) -> None:
        write(self.folder, job.id, line(job, "poison", boot_ns()))
        if job.queue == "killing":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("poison")

    async def run(self) -> None:
        async with self.app:
            await asyncio.Event().wait()


def main() -> None:
    url, name, folder, lease_s = sys.argv[1:]
    logging.basicConfig(
        filename=Path(folder) / f"{name}.log", level=logging.INFO, format="%(message)s"
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Child(url, name, Path(folder), float(lease_s)).run())


if __name__ == "__main__":
    main()
