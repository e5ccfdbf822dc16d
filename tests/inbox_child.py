"""A process to be killed: accepts messages over a socket, and handles them.

Run as `python -m tests.inbox_child DATABASE SOCKET`. Each connection sends keys, one a line,
and gets for each the id of its job, once that is accepted; for `wait ID` the state of that
job, once it has ended. `finish` ends the process in good order.
"""

import asyncio
import sys

import uvloop

from onceward.app import App
from onceward.keys import Key
from onceward.work.job import Job

QUEUE = "messages"


def effect_key(key: str) -> Key:
    """Where the effects of a message are counted."""
    return "effect", key


class Child:
    """The application, and the callers that are connected to it."""

    def __init__(self, path: str) -> None:
        self.app = App(f"sqlite:///{path}", drain_s=1)
        self.app.handler(QUEUE, concurrency=64, lease_s=2, attempts_max=0)(self.handle)
        self.finished = asyncio.Event()

    async def handle(self, job: Job) -> str:
        # A step that takes a moment, so that kills meet all that a job can be at.
        await job.step("look", self.app.store.clock.sleep, 0.01)
        key = effect_key(job.body["key"])
        count = await job.tx.get(key) or 0
        job.tx.put(key, count + 1)
        return str(job.body["key"])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := (await reader.readline()).decode().strip():
                if line == "finish":
                    self.finished.set()
                    return
                if line.startswith("wait "):
                    answer = (await self.app.wait(line[5:])).state
                else:
                    answer = (await self.app.send(QUEUE, {"key": line}, key=line)).id
                writer.write(f"{answer}\n".encode())
        finally:
            writer.close()

    async def run(self, socket: str) -> None:
        async with self.app, await asyncio.start_unix_server(self.serve, socket):
            await self.finished.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Child(sys.argv[1]).run(sys.argv[2]))
