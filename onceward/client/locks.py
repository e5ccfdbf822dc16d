"""A lock that is held over HTTP, and renewed until it is let go."""

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from onceward.client.views import Lock
from onceward.errors import BadInput, LockLost, OncewardError

if TYPE_CHECKING:
    from onceward.client.client import Client

_RENEWALS_PER_LEASE = 3


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
        self._lease_s = lease_s
        self._wait_s = wait_s
        self._options = options
        self._lock: Lock | None = None
        self._lost: OncewardError | None = None
        self._task: asyncio.Task[Any] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Lock:
        if self._task is not None:
            raise BadInput("this hold was entered before: ask for another one")
        self._task = asyncio.current_task()
        # From before it was asked for: the server counts from later on.
        self._until_ns = self._after_lease_ns()
        self._lock = await self._client.acquire(
            *self._names, lease_s=self._lease_s, wait_s=self._wait_s, **self._options
        )
        if self._wait_s:
            self._until_ns = self._after_lease_ns()
            await self._client.renew(self._lock.id, self._lease_s)
        self._keeper = asyncio.create_task(self._keep(self._lock.id))
        return self._lock

    def _after_lease_ns(self) -> int:
        return self._client.clock.elapsed_ns() + int(self._lease_s * 1e9)

    async def _keep(self, id_: str) -> None:
        clock = self._client.clock
        while True:
            await clock.sleep(self._lease_s / _RENEWALS_PER_LEASE)
            until_ns = self._after_lease_ns()
            left_s = (self._until_ns - clock.elapsed_ns()) / 1e9
            try:
                async with asyncio.timeout(max(left_s, 0)):
                    await self._client.renew(id_, self._lease_s)
                self._until_ns = until_ns
            except TimeoutError:
                self._lose(LockLost("the lease ran out before it could be renewed", id=id_))
                return
            except OncewardError as error:
                self._lose(error)
                return

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
        if self._lost is not None:
            if self._task.uncancel() == 0 and isinstance(error, asyncio.CancelledError | None):
                raise LockLost(
                    f"the lock on {', '.join(self._names)} was lost: {self._lost.message}",
                    id=self._lock.id,
                ) from error
            return
        await self._client.release(self._lock.id)
