"""Queue depths: the number of unfinished jobs of a bounded queue.

Counted in memory, so that no record is written by every sender. The count is exact where one
process has the database. Where several nodes share it, each counts its own changes at once and
looks through all jobs every `DEPTH_S`: meanwhile the others may each have added as many jobs as
they accepted in that time. Queues without `depth_max` cost nothing.
"""

import asyncio
from collections.abc import Callable

import msgspec

from onceward import keys, limits
from onceward.engine.base import Delete, Put
from onceward.errors import OncewardError, QueueFull
from onceward.json_values import decode
from onceward.schedule import WAITING, job_partition
from onceward.schedule.settings_cache import SettingsCache
from onceward.store import Store
from onceward.store.transaction import Transaction

_UNFINISHED = {*WAITING, "running"}


class _CountedJob(msgspec.Struct):
    """What is counted of a job."""

    queue: str
    stage: str


class Depths:
    """The jobs of bounded queues that have not ended, as far as this node knows."""

    def __init__(self, store: Store, slots: int, queue_settings: SettingsCache) -> None:
        self._store = store
        self._slots = slots
        self._queue_settings = queue_settings
        self._jobs: dict[str, set[str]] = {}
        self._reserved: dict[str, int] = {}
        self._meanwhile: list[tuple[str, str, bool]] | None = None
        self._unhook: Callable[[], None] | None = None
        self._counting: asyncio.Task[None] | None = None
        self._following: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        queue_settings.on_change(self._set)

    def admit(self, tx: Transaction, queue: str) -> None:
        """Reserve room for one more job. Raises `QueueFull`."""
        jobs = self._jobs.get(queue)
        if jobs is None:
            return
        most = self._queue_settings(queue).depth_max
        if not most:
            return
        if len(jobs) + self._reserved.get(queue, 0) >= most:
            raise QueueFull(
                f"the queue {queue!r} holds {most} jobs that have not ended, as many as it may: "
                "try again later",
                queue=queue,
                depth_max=most,
                retry_after_s=limits.QUEUE_FULL_RETRY_S,
            )
        if tx.on_end(lambda durable: self._release(queue)):
            self._reserved[queue] = self._reserved.get(queue, 0) + 1

    async def follow(self) -> None:
        """Count the jobs of queues that have got a bound, and of none that has lost it."""
        bounded = self._bounded()
        for queue in self._jobs.keys() - bounded:
            del self._jobs[queue]
        if not bounded:
            self._rest()
            return
        if self._unhook is None:
            self._unhook = self._store.on_change("job", self._saw)
        if not bounded <= self._jobs.keys():
            await self._count()
        if self._store.engine.shared and self._counting is None:
            self._counting = asyncio.create_task(self._run(), name="onceward-depths")

    def close(self) -> None:
        """Count no more. Idempotent."""
        for task in self._following:
            task.cancel()
        self._rest()

    def _rest(self) -> None:
        if self._unhook is not None:
            self._unhook()
            self._unhook = None
        if self._counting is not None:
            self._counting.cancel()
            self._counting = None

    async def _run(self) -> None:
        clock = self._store.clock
        while True:
            begun_ns = clock.elapsed_ns()
            try:
                await self._count()
            except OncewardError:
                pass  # the count before stands
            await clock.sleep(max(limits.DEPTH_S, 10 * (clock.elapsed_ns() - begun_ns) / 1e9))

    def _bounded(self) -> set[str]:
        return {
            name for name in self._queue_settings.names() if self._queue_settings(name).depth_max
        }

    async def _count(self) -> None:
        """Look through all jobs. What this node changes meanwhile is newer than what is found."""
        async with self._one_at_a_time:
            # Not before: whoever was counting may have found queues that are new.
            found: dict[str, set[str]] = {queue: set() for queue in self._bounded()}
            self._meanwhile = []
            try:
                for slot in range(self._slots):
                    await self._count_slot(slot, found)
                for queue, id_, unfinished in self._meanwhile:
                    if queue in found:
                        (found[queue].add if unfinished else found[queue].discard)(id_)
            finally:
                self._meanwhile = None
            bounded = self._bounded()
            self._jobs = {queue: jobs for queue, jobs in found.items() if queue in bounded}

    async def _count_slot(self, slot: int, found: dict[str, set[str]]) -> None:
        engine, now_ms = self._store.engine, self._store.clock.now_ms()
        partition, start, most = job_partition(slot), "", limits.SCAN_RECORDS_MAX
        while True:
            page = await engine.scan(partition, now_ms, start=start, limit=most)
            for record in page:
                job = _read(record.key, record.value)
                if job is not None and job.queue in found and job.stage in _UNFINISHED:
                    found[job.queue].add(record.key[1].removesuffix("#job"))
            if len(page) < most:
                return
            start = keys.after(page[-1].key[1])

    def _set(self, queue: str) -> None:
        """Settings have changed, maybe by another node."""
        if bool(self._queue_settings(queue).depth_max) != (queue in self._jobs):
            task = asyncio.create_task(self._follow_quietly(), name="onceward-depths")
            self._following.add(task)
            task.add_done_callback(self._following.discard)

    async def _follow_quietly(self) -> None:
        try:
            await self.follow()
        except OncewardError:
            pass  # the engine is away: without a count the queue is not bounded

    def _saw(self, write: Put | Delete) -> None:
        """An own commit has changed a job."""
        if type(write) is not Put:
            return  # only what has ended is removed
        job = _read(write.key, write.value)
        if job is None:
            return
        id_, unfinished = write.key[1].removesuffix("#job"), job.stage in _UNFINISHED
        if self._meanwhile is not None:
            self._meanwhile.append((job.queue, id_, unfinished))
        jobs = self._jobs.get(job.queue)
        if jobs is not None:
            (jobs.add if unfinished else jobs.discard)(id_)

    def _release(self, queue: str) -> None:
        left = self._reserved[queue] - 1
        if left:
            self._reserved[queue] = left
        else:
            del self._reserved[queue]


def _read(key: keys.Key, value: bytes) -> _CountedJob | None:
    if not key[1].endswith("#job"):
        return None
    try:
        job: _CountedJob = decode(value, _CountedJob, key)
        return job
    except OncewardError:
        return None  # damaged: `onceward db check` tells of it
