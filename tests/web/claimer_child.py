"""A worker to be killed: claims jobs over HTTP and completes them with their tokens.

Run as `python -m tests.web.claimer_child client|plain PORT FILE`. It notes in FILE each job that
it has heard to be completed, with its token: so much is sure, also if it is killed next.
"""

import asyncio
import os
import sys
from typing import Any

import uvloop

from onceward.client import ClaimedJob, Client, JobOutcome
from onceward.client.jobs import Jobs
from onceward.clock import Clock
from tests.web.plain import Plain

QUEUE = "messages"
LEASE_S = 2.0
CONCURRENCY = 16
# What a job takes, so that kills meet jobs at hand.
WORK_S = 0.01


class Notes:
    """The file; each line is written in one piece."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def completed(self, id_: str, token: str) -> None:
        os.write(self._file, f"{id_} {token}\n".encode())


class NotingJobs(Jobs):
    """Records completed jobs."""

    notes: Notes

    async def complete(self, id: str, token: str, *, result: Any = None) -> JobOutcome:
        outcome = await super().complete(id, token, result=result)
        self.notes.completed(id, token)
        return outcome


async def work(port: int, notes: Notes) -> None:
    """With the Python client."""

    async def handle(claim: ClaimedJob) -> str:
        await Clock().sleep(WORK_S)
        return claim.token

    async with Client(f"http://127.0.0.1:{port}") as client:
        client.jobs = jobs = NotingJobs(client)
        jobs.notes = notes
        options = {"concurrency": CONCURRENCY, "lease_s": LEASE_S, "wait_s": 2}
        await client.worker(QUEUE, handle, **options).run()


async def work_plainly(port: int, notes: Notes) -> None:
    """With requests alone."""
    connection = Plain(port)
    ask = {"max": CONCURRENCY, "lease_ms": int(LEASE_S * 1000), "wait_ms": 2_000}
    while True:
        status, found = await connection.post(f"/v1/queues/{QUEUE}/claim", ask)
        assert status == 200, found
        for job in found["jobs"]:
            await Clock().sleep(WORK_S)
            said = {"token": job["token"], "result": job["token"]}
            status, answer = await connection.post(f"/v1/jobs/{job['id']}/complete", said)
            if status == 200:
                notes.completed(job["id"], job["token"])
            else:
                assert answer["code"] == "stale_token", answer


if __name__ == "__main__":
    how, port, file = sys.argv[1:]
    run = work if how == "client" else work_plainly
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(int(port), Notes(file)))
