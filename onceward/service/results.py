"""Results: lets callers wait until a job has ended."""

import asyncio

from onceward import limits
from onceward.engine.base import Put
from onceward.keys import Key
from onceward.parts.schedule import Job, Schedule, job_key
from onceward.store import Commit, Store

ENDED = ("done", "dead", "doubt", "cancelled")


class Results:
    """Those who wait for the ends of jobs, on this node."""

    def __init__(self, store: Store, schedule: Schedule) -> None:
        self._store = store
        self._schedule = schedule
        self._waiting: dict[Key, asyncio.Event] = {}
        self._waiters: dict[Key, int] = {}
        self._unhook = store.on_durable(self._saw)

    async def wait(self, id_: str, timeout_s: float | None = None) -> Job:
        """The job as it is once it has ended, or as it is when the time is over.

        Raises `NoSuchJob`.
        """
        key = job_key(id_)
        changed = self._waiting.setdefault(key, asyncio.Event())
        self._waiters[key] = self._waiters.get(key, 0) + 1
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    changed.clear()
                    job = await self._store.run(lambda tx: self._schedule.get(tx, id_))
                    if job.state in ENDED:
                        return job
                    await self._change(changed)
        except TimeoutError:
            return await self._store.run(lambda tx: self._schedule.get(tx, id_))
        finally:
            self._waiters[key] -= 1
            if not self._waiters[key]:
                del self._waiters[key], self._waiting[key]

    def close(self) -> None:
        self._unhook, unhook = (lambda: None), self._unhook
        unhook()

    async def _change(self, changed: asyncio.Event) -> None:
        """Wait for a change. Where other nodes commit too, look again now and then."""
        if not self._store.engine.shared:
            await changed.wait()
            return
        try:
            async with asyncio.timeout(limits.POLL_RESULT_S):
                await changed.wait()
        except TimeoutError:
            pass

    def _saw(self, commit: Commit) -> None:
        if self._waiting:
            for write in commit.writes:
                if isinstance(write, Put) and (changed := self._waiting.get(write.key)):
                    changed.set()
