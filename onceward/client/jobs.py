"""The namespace `client.jobs`: the operations on jobs, waits without a limit, and results."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar, overload

from onceward.api.job_updates import JobUpdate, updates_of
from onceward.api.jobs import Job, result_of
from onceward.client.operations.jobs import JobsOperations
from onceward.client.transport import WORKER_PATIENCE_S, patient
from onceward.conversion import converter
from onceward.quantities import milliseconds

T = TypeVar("T")

# How long one request waits on the server before the client sends another one.
_WAIT_S = 20.0


class Jobs(JobsOperations):
    """Operations on jobs."""

    async def wait(self, id: str, timeout_s: float | None = None) -> Job:
        """Wait until a job has ended.

        Returns the job, which has not ended if the timeout came first. Without a timeout it waits
        as long as it takes. Raises `NoSuchJob`.
        """
        if timeout_s is not None:
            milliseconds(timeout_s, "timeout_s")
        clock = self._transport.clock
        begun_ns = clock.elapsed_ns()
        while True:
            left_s = _WAIT_S
            if timeout_s is not None:
                left_s = timeout_s - (clock.elapsed_ns() - begun_ns) / 1e9
            job = await self.get(id, wait_s=max(min(left_s, _WAIT_S), 0.0))
            if job.ended or left_s <= 0:
                return job

    async def follow(self, id: str, *, after: int = 0) -> AsyncIterator[JobUpdate]:
        """Follow a job until it ends: its states, its progress, and the chunks of its stream.

        It reconnects by itself. Continue with the `seq` of an update as `after`, in any process: no
        chunk is missing, and none comes twice. Raises `NoSuchJob` and `BadInput`.
        """
        state = ""
        while True:
            with patient(WORKER_PATIENCE_S):
                found = await self.output(id, after=after, state=state, wait_s=_WAIT_S)
            for update in updates_of(found, after, state):
                yield update
                if update.kind == "end":
                    return
            after, state = found.seq, found.state

    @overload
    async def result(self, id: str, *, timeout_s: float | None = None) -> Any: ...
    @overload
    async def result(self, id: str, type: type[T], *, timeout_s: float | None = None) -> T: ...
    async def result(self, id: str, type: Any = None, *, timeout_s: float | None = None) -> Any:
        """Wait until a job has ended, and return its result, as plain JSON or of a type.

        Raises `JobFailed` if the job failed permanently, was cancelled or is in doubt; `NotEnded`,
        a `TimeoutError`, if it has not ended in time; `NoSuchJob`; and `BadInput` if the result has
        another type.
        """
        wanted = None if type is None else converter(type)
        return result_of(id, await self.wait(id, timeout_s), wanted)
