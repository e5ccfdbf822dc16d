"""Limits of jobs, queues, workers and nodes."""

# The schedule. The number of slots is chosen when a database is created, and never changes.
SLOTS_DEFAULT = 64
SLOTS_MAX = 4_096
PRIORITY_MAX = 9
QUEUE_CHARS_MAX = 128
ORDER_KEY_BYTES_MAX = 256  # three times that when escaped, so it fits into a sort key
DEDUPE_KEY_BYTES_MAX = 2_048
CALLER_BYTES_MAX = 256  # of a caller's name; its id adds the kind, the issuer and the namespace
ISSUER_CHARS_MAX = 32
NAMESPACE_CHARS_MAX = 32
CALLER_ID_BYTES_MAX = CALLER_BYTES_MAX + ISSUER_CHARS_MAX + NAMESPACE_CHARS_MAX + 8
WORKER_CHARS_MAX = 256
APP_CHARS_MAX = 100  # with a queue's name it makes a worker's
LEASE_MS_MAX = 7 * 24 * 3_600_000
RECUR_MS_MIN = 100
RECUR_END_MS = 253_370_764_800_000  # nothing recurs after the year 9998
# What is no older is late, not missed: longer than a burst takes, shorter than a node's lease.
RECUR_GRACE_MS = 5_000
CRON_CHARS_MAX = 256
QUEUE_LIMIT_MAX = 1_000
QUEUE_RATE_MIN = 1e-9  # one job in thirty years
QUEUE_RATE_MAX = 1_000_000
RATE_SLACK_MS = 100  # so long what a rate allows can be used later
# What a job's record holds besides its body has room in what is left of a value.
BODY_BYTES_MAX = 350_000
STEP_BYTES_MAX = 256
REASON_CHARS_MAX = 2_000
REASON_BYTES_MAX = 3_000  # JSON may make six bytes of one
DELAY_S_MAX = 100 * 366 * 24 * 3_600  # a hundred years
RETENTION_MS_MAX = 100 * 366 * 24 * 3_600_000
HISTORY_MAX = 20  # attempts told of in a job's record, the last ones
HISTORY_BYTES_MAX = 12_000
SETTLEMENTS_MAX = 5  # told of in a job's record, the last ones
SETTLEMENTS_BYTES_MAX = 5_000
SETTLEMENT_REASON_CHARS_MAX = 500

# The dispatcher keeps in memory what is due soon, so many entries of each slot at the most.
AGENDA_AHEAD_MS = 10_000
AGENDA_ENTRIES = 1_000
# It has so many hands, more where a commit is a round trip. They rest when nothing is left: what
# comes due meanwhile shares a commit.
DISPATCH_HANDS = 2
DISPATCH_HANDS_SHARED = 8
DISPATCH_REST_S = 0.002
# It looks again this often: where other nodes commit too and hints may be missing; soonest
# after a hint; and where this node sees all commits.
POLL_S = 1.0
POLL_HINTED_S = 0.2
POLL_ALONE_S = 5.0
# Who waits for a job's end looks again this often where other nodes commit too.
POLL_RESULT_S = 0.5
# Where polling would take more scans a second than this, it is done less often.
POLL_SCANS_PER_S = 256
# An entry that cannot be acted on is tried again after a pause, which doubles.
TROUBLE_PAUSE_MS_MIN = 1_000
TROUBLE_PAUSE_MS_MAX = 60_000
TROUBLES_MAX = 200  # so many of each slot are remembered

# Claims of one queue: how many transactions at once, each from so many slots, and so many
# bytes of jobs (a commit holds twice that).
CLAIM_ROUNDS_MAX = 4
CLAIM_SLOTS = 16
CLAIM_BYTES = 2_000_000
# How many ready entries of a slot a node keeps in mind.
QUEUE_DEPTH_MAX = 10_000_000
QUEUE_FULL_RETRY_S = 1.0  # when a sender that met a full queue may try again
DEPTH_S = 5.0  # how often a node counts the jobs of bounded queues that other nodes work on, too
FAIR_TURN_MS = 1_000  # how far apart the turns of one sender are, where senders take turns
FAIR_READ_S = 1.0  # how long ago the first turn of a queue was looked up, if nodes share it
FAIR_SENDERS_KEPT = 1_000  # senders without a backlog are forgotten beyond so many
SHELF_ENTRIES_MAX = 1_000
# The owner of a database that one process opens looks so far ahead for leases of the one before.
TAKEOVER_MS = 3_600_000
# A claim whose worker is gone is given back, tried so often, after a pause that doubles.
GIVE_BACK_TRIES_MAX = 6
GIVE_BACK_PAUSE_S = 0.1
# Workers look into the slots of other nodes every so often, should nobody work there.
POLL_ELSEWHERE_S = 5.0
# A queue that no worker has asked for so long is forgotten.
DESK_IDLE_S = 60.0

# Jobs are counted again and again: so many at a time, with pauses so many times as long as
# that takes, and so long between two counts.
CENSUS_JOBS = 100
CENSUS_REST = 50
CENSUS_S = 1.0
# Timers, rooms and endpoints are counted less often than jobs: every so many times.
CENSUS_OTHERS = 5
FAILING_TOLD_MAX = 20  # endpoints that fail, by name
# Who watches a node live sees what happened in each span of so long, and that many of them.
ACTIVITY_S = 1.0
ACTIVITY_SAMPLES = 600
# What a job has done is told in its record: so many things, in so many bytes.
EFFECTS_MAX = 20
EFFECTS_BYTES_MAX = 1_500

# How long a handler's worker rests when jobs could not be claimed, at first; how often in the
# length of a lease it tries again to renew it after a failure.
CLAIM_PAUSE_S = 0.05
RENEWALS_PER_LEASE = 10
DRAIN_S = 30.0
# How long a handler that is cancelled may take to end.
HANDLER_END_S = 5.0
# For how long a job that may bring its process down keeps others out, and they it.
ALONE_S = 10.0

# A node is gone when its heartbeat was not seen to change for the length of its lease.
# Others notice by their own beats, so it may take one and a half times as long: its rooms are to
# be served again within ten seconds.
NODE_LEASE_MS = 5_500
NODE_LEASE_MS_MIN = 100
BEATS_PER_LEASE = 4
# A beat that failed is tried again sooner.
BEAT_TRIES_PER_LEASE = 40
SWEEP_S = 10.0

# How much is kept of the record of a job that could not be read.
QUARANTINED_BYTES = 65_536
