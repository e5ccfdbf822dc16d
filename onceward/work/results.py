"""Results: waiting for the end of a job, and for its output."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from onceward import limits
from onceward.api.job_output import JobOutput
from onceward.api.job_updates import JobUpdate, updates_of
from onceward.api.jobs import ENDED
from onceward.engine.base import Delete, Put, Record
from onceward.errors import BadInput, OncewardError, Unavailable
from onceward.json_values import decode
from onceward.keys import Key
from onceward.quantities import is_whole
from onceward.schedule import Job, Schedule, admit_id, job_key
from onceward.schedule.records import output_key
from onceward.store import Store
from onceward.store.transaction import Transaction
from onceward.work import output

Read = Callable[[Transaction], Awaitable[JobOutput]]


class _AwaitedJob(msgspec.Struct):
    """The fields of a job that waiters need."""

    stage: str


class _Waiter:
    """A caller that waits for a job. Its news is the ended job, or None as a hint to read the job
    again. Each waiter has separate news, since others may have read theirs already."""

    __slots__ = ("_loop", "_news", "_timer", "late")

    def __init__(self, timeout_s: float | None) -> None:
        self.late = False
        """Whether the timeout has passed."""
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Future[Job | None] = self._loop.create_future()
        # A plain timer costs a fraction of `asyncio.timeout`.
        self._timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._expire)

    async def news(self) -> Job | None:
        """The next news, or the news that arrived since the last call."""
        told = await self._news
        if told is None:
            self._news = self._loop.create_future()
        return told

    def tell(self, job: Job | None) -> None:
        if not self._news.done():
            self._news.set_result(job)

    def fail(self, error: Exception) -> None:
        if not self._news.done():
            self._news.set_exception(error)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._news.cancel() and not self._news.cancelled():
            self._news.exception()  # mark the exception as retrieved

    def _expire(self) -> None:
        self.late = True
        self.tell(None)


class Results:
    """Callers on this node that wait for the end of jobs.

    Local commits notify them. For jobs that end on other nodes, one task polls on behalf of all.
    """

    def __init__(self, store: Store, schedule: Schedule) -> None:
        self._store = store
        self._schedule = schedule
        self._waiting: dict[Key, set[_Waiter]] = {}
        self._watching: dict[Key, set[asyncio.Event]] = {}
        self._polling: asyncio.Task[None] | None = None
        self._closed = False
        self._unhook = store.on_change("job", self._saw)

    async def wait(self, id_: str, timeout_s: float | None = None) -> Job:
        """Wait for the end of a job, or for the timeout; returns the job as it is then.

        Raises `NoSuchJob`, and `Unavailable` when the node stops during the wait.
        """
        admit_id(id_)
        key = job_key(id_)
        self._must_be_open()
        waiter = _Waiter(timeout_s)
        waiting = self._waiting.setdefault(key, set())
        waiting.add(waiter)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll(), name="onceward-results")
        try:
            [record] = await self._store.engine.get([key], self._store.clock.now_ms())
            if _may_have_ended(record):
                waiter.tell(None)
            while True:
                if (ended := await waiter.news()) is not None:
                    return ended
                # The returned job must be durable.
                job = await self._look(id_)
                if job.stage in ENDED or waiter.late:
                    return job
        finally:
            waiter.close()
            waiting.discard(waiter)
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]

    @contextmanager
    def _watch(self, *keys: Key) -> Iterator[asyncio.Event]:
        """An event that is set by local commits which write one of these records of jobs, and when
        the node stops. Raises `Unavailable` if it has stopped."""
        self._must_be_open()
        changed = asyncio.Event()
        for key in keys:
            self._watching.setdefault(key, set()).add(changed)
        try:
            yield changed
        finally:
            for key in keys:
                watching = self._watching[key]
                watching.discard(changed)
                if not watching:
                    del self._watching[key]

    async def news(self, id_: str, read: Read, after: int, known: str, wait_s: float) -> JobOutput:
        """The output of a job as soon as a reader does not know it, or its state; at the latest
        after a time. Local commits notify it; those of other nodes are polled.

        Raises the errors of `read`, and `Unavailable` when the node stops.
        """
        admit_id(id_)
        clock, shared = self._store.clock, self._store.engine.shared
        pause_s = limits.POLL_RESULT_S if shared else limits.POLL_ALONE_S
        until_ns = clock.elapsed_ns() + int(wait_s * 1e9)
        with self._watch(job_key(id_), output_key(id_)) as changed:
            while True:
                self._must_be_open()
                changed.clear()
                found = await self._store.run(read)
                left_s = (until_ns - clock.elapsed_ns()) / 1e9
                if (found.seq, found.state) != (after, known) or found.state in ENDED:
                    return found
                if left_s <= 0:
                    return found
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, pause_s)):
                        await changed.wait()

    async def follow(self, id_: str, after: int = 0) -> AsyncIterator[JobUpdate]:
        """The updates of a job from a position until its end. Raises `BadInput`, `NoSuchJob`, and
        `Unavailable` when the node stops."""
        if not is_whole(after) or not 0 <= after <= limits.KEY_NUMBER_MAX:
            raise BadInput(f"after must be the `seq` of an update, or 0, not {after!r}")
        state = ""

        async def read(tx: Transaction) -> JobOutput:
            return await output.read(tx, id_, await self._schedule.get(tx, id_), after)

        while True:
            found = await self.news(id_, read, after, state, limits.WAIT_MS_MAX / 1000)
            for update in updates_of(found, after, state):
                yield update
                if update.kind == "end":
                    return
            after, state = found.seq, found.state

    def close(self) -> None:
        """End all waits. Idempotent."""
        if not self._closed:
            self._closed = True
            self._unhook()
            if self._polling is not None:
                self._polling.cancel()
            for waiting in self._waiting.values():
                for waiter in waiting:
                    waiter.fail(self._stopped())
            for watching in self._watching.values():
                for changed in watching:
                    changed.set()

    async def _poll(self) -> None:
        """Look for jobs that ended on other nodes, and for failures of the engine, as long as
        anyone waits."""
        engine, clock = self._store.engine, self._store.clock
        while self._waiting:
            await clock.sleep(limits.POLL_RESULT_S if engine.shared else limits.POLL_ALONE_S)
            keys = list(self._waiting)
            for start in range(0, len(keys), limits.GET_KEYS_MAX):
                piece = keys[start : start + limits.GET_KEYS_MAX]
                try:
                    records = await engine.get(piece, clock.now_ms())
                except OncewardError:
                    records = [None] * len(piece)  # each waiter reads its job and gets the error
                for key, record in zip(piece, records, strict=True):
                    if _may_have_ended(record):
                        for waiter in self._waiting.get(key, ()):
                            waiter.tell(None)
        self._polling = None

    async def _look(self, id_: str) -> Job:
        self._must_be_open()
        return await self._store.run(lambda tx: self._schedule.get(tx, id_))

    def _must_be_open(self) -> None:
        if self._closed:
            raise self._stopped()

    def _stopped(self) -> Unavailable:
        return Unavailable(
            "this node is stopping; send the request to another node", code="node_stopped"
        )

    def _saw(self, write: Put | Delete) -> None:
        if write.key in self._watching:
            for changed in self._watching[write.key]:
                changed.set()
        waiting = self._waiting.get(write.key)
        if waiting and type(write) is Put and _may_have_ended(write):
            for waiter in waiting:
                waiter.tell(_job(write))


def _may_have_ended(record: Record | Put | None) -> bool:
    """Whether the job should be read, which includes deleted and unreadable records."""
    if record is None:
        return True
    try:
        return decode(record.value, _AwaitedJob, record.key).stage in ENDED
    except OncewardError:
        return True


def _job(write: Put) -> Job | None:
    """An ended job, read from the commit itself: without retention, its record may be gone
    already."""
    try:
        job: Job = decode(write.value, Job, write.key)
    except OncewardError:
        return None
    return job
