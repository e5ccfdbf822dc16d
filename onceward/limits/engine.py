"""Limits of the SQLite and PostgreSQL engines."""

# The journal of the SQLite engine. A segment can hold any commit.
SEGMENT_BYTES_FIRST = 1 << 20
SEGMENT_BYTES_MIN = 8 << 20
SEGMENT_BYTES_MAX = 64 << 20
# File descriptors reserved for the engine; a quarter of them if the limit is low.
DESCRIPTORS_RESERVED = 64
# Memory defaults; both are settings of the engine.
MEMTABLE_BYTES = 128 << 20
CACHE_BYTES = 64 << 20
# The size of the journal before it is folded into the table. Records that are deleted within this
# much traffic never reach the table. Opening reads the whole journal.
JOURNAL_BYTES = 128 << 20
# Records that have not changed for this time are folded in any case.
FOLD_DELAY_S = 5.0
FOLD_ROWS = 1_000
FOLD_STEP_BYTES = 4 << 20
# The size to which SQLite's log is truncated after a checkpoint.
SQLITE_LOG_BYTES = 64 << 20
# A file up to this size is verified during opening (about 0.3 s), a larger one in the background.
# Every file is verified again after this time.
VERIFY_AT_OPEN_BYTES = 64 << 20
VERIFY_S = 86_400.0
# How many keys of damaged records the alarm keeps.
DAMAGED_KEYS_MAX = 1_000
# For how many partitions the engine caches ranges that the table does not have.
GAPS_MAX = 20_000
# The memory for filters of keys, with two bytes per key in the table.
FILTERS_BYTES = 16 << 20
# Durable writes that take less than this run in the event loop's thread, since another thread would
# cost about as much time.
WRITE_INLINE_NS_MAX = 400_000

# Snapshots for other processes. If the owner folds and reuses journal segments during the read, it
# is repeated up to this often.
SNAPSHOT_TRIES_MAX = 20
# Further kinds are counted together.
SUMMARY_KINDS_MAX = 1_000
CHECK_PROBLEMS_MAX = 100
# After this many pages a backup handles signals and reports progress.
BACKUP_STEP_PAGES = 1_024

# The PostgreSQL engine: connections for commits and for reads, per node.
BATCH_LANES = 2
READERS = 4
SCHEMA_BYTES_MAX = 48
# Limits of one call. A batch has 1,024 versions for its members.
BATCH_COMMITS_MAX = 256
BATCH_WRITES_MAX = 2_000
BATCH_BYTES_MAX = 8 << 20
BATCH_KEYS_MAX = 1_000
BATCH_TRIES_MAX = 20
# Timeouts of the server for a statement and for a lock, and of the client for the response.
STATEMENT_MS = 10_000
LOCK_MS = 5_000
ANSWER_S = 15.0
# Timeouts when the members of a failed batch are committed one by one: for a lock, and for all.
LOCK_ALONE_MS = 100
BATCH_ALONE_S = 30.0
# How long a node waits for migrations, including those of other nodes: an index may take hours.
MIGRATE_S = 86_400.0
# How many lanes a node keeps, and for how long; the server removes them after a day.
LANES_KNOWN_MAX = 64
LANE_KNOWN_S = 12 * 3_600
# Connecting and disconnecting.
CONNECT_S = 5.0
LEAVE_S = 2.0
RECONNECT_S_MIN = 0.05
RECONNECT_S_MAX = 1.0
# Hints between nodes: how many partitions one notification names, the pause between two, and the
# interval of reconnection attempts and keep-alive messages.
HINTS_MAX = 500
HINT_PAUSE_S = 0.005
LISTEN_S_MAX = 20.0
# Connections for SQL statements of the application, how long one may be idle in a transaction, and
# how long a transaction waits for one.
SESSIONS = 8
SESSION_IDLE_MS = 60_000
SESSION_WAIT_S = 60.0
