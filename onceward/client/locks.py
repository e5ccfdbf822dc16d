"""The namespace `client.locks`: the operations on locks, and locks that are renewed while held."""

import asyncio
import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from onceward import limits
from onceward.api.arguments import as_list, in_ms
from onceward.api.locks import HeldLocks
from onceward.client.operations.locks import LocksOperations
from onceward.clock import Clock
from onceward.errors import BadInput, LockHeld, LockLost, OncewardError
from onceward.quantities import milliseconds

_RENEWALS_PER_LEASE = limits.LOCK_RENEWALS_PER_LEASE
_TRIES_PER_LEASE = limits.LOCK_TRIES_PER_LEASE
# How long one request of a long wait takes: less than the time limits of proxies.
_WAIT_S = 20.0


class Locks(LocksOperations):
    """Operations on locks."""

    def hold(
        self,
        names: Sequence[str],
        *,
        owner: str = "",
        lease_s: float = limits.LOCK_LEASE_MS / 1000,
        wait_s: float | None = 0.0,
        capacity: int = 1,
    ) -> "HeldLock":
        """Hold locks during an `async with`, and renew their lease.

        The arguments are those of `acquire`. The context raises its errors when it is entered, and
        `LockLost` if the lease ends too early.
        """
        asked: dict[str, Any] = {"owner": owner, "wait_s": wait_s, "capacity": capacity}
        return HeldLock(self, self._transport.clock, names, lease_s, asked)

    async def acquire(
        self,
        names: Sequence[str],
        *,
        owner: str = "",
        lease_s: float = limits.LOCK_LEASE_MS / 1000,
        wait_s: float | None = 0.0,
        capacity: int = 1,
        request: str | None = None,
        keep_place: bool = False,
    ) -> HeldLocks:
        """Acquire locks, all or none.

        - `names`: The names of the locks.
        - `owner`: The name of the holder, shown with the lock.
        - `lease_s`: The length of the lease.
        - `wait_s`: How long to wait for the locks; None waits without a limit. A long wait is made
          of several requests, which keep the place in the queue of the lock.
        - `capacity`: How many holders a name can have at the same time.
        - `request`: 26 letters and digits, chosen by the client. Calls with the same value are one
          request.
        - `keep_place`: Whether to keep the place in the queue when the wait is over, for another
          call with the same `request`.

        Raises `LockHeld`, `TooManyWaiters`, `LockLost`, `BadInput` (bad_name, bad_key,
        lock_capacity).
        """
        clock = self._transport.clock
        asked: dict[str, Any] = {"owner": owner, "lease_s": lease_s, "capacity": capacity}
        if wait_s is not None and in_ms("wait_s", wait_s) <= limits.WAIT_MS_MAX:
            return await super().acquire(
                names, wait_s=wait_s, request=request, keep_place=keep_place, **asked
            )
        request = self._transport.ids.new() if request is None else request
        begun_ns = clock.elapsed_ns()
        while True:
            left_s = math.inf
            if wait_s is not None:
                left_s = max(wait_s - (clock.elapsed_ns() - begun_ns) / 1e9, 0.0)
            more = left_s > _WAIT_S
            try:
                return await super().acquire(
                    names,
                    wait_s=min(left_s, _WAIT_S),
                    request=request,
                    keep_place=more or keep_place,
                    **asked,
                )
            except LockHeld:
                if not more:
                    raise


class HeldLock:
    """The context of `Locks.hold`, for one use.

    If the lease is lost, the body is cancelled, and `LockLost` is raised.
    """

    def __init__(
        self,
        locks: Locks,
        clock: Clock,
        names: Sequence[str],
        lease_s: float,
        options: dict[str, Any],
    ) -> None:
        self._locks = locks
        self._clock = clock
        self._names = as_list("names", names)
        self._lease_s = milliseconds(lease_s, "lease_s") / 1000
        self._options = options
        self._lock: HeldLocks | None = None
        self._lost: OncewardError | None = None
        self._task: asyncio.Task[Any] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._cancelling = 0

    async def __aenter__(self) -> HeldLocks:
        if self._task is not None:
            raise BadInput(
                f"this context of the locks {self._names!r:.100} was already entered; call "
                "`hold` again"
            )
        self._task = asyncio.current_task()
        # From before the request: the lease begins later, on the server.
        self._until_ns = self._after_lease_ns()
        self._lock = await self._locks.acquire(self._names, lease_s=self._lease_s, **self._options)
        if self._left_s() < self._lease_s * (1 - 1 / _RENEWALS_PER_LEASE):
            # It took a while, and it is not known here when the lease began.
            self._until_ns = self._after_lease_ns()
            await self._locks.renew(self._lock.id, lease_s=self._lease_s)
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._keeper = asyncio.create_task(self._keep(self._lock.id))
        return self._lock

    def _after_lease_ns(self) -> int:
        return self._clock.elapsed_ns() + int(self._lease_s * 1e9)

    def _left_s(self) -> float:
        return (self._until_ns - self._clock.elapsed_ns()) / 1e9

    async def _keep(self, id_: str) -> None:
        pause_s = self._lease_s / _RENEWALS_PER_LEASE
        while True:
            await self._clock.sleep(min(pause_s, max(self._left_s(), 0)))
            until_ns = self._after_lease_ns()
            try:
                async with asyncio.timeout(max(self._left_s(), 0)):
                    await self._locks.renew(id_, lease_s=self._lease_s)
            except TimeoutError:
                self._lose(
                    LockLost(
                        f"the lease of {self._lease_s} s ended before it could be renewed", id=id_
                    )
                )
                return
            except OncewardError as error:
                if not error.kind.retry:
                    self._lose(error)
                    return
                pause_s = self._lease_s / _TRIES_PER_LEASE
            else:
                self._until_ns = until_ns
                pause_s = self._lease_s / _RENEWALS_PER_LEASE

    def _lose(self, error: OncewardError) -> None:
        assert self._task is not None
        self._lost = error
        self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._lock is not None
        assert self._keeper is not None
        assert self._task is not None
        self._keeper.cancel()
        if isinstance(error, GeneratorExit):
            return  # nothing can be awaited: the lease expires
        if self._lost is not None and self._task.uncancel() > self._cancelling:
            return  # cancelled for another reason as well
        if self._lost is None and not await self._release(self._lock.id):
            self._lost = LockLost(
                f"the request {self._lock.id} was released by another client, or its lease ended"
            )
            if error is None:
                raise self._lost_lock()
        elif self._lost is not None and isinstance(error, asyncio.CancelledError | None):
            raise self._lost_lock() from error

    def _lost_lock(self) -> LockLost:
        assert self._lock is not None
        assert self._lost is not None
        names = ", ".join(self._names)
        return LockLost(
            f"the lock on {names} was lost: {self._lost.message}. Acquire it again",
            id=self._lock.id,
        )

    async def _release(self, id_: str) -> bool:
        """Release the locks. Returns whether they were held until now. It is attempted until the
        lease ends, which releases them in any case."""
        try:
            async with asyncio.timeout(max(self._left_s(), 0)):
                return await self._locks.release(id_)
        except (TimeoutError, OncewardError):
            return True
