"""Limits of commits, transactions and the clock.

The commit and key limits are those of DynamoDB. They apply to every engine, so that code that works
on one engine works on all.
"""

# A commit.
COMMIT_WRITES_MAX = 100  # puts, deletes and checks together
COMMIT_BYTES_MAX = 4_000_000  # keys and values of all its writes

# A record. DynamoDB's limit is 400 KiB, including attribute names.
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
# How long the outcome of a commit is queried before it is reported as unknown: longer than a server
# needs to restart. Checks whose response was lost are repeated this many times.
OUTCOME_MS_MAX = 300_000
OUTCOME_PAUSE_MS_MAX = 1_000
CHECK_ASKS_MAX = 16
# Cached hot records: their number and bytes.
HEADS_MAX = 10_000
HEADS_BYTES_MAX = 64 << 20

# The sweeper removes records this long after they expired, so that a transaction that started
# earlier sees them as of its `now`.
SWEEP_SLACK_MS = 60_000
SWEEP_RECORDS_MAX = 1_000

# The clock. Smaller differences are corrected gradually at this rate; larger ones raise an alarm
# and are not followed.
CLOCK_JUMP_MS = 2_000
CLOCK_SLEW_PPM = 500
CLOCK_SLEEP_S_MAX = 10.0
# The database's clock is read this often at the start, using the best result, and then at this
# interval in seconds.
CLOCK_READS = 3
CLOCK_READ_S = 10.0

# The clock at a start, compared to the last recorded time: further ahead it is held until it is
# confirmed, further behind it raises an alarm. Nodes record the time at this interval. While the
# clock is held, they check at this interval whether another node has confirmed it.
CLOCK_AHEAD_MS = 30 * 86_400_000
CLOCK_BEHIND_MS = 60_000
CLOCK_NOTE_S = 600.0
CLOCK_HELD_S = 5.0
