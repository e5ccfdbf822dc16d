"""Limits of the SQLite and PostgreSQL engines."""

# The SQLite engine's journal. A segment holds any commit, whatever its size.
SEGMENT_BYTES_FIRST = 1 << 20
SEGMENT_BYTES_MIN = 8 << 20
SEGMENT_BYTES_MAX = 64 << 20
# File descriptors that connections leave to the engine; a quarter of them, if there are few.
DESCRIPTORS_RESERVED = 64
# Memory, by default; both are settings of the engine.
MEMTABLE_BYTES = 128 << 20
CACHE_BYTES = 64 << 20
# What the journal keeps before it is folded into the table: records that live shorter than
# this much traffic never touch the table. Opening reads all of it again.
JOURNAL_BYTES = 128 << 20
# Records that have not changed for so long are folded in any case.
FOLD_DELAY_S = 5.0
FOLD_ROWS = 1_000
FOLD_STEP_BYTES = 4 << 20
# To what SQLite's own log is cut back after a checkpoint.
SQLITE_LOG_BYTES = 64 << 20
# A file up to this size is verified while it is opened (about 0.3 s), a larger one in the
# background, and every file again after this time.
VERIFY_AT_OPEN_BYTES = 64 << 20
VERIFY_S = 86_400.0
# Of how many damaged records the keys are kept for the alarm.
DAMAGED_KEYS_MAX = 1_000
# For how many partitions the engine remembers where the table has nothing.
GAPS_MAX = 20_000
# How much it remembers of which keys the table has not, at two bytes for each that it has.
FILTERS_BYTES = 16 << 20
# While durable writes take less than this they run in the event loop's thread, since
# handing them to another costs about as much.
WRITE_INLINE_NS_MAX = 400_000

# Looking at a database from outside, while its owner goes on. The owner may fold and reuse
# journal segments meanwhile: then the look starts over, at the most this often.
SNAPSHOT_TRIES_MAX = 20
# More kinds than this are counted together.
SUMMARY_KINDS_MAX = 1_000
CHECK_PROBLEMS_MAX = 100
# A backup looks up for a signal, and reports, every so many pages.
BACKUP_STEP_PAGES = 1_024

# The PostgreSQL engine: connections that commit and that read, for each node.
BATCH_LANES = 2
READERS = 4
SCHEMA_BYTES_MAX = 48
# One call to the server. A batch gives its members versions out of 1,024.
BATCH_COMMITS_MAX = 256
BATCH_WRITES_MAX = 2_000
BATCH_BYTES_MAX = 8 << 20
BATCH_KEYS_MAX = 1_000
BATCH_TRIES_MAX = 20
# How long the server works on a statement, and waits for a lock; and how long the caller waits
# for an answer.
STATEMENT_MS = 10_000
LOCK_MS = 5_000
ANSWER_S = 15.0
# When one member may have failed a batch, each is tried alone: so long it waits for a lock then,
# and so long all of them may take.
LOCK_ALONE_MS = 100
BATCH_ALONE_S = 30.0
# How long a node waits for migrations, its own or another's: an index may take hours to build.
MIGRATE_S = 86_400.0
# So many lanes a node remembers, and for how long: the server removes them after a day.
LANES_KNOWN_MAX = 64
LANE_KNOWN_S = 12 * 3_600
# Coming and going.
CONNECT_S = 5.0
LEAVE_S = 2.0
RECONNECT_S_MIN = 0.05
RECONNECT_S_MAX = 1.0
# Hints between nodes: so many partitions are named, and so much time is between two of them. A
# node that can neither speak nor listen tries again, and looks for silence, this often.
HINTS_MAX = 500
HINT_PAUSE_S = 0.005
LISTEN_S_MAX = 20.0
