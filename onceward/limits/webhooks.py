"""Limits of timers and webhook calls."""

# Timers. An ended timer is kept for this time, but at most as long as the job of its webhook.
TIMER_ID_BYTES_MAX = 256
ENDPOINT_ID_BYTES_MAX = 128
TIMER_RETENTION_MS = 7 * 24 * 3_600_000
# Firings per page, and those that one request resends.
FIRINGS_MAX = 50
# How long a portal token of an endpoint is valid.
PORTAL_MS = 24 * 3_600_000
PORTAL_MS_MIN = 60_000
PORTAL_MS_MAX = 90 * 24 * 3_600_000

# Webhook calls: timeouts for the connection and the response, the additional time of a lease, and
# the number of concurrent calls.
OUTWARD_CONNECT_S = 5.0
OUTWARD_TOTAL_S = 15.0
OUTWARD_SLACK_S = 15.0
OUTWARD_TIMEOUT_MS_MAX = 120_000
OUTWARD_CALLS_MAX = 2_000
# How long some calls wait for a host at its limit; the others return to the queue.
HOST_LINE_S = 1.0
# The first pause and the spacing of calls that return because their host is not known yet.
HOST_UNKNOWN_S = 0.25
HOST_BEHIND_S = 0.000_25
# Calls to hosts that do not respond return after a pause: this spacing per host, this rate for all
# hosts together, and this maximum.
HOST_BACK_S = 0.01
HOST_RETURNS_PER_S = 500
HOST_BACK_S_MAX = 600.0
ENDPOINTS_KNOWN_MAX = 1_000
OUTWARD_HEADERS_MAX = 50
OUTWARD_HEADS_BYTES = 16_384

# Calls to endpoints. All addresses of a name are checked, and up to this many are tried.
URL_CHARS_MAX = 2_048
NAME_CHARS_MAX = 253
ADDRESSES_TRIED_MAX = 4
# Cached hosts and names, and how long addresses of a name are cached. A lookup blocks a thread and
# cannot be interrupted.
ORIGINS_KNOWN_MAX = 10_000
NAMES_KNOWN_MAX = 10_000
NAME_S = 10.0
LOOKUPS_MAX = 64
# How much of a response is read; the rest is ignored.
ANSWER_HEAD_BYTES_MAX = 32 << 10
ANSWER_BODY_BYTES_MAX = 64 << 10
ANSWER_BYTES_MAX = 256 << 10  # with chunk headers and everything between chunks
ANSWER_TEXT_CHARS = 200  # of its body in the log of attempts
RETRY_AFTER_S_MAX = 24 * 3_600.0
# Retry policies.
OUTWARD_ATTEMPTS_MAX = 1_000
RETRY_PAUSES_MAX = 32
RETRY_PAUSE_MS_MIN = 100
RETRY_PAUSE_MS_MAX = 24 * 3_600_000
# Concurrent requests, in total and per host.
SENDS_MAX = 2_000
SENDS_PER_HOST_MAX = 1_000
# Idle connections. Many servers close them after 5 s, which would race with a new request. Old
# connections are not reused, so that new addresses of a name take effect.
IDLE_CONNECTIONS_MAX = 500
IDLE_CONNECTION_S = 4.0
CONNECTION_S_MAX = 60.0
# Webhook secrets, as specified, and how many sign at once during a rotation.
SECRET_BYTES = 32
SECRET_BYTES_MIN = 24
SECRET_BYTES_MAX = 64
SECRETS_MAX = 8
MESSAGE_ID_CHARS_MAX = 256
# How long a call waits if its secrets cannot be decrypted, and how often those are counted.
SUSPENDED_MS = 60_000
# The interval at which a call that waits for a disabled endpoint checks it.
DISABLED_MS = 30_000
REENCRYPT_S = 600.0

# Concurrent requests to a host: while it is unknown; the minimum with slow responses but no errors;
# and the maximum (`onceward.webhooks.concurrency`). A host that does not respond gets one at a
# time, after a pause that doubles.
HOST_REQUESTS_FIRST = 4
HOST_REQUESTS_BASE = 16
HOST_REQUESTS_MAX = 1_000
HOST_PAUSE_S_MIN = 1.0
HOST_PAUSE_S_MAX = 2.0
# Concurrent requests to hosts whose last request failed; the rest of `SENDS_MAX` is for others.
DOUBTFUL_REQUESTS_MAX = 1_500
HOSTS_KNOWN_MAX = 10_000
# The minimum and maximum pause before a busy host is checked again.
HOST_WAIT_S_MIN = 0.002
HOST_WAIT_S_MAX = 1.0

# Timers of all callers per page.
AGENDA_MAX = 200
