"""A lock held over HTTP, renewed in the background until it is released."""

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from onceward import limits
from onceward.api.locks import HeldLocks
from onceward.errors import BadInput, LockLost, OncewardError
from onceward.quantities import milliseconds

if TYPE_CHECKING:
    from onceward.client.client import Client

_RENEWALS_PER_LEASE = limits.LOCK_RENEWALS_PER_LEASE
_TRIES_PER_LEASE = limits.LOCK_TRIES_PER_LEASE


class HeldLock:
    """The context in which names are held; by `Client.hold`, for one use.

    When the lease is lost the body is cancelled, and `LockLost` is raised.
    """

    def __init__(
        self,
        client: "Client",
        names: tuple[str, ...],
        lease_s: float,
        wait_s: float,
        options: dict[str, Any],
    ) -> None:
        self._client = client
        self._names = names
        self._lease_s = milliseconds(lease_s, "a lease") / 1000
        self._wait_s = wait_s
        self._options = options
        self._lock: HeldLocks | None = None
        self._lost: OncewardError | None = None
        self._task: asyncio.Task[Any] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._cancelling = 0

    async def __aenter__(self) -> HeldLocks:
        if self._task is not None:
            raise BadInput("this hold was entered before: ask for another one")
        self._task = asyncio.current_task()
        # From before it was asked for: the server counts from later on.
        self._until_ns = self._after_lease_ns()
        self._lock = await self._client.acquire(
            *self._names, lease_s=self._lease_s, wait_s=self._wait_s, **self._options
        )
        if self._left_s() < self._lease_s * (1 - 1 / _RENEWALS_PER_LEASE):
            # It took a while, and nobody here knows when the lease has begun.
            self._until_ns = self._after_lease_ns()
            await self._client.renew(self._lock.id, self._lease_s)
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._keeper = asyncio.create_task(self._keep(self._lock.id))
        return self._lock

    def _after_lease_ns(self) -> int:
        return self._client.clock.elapsed_ns() + int(self._lease_s * 1e9)

    def _left_s(self) -> float:
        return (self._until_ns - self._client.clock.elapsed_ns()) / 1e9

    async def _keep(self, id_: str) -> None:
        pause_s = self._lease_s / _RENEWALS_PER_LEASE
        while True:
            await self._client.clock.sleep(min(pause_s, max(self._left_s(), 0)))
            until_ns = self._after_lease_ns()
            try:
                async with asyncio.timeout(max(self._left_s(), 0)):
                    await self._client.renew(id_, self._lease_s)
            except TimeoutError:
                self._lose(LockLost("the lease ran out before it could be renewed", id=id_))
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
            return  # nobody is left to wait for anything: the lease runs out
        if self._lost is not None and self._task.uncancel() > self._cancelling:
            return  # cancelled by others too
        if self._lost is None and not await self._release(self._lock.id):
            self._lost = LockLost("it was released by someone else, or ran out")
            if error is None:
                raise self._lost_lock()
        elif self._lost is not None and isinstance(error, asyncio.CancelledError | None):
            raise self._lost_lock() from error

    def _lost_lock(self) -> LockLost:
        assert self._lock is not None
        assert self._lost is not None
        names = ", ".join(self._names)
        return LockLost(f"the lock on {names} was lost: {self._lost.message}", id=self._lock.id)

    async def _release(self, id_: str) -> bool:
        """Let go; says whether it was held until now. It is tried for as long as the lease lasts:
        then it is over in any case."""
        try:
            async with asyncio.timeout(max(self._left_s(), 0)):
                return await self._client.release(id_)
        except (TimeoutError, OncewardError):
            return True
