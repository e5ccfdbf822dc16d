"""Queue depths: the number of unfinished jobs of a bounded queue.

They are counted in memory, so that senders do not write a shared record. In a single process the
count is exact. On shared storage, each node counts its own changes immediately and recounts all
jobs every `DEPTH_S`; in between, other nodes may exceed the bound by the jobs they accept. Queues
without `depth_max` cost nothing.
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

_UNFINISHED = {*WAITING, "waiting", "running"}


class _CountedJob(msgspec.Struct):
    """The fields of a job needed to count it."""

    queue: str
    stage: str


class Depths:
    """The unfinished jobs of bounded queues, as counted by this node."""

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
        """Reserve capacity for one more job. Raises `QueueFull`."""
        jobs = self._jobs.get(queue)
        if jobs is None:
            return
        most = self._queue_settings(queue).depth_max
        if not most:
            return
        if len(jobs) + self._reserved.get(queue, 0) >= most:
            raise QueueFull(
                f"queue {queue!r} is full: it has {most} unfinished jobs, the maximum; "
                "try again later",
                queue=queue,
                depth_max=most,
                retry_after_s=limits.QUEUE_FULL_RETRY_S,
            )
        if tx.on_end(lambda durable: self._release(queue)):
            self._reserved[queue] = self._reserved.get(queue, 0) + 1

    async def follow(self) -> None:
        """Start counting queues that have a new bound, and stop counting those that have lost
        it."""
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
        """Stop counting. Idempotent."""
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
                pass  # keep the previous count
            await clock.sleep(max(limits.DEPTH_S, 10 * (clock.elapsed_ns() - begun_ns) / 1e9))

    def _bounded(self) -> set[str]:
        return {
            name for name in self._queue_settings.names() if self._queue_settings(name).depth_max
        }

    async def _count(self) -> None:
        """Recount all jobs. Changes that this node makes during the scan override its result."""
        async with self._one_at_a_time:
            # Read under the lock: an earlier count may have added queues.
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
        """Settings have changed, possibly on another node."""
        if bool(self._queue_settings(queue).depth_max) != (queue in self._jobs):
            task = asyncio.create_task(self._follow_quietly(), name="onceward-depths")
            self._following.add(task)
            task.add_done_callback(self._following.discard)

    async def _follow_quietly(self) -> None:
        try:
            await self.follow()
        except OncewardError:
            pass  # the engine is unavailable: without a count the queue is unbounded

    def _saw(self, write: Put | Delete) -> None:
        """Note a job that a local commit has changed."""
        if type(write) is not Put:
            return  # only ended jobs are deleted
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
        return None  # damaged: `onceward db check` reports it
