"""Limits of jobs, queues, workers and nodes."""

# The schedule. The number of slots is chosen when a database is created, and never changes.
SLOTS_DEFAULT = 64
SLOTS_MAX = 4_096
PRIORITY_MAX = 9
QUEUE_CHARS_MAX = 128
ORDER_KEY_BYTES_MAX = 256  # escaped it is up to three times as long, and fits into a sort key
# Messages that become one job, and how long it can wait for them.
MERGE_MESSAGES_MAX = 1_000
MERGE_S_MAX = 366 * 24 * 3_600
TAGS_MAX = 10
TAG_BYTES_MAX = 64
DEDUPE_KEY_BYTES_MAX = 2_048
CALLER_BYTES_MAX = 256  # of a caller's name; its id adds the kind, the issuer and the namespace
ISSUER_CHARS_MAX = 32
NAMESPACE_CHARS_MAX = 32
CALLER_ID_BYTES_MAX = CALLER_BYTES_MAX + ISSUER_CHARS_MAX + NAMESPACE_CHARS_MAX + 8
WORKER_CHARS_MAX = 256
APP_CHARS_MAX = 100  # part of a worker's name, with the name of a queue
LEASE_MS_MAX = 7 * 24 * 3_600_000
RECUR_MS_MIN = 100
RECUR_END_MS = 253_370_764_800_000  # recurrences end after the year 9998
# Younger occurrences are late, not missed: longer than a burst takes, shorter than a node's lease.
RECUR_GRACE_MS = 5_000
CRON_CHARS_MAX = 256
QUEUE_LIMIT_MAX = 1_000
QUEUE_RATE_MIN = 1e-9  # one job in thirty years
QUEUE_RATE_MAX = 1_000_000
RATE_SLACK_MS = 100  # how long unused capacity of a rate can be used later
# Leaves space in a value for the other fields of a job's record.
BODY_BYTES_MAX = 350_000
TRACESTATE_CHARS_MAX = 512
STACKTRACE_CHARS_MAX = 10_000  # of an error in a span
STEP_BYTES_MAX = 256
REASON_CHARS_MAX = 2_000
REASON_BYTES_MAX = 3_000  # JSON may encode one byte as six
DELAY_S_MAX = 100 * 366 * 24 * 3_600  # a hundred years
RETENTION_MS_MAX = 100 * 366 * 24 * 3_600_000
HISTORY_MAX = 20  # the last attempts in a job's record
HISTORY_BYTES_MAX = 12_000
ERROR_TYPE_CHARS_MAX = 100
TRACEBACK_BYTES_MAX = 4_000
TRACEBACKS_BYTES_MAX = 8_000  # in a job's record: those of its last attempts
CHANGES_MAX = 10  # the last retries and cancellations in a job's record
CHANGES_BYTES_MAX = 3_000
RUNS_MAX = 20  # the last runs in a job's record, besides the current one
RUNS_BYTES_MAX = 3_000
SETTLEMENTS_MAX = 5  # the last settlements in a job's record
SETTLEMENTS_BYTES_MAX = 5_000
SETTLEMENT_REASON_CHARS_MAX = 500
SETTLEMENT_KEY_CHARS_MAX = 128

# The dispatcher keeps entries that are due soon in memory, up to this many per slot.
AGENDA_AHEAD_MS = 10_000
AGENDA_ENTRIES = 1_000
# Tasks of the dispatcher, more where a commit is a round trip. When idle they pause, so that
# entries that become due in the meantime share a commit.
DISPATCH_HANDS = 2
DISPATCH_HANDS_SHARED = 8
DISPATCH_REST_S = 0.002
# Polling intervals: where other nodes commit as well and hints may be lost, the minimum after a
# hint, and where this node sees all commits.
POLL_S = 1.0
POLL_HINTED_S = 0.2
POLL_ALONE_S = 5.0
# Where this node sees all commits, it scans a slot without failed entries when the next entry is
# due soon, and at this interval.
LOOK_ALONE_S = 1_800.0
# Background tasks without work on a database of one process wake up at this interval.
IDLE_S = 60.0
# The polling interval for a job's result where other nodes commit as well.
POLL_RESULT_S = 0.5
# Polling slows down so that it takes at most this many scans a second.
POLL_SCANS_PER_S = 256
# An entry that cannot be processed is retried after a pause, which doubles.
TROUBLE_PAUSE_MS_MIN = 1_000
TROUBLE_PAUSE_MS_MAX = 60_000
TROUBLES_MAX = 200  # kept per slot

# Claims of a queue: concurrent transactions, slots of each one, and bytes of jobs (a commit holds
# twice that).
CLAIM_ROUNDS_MAX = 4
CLAIM_SLOTS = 16
CLAIM_BYTES = 2_000_000
QUEUE_DEPTH_MAX = 10_000_000
QUEUE_FULL_RETRY_S = 1.0  # when a sender should retry after `queue_full`
DEPTH_S = 5.0  # how often a node counts the jobs of bounded queues that it shares with other nodes
FAIR_TURN_MS = 1_000  # the time between two turns of one sender in a fair queue
FAIR_READ_S = 1.0  # the age of the cached first turn of a queue on a shared database
FAIR_SENDERS_KEPT = 1_000  # senders without a backlog are removed above this number
SHELF_ENTRIES_MAX = 1_000  # ready entries of a slot that a node keeps in memory
# How far ahead the owner of a single-process database scans for leases of its predecessor.
TAKEOVER_MS = 3_600_000
# A claim whose worker has disconnected is returned, with this many attempts and a pause that
# doubles.
GIVE_BACK_TRIES_MAX = 6
GIVE_BACK_PAUSE_S = 0.1
# How often workers check the slots of other nodes, in case no worker is there.
POLL_ELSEWHERE_S = 5.0
# A queue without claims for this time leaves memory.
DESK_IDLE_S = 60.0

# Jobs are counted continuously: this many at a time, with pauses of this multiple of the duration,
# and this interval between two counts.
CENSUS_JOBS = 100
CENSUS_REST = 50
CENSUS_S = 1.0
# Timers, rooms and endpoints are counted once per this many counts of jobs.
CENSUS_OTHERS = 5
FAILING_TOLD_MAX = 20  # failing endpoints that are listed by name
# The live view of a node: the length of a sample, and the number of samples.
ACTIVITY_S = 1.0
ACTIVITY_SAMPLES = 600
# The effects in a job's record: their number and bytes.
EFFECTS_MAX = 20
EFFECTS_BYTES_MAX = 2_100

# How long a worker pauses after a failed claim, at first; how many renewals it attempts per lease
# after a failure.
CLAIM_PAUSE_S = 0.05
RENEWALS_PER_LEASE = 10
DRAIN_S = 30.0
# How many plain functions of handlers an application runs at once, each in a thread.
THREADS_DEFAULT = 32
THREADS_MAX = 1_000
# Jobs are leased ahead for a thread that is expected within this time. A job that waits for longer
# is given back.
THREAD_AHEAD_S = 0.05
THREAD_WAIT_S = 1.0
REPEATS_KEPT_MAX = 1_000  # kinds of log lines that are suppressed if they repeat
LOOP_BLOCKED_S = 1.0  # an event loop that is blocked for longer is reported
STACK_CALLS_MAX = 30  # the calls of a stack in a report
# How long a cancelled handler may take to end.
HANDLER_END_S = 5.0
# How long a job that may crash its process runs without other jobs beside it.
ALONE_S = 10.0

# A node is considered failed when its heartbeat has not changed for the length of its lease. Other
# nodes check at their own heartbeats, so detection takes up to one and a half times as long. Rooms
# must be served again within ten seconds.
NODE_LEASE_MS = 5_500
NODE_LEASE_MS_MIN = 100
BEATS_PER_LEASE = 4
# A failed heartbeat is retried sooner.
BEAT_TRIES_PER_LEASE = 40
SWEEP_S = 10.0

# How many bytes of an unreadable job record are kept.
QUARANTINED_BYTES = 65_536
# Children of a job. Those that end within the interval wake their parent together.
FAMILY_CHILDREN_MAX = 100_000
FAMILY_ANY_MAX = 100
FAMILIES_MAX = 1_000
FAMILY_READ_MAX = 10_000  # entries that a page of children reads
FAMILY_STATES_MAX = 1_000  # children whose exact states are counted, if they have not ended
FAMILY_REPORT_MS = 10
# The exceptions of concurrent steps and waits of a job that are attributed to it.
RAISED_MAX = 100
# Events that a job has not yet consumed, and their idempotency keys.
EVENT_BYTES_MAX = 65_536
EVENTS_MAX = 100
EVENTS_BYTES_MAX = 262_144
EVENT_NAME_BYTES_MAX = 100
EVENT_KEYS_MAX = 100
# Progress and streams of running jobs: the shortest time between two commits of a job, the text of
# a progress, one chunk, those that wait for a commit, and all that a job keeps.
PROGRESS_S = 0.5
STREAM_S = 0.2
PROGRESS_TEXT_CHARS_MAX = 200
CHUNK_BYTES_MAX = 65_536
# What is stored of a chunk beside its value: the position and punctuation.
CHUNK_HEAD_BYTES = 16
CHUNKS_WAITING_BYTES = 65_536
STREAM_BYTES_MAX = 1_000_000
# A record of a stream is full with this many bytes, and an answer has so many records.
STREAM_PAGE_BYTES = 32_000
STREAM_PAGES = 8
# Links that send an event: short enough for all mail programs.
EVENT_LINK_CHARS_MAX = 1_900
EVENT_LINK_S_MAX = 366 * 24 * 3_600
LINK_CHOICES_MAX = 10
LINK_LABEL_CHARS_MAX = 50
LINK_TEXT_CHARS_MAX = 300
