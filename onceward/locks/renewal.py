"""Background renewal of a held lock, with notification when it is lost."""

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING

from onceward import limits
from onceward.errors import PASSING, OncewardError
from onceward.schedule.wakeup import Wakeup

if TYPE_CHECKING:
    from onceward.locks.held import Hold, Lock
    from onceward.locks.server import Locks


class Renewal:
    """Renews a lock until it is closed or the lock is lost, which it reports to the hold.

    Most locks are released before the first renewal, so it creates its task only then.
    """

    def __init__(self, locks: "Locks", hold: "Hold", lock: "Lock", lease_ns: int) -> None:
        self._locks = locks
        self._hold = hold
        self._lock = lock
        self._lease_ns = lease_ns
        self._renew_ns = lock.until_ns - lease_ns + lease_ns // limits.LOCK_RENEWALS_PER_LEASE
        self._wakeup = Wakeup()
        self._task: asyncio.Task[None] | None = None
        # A commit of another node may call `ring` in another context.
        self._context = copy_context()
        locks.follow(lock.id, self._changed)
        left_s = max(self._renew_ns - locks.store.clock.elapsed_ns(), 0) / 1e9
        self._timer = asyncio.get_running_loop().call_later(
            min(left_s, limits.CLOCK_SLEEP_S_MAX), self._begin
        )

    def close(self) -> None:
        """Stop renewing. Idempotent."""
        self._timer.cancel()
        self._locks.unfollow(self._lock.id, self._changed)
        if self._task is not None:
            self._task.cancel()

    def _changed(self) -> None:
        self._wakeup.ring()
        self._begin()

    def _begin(self) -> None:
        if self._task is None:
            self._timer.cancel()
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._keep(), name="onceward-lock", context=self._context)

    async def _keep(self) -> None:
        store, lock, wakeup = self._locks.store, self._lock, self._wakeup
        clock = store.clock
        while True:
            now_ns = clock.elapsed_ns()
            if now_ns >= lock.until_ns:
                self._hold.lose("its lease expired before it was renewed")
                return
            if await wakeup.rest(clock, min(self._renew_ns, lock.until_ns)):
                continue
            wakeup.rung = False
            self._renew_ns = now_ns + self._lease_ns // limits.LOCK_TRIES_PER_LEASE
            try:
                async with asyncio.timeout((lock.until_ns - now_ns) / 1e9):
                    await store.run(lambda tx: self._locks.table.renew(tx, lock.id))
            except (TimeoutError, *PASSING):
                continue
            except OncewardError as error:
                self._hold.lose(error.message)
                return
            lock.until_ns = now_ns + self._lease_ns
            self._renew_ns = now_ns + self._lease_ns // limits.LOCK_RENEWALS_PER_LEASE
