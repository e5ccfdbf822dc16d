"""Token buckets, as functions of a transaction."""

import msgspec

from onceward.rate_limits.records import (
    MICRO,
    Bucket,
    Limit,
    admit_key,
    admit_tokens,
    bucket_key,
    limit_of,
)
from onceward.store.transaction import Transaction
from onceward.store.user_records import joins


class Taken(msgspec.Struct, frozen=True):
    """The answer to a request for tokens. It is true if they were taken."""

    allowed: bool
    remaining: float
    """The tokens that are left in the bucket."""
    retry_after_s: float
    """The time until there are as many tokens as were asked for; 0 if they were taken."""

    def __bool__(self) -> bool:
        return self.allowed


class RateLimits:
    """The rate limits of one database."""

    @joins
    async def take(
        self, tx: Transaction, key: str, tokens: int = 1, *, rate: float, burst: int
    ) -> Taken:
        """Take tokens from the bucket of a key, all or none.

        The bucket is full at first, and after long disuse. The tokens are taken when the
        transaction commits: if it fails, they are still there. Takes of one key are serialized, so
        no bucket gives more than it has, on all nodes together.

        Args:
            tx: The transaction. To limit an external call, use one that commits before the call:
                not `job.tx`.
            key: The name of the bucket, such as `sms:+15550100`.
            tokens: How many to take. 0 takes none: it shows the bucket.
            rate: How many tokens per second are added, fractions included.
            burst: How many tokens the bucket holds. Use the same rate and burst for a key each
                time; after a change, the tokens that are missing stay missing until refilled.

        Raises:
            BadInput: An argument is not valid, or `tokens` is more than `burst`.
        """
        admit_key(key)
        limit = limit_of(rate, burst)
        admit_tokens(tokens, burst)
        bucket = await tx.get(bucket_key(key), Bucket)
        left = _level(bucket, limit, tx.now_ms) - tokens * MICRO
        if left < 0:
            wait_ms = _refill_ms(-left, limit)
            return Taken(False, (left + tokens * MICRO) / MICRO, wait_ms / 1_000)
        if tokens:
            # With an earlier time, a node whose clock is ahead would add the same tokens again.
            at_ms = tx.now_ms if bucket is None else max(tx.now_ms, bucket.at_ms)
            full_ms = at_ms + _refill_ms(limit.burst - left, limit)
            tx.put(bucket_key(key), Bucket(left, at_ms), expires_at_ms=full_ms)
        return Taken(True, left / MICRO, 0.0)

    @joins
    async def reset(self, tx: Transaction, key: str) -> None:
        """Fill the bucket of a key. Idempotent. Raises `BadInput`."""
        admit_key(key)
        tx.delete(bucket_key(key))


def _level(bucket: Bucket | None, limit: Limit, now_ms: int) -> int:
    """The tokens of a bucket now, rounded down."""
    if bucket is None:
        return limit.burst
    # Another node's clock may be a little ahead.
    passed_ms = max(now_ms - bucket.at_ms, 0)
    return min(bucket.microtokens + passed_ms * limit.rate // 1_000, limit.burst)


def _refill_ms(microtokens: int, limit: Limit) -> int:
    """The time until a number of microtokens is added, rounded up."""
    return -(-microtokens * 1_000 // limit.rate)
