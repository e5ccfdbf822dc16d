"""A process to be killed and stopped: works for a queue over HTTP, and uses locks.

Run as `python -m tests.chaos.worker URL LEDGER NOTES SEED`. What it does with locks it notes in
the file NOTES, a line of JSON each, before and after it asks for anything.
"""

import asyncio
import json
import os
import random
import signal
import sys
from contextlib import suppress
from typing import Any

import uvloop

from onceward.client import ClaimedJob, Client
from onceward.client.locks import Locks
from onceward.clock import Clock, boot_ns
from onceward.errors import OncewardError
from tests.chaos.outside import tell
from tests.chaos.terms import LEASE_S, LOCKS

USERS = 2
"""Of locks, in each process."""
PAUSE_S = 0.2


class Notes:
    """The file; each line is written in one piece."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, use: str, **facts: Any) -> None:
        line = json.dumps({"what": what, "use": use, "at_ns": boot_ns(), **facts})
        os.write(self._file, line.encode() + b"\n")


class NotingLocks(Locks):
    """Records the end of leases, counted from before the request."""

    notes: Notes
    uses: dict[str, str]

    async def renew(self, id: str, *, lease_s: float | None = None) -> int:
        asked_ns = boot_ns()
        until_ms = await super().renew(id, lease_s=lease_s)
        until_ns = asked_ns + int((lease_s or 0) * 1e9)
        if id in self.uses:
            self.notes.note("renewed", self.uses[id], until_ns=until_ns)
        return until_ms


async def use_locks(locks: NotingLocks, name: str, port: int, chance: random.Random) -> None:
    """Hold one lock after the other, and write outside meanwhile, where tokens are looked at."""
    notes, clock, count = locks.notes, Clock(), 0
    while True:
        count += 1
        use, lock_name = f"{name}-{count}", chance.choice(LOCKS)
        asked_ns = boot_ns()
        notes.note("asked", use, name=lock_name)
        hold = locks.hold([lock_name], lease_s=LEASE_S, wait_s=5.0, owner=use)
        try:
            async with hold as lock:
                locks.uses[lock.id] = use
                until_ns = asked_ns + int(LEASE_S * 1e9)
                notes.note("granted", use, token=lock.token, until_ns=until_ns)
                for _ in range(chance.randint(1, 3)):
                    await clock.sleep(chance.uniform(0, 2 * PAUSE_S))
                    said = {"name": lock_name, "use": use, "token": lock.token}
                    await tell(port, what="write", sent_ns=boot_ns(), **said)
                notes.note("ending", use)
        except OncewardError as error:
            if not error.kind.retry and error.code not in ("lock_lost", "engine_stopped"):
                raise
        locks.uses = {id_: held for id_, held in locks.uses.items() if held != use}
        await clock.sleep(chance.uniform(0, PAUSE_S))


async def run(url: str, port: int, notes: Notes, seed: str) -> None:
    async def handle(claim: ClaimedJob) -> None:
        body = claim.body
        said = {"what": "order", "subject": body["line"], "n": body["n"], "job": claim.id}
        await tell(port, begun_ns=boot_ns(), **said)

    name, task = f"{seed}-{os.getpid()}-{boot_ns()}", asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with Client(url, patience_s=5) as client, asyncio.TaskGroup() as tasks:
        locks = NotingLocks(client)
        locks.notes, locks.uses = notes, {}
        print("ready", flush=True)
        worker = client.worker("outside-orders", handle, concurrency=8, lease_s=LEASE_S, wait_s=2)
        tasks.create_task(worker.run())
        for number in range(USERS):
            chance = random.Random(f"{name} {number}")
            tasks.create_task(use_locks(locks, f"{name}-{number}", port, chance))


if __name__ == "__main__":
    url, port, path, seed = sys.argv[1:]
    # Told to end, it lets go of what it holds.
    stopped = suppress(asyncio.CancelledError)
    with stopped, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(url, int(port), Notes(path), seed))
