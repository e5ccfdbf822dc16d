"""Limits of timers and webhook calls."""

# Timers. What is over is known for so long, and no longer than its webhook's job.
TIMER_ID_BYTES_MAX = 256
ENDPOINT_ID_BYTES_MAX = 128
TIMER_RETENTION_MS = 7 * 24 * 3_600_000

# Outward calls: how long to wait for a connection and for all of an answer, how much longer a
# lease lasts, and how many are under way at once.
OUTWARD_CONNECT_S = 5.0
OUTWARD_TOTAL_S = 15.0
OUTWARD_SLACK_S = 15.0
OUTWARD_TIMEOUT_MS_MAX = 120_000
OUTWARD_CALLS_MAX = 2_000
# So long some of them wait for a host that has enough under way; others come back later.
HOST_LINE_S = 1.0
# So soon those come back who came to one of which nothing is known yet, so long after each other.
HOST_UNKNOWN_S = 0.25
HOST_BEHIND_S = 0.000_25
# Calls to hosts that do not respond return after a pause, spaced by this much per host, at most so
# many a second for all hosts together, and after this time at the latest.
HOST_BACK_S = 0.01
HOST_RETURNS_PER_S = 500
HOST_BACK_S_MAX = 600.0
ENDPOINTS_KNOWN_MAX = 1_000
OUTWARD_HEADERS_MAX = 50
OUTWARD_HEADS_BYTES = 16_384

# Calls to endpoints. All addresses of a name are judged, and so many of them are tried.
URL_CHARS_MAX = 2_048
NAME_CHARS_MAX = 253
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
# Retry policies.
OUTWARD_ATTEMPTS_MAX = 1_000
RETRY_PAUSES_MAX = 32
RETRY_PAUSE_MS_MIN = 100
RETRY_PAUSE_MS_MAX = 24 * 3_600_000
# Requests under way at once, in all and to one host.
SENDS_MAX = 2_000
SENDS_PER_HOST_MAX = 1_000
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
# How long a call waits whose secrets cannot be read, and how often those are counted.
SUSPENDED_MS = 60_000
REENCRYPT_S = 600.0

# How many requests a host gets at once: as long as it is not known; with slow answers, but without
# errors, at the least; and at the most (`onceward.webhooks.concurrency`). A host that does not
# answer gets one at a time, after a pause that doubles.
HOST_REQUESTS_FIRST = 4
HOST_REQUESTS_BASE = 16
HOST_REQUESTS_MAX = 1_000
HOST_PAUSE_S_MIN = 1.0
HOST_PAUSE_S_MAX = 2.0
# So many requests may be under way to hosts that have not answered the last time: what is left
# of `SENDS_MAX` is for those that have.
DOUBTFUL_REQUESTS_MAX = 1_500
HOSTS_KNOWN_MAX = 10_000
# When to ask again for a host that is busy, at the least and at the most.
HOST_WAIT_S_MIN = 0.002
HOST_WAIT_S_MAX = 1.0

# How many timers of all callers one page has.
AGENDA_MAX = 200
