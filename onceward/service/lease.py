"""The lease of a job at hand: renewed until its end, or lost."""

import asyncio
from collections.abc import Callable

from onceward import limits
from onceward.errors import NoSuchJob, OncewardError, StaleToken
from onceward.parts.schedule import Claim, Schedule
from onceward.store import Store
from onceward.transaction import Transaction


class Lease:
    """Renews itself at a third of its time. When it is lost, it cancels the task that works
    on the job. Counts its time by this node's own clock, from before the claim was made."""

    def __init__(
        self,
        store: Store,
        schedule: Schedule,
        claim: Claim,
        lease_ms: int,
        task: "asyncio.Task[None]",
    ) -> None:
        self.claim = claim
        self.lost = False
        self._store = store
        self._schedule = schedule
        self._lease_ms = lease_ms
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._renewing: asyncio.Task[None] | None = None
        left_ms = claim.lease_until_ms - store.clock.now_ms()
        self._until_ns = store.clock.elapsed_ns() + left_ms * 1_000_000
        self._timer = self._later(left_ms - lease_ms * 2 / 3, self._renew)

    def close(self) -> None:
        """Renew no more; twice is once."""
        self._closed = True
        self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    def _later(self, delay_ms: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(max(delay_ms, 0) / 1000, call)

    def _renew(self) -> None:
        self._renewing = self._loop.create_task(self._extend())

    async def _extend(self) -> None:
        begun_ns = self._store.clock.elapsed_ns()
        if begun_ns >= self._until_ns:
            self._lose()
            return

        async def extend(tx: Transaction) -> int:
            return await self._schedule.extend(tx, self.claim.id, self.claim.token, self._lease_ms)

        try:
            left_ms = (self._until_ns - begun_ns) / 1e6
            async with asyncio.timeout(left_ms / 1000):
                await self._store.run(extend)
        except (StaleToken, NoSuchJob):
            self._lose()
        except (OncewardError, TimeoutError):
            # Once more soon, as long as the lease lasts.
            self._timer = self._later(self._lease_ms / limits.RENEWALS_PER_LEASE, self._renew)
        else:
            self._until_ns = begun_ns + self._lease_ms * 1_000_000
            self._timer = self._later(self._lease_ms / 3, self._renew)
        if self._closed:
            self._timer.cancel()

    def _lose(self) -> None:
        if not self._closed:
            self.lost = True
            self._closed = True
            self._task.cancel()
