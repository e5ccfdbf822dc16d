"""A process with timers, to be run with a wall clock that someone sets.

Run as `python -m tests.webhooks.timers_child DATABASE`. It reads commands, one a line, and
answers each with a line: `set NAME DELAY_MS` and `every NAME EVERY_MS` with a reading of the
clock that never jumps, from before; `state NAME` with the timer's status and that of its job;
`wall` with how far the wall clock is off, in milliseconds. In between come lines
`fired NAME JOB CLOCK`. It ends with its input.
"""

import asyncio
import sys

import uvloop

from onceward.app import App
from onceward.clock import boot_ns
from onceward.work.job import Job

QUEUE = "firings"


async def fire(job: Job) -> None:
    print("fired", job.body, job.id, boot_ns(), flush=True)


async def answer(app: App, command: str, *words: str) -> str:
    if command == "wall":
        return str(app.store.clock.jump_ms)
    name = words[0]
    if command == "state":
        view = await app.timers.get(name)
        return f"{view.status} {'-' if view.job is None else view.job.state}"
    before_ns, seconds = boot_ns(), int(words[1]) / 1_000
    if command == "set":
        await app.timers.set(name, queue=QUEUE, body=name, delay_s=seconds)
    else:
        await app.timers.set(name, queue=QUEUE, body=name, every_s=seconds)
    return str(before_ns)


async def run(path: str) -> None:
    app = App(f"sqlite:///{path}", drain_s=1)
    app.handler(QUEUE, concurrency=16, lease_s=2, attempts_max=0)(fire)
    loop = asyncio.get_running_loop()
    async with app:
        print("started", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print("answer", await answer(app, *line.split()), flush=True)


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1]))
