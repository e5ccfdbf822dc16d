"""Limits of commits, transactions and the clock.

The commit and key limits are DynamoDB's, enforced on every engine, so that code that works on one
engine works on all.
"""

# A commit.
COMMIT_WRITES_MAX = 100  # puts, deletes and checks together
COMMIT_BYTES_MAX = 4_000_000  # keys and values of all its writes

# A record. DynamoDB's item limit is 400 KiB, its own attributes and names counted.
VALUE_BYTES_MAX = 390_000
PARTITION_BYTES_MAX = 2_048
SORT_BYTES_MAX = 1_024

# A read.
GET_KEYS_MAX = 100
SCAN_RECORDS_MAX = 10_000
SCAN_RECORDS_DEFAULT = 1_000

# A number inside a key: sixteen decimal digits, so that numbers sort as text.
KEY_NUMBER_MAX = 10**16 - 1

# A transaction in the store.
TRANSACTION_ATTEMPTS_MAX = 32
TRANSACTION_PAUSE_MS_MAX = 100
# A commit whose outcome is unknown is asked about for so long before giving up: longer than a
# server needs to come back. Checks whose answer was lost are made again this many times.
OUTCOME_MS_MAX = 300_000
OUTCOME_PAUSE_MS_MAX = 1_000
CHECK_ASKS_MAX = 16
# Copies of hot records in memory, and their values.
HEADS_MAX = 10_000
HEADS_BYTES_MAX = 64 << 20

# Records stay this long after they expired before the sweeper removes them, so that
# a transaction that started just before sees what its `now` promises.
SWEEP_SLACK_MS = 60_000
SWEEP_RECORDS_MAX = 1_000

# The clock: differences below the jump are slewed away at the given rate, larger
# ones raise the alarm and are not followed.
CLOCK_JUMP_MS = 2_000
CLOCK_SLEW_PPM = 500
CLOCK_SLEEP_S_MAX = 10.0
# A database's clock is read so often at the start, of which the best counts, and then every so
# many seconds.
CLOCK_READS = 3
CLOCK_READ_S = 10.0

# A clock that is further ahead of the last time that a node has noted is not believed at a start
# until somebody confirms it. Nodes note the time this often; while it is not believed, they
# look this often whether it was confirmed elsewhere.
CLOCK_AHEAD_MS = 30 * 86_400_000
CLOCK_BEHIND_MS = 60_000
CLOCK_NOTE_S = 600.0
CLOCK_HELD_S = 5.0
