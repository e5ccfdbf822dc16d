"""Results: lets callers wait until a job has ended."""

import asyncio

import msgspec

from onceward import limits
from onceward.engine.base import Delete, Put, Record
from onceward.errors import OncewardError, Unavailable
from onceward.keys import Key
from onceward.parts.schedule import Job, Schedule, job_key
from onceward.store import Store
from onceward.transaction import decode

ENDED = ("done", "dead", "doubt", "cancelled")


class _Glance(msgspec.Struct):
    """What matters of a job to those who wait."""

    state: str


class Results:
    """Those who wait for the ends of jobs, on this node.

    They hear of the ends that this node's own commits bring. For others one task looks now
    and then, for all of them together.
    """

    def __init__(self, store: Store, schedule: Schedule) -> None:
        self._store = store
        self._schedule = schedule
        # Each has a future of its own: what one has seen, another may not have. It gets the job
        # as it ended, or None: better look.
        self._waiting: dict[Key, set[asyncio.Future[Job | None]]] = {}
        self._polling: asyncio.Task[None] | None = None
        self._closed = False
        self._unhook = store.on_change("job", self._saw)

    async def wait(self, id_: str, timeout_s: float | None = None) -> Job:
        """The job as it is once it has ended, or as it is when the time is over.

        Raises `NoSuchJob`, and `Unavailable` when the node stops meanwhile.
        """
        key = job_key(id_)
        self._must_be_open()
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll(), name="onceward-results")
        loop = asyncio.get_running_loop()
        waiting = self._waiting.setdefault(key, set())
        news: asyncio.Future[Job | None] = loop.create_future()
        waiting.add(news)
        try:
            async with asyncio.timeout(timeout_s):
                [record] = await self._store.engine.get([key], self._store.clock.now_ms())
                if _may_have_ended(record):
                    _look_better(news)
                while True:
                    if (ended := await news) is not None:
                        return ended
                    waiting.discard(news)
                    news = loop.create_future()
                    waiting.add(news)
                    # This answer counts, so it has to be durable.
                    job = await self._look(id_)
                    if job.state in ENDED:
                        return job
        except TimeoutError:
            return await self._look(id_)
        finally:
            if not news.cancel() and not news.cancelled():
                news.exception()  # has been seen, also if it came too late to be told
            waiting.discard(news)
            if not waiting and self._waiting.get(key) is waiting:
                del self._waiting[key]

    def close(self) -> None:
        """Let nobody wait any longer; twice is once."""
        if not self._closed:
            self._closed = True
            self._unhook()
            if self._polling is not None:
                self._polling.cancel()
            for waiting in self._waiting.values():
                for news in waiting:
                    if not news.done():
                        news.set_exception(self._stopped())

    async def _poll(self) -> None:
        """Look for what other nodes have ended, and whether the engine still works."""
        engine, clock = self._store.engine, self._store.clock
        while True:
            await clock.sleep(limits.POLL_RESULT_S if engine.shared else limits.POLL_ALONE_S)
            keys = list(self._waiting)
            for start in range(0, len(keys), limits.GET_KEYS_MAX):
                piece = keys[start : start + limits.GET_KEYS_MAX]
                try:
                    records = await engine.get(piece, clock.now_ms())
                except OncewardError:
                    records = [None] * len(piece)  # let each find out
                for key, record in zip(piece, records, strict=True):
                    if _may_have_ended(record):
                        for news in self._waiting.get(key, ()):
                            _look_better(news)

    async def _look(self, id_: str) -> Job:
        self._must_be_open()
        return await self._store.run(lambda tx: self._schedule.get(tx, id_))

    def _must_be_open(self) -> None:
        if self._closed:
            raise self._stopped()

    def _stopped(self) -> Unavailable:
        return Unavailable("the node is stopping: ask another one", code="node_stopped")

    def _saw(self, write: Put | Delete) -> None:
        waiting = self._waiting.get(write.key)
        if waiting and type(write) is Put and _may_have_ended(write):
            for news in waiting:
                if not news.done():
                    news.set_result(_job(write))


def _look_better(news: "asyncio.Future[Job | None]") -> None:
    if not news.done():
        news.set_result(None)


def _may_have_ended(record: Record | Put | None) -> bool:
    """Whether it is worth a proper look; also if it is gone, or cannot be read."""
    if record is None:
        return True
    try:
        return decode(record.value, _Glance, record.key).state in ENDED
    except OncewardError:
        return True


def _job(write: Put) -> Job | None:
    """A job that has ended, from the commit itself: the record may be gone already, if it is
    not to be kept."""
    try:
        job: Job = decode(write.value, Job, write.key)
    except OncewardError:
        return None
    return job
