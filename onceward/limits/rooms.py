"""Limits of rooms, members and presences."""

# Names and contents of rooms. A snapshot and a batch of operations each fit into one commit.
ROOM_ID_BYTES_MAX = 256
ROOM_NAME_BYTES_MAX = 128  # of a map, a list, a presence, an event
ROOM_KEY_BYTES_MAX = 256  # of a map's key, and of an item's id
ROOM_CLIENT_CHARS_MAX = 64
ROOM_USER_BYTES_MAX = 328  # the id of a caller
ROOM_BYTES_MAX = 2_000_000
ROOM_CELLS_MAX = 20_000  # keys of maps and items of lists, and the maps and lists themselves
ROOM_META_BYTES_MAX = 16_000
ROOM_SCHEMAS_BYTES_MAX = 64_000
ROOM_MEMBERS_MAX = 10_000  # users, and connections of all users
ROOM_PER_USER = 100  # connections of one user, unless the room has another setting
# A batch of operations, which is one step of the room.
ROOM_OPS_MAX = 1_000
ROOM_STEP_BYTES_MAX = 256_000
ROOM_CHECKS_MAX = 300_000  # comparisons with schemas, for a step or a presence
ROOM_CHANGES_MAX = 50_000  # keys and items that a step changes, or all steps of a commit
ROOM_SKIPPED_MAX = 20  # numbers of rejected steps that are kept per client
# How many clients a room keeps for deduplication, and for how long at least: longer than a lost
# connection can stay unnoticed.
ROOM_CLIENTS_MAX = 1_000
ROOM_CLIENT_MS = 600_000
ROOM_DEPTH_MAX = 90  # of a value; the frame around it uses a part of JSON_DEPTH_MAX
ROOM_NUMBER_MAX = 2**53 - 1  # the largest integer that browsers represent exactly
# Positions of items. If one would be longer, the whole list is renumbered.
POSITION_CHARS_MAX = 48
# The log. A snapshot is written after this many steps, or after this many bytes if the steps are
# larger than the snapshot. ROOM_KEEP_STEPS is the minimum history, within ROOM_SNAPSHOTS_MAX.
ROOM_SNAPSHOT_STEPS = 500
ROOM_SNAPSHOT_BYTES = 256_000
ROOM_KEEP_STEPS = 1_000
ROOM_KEEP_STEPS_MAX = 100_000
ROOM_SNAPSHOTS_MAX = 250
ROOM_PIECE_BYTES = 300_000  # of a snapshot, and of a record of the log
ROOM_COMMIT_BYTES_MAX = 1_000_000  # of steps
ROOM_SWEEP_RECORDS = 20  # old records that each commit removes
# The cache of rooms that transactions have read: rooms, and bytes as JSON.
ROOMS_KEPT_MAX = 200
ROOMS_KEPT_BYTES_MAX = 8 << 20
ROOMS_NAMED_MAX = 20_000  # rooms whose keys are cached
# Frames. PRESENCE_MS is the default lifetime of a presence.
FRAME_BYTES_MAX = 1 << 20
PRESENCE_BYTES_MAX = 16_000
PRESENCE_MS = 60_000
PRESENCE_MS_MAX = 24 * 3_600_000
SAID_BYTES_MAX = 64_000
# The client reconnects after a pause that doubles up to this maximum, and sends heartbeats at this
# interval.
ROOM_PAUSE_S_MIN = 0.2
ROOM_PAUSE_S_MAX = 15.0
ROOM_BEAT_S = 15.0
# Steps that a client keeps while the server is unreachable.
ROOM_WAITING_STEPS_MAX = 10_000
ROOM_WAITING_BYTES_MAX = 16 << 20
ROOM_UNDO_MAX = 100  # steps that can be undone

# Live rooms: the interval of presence updates, and the delay before a disconnected user is gone.
PRESENCE_PAUSE_MS = 25
ROOM_GRACE_S = 5.0
# How many members of a room are listed by name, and the interval of updates of their number.
ROOM_NAMED_MAX = 250
ROOM_COUNT_MS = 1_000
# Presences of different names that a user can have in a room.
PRESENCES_PER_USER_MAX = 20
PRESENCES_BYTES_MAX = 4 << 20  # of all users in a room; a new member receives all of them
# A room without members leaves memory after this time, or when there are this many others.
ROOM_IDLE_S = 30.0
ROOMS_IDLE_MAX = 1_000
ROOMS_PER_CONNECTION_MAX = 100
# Steps in one commit, and changes that are kept in memory for reconnecting clients.
ROOM_COMMIT_STEPS_MAX = 256
REPLAY_STEPS_MAX = 1_000
REPLAY_BYTES_MAX = 1 << 20
# Rooms with at most this many steps to commit share commits.
ROOM_FEW_STEPS = 4
# A connection with this many unanswered steps is not read until some are answered.
STEPS_AHEAD_MAX = 256
