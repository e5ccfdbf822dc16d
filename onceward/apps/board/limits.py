"""The limits of a board: names of boards and guests, what is written on a note, where it may lie,
how far the slider reaches back, and for how long a guest's ticket is good."""

NAME_CHARS_MAX = 40
TEXT_CHARS_MAX = 600
PLACE_MAX = 100_000
KEEP_STEPS = 10_000
TICKET_MS = 24 * 3_600_000
TOKEN_CHARS_MAX = 2_000
REQUEST_BYTES_MAX = 8_000
