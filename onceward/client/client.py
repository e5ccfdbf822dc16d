"""The `Client` class: one method for each operation of the API."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import msgspec

from onceward.api import jobs as jobs_api
from onceward.api import locks as locks_api
from onceward.api import messages as messages_api
from onceward.api import queues as queues_api
from onceward.api import server as server_api
from onceward.api.jobs import ClaimedJob, Job
from onceward.api.locks import HeldLocks, Lock
from onceward.api.messages import MessageVerdict, Receipt
from onceward.api.operation import Operation
from onceward.api.queues import ChangedJobs, Queue
from onceward.api.server import ServerClock
from onceward.client.locks import HeldLock
from onceward.client.matches import MatchCalls
from onceward.client.rooms.calls import RoomCalls
from onceward.client.rooms.live import Credentials, Live
from onceward.client.tables import TableCalls
from onceward.client.timers import TimerCalls
from onceward.client.transport import Course, problem
from onceward.client.work import Handler, Worker
from onceward.clock import Clock
from onceward.errors import BadInput, NotFailed, OncewardError
from onceward.ids import Ids
from onceward.job_options import JobKeywords
from onceward.quantities import milliseconds

# How long one request waits on the server before the client asks again.
_WAIT_S = 20.0


class MessageKeywords(JobKeywords, total=False):
    """The options of `Client.accept`: those of the job, and when it is due."""

    delay_ms: int | None
    due_ms: int | None


class Client(TimerCalls, RoomCalls, TableCalls, MatchCalls):
    """A client of a server. Use it with `async with`."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        patience_s: float = 60.0,
        connections: int = 100,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        """`key` is an API key or a token. For `patience_s` calls are made again while the server
        does not answer. Raises `BadInput`."""
        super().__init__(
            url, key=key, patience_s=patience_s, connections=connections, clock=clock, ids=ids
        )

    # Messages.

    async def accept(
        self,
        queue: str,
        body: Any,
        *,
        key: str | None = None,
        wait_s: float = 0.0,
        **options: Unpack[MessageKeywords],
    ) -> Receipt:
        """Send a message, once for its key: durable when this returns. With `wait_s`, waits so
        long for its end. Options: delay_ms or due_ms, order_key, limit_key, priority,
        attempts_max. Raises what `App.accept` raises."""
        given = {name: value for name, value in options.items() if value is not None}
        message: dict[str, Any] = {"body": body, **given}
        if key is not None:
            message["key"] = key
        query = _wait_query(wait_s)
        return await self.run(messages_api.SEND, queue, body=message, query=query, wait_s=wait_s)

    async def accept_many(
        self, queue: str, messages: Sequence[Mapping[str, Any]]
    ) -> list[Receipt | OncewardError]:
        """Send messages, mappings with `body`, `key` and the options of `accept`; a verdict for
        each, in their order."""
        found = await self.run(messages_api.SEND_MANY, queue, body={"messages": messages})
        return [_verdict(result) for result in found.results]

    # Jobs.

    async def claim(
        self,
        queue: str,
        *,
        max: int = 1,
        lease_s: float = 30.0,
        wait_s: float = 0.0,
        worker: str = "",
    ) -> list[ClaimedJob]:
        """Lease ready jobs, or wait for some. Each is to be completed, failed or extended."""
        ask = {
            "max": max,
            "lease_ms": _lease_ms(lease_s),
            "wait_ms": _wait_ms(wait_s),
            "worker": worker,
        }
        return (await self.run(jobs_api.CLAIM, queue, body=ask, wait_s=wait_s)).jobs

    async def complete(self, id_: str, token: str, result: Any = None) -> None:
        """End a job well. Raises `StaleToken`, `NoSuchJob`."""
        said = {"token": token, "result": result}
        await self.run(jobs_api.COMPLETE, id_, body=said)

    async def fail(
        self,
        id_: str,
        token: str,
        reason: str,
        *,
        retry_after_s: float | None = None,
        not_before_s: float | None = None,
        final: bool = False,
    ) -> str:
        """End an attempt badly; returns the job's state. Raises `StaleToken`, `NoSuchJob`."""
        said: dict[str, Any] = {"token": token, "reason": reason, "final": final}
        for name, seconds in (("retry_after_ms", retry_after_s), ("not_before_ms", not_before_s)):
            if seconds is not None:
                said[name] = milliseconds(seconds, "a delay")
        return (await self.run(jobs_api.FAIL, id_, body=said)).state

    async def extend(self, id_: str, token: str, lease_s: float) -> int:
        """Renew a lease; returns until when, in ms. Raises `StaleToken`, `NoSuchJob`."""
        said = {"token": token, "lease_ms": _lease_ms(lease_s)}
        return (await self.run(jobs_api.EXTEND, id_, body=said)).lease_until_ms

    async def job(self, id_: str, *, wait_s: float = 0.0) -> Job:
        """A job as it is, or as it is once it has ended if that is within `wait_s` (at most a
        minute). Raises `NoSuchJob`."""
        return await self.run(jobs_api.GET, id_, query=_wait_query(wait_s), wait_s=wait_s)

    async def wait(self, id_: str, timeout_s: float | None = None) -> Job:
        """A job once it has ended, or as it is when the time is over. Raises `NoSuchJob`."""
        if timeout_s is not None:
            milliseconds(timeout_s, "a time limit")
        begun_ns = self.clock.elapsed_ns()
        while True:
            left_s = _WAIT_S
            if timeout_s is not None:
                left_s = timeout_s - (self.clock.elapsed_ns() - begun_ns) / 1e9
            job = await self.job(id_, wait_s=max(min(left_s, _WAIT_S), 0.0))
            if job.ended or left_s <= 0:
                return job

    async def cancel(self, id_: str) -> None:
        """Cancel a job that has not ended, or has failed. Idempotent. Raises `NoSuchJob`,
        `AlreadyEnded`."""
        await self.run(jobs_api.CANCEL, id_)

    async def redrive(self, id_: str) -> list[str]:
        """Retry a failed job. Returns the names of its steps in doubt: if the handler cannot
        find out what became of them, the job is in doubt again until they are settled. Raises
        `NoSuchJob`, `NotFailed`."""
        course = Course()
        try:
            return (await self.run(jobs_api.RETRY, id_, course=course)).in_doubt
        except NotFailed:
            if not course.lost:
                raise
            return []

    async def settle(
        self, id_: str, step: str, *, done: bool, result: Any = None, reason: str = ""
    ) -> None:
        """Say what became of a step in doubt: done with this result, or not at all; the job
        goes on from there. Its record keeps the caller, the time and the reason. Raises
        `NoSuchJob`, `NotFailed`, `BadInput`."""
        said = {"step": step, "done": done, "result": result, "reason": reason}
        course = Course()
        try:
            await self.run(jobs_api.SETTLE, id_, body=said, course=course)
        except NotFailed:
            if not course.lost:
                raise

    def worker(self, queue: str, handler: Handler, **options: Any) -> Worker:
        """Runs a function on the jobs of a queue; see `Worker`."""
        return Worker(self, queue, handler, **options)

    # Queues.

    async def server_clock(self) -> ServerClock:
        """What time it is for the server."""
        return await self.run(server_api.CLOCK)

    async def confirm_clock(self) -> ServerClock:
        """Believe a server's clock that is far ahead of its last commit. Idempotent."""
        return await self.run(server_api.CONFIRM_CLOCK)

    async def queues(self) -> list[Queue]:
        """The queues that have jobs or settings."""
        return (await self.run(queues_api.LIST)).queues

    async def queue(self, name: str) -> Queue:
        return await self.run(queues_api.GET, name)

    async def configure(self, queue: str, **settings: Any) -> Queue:
        """Change some settings of a queue; the others stay."""
        return await self.run(queues_api.CONFIGURE, queue, body=settings)

    async def pause(self, queue: str) -> Queue:
        return await self.run(queues_api.PAUSE, queue)

    async def resume(self, queue: str) -> Queue:
        return await self.run(queues_api.RESUME, queue)

    async def dead(
        self, queue: str, *, start: str | None = None, limit: int = 100
    ) -> tuple[list[Job], str | None]:
        """Failed jobs and those in doubt, and where the next ones start."""
        query = {"limit": limit, **({"after": start} if start else {})}
        found = await self.run(queues_api.FAILED, queue, query=query)
        return found.jobs, found.next

    async def redrive_all(
        self,
        queue: str,
        *,
        progress: Callable[[int], None] = lambda done: None,
        in_doubt: Callable[[int], None] = lambda count: None,
        **chosen: Any,
    ) -> int:
        """Let all failed jobs of a queue try again, or those chosen by reason, order_key or
        since_ms; returns how many. `in_doubt` gets the number of those with steps in doubt."""
        done, held = await self._pages(queues_api.REDRIVE, queue, progress, chosen)
        in_doubt(held)
        return done

    async def purge(
        self, queue: str, *, progress: Callable[[int], None] = lambda done: None
    ) -> int:
        """Cancel all jobs of a queue that wait; returns how many."""
        done, _ = await self._pages(queues_api.PURGE, queue, progress, {})
        return done

    async def _pages(
        self,
        operation: Operation[ChangedJobs],
        queue: str,
        progress: Callable[[int], None],
        chosen: dict[str, Any],
    ) -> tuple[int, int]:
        if not callable(progress):
            raise BadInput(f"`progress` is a function, not {type(progress).__name__}")
        done, held, start = 0, 0, ""
        while True:
            found = await self.run(operation, queue, body={**chosen, "after": start})
            done += found.jobs
            held += found.in_doubt
            progress(done)
            if found.next is None:
                return done, held
            start = found.next

    # Rooms.

    def live(self, *, token: Credentials = None) -> Live:
        """A connection to rooms, for an `async with` of its own. It has this client's key, or
        another token, or what gets tokens: see `Live`."""
        return Live(self._url, token=token or self._key, clock=self.clock, ids=self.ids)

    # Locks.

    async def acquire(
        self,
        *names: str,
        lease_s: float = 30.0,
        wait_s: float = 0.0,
        owner: str = "",
        capacity: int = 1,
    ) -> HeldLocks:
        """Hold all these names, or none; waits in line for up to `wait_s` (at most a minute).
        Raises `LockHeld`, `TooManyWaiters`, `BadInput`. See `hold` for what renews itself."""
        asked = {
            "names": names,
            "owner": owner,
            "lease_ms": _lease_ms(lease_s),
            "wait_ms": _wait_ms(wait_s),
            "capacity": capacity,
            "request": self.ids.new(),  # so that it can be asked again
        }
        return await self.run(locks_api.ACQUIRE, body=asked, wait_s=wait_s)

    async def renew(self, id_: str, lease_s: float | None = None) -> int:
        """Renew a lease; returns until when, in ms. Raises `LockLost`."""
        asked: dict[str, Any] = {"id": id_}
        if lease_s is not None:
            asked["lease_ms"] = _lease_ms(lease_s)
        return (await self.run(locks_api.RENEW, body=asked)).lease_until_ms

    async def release(self, id_: str) -> bool:
        """Let go; says whether it was held until now."""
        asked, course = {"id": id_}, Course()
        found = await self.run(locks_api.RELEASE, body=asked, course=course)
        return found.released or course.lost

    async def lock(self, name: str) -> Lock:
        """Who holds a lock and who waits for it. Raises `BadInput` if it was not used lately."""
        return await self.run(locks_api.GET, name)

    def hold(
        self, *names: str, lease_s: float = 30.0, wait_s: float = 0.0, **options: Any
    ) -> HeldLock:
        """Hold names for the time of an `async with`, renewed as long as it lasts."""
        return HeldLock(self, names, lease_s, wait_s, options)


def _wait_ms(wait_s: float) -> int:
    return milliseconds(wait_s, "a time to wait")


def _wait_query(wait_s: float) -> dict[str, int] | None:
    wait_ms = _wait_ms(wait_s)
    return {"wait_ms": wait_ms} if wait_ms else None


def _lease_ms(lease_s: float) -> int:
    return milliseconds(lease_s, "a lease")


def _verdict(verdict: MessageVerdict) -> Receipt | OncewardError:
    if verdict.accepted is not None:
        return verdict.accepted
    assert verdict.rejected is not None
    return problem(verdict.rejected.status, msgspec.json.encode(verdict.rejected))
