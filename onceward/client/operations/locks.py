"""Client methods for locks, from `onceward.api.locks`. Written by `make generate`."""

from collections.abc import AsyncIterator, Sequence

from onceward.api import locks as api
from onceward.api.arguments import as_list, in_ms
from onceward.client.operations.base import Operations


class LocksOperations(Operations):
    """Operations on locks: named leases with fencing tokens."""

    async def acquire(
        self,
        names: Sequence[str],
        *,
        owner: str = "",
        lease_s: float = 30.0,
        wait_s: float = 0.0,
        capacity: int = 1,
        request: str | None = None,
        keep_place: bool = False,
    ) -> api.HeldLocks:
        """Acquire locks, all or none.

        - `names`: The names of the locks.
        - `owner`: The name of the holder, shown with the lock.
        - `lease_s`: The length of the lease.
        - `wait_s`: How long to wait for the locks.
        - `capacity`: How many holders a name can have at the same time.
        - `request`: 26 letters and digits, chosen by the client. Requests with the same value are
          one request, so that a client can retry after a timeout.
        - `keep_place`: Whether the waiter keeps its place in the queue when the wait is over, for
          another request with the same `request`. It keeps the place until its lease ends.

        Raises `LockHeld`, `TooManyWaiters`, `LockLost`, `BadInput` (bad_name, bad_key,
        lock_capacity).
        """
        return await self._transport.run(
            api.ACQUIRE,
            body=api.AcquireLocks(
                names=as_list("names", names),
                owner=owner,
                lease_ms=in_ms("lease_s", lease_s),
                wait_ms=in_ms("wait_s", wait_s),
                capacity=capacity,
                request=request,
                keep_place=keep_place,
            ),
        )

    async def renew(self, id: str, *, lease_s: float | None = None) -> int:
        """Renew the lease of locks.

        - `id`: The id that `acquire` returned.
        - `lease_s`: The length of the lease, from now. By default, as before.

        Raises `LockLost`, `BadInput` (bad_key).
        """
        return (
            await self._transport.run(
                api.RENEW, body=api.RenewLocks(id=id, lease_ms=in_ms("lease_s", lease_s))
            )
        ).lease_until_ms

    async def release(self, id: str) -> bool:
        """Release locks.

        - `id`: The id that `acquire` returned.

        Raises `BadInput` (bad_key).
        """
        return (await self._transport.run(api.RELEASE, body=api.ReleaseLocks(id=id))).released

    async def list(self, *, prefix: str = "", after: str = "", limit: int = 100) -> api.LockPage:
        """List recently used locks.

        - `prefix`: The beginning of the names.
        - `after`: The cursor of the next page.
        - `limit`: The maximum number of entries in the response.

        Raises `BadInput` (bad_name).
        """
        return await self._transport.run(
            api.LIST, query=api.FindLocks(prefix=prefix, after=after, limit=limit)
        )

    async def iterate(
        self, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> AsyncIterator[api.LockSummary]:
        """Iterate over the entries of all pages of `list`.

        Arguments and errors are the same. `limit` is the size of a page.
        """
        while True:
            page = await self.list(prefix=prefix, after=after, limit=limit)
            for one in page.locks:
                yield one
            if page.next is None:
                return
            after = page.next

    async def get(self, name: str) -> api.Lock:
        """Show a lock with its holders and waiters.

        - `name`: The name of the lock.

        Raises `BadInput` (no_such_lock, bad_name).
        """
        return await self._transport.run(api.GET, name)
