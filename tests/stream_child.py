"""A process to be killed: its jobs stream in a step and outside of it, and a reader follows them.

Run as `python -m tests.stream_child URL NAME JOBS`. It prints a line for each chunk that a reader
gets, and ends by itself when all jobs have ended.
"""

import asyncio
import sys

import uvloop

from onceward.app import App
from onceward.work.job import Job

CHUNKS = 40
LEASE_S = 1.0


class Child:
    """The application."""

    def __init__(self, url: str, name: str, jobs: int) -> None:
        self.app = App(url, name=name, slots=4, drain_s=1, node_lease_s=LEASE_S)
        self.app.handler("story", lease_s=LEASE_S, concurrency=8, attempts_max=0)(self.story)
        self.jobs = jobs

    async def story(self, job: Job) -> int:
        async def tell(part: str) -> int:
            for number in range(CHUNKS):
                await self.app.store.clock.sleep(0.01)
                await job.progress(number / CHUNKS, part)
                await job.stream([part, number])
            return CHUNKS

        told = await job.step("first", tell, "first")
        told += await tell("second")
        await job.progress(1)
        return told

    async def follow(self, id_: str) -> None:
        async for update in self.app.follow(id_):
            if update.kind == "chunk":
                print(id_, flush=True)

    async def run(self) -> None:
        async with self.app as app:
            ids = [(await app.send("story", n, key=f"story {n}")).id for n in range(self.jobs)]
            await asyncio.gather(*map(self.follow, ids))


if __name__ == "__main__":
    url, name, jobs = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Child(url, name, int(jobs)).run())
