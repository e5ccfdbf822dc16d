"""Every cap in one place, units last in the names; applications have their own.

The commit and key limits are DynamoDB's, enforced on every engine, so that code
that works on one engine works on all.
"""

# A commit.
COMMIT_WRITES_MAX = 100  # puts, deletes, checks and the attempt record together
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
# An attempt whose outcome is unknown is asked about for so long before giving up: longer than a
# server needs to come back. Checks whose answer was lost are made again this many times.
OUTCOME_MS_MAX = 300_000
OUTCOME_PAUSE_MS_MAX = 1_000
CHECK_ASKS_MAX = 16
# How long an attempt record outlives its commit: far longer than a lost commit can
# linger between a client and a server.
ATTEMPT_RETENTION_MS = 3_600_000
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

# The SQLite engine's journal. A segment holds any commit, whatever its size.
SEGMENT_BYTES_FIRST = 1 << 20
SEGMENT_BYTES_MIN = 8 << 20
SEGMENT_BYTES_MAX = 64 << 20
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

# The schedule. The number of slots is chosen when a database is created, and never changes.
SLOTS_DEFAULT = 64
SLOTS_MAX = 4_096
PRIORITY_MAX = 9
QUEUE_CHARS_MAX = 128
ORDER_KEY_BYTES_MAX = 256  # three times that when escaped, so it fits into a sort key
DEDUPE_KEY_BYTES_MAX = 2_048
CALLER_BYTES_MAX = 256
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

# Timers. What is over is known for so long, and no longer than its webhook's job.
TIMER_ID_BYTES_MAX = 256
TIMER_RETENTION_MS = 7 * 24 * 3_600_000

# Outward calls: how long to wait for a connection and for all of an answer, how much longer a
# lease lasts, and how many are under way at once.
OUTWARD_CONNECT_S = 5.0
OUTWARD_TOTAL_S = 15.0
OUTWARD_SLACK_S = 15.0
OUTWARD_CALLS_MAX = 2_000
# So long some of them wait for a host that has enough under way; others come back later.
HOST_LINE_S = 1.0
# So soon those come back who came to one of which nothing is known yet.
HOST_UNKNOWN_S = 0.25
ENDPOINTS_KNOWN_MAX = 1_000
OUTWARD_HEADERS_MAX = 50
OUTWARD_HEADS_BYTES = 16_384

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

# Rooms: names, and what one may hold. A snapshot and a commit of operations fit in one commit.
ROOM_ID_BYTES_MAX = 256
ROOM_NAME_BYTES_MAX = 128  # of a map, a list, a presence, an event
ROOM_KEY_BYTES_MAX = 256  # of a map's key, and of an item's id
ROOM_CLIENT_CHARS_MAX = 64
ROOM_USER_BYTES_MAX = 256
ROOM_BYTES_MAX = 2_000_000
ROOM_CELLS_MAX = 20_000  # keys of maps and items of lists, and each map and list itself
ROOM_META_BYTES_MAX = 16_000
ROOM_SCHEMAS_BYTES_MAX = 64_000
ROOM_MEMBERS_MAX = 10_000
# A batch of operations, which is one step of the room.
ROOM_OPS_MAX = 1_000
ROOM_STEP_BYTES_MAX = 256_000
ROOM_CHANGES_MAX = 50_000  # keys and items that a step changes, and all steps of a commit
ROOM_SKIPPED_MAX = 20  # numbers of refused steps that are remembered of a client
# So many clients are remembered, and for so long at least: longer than a connection of theirs can
# be there without anyone noticing that it is lost.
ROOM_CLIENTS_MAX = 1_000
ROOM_CLIENT_MS = 600_000
ROOM_DEPTH_MAX = 90  # of a value: the frame around it has some of JSON_DEPTH_MAX
ROOM_NUMBER_MAX = 2**53 - 1  # what a browser counts without loss
# Positions of items: those that would be longer make the whole list be numbered anew.
POSITION_CHARS_MAX = 48
# The log: a snapshot after so many steps, or so many bytes and more than the snapshot has; and
# how many steps back a room can be seen, at the least, if that takes no more snapshots.
ROOM_SNAPSHOT_STEPS = 500
ROOM_SNAPSHOT_BYTES = 256_000
ROOM_KEEP_STEPS = 1_000
ROOM_KEEP_STEPS_MAX = 100_000
ROOM_SNAPSHOTS_MAX = 250
ROOM_PIECE_BYTES = 300_000  # of a snapshot, and of a record of the log
ROOM_COMMIT_BYTES_MAX = 1_000_000  # of steps
ROOM_SWEEP_RECORDS = 20  # so many old records go with each commit
# Rooms that transactions have looked into lately, in memory: how many, and how much as JSON.
ROOMS_KEPT_MAX = 200
ROOMS_KEPT_BYTES_MAX = 8 << 20
ROOMS_NAMED_MAX = 20_000  # whose keys are kept in mind
# Frames. Presence lasts so long if nobody says how long.
FRAME_BYTES_MAX = 1 << 20
PRESENCE_BYTES_MAX = 16_000
PRESENCE_MS = 60_000
PRESENCE_MS_MAX = 24 * 3_600_000
SAID_BYTES_MAX = 64_000
# The client connects again after a pause that doubles, and asks for a sign of life this often.
ROOM_PAUSE_S_MIN = 0.2
ROOM_PAUSE_S_MAX = 15.0
ROOM_BEAT_S = 15.0
# So much may wait for an answer there, made while the server was away.
ROOM_WAITING_STEPS_MAX = 10_000
ROOM_WAITING_BYTES_MAX = 16 << 20
ROOM_UNDO_MAX = 100  # steps that can be undone

# Tables. Ids and users are parts of one sort key, three times as long when escaped.
SEATS_ID_BYTES_MAX = 64
SEATS_USER_BYTES_MAX = 256
SEATS_NAME_BYTES_MAX = 32  # of a marker, a lane, a bot, a ladder, a game
SEATS_META_BYTES_MAX = 16_000
SEATS_MAX = 8  # a commit moves all of them to the back, and others in their place
SEATS_LANES_MAX = 48  # for each priority, tier and size of party one
SEATS_LINE_MAX = 10_000_000
SEATS_ROW_MAX = 1_000_000
SEATS_RATING_MAX = 100_000
SEATS_MS_MAX = 7 * 24 * 3_600_000
# How many numbers of a lane are in a block, and blocks in a group: each is one record.
SEATS_BLOCK = 128
# So many of those who went last are told, to those who count their position along.
SEATS_RECENT = 32
# A sign of life is written so often in the time within which one is needed.
SEATS_SIGNS = 4
SEATS_GROUPS_MAX = 300  # so many ways to fill a table are tried in one commit
SEATS_IDLE_MAX = 2  # who loses so many games in a row on time, and did nothing, is gone
SEATS_UNPLAYED_MAX = 10  # after so many games in a row in which nobody could move, a table pauses
SEATS_CLOSED_MS = 24 * 3_600_000  # so long a closed table is known
SEATS_PURGE_RECORDS = 80
MATCH_RETENTION_MS = 30 * 24 * 3_600_000  # so long a match is known after its end

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
SHELF_ENTRIES_MAX = 1_000
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
PULSE_S = 1.0
PULSE_SAMPLES = 600
# What a job has done is told in its record: so many things, in so many bytes.
EFFECTS_MAX = 20
EFFECTS_BYTES_MAX = 1_500

# HTTP. A message's body and what surrounds it, or the messages of a batch.
REQUEST_BYTES_MAX = 1 << 20
MESSAGES_BYTES_MAX = 8 << 20
BATCH_MESSAGES_MAX = 1_000
ROUTES_KNOWN = 1_000  # addresses whose route is kept in mind, of up to so many bytes
ROUTE_KNOWN_BYTES = 200
HEAD_BYTES_MAX = 64 << 10  # and what one read brings beyond
BODIES_BYTES_MAX = 256 << 20  # of all requests that are still coming
SENT_BYTES_MAX = 32 << 20  # a body with the sizes of its chunks, or what is not read any more
REQUEST_S = 60.0  # for all of a request to come
JSON_DEPTH_MAX = 100
WAIT_MS_MAX = 60_000
PROBE_S = 5.0
LIST_MAX = 1_000
PAGE_MS = 500  # how long a request works on many jobs before it answers
# A page of jobs, or of steps of a room, is as long as was asked for, or has this many bytes.
PAGE_BYTES_MAX = 4 << 20
PAGE_JOBS = 50  # so many are read at once
# Where requests have a rate, so many callers are told apart, and each is logged so often.
RATED_CALLERS_MAX = 10_000
RATED_TOLD_S = 60.0
# So many counters of one name: what has other labels is counted together.
METERS_MAX = 1_000
# How far the clocks of those who sign tokens may be off, and how many answers about scopes are
# kept for a caller.
TOKEN_SLACK_MS = 5_000
SCOPES_KNOWN_MAX = 1_000
# The console: how long a browser stays signed in, how long a link to sign in by counts, and how
# many such links are known. Keys that were made there are read again every so often.
SESSION_MS = 12 * 3_600_000
LINK_MS = 3_600_000
LINKS_MAX = 100
KEYS_S = 5.0
KEYS_MAX = 1_000
ROLL_RECORDS = 500  # of jobs, read at once from a slot by who looks through many

# WebSocket. The fragments a frame of ours may come in; and how many frames a second a connection
# sends in the long run, beyond which it is read no faster.
FRAGMENTS_MAX = 256
FRAMES_PER_S = 1_000
RATED_BYTES = 16 << 10  # so many count as one more
# What is on its way to a reader, and what is kept for one that is slow before it is cut off.
WRITE_BYTES_HIGH = 64 << 10
READER_BYTES_MAX = 1 << 20
READER_S = 60.0  # to take what was sent before all of another room is
# Who has sent nothing for so long is sent a ping, and is gone if no answer comes in as much time.
PING_S = 20.0
# For the answer to a close frame.
CLOSE_S = 5.0
CLOSE_REASON_BYTES = 120  # a close frame has room for 123
# Others are told of presences so often, and of a user who is gone after so long.
PRESENCE_PAUSE_MS = 25
ROOM_GRACE_S = 5.0
# So many members of a room are told by name, and how many there are so often.
ROOM_NAMED_MAX = 250
ROOM_COUNT_MS = 1_000
# So many presences of different names a user has in a room.
PRESENCES_PER_USER_MAX = 20
PRESENCES_BYTES_MAX = 4 << 20  # of all users in a room: whoever joins is told all of it
# A room that nobody is in leaves memory after so long, or when so many others do.
ROOM_IDLE_S = 30.0
ROOMS_IDLE_MAX = 1_000
ROOMS_PER_CONNECTION_MAX = 100
# So many steps go into one commit, and so many changes are kept in memory for who comes back.
ROOM_COMMIT_STEPS_MAX = 256
REPLAY_STEPS_MAX = 1_000
REPLAY_BYTES_MAX = 1 << 20
# Rooms with so few steps to commit are committed together, and so many of them at once: each
# writes its log and its head, and checks its settings.
ROOM_FEW_STEPS = 4
ROOMS_TOGETHER_MAX = 24
# A connection with so many steps unanswered is read no further.
STEPS_AHEAD_MAX = 256
# A node's address is good for so long without renewal, and looked at so often in a third of it.
ADDRESS_MS = 30_000
ADDRESS_LOOKS = 10
DIAL_S = 5.0  # to connect to another node
FRAMES_RELAYED_PER_S = 1_000_000  # the other node has its own limits
# For the first message, with credentials if the request had none.
HELLO_S = 10.0

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

# Calls to endpoints. All addresses of a name are judged, and so many of them are tried.
URL_CHARS_MAX = 2_048
NAME_CHARS_MAX = 253
LABEL_CHARS_MAX = 63
ADDRESSES_TRIED_MAX = 4
# What is kept in mind of hosts and names; for so long a name leads to the same addresses. Looking
# up a name blocks a thread, and nobody can hurry it.
ORIGINS_KNOWN_MAX = 10_000
NAMES_KNOWN_MAX = 10_000
NAME_S = 10.0
LOOKUPS_MAX = 64
# Of an answer so much is read; the rest is not waited for.
ANSWER_HEAD_BYTES_MAX = 32 << 10
ANSWER_BODY_BYTES_MAX = 64 << 10
ANSWER_BYTES_MAX = 256 << 10  # with the sizes of its chunks, and whatever is between them
ANSWER_TEXT_CHARS = 200  # of its body in the log of attempts
RETRY_AFTER_S_MAX = 24 * 3_600.0
# Requests under way at once, in all and to one host.
SENDS_MAX = 2_000
SENDS_PER_HOST_MAX = 64
# Connections without a request: many servers close them after 5 s, and then it is a matter of
# luck who is first. An old one is not used again, so that a name's new addresses are.
IDLE_CONNECTIONS_MAX = 500
IDLE_CONNECTION_S = 4.0
CONNECTION_S_MAX = 60.0
# Secrets of webhooks, by the specification, and how many sign at once while they change.
SECRET_BYTES = 32
SECRET_BYTES_MIN = 24
SECRET_BYTES_MAX = 64
SECRETS_MAX = 8
MESSAGE_ID_CHARS_MAX = 256

# How many requests a host gets at once: as long as it is not known, and at the most, with each
# answer one more. A host that does not answer gets one at a time, after a pause that doubles.
HOST_REQUESTS_FIRST = 2
HOST_REQUESTS_MAX = 16
HOST_PAUSE_S_MIN = 1.0
HOST_PAUSE_S_MAX = 60.0
# So many requests may be under way to hosts that have not answered the last time: what is left
# of `SENDS_MAX` is for those that have.
DOUBTFUL_REQUESTS_MAX = 1_500
HOSTS_KNOWN_MAX = 10_000
# When to ask again for a host that is busy, at the least and at the most.
HOST_WAIT_S_MIN = 0.002
HOST_WAIT_S_MAX = 1.0

# `onceward bench`: beyond these it is no benchmark of one machine any more.
BENCH_SECONDS_MAX = 600.0
BENCH_ROUNDS_MAX = 100
BENCH_CALLERS_MAX = 1_000
