"""Limits of locks."""

# Locks. A commit takes what sixteen names need, and one request for as many in their place.
LOCK_NAMES_MAX = 16
LOCK_NAME_BYTES_MAX = 256  # three times that when escaped, so it fits into a sort key
LOCK_KEYS_KEPT = 4_096  # keys of locks used lately, which a process need not make again
LOCK_CAPACITY_MAX = 10_000
LOCK_WAITERS_MAX = 10_000
LOCK_LEASE_MS = 30_000
# A lease is renewed when a third of it has passed; what failed is tried again sooner.
LOCK_RENEWALS_PER_LEASE = 3
LOCK_TRIES_PER_LEASE = 30
# A name that nobody has used for so long is forgotten, but for its token.
LOCK_UNUSED_MS = 3_600_000
# Grants of one name are fewer than this: so tokens made of the time are larger than those before.
LOCK_TOKENS_PER_MS = 1 << 10
