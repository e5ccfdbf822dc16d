"""The limits of boards, guests and notes."""

NAME_CHARS_MAX = 40
TEXT_CHARS_MAX = 600
PLACE_MAX = 100_000
KEEP_STEPS = 10_000
TICKET_MS = 24 * 3_600_000
TOKEN_CHARS_MAX = 2_000
REQUEST_BYTES_MAX = 8_000
BOARDS_MAX = 1_000  # created by visitors
IDLE_S = 30 * 24 * 3_600.0  # lifetime of a board without changes
EMPTY_S = 24 * 3_600.0  # the same for one without notes
SWEEP_MS = 60_000  # interval of the search for expired boards
SWEEP_BOARDS = 100  # number of boards per search
