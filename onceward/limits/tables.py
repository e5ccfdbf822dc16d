"""Limits of tables and games."""

# Tables. Ids and users are parts of one sort key, three times as long when escaped.
SEATS_ID_BYTES_MAX = 64
SEATS_USER_BYTES_MAX = 328  # the id of a caller
SEATS_NAME_BYTES_MAX = 32  # of a marker, a lane, a bot, a ladder, a game
SEATS_META_BYTES_MAX = 16_000
SEATS_MAX = 8  # a commit moves all of them to the back, and others in their place
SEATS_LANES_MAX = 48  # for each priority, tier and size of party one
SEATS_WAITLIST_MAX = 10_000_000
SEATS_ROW_MAX = 1_000_000
SEATS_RATING_MAX = 100_000
SEATS_MS_MAX = 7 * 24 * 3_600_000
# How many numbers of a lane are in a block, and blocks in a group: each is one record.
SEATS_BLOCK = 128
# So many of those who went last are told, to those who count their position along.
SEATS_RECENT = 32
# So many people of each lane, from its front on, are shown in the live view: with the longest names
# in all lanes the room has space for more.
SEATS_SHOWN = 32
# A sign of life is written so often in the time within which one is needed.
SEATS_SIGNS = 4
SEATS_GROUPS_MAX = 300  # so many ways to fill a table are tried in one commit
SEATS_IDLE_MAX = 2  # who loses so many games in a row on time, and did nothing, is gone
SEATS_UNPLAYED_MAX = 10  # after so many games in a row in which nobody could move, a table pauses
SEATS_CLOSED_MS = 24 * 3_600_000  # so long a closed table is known
SEATS_PURGE_RECORDS = 80
MATCH_RETENTION_MS = 30 * 24 * 3_600_000  # so long a match is known after its end
