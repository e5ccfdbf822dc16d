"""Limits of tables and games."""

# Tables. Ids and users are parts of one sort key, and up to three times as long when escaped.
SEATS_ID_BYTES_MAX = 64
SEATS_USER_BYTES_MAX = 328  # the id of a caller
SEATS_NAME_BYTES_MAX = 32  # of a marker, a lane, a bot, a ladder, a game
SEATS_META_BYTES_MAX = 16_000
SEATS_MAX = 8  # a commit moves all players to the back and seats others
SEATS_LANES_MAX = 48  # one per priority, tier and size of party
SEATS_WAITLIST_MAX = 10_000_000
SEATS_ROW_MAX = 1_000_000
SEATS_RATING_MAX = 100_000
SEATS_MS_MAX = 7 * 24 * 3_600_000
# Waitlist numbers of a lane per block, and blocks per group; each is one record.
SEATS_BLOCK = 128
# The last departures that are published, so that clients can compute their position.
SEATS_RECENT = 32
# How many users at the front of each lane the live view shows. Even with the longest names in all
# lanes they fit into the room.
SEATS_SHOWN = 32
# How many heartbeats are written within the time in which one is required.
SEATS_SIGNS = 4
SEATS_GROUPS_MAX = 300  # combinations to fill a table that are evaluated in one commit
SEATS_IDLE_MAX = 2  # consecutive losses on time without a move, after which a player is removed
SEATS_UNPLAYED_MAX = 10  # consecutive games without a move, after which a table pauses
SEATS_CLOSED_MS = 24 * 3_600_000  # how long a closed table is kept
SEATS_PURGE_RECORDS = 80
MATCH_RETENTION_MS = 30 * 24 * 3_600_000  # how long a match is kept after its end
