"""Results: lets callers wait until a job has ended."""

import asyncio

from onceward import limits
from onceward.engine.base import Put
from onceward.errors import OncewardError, Unavailable
from onceward.keys import Key
from onceward.parts.schedule import Job, Schedule, job_key
from onceward.store import Commit, Store
from onceward.transaction import decode

ENDED = ("done", "dead", "doubt", "cancelled")


class Results:
    """Those who wait for the ends of jobs, on this node."""

    def __init__(self, store: Store, schedule: Schedule) -> None:
        self._store = store
        self._schedule = schedule
        # Each has a future of its own: what one has seen, another may not have.
        self._waiting: dict[Key, set[asyncio.Future[Job]]] = {}
        self._closed = False
        self._unhook = store.on_durable(self._saw)

    async def wait(self, id_: str, timeout_s: float | None = None) -> Job:
        """The job as it is once it has ended, or as it is when the time is over.

        Raises `NoSuchJob`, and `Unavailable` when the node stops meanwhile.
        """
        key = job_key(id_)
        self._must_be_open()
        ended: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(ended)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    job = await self._look(id_)
                    if job.state in ENDED:
                        return job
                    # Other nodes commit too, and the engine may stop: look again now and then.
                    pause_s = limits.POLL_ALONE_S
                    if self._store.engine.shared:
                        pause_s = limits.POLL_RESULT_S
                    await asyncio.wait([ended], timeout=pause_s)
                    if ended.done():
                        return ended.result()
        except TimeoutError:
            return await self._look(id_)
        finally:
            if not ended.cancel() and not ended.cancelled():
                ended.exception()  # has been seen, also if it came too late to be told
            self._waiting[key].discard(ended)
            if not self._waiting[key]:
                del self._waiting[key]

    def close(self) -> None:
        """Let nobody wait any longer; twice is once."""
        if not self._closed:
            self._closed = True
            self._unhook()
            for waiting in self._waiting.values():
                for ended in waiting:
                    if not ended.done():
                        ended.set_exception(self._stopped())

    async def _look(self, id_: str) -> Job:
        self._must_be_open()
        return await self._store.run(lambda tx: self._schedule.get(tx, id_))

    def _must_be_open(self) -> None:
        if self._closed:
            raise self._stopped()

    def _stopped(self) -> Unavailable:
        return Unavailable("the node is stopping: ask another one", code="node_stopped")

    def _saw(self, commit: Commit) -> None:
        if not self._waiting:
            return
        for write in commit.writes:
            if write.key in self._waiting and isinstance(write, Put):
                for ended in self._waiting[write.key]:
                    self._tell(ended, write)

    def _tell(self, ended: "asyncio.Future[Job]", write: Put) -> None:
        # From the commit itself: the record may be gone already, if it is not to be kept.
        try:
            job: Job = decode(write.value, Job, write.key)
        except OncewardError:
            return
        if job.state in ENDED and not ended.done():
            ended.set_result(job)
