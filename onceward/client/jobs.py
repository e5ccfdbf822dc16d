"""The namespace `client.jobs`: the operations on jobs, and a wait without a limit."""

from onceward.api.jobs import Job
from onceward.client.operations.jobs import JobsOperations
from onceward.quantities import milliseconds

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
