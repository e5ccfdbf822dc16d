"""The limits of a board: names of boards and guests, what is written on a note, where it may lie,
how far the slider reaches back, for how long a guest's ticket is good, how many boards visitors may
create, and how long those last."""

NAME_CHARS_MAX = 40
TEXT_CHARS_MAX = 600
PLACE_MAX = 100_000
KEEP_STEPS = 10_000
TICKET_MS = 24 * 3_600_000
TOKEN_CHARS_MAX = 2_000
REQUEST_BYTES_MAX = 8_000
BOARDS_MAX = 1_000  # created by visitors
IDLE_S = 30 * 24 * 3_600.0  # a board that nobody changes is removed after that
EMPTY_S = 24 * 3_600.0  # the same for one without notes
SWEEP_MS = 60_000  # how often to look for such boards
SWEEP_BOARDS = 100  # and at how many of them
