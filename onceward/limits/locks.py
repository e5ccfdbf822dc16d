"""Limits of locks."""

# A commit can acquire sixteen locks, or grant one to the waiters of each of them.
LOCK_NAMES_MAX = 16
LOCK_NAME_BYTES_MAX = 256  # escaped it is up to three times as long, and fits into a sort key
LOCK_KEYS_KEPT = 4_096  # cached keys of recently used locks
LOCK_RIVALS_S = 1.0  # how long a lock counts as used by several nodes after a conflict
LOCK_CAPACITY_MAX = 10_000
LOCK_WAITERS_MAX = 10_000
LOCK_LEASE_MS = 30_000
# A lease is renewed after a third of its time; failed renewals are retried sooner.
LOCK_RENEWALS_PER_LEASE = 3
LOCK_TRIES_PER_LEASE = 30
# A lock that was unused for this time is removed, except its token.
LOCK_UNUSED_MS = 3_600_000
# The maximum grants of a lock per millisecond. After a failover, tokens start at the time
# multiplied by this, so they are greater than all tokens whose grants were lost.
LOCK_TOKENS_PER_MS = 1 << 10
