"""The lease of a running job, renewed in the background."""

import asyncio
import logging
from collections.abc import Callable

from onceward import limits
from onceward.errors import NoSuchJob, OncewardError, StaleToken
from onceward.job_context import about
from onceward.schedule import Claim, Schedule
from onceward.store import Store
from onceward.store.transaction import Transaction

logger = logging.getLogger("onceward")


class Lease:
    """A lease that renews itself when a third of its time has passed.

    It calls `on_lost` when it is lost: it could not be renewed in time, or the job has another
    owner. Its time is measured by this node's clock, from before the claim.
    """

    def __init__(
        self,
        store: Store,
        schedule: Schedule,
        claim: Claim,
        lease_ms: int,
        on_lost: Callable[[], None],
    ) -> None:
        self.claim = claim
        self.lost = False
        self._store = store
        self._schedule = schedule
        self._lease_ms = lease_ms
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._renewing: asyncio.Task[None] | None = None
        left_ms = claim.lease_until_ms - store.clock.now_ms()
        self._until_ns = store.clock.elapsed_ns() + left_ms * 1_000_000
        self._timer = self._later(left_ms - lease_ms * 2 / 3)

    @property
    def over(self) -> bool:
        """Whether another worker may have the job."""
        return self.lost or self._store.clock.elapsed_ns() >= self._until_ns

    def insist(self) -> int:
        """Return the remaining time in ms; raise `StaleToken` if the lease has ended."""
        if self.over:
            id_ = self.claim.id
            raise StaleToken(
                f"the lease of job {id_} has ended: another worker may run it. Stop this attempt",
                id=id_,
            )
        return (self._until_ns - self._store.clock.elapsed_ns()) // 1_000_000

    def close(self) -> None:
        """Stop renewing. Idempotent."""
        self._closed = True
        self._on_lost = _nothing  # breaks a reference cycle
        self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    def _later(self, delay_ms: float) -> asyncio.TimerHandle:
        return self._loop.call_later(max(delay_ms, 0) / 1000, self._renew)

    def _renew(self) -> None:
        if self.over:
            self._lose()
        else:
            self._renewing = self._loop.create_task(self._extend(), name="onceward-lease")

    async def _extend(self) -> None:
        begun_ns = self._store.clock.elapsed_ns()

        async def extend(tx: Transaction) -> int:
            return await self._schedule.extend(tx, self.claim.id, self.claim.token, self._lease_ms)

        pause_ms = self._lease_ms / 3
        try:
            async with asyncio.timeout((self._until_ns - begun_ns) / 1e9):
                await self._store.run(extend)
            self._until_ns = begun_ns + self._lease_ms * 1_000_000
        except (StaleToken, NoSuchJob):
            self._lose()
        except Exception as error:
            if not isinstance(error, OncewardError | TimeoutError):
                logger.error(
                    "job %s: cannot renew its lease: %s",
                    self.claim.id,
                    error,
                    exc_info=error,
                    extra=about(self.claim.id, self.claim.queue, self.claim.attempt),
                )
            # Retry soon while the lease lasts, and always at its end.
            left_ms = (self._until_ns - self._store.clock.elapsed_ns()) / 1e6
            pause_ms = min(self._lease_ms / limits.RENEWALS_PER_LEASE, left_ms)
        if not self._closed:
            self._timer = self._later(pause_ms)

    def _lose(self) -> None:
        if not self._closed:
            self.lost = True
            self._closed = True
            self._on_lost()


def _nothing() -> None:
    pass
