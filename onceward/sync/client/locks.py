"""Synchronous classes. Written by `make generate` from `onceward.client.locks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onceward import limits
from onceward.api import locks as api
from onceward.api.locks import HeldLocks
from onceward.client.locks import Locks as AsyncLocks
from onceward.sync.bridge import Context, Facade


class Locks(Facade[AsyncLocks]):
    """Operations on locks."""

    def hold(
        self,
        names: Sequence[str],
        *,
        owner: str = "",
        lease_s: float = limits.LOCK_LEASE_MS / 1000,
        wait_s: float | None = 0.0,
        capacity: int = 1,
    ) -> Context[HeldLocks]:
        """Hold locks during a `with`, and renew their lease."""
        return Context(
            self._portal,
            self._target.hold(
                names, owner=owner, lease_s=lease_s, wait_s=wait_s, capacity=capacity
            ),
            lambda _, held: held,
        )

    def acquire(
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
        """Acquire locks, all or none."""
        return self._portal.run(
            self._target.acquire(
                names,
                owner=owner,
                lease_s=lease_s,
                wait_s=wait_s,
                capacity=capacity,
                request=request,
                keep_place=keep_place,
            )
        )

    def renew(self, id: str, *, lease_s: float | None = None) -> int:
        """Renew the lease of locks."""
        return self._portal.run(self._target.renew(id, lease_s=lease_s))

    def release(self, id: str) -> bool:
        """Release locks."""
        return self._portal.run(self._target.release(id))

    def list(self, *, prefix: str = "", after: str = "", limit: int = 100) -> api.LockPage:
        """List recently used locks."""
        return self._portal.run(self._target.list(prefix=prefix, after=after, limit=limit))

    def iterate(
        self, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> Iterator[api.LockSummary]:
        """Iterate over the entries of all pages of `list`."""
        return self._portal.iterate(self._target.iterate(prefix=prefix, after=after, limit=limit))

    def get(self, name: str) -> api.Lock:
        """Show a lock with its holders and waiters."""
        return self._portal.run(self._target.get(name))
