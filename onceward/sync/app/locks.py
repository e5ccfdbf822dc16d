"""Synchronous classes. Written by `make generate` from `onceward.locks.server`."""

from __future__ import annotations

from collections.abc import Mapping

from onceward import limits
from onceward.locks import Head, Status
from onceward.locks.held import Lock as AsyncLock
from onceward.locks.server import Locks as AsyncLocks
from onceward.store.user_records import SyncTransaction
from onceward.sync.app.transaction import Transaction
from onceward.sync.bridge import Context, Facade, Signal, target


class Lock(Facade[AsyncLock]):
    """A held lock: a token for each name, and a signal when it is lost."""

    @property
    def id(self) -> str:
        return self._target.id

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each name."""
        return self._target.tokens

    @property
    def lost(self) -> Signal:
        """Set when the lease has expired or another process released the lock."""
        return Signal(self._portal, self._target.lost)

    @property
    def reason(self) -> str:
        """The reason of the loss."""
        return self._target.reason

    @property
    def token(self) -> int:
        """The fencing token of a lock with one name."""
        return self._target.token

    @property
    def held(self) -> bool:
        """Whether it is held, as far as this node can determine by its clock."""
        return self._target.held

    @property
    def left_s(self) -> float:
        """The remaining seconds of the lease, without a renewal."""
        return self._target.left_s

    def guard(self, tx: Transaction | SyncTransaction) -> None:
        """Make a transaction commit only while all names are held. Raises `LockLost`."""
        return self._portal.run(self._target.guard(target(tx)))


class Locks(Facade[AsyncLocks]):
    """The locks of a database, as used on this node."""

    def hold(
        self,
        *names: str,
        capacity: int | Mapping[str, int] = 1,
        lease_s: float = limits.LOCK_LEASE_MS / 1000,
        wait_s: float | None = None,
        owner: str = "",
        cancel: bool = True,
    ) -> Context[Lock]:
        """Hold all these names during a `with` block; the lease is renewed automatically."""
        return Context(
            self._portal,
            self._target.hold(
                *names,
                capacity=capacity,
                lease_s=lease_s,
                wait_s=wait_s,
                owner=owner,
                cancel=cancel,
            ),
            Lock,
        )

    def guard(self, tx: Transaction | SyncTransaction, name: str, token: int) -> None:
        """Make a transaction commit only while the token holds the lock. Raises `LockLost`."""
        return self._portal.run(self._target.guard(target(tx), name, token))

    def gate(self, tx: Transaction | SyncTransaction, resource: str, token: int) -> None:
        """Admit a token to an external resource unless a newer token was admitted."""
        return self._portal.run(self._target.gate(target(tx), resource, token))

    def status(self, name: str) -> Status | None:
        """The holders and waiters of a lock; None if it does not exist or was not used recently."""
        return self._portal.run(self._target.status(name))

    def find(
        self, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[tuple[str, Head]]:
        """Up to `limit` locks in use, in the order of their names, the first after `after`."""
        return self._portal.run(self._target.find(prefix=prefix, after=after, limit=limit))
