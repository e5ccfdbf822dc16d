"""Synchronous classes. Written by `make generate` from `onceward.rate_limits.part`."""

from __future__ import annotations

from onceward.rate_limits.part import RateLimits as AsyncRateLimits
from onceward.rate_limits.part import Taken
from onceward.store.user_records import SyncTransaction
from onceward.sync.app.transaction import Transaction
from onceward.sync.bridge import Facade, target


class RateLimits(Facade[AsyncRateLimits]):
    """The rate limits of one database."""

    def take(
        self,
        tx: Transaction | SyncTransaction,
        key: str,
        tokens: int = 1,
        *,
        rate: float,
        burst: int,
    ) -> Taken:
        """Take tokens from the bucket of a key, all or none."""
        return self._portal.run(self._target.take(target(tx), key, tokens, rate=rate, burst=burst))

    def reset(self, tx: Transaction | SyncTransaction, key: str) -> None:
        """Fill the bucket of a key. Idempotent. Raises `BadInput`."""
        return self._portal.run(self._target.reset(target(tx), key))
