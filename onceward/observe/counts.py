"""Counts of jobs by queue and state, of timers and rooms, and failing endpoints.

Commits do not count anything, so that they need not wait for a counter. Instead a background task
scans all records repeatedly, in small pages with pauses: more records mean older figures. The time
of the last count is part of the result.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from onceward import keys, limits
from onceward.engine.base import Record
from onceward.errors import OncewardError
from onceward.json_values import decode
from onceward.locks.records import partition_of as lock_partition_of
from onceward.rooms.records import ROOMS
from onceward.schedule import job_partition, state_of
from onceward.store import Store
from onceward.tables.records import TABLES, Head, head_key
from onceward.webhooks.endpoints import ENDPOINTS, Endpoint
from onceward.webhooks.timers import timer_partition
from onceward.webhooks.timers.records import State

T = TypeVar("T")


class _Glance(msgspec.Struct):
    """The fields of a job needed to count it."""

    queue: str
    stage: str
    created_ms: int
    attempt: int = 0


class _LockGlance(msgspec.Struct):
    """The fields of the head of a lock needed to count it."""

    held: int
    waiting: int


class _TimerGlance(msgspec.Struct):
    """The fields of a timer needed to count it."""

    state: State = "active"


@dataclass(slots=True)
class Queue:
    """The jobs of one queue."""

    jobs: Counter[str] = field(default_factory=Counter)
    """The number of jobs by state."""
    oldest_queued_ms: int | None = None
    """When the oldest job that waits for a worker was sent."""


class Failing(NamedTuple):
    """An endpoint whose last call failed."""

    caller: str
    id: str
    since_ms: int
    said: str


class Counts:
    """Counts jobs, timers and rooms repeatedly."""

    def __init__(self, store: Store, slots: int) -> None:
        self.queues: dict[str, Queue] = {}
        """The result of the last count."""
        self.counted_ms: int | None = None
        """The time of the last count; None before the first one."""
        self.timers: Counter[str] = Counter()
        """The number of timers by state."""
        self.rooms = 0
        self.gauges: dict[str, float] = {}
        """The numbers of locks and tables, by the names of their metrics."""
        self.failing: list[Failing] = []
        """The first few failing endpoints."""
        self._counts = 0
        self._store = store
        self._slots = slots

    async def run(self) -> None:
        """Count until cancelled. Retries after errors, which other parts report."""
        clock = self._store.clock
        while True:
            begun_ns = clock.elapsed_ns()
            try:
                await self.count()
            except OncewardError:
                pass
            # A longer count is followed by a longer pause.
            await clock.sleep(max(limits.CENSUS_S, (clock.elapsed_ns() - begun_ns) / 1e9))

    async def count(self) -> None:
        """Count all jobs once, and occasionally timers, rooms and endpoints."""
        found = dict[str, Queue]()
        begun_ms = self._store.clock.now_ms()
        for slot in range(self._slots):
            async for page in self._pages(job_partition(slot)):
                jobs = [record for record in page if record.key[1].endswith("#job")]
                for job in self._values(jobs, _Glance):
                    queue = found.setdefault(job.queue, Queue())
                    queue.jobs[state_of(job.stage, job.attempt)] += 1
                    if job.stage == "ready":
                        oldest_ms = queue.oldest_queued_ms
                        if oldest_ms is None or job.created_ms < oldest_ms:
                            queue.oldest_queued_ms = job.created_ms
        self.queues, self.counted_ms = found, begun_ms
        if self._counts % limits.CENSUS_OTHERS == 0:
            await self._count_others()
        self._counts += 1

    async def _count_others(self) -> None:
        timers, rooms, failing = Counter[str](), 0, list[Failing]()
        for slot in range(self._slots):
            async for page in self._pages(timer_partition(slot)):
                timers.update(timer.state for timer in self._values(page, _TimerGlance))
        async for page in self._pages(ROOMS):
            rooms += len(page)
        async for page in self._pages(ENDPOINTS):
            for record in page:
                for endpoint in self._values([record], Endpoint):
                    if endpoint.health.failing and len(failing) < limits.FAILING_TOLD_MAX:
                        caller, id_ = keys.split(record.key[1])
                        health = endpoint.health
                        failing.append(Failing(caller, id_, health.since_ms, health.said))
        self.timers, self.rooms, self.failing = timers, rooms, failing
        self.gauges = {**await self._count_locks(), **await self._count_tables()}

    async def _count_locks(self) -> dict[str, float]:
        holders = waiters = 0
        for slot in range(self._slots):
            async for page in self._pages(lock_partition_of(slot)):
                heads = [record for record in page if record.key[1].endswith("#head")]
                for head in self._values(heads, _LockGlance):
                    holders += head.held
                    waiters += head.waiting
        return {"lock_holders": holders, "lock_waiters": waiters}

    async def _count_tables(self) -> dict[str, float]:
        tables = games = players = waiters = 0
        async for page in self._pages(TABLES):
            if not page:
                continue
            wanted = [head_key(keys.split(record.key[1])[0]) for record in page]
            found = await self._store.engine.get(wanted, self._store.clock.now_ms())
            heads = [record for record in found if record is not None]
            for head in self._values(heads, Head):
                tables += head.phase != "closed"
                games += head.phase == "playing"
                players += len(head.seats)
                waiters += head.waiting
        return {
            "tables": tables,
            "table_games": games,
            "table_players": players,
            "table_waiters": waiters,
        }

    async def _pages(self, partition: str) -> AsyncIterator[list[Record]]:
        """All records of a partition, with pauses that limit the share of time spent on
        counting."""
        clock, start, more = self._store.clock, "", True
        while more:
            begun_ns = clock.elapsed_ns()
            page = await self._store.engine.scan(
                partition,
                clock.now_ms(),
                start=start,
                limit=limits.CENSUS_JOBS,
                skip_damaged=True,
            )
            yield page
            more = len(page) == limits.CENSUS_JOBS
            if page:
                start = keys.after(page[-1].key[1])
            took_s = (clock.elapsed_ns() - begun_ns) / 1e9
            await clock.sleep(took_s * limits.CENSUS_REST)

    def _values(self, page: list[Record], kind: type[T]) -> Iterator[T]:
        for record in page:
            try:
                value: T = decode(record.value, kind, record.key)
            except OncewardError as error:
                self._store.alarms.damaged(record.key, error.message)
                continue
            yield value
