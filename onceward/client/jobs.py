"""The namespace `client.jobs`: the operations on jobs, waits without a limit, and results."""

from typing import Any, TypeVar, overload

from onceward.api.jobs import Job, result_of
from onceward.client.operations.jobs import JobsOperations
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
