"""Limits of outboxes and SQL steps in databases of applications."""

# Rows of one read. Those of one commit are fewer, so that bodies and writes fit.
OUTBOX_ROWS = 100
OUTBOX_COMMIT_BYTES = 1_000_000
OUTBOX_NAME_BYTES_MAX = 256
OUTBOX_MESSAGE_BYTES_MAX = 256
OUTBOX_TEXT_MAX = 1_000_000  # characters of a body with spaces and escapes
# The node that reads an outbox renews its lease after a third of this time.
OUTBOX_LEASE_MS = 6_000
# The polling intervals while rows arrive, and otherwise. Polling is fast for some time after the
# last row.
OUTBOX_POLL_S = 0.02
OUTBOX_IDLE_POLL_S = 0.25
OUTBOX_BUSY_S = 10.0
OUTBOX_POLL_S_MAX = 3_600.0
# The pause after an error doubles.
OUTBOX_PAUSE_S_MAX = 5.0
OUTBOX_CONNECT_S = 10.0
OUTBOX_ANSWER_S = 30.0
# How long records of SQL steps are kept at least, how often some are removed (once in this number
# of steps), and how many at once.
SQL_STEP_KEPT_MS = 7 * 24 * 3_600_000
SQL_STEPS_PER_PURGE = 50
SQL_STEPS_PURGED = 100
