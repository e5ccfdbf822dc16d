"""The census: how many jobs of each queue are in which state.

No commit counts anything, so that none has to wait for a counter. Instead all jobs are
looked through again and again, in small pieces and with pauses: the more there are, the older
the figures. They say when they were taken.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from onceward import keys, limits
from onceward.engine.base import Record
from onceward.errors import OncewardError
from onceward.parts.schedule import job_partition
from onceward.store import Store
from onceward.transaction import decode


class _Glance(msgspec.Struct):
    """What is counted of a job."""

    queue: str
    state: str
    made_ms: int


@dataclass(slots=True)
class Queue:
    """The jobs of one queue."""

    jobs: Counter[str] = field(default_factory=Counter)
    """How many there are, by state."""
    oldest_ready_ms: int | None = None
    """When the oldest of those that wait for a worker was sent."""


class Census:
    """Counts jobs, again and again."""

    def __init__(self, store: Store, slots: int) -> None:
        self.queues: dict[str, Queue] = {}
        """As of the last count."""
        self.counted_ms: int | None = None
        """When that was; None before the first is complete."""
        self._store = store
        self._slots = slots

    async def run(self) -> None:
        """Count until cancelled. Trouble is waited out; whether it passes is for others to tell."""
        clock = self._store.clock
        while True:
            begun_ns = clock.elapsed_ns()
            try:
                await self.count()
            except OncewardError:
                pass
            # The longer a count takes, the longer until the next one.
            await clock.sleep(max(limits.CENSUS_S, (clock.elapsed_ns() - begun_ns) / 1e9))

    async def count(self) -> None:
        """Look through all jobs once."""
        clock, found = self._store.clock, dict[str, Queue]()
        begun_ms = clock.now_ms()
        for slot in range(self._slots):
            start, more = "", True
            while more:
                begun_ns = clock.elapsed_ns()
                page = await self._store.engine.scan(
                    job_partition(slot), clock.now_ms(), start=start, limit=limits.CENSUS_JOBS
                )
                for job in _jobs(page):
                    queue = found.setdefault(job.queue, Queue())
                    queue.jobs[job.state] += 1
                    if job.state == "ready":
                        oldest_ms = queue.oldest_ready_ms
                        if oldest_ms is None or job.made_ms < oldest_ms:
                            queue.oldest_ready_ms = job.made_ms
                more = len(page) == limits.CENSUS_JOBS
                if page:
                    start = keys.after(page[-1].key[1])
                # So that it takes a small part of the time, however much there is to count.
                took_s = (clock.elapsed_ns() - begun_ns) / 1e9
                await clock.sleep(took_s * limits.CENSUS_REST)
        self.queues, self.counted_ms = found, begun_ms


def _jobs(page: list[Record]) -> Iterator[_Glance]:
    for record in page:
        if record.key[1].endswith("#job"):
            try:
                yield decode(record.value, _Glance, record.key)
            except OncewardError:
                pass  # damaged: `onceward check` tells of it
