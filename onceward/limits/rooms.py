"""Limits of rooms, members and presences."""

# Rooms: names, and what one may hold. A snapshot and a commit of operations fit in one commit.
ROOM_ID_BYTES_MAX = 256
ROOM_NAME_BYTES_MAX = 128  # of a map, a list, a presence, an event
ROOM_KEY_BYTES_MAX = 256  # of a map's key, and of an item's id
ROOM_CLIENT_CHARS_MAX = 64
ROOM_USER_BYTES_MAX = 328  # the id of a caller
ROOM_BYTES_MAX = 2_000_000
ROOM_CELLS_MAX = 20_000  # keys of maps and items of lists, and each map and list itself
ROOM_META_BYTES_MAX = 16_000
ROOM_SCHEMAS_BYTES_MAX = 64_000
ROOM_MEMBERS_MAX = 10_000  # users, and connections of all users
ROOM_PER_USER = 100  # connections of one user, unless the room says otherwise
# A batch of operations, which is one step of the room.
ROOM_OPS_MAX = 1_000
ROOM_STEP_BYTES_MAX = 256_000
ROOM_CHECKS_MAX = 300_000  # comparisons with schemas, for a step or a presence
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
# The client connects again after a pause that doubles, up to this while a server refuses, and asks
# for a sign of life this often.
ROOM_PAUSE_S_MIN = 0.2
ROOM_PAUSE_S_MAX = 15.0
ROOM_BEAT_S = 15.0
# So much may wait for an answer there, made while the server was away.
ROOM_WAITING_STEPS_MAX = 10_000
ROOM_WAITING_BYTES_MAX = 16 << 20
ROOM_UNDO_MAX = 100  # steps that can be undone

# Rooms that are live. Others are told of presences so often, and of a user who is gone after so
# long.
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
# Rooms with so few steps to commit share commits.
ROOM_FEW_STEPS = 4
# A connection with so many steps unanswered is read no further.
STEPS_AHEAD_MAX = 256
