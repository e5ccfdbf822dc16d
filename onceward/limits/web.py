"""Limits of HTTP, WebSocket and metrics."""

# HTTP. A message's body and what surrounds it, or the messages of a batch.
REQUEST_BYTES_MAX = 1 << 20
MESSAGES_BYTES_MAX = 8 << 20
BATCH_MESSAGES_MAX = 1_000
ROUTES_KNOWN = 1_000  # addresses whose route is kept in mind, of up to so many bytes
ROUTE_KNOWN_BYTES = 200
HEAD_BYTES_MAX = 64 << 10
HEADERS_MAX = 100
REQUESTS_AHEAD_MAX = 8  # pipelined requests of a connection that are parsed before their turn
SENT_BYTES_MAX = 32 << 20  # a body with the sizes of its chunks, or what is discarded
REQUEST_S = 60.0  # for all of a request to come
# After the last answer input is discarded for so long, so that no reset destroys the answer.
LINGER_S = 5.0
LINGER_BYTES_MAX = 32 << 20
# Bytes of requests that are still coming, in total: with valid credentials, and without.
BODIES_BYTES_MAX = 256 << 20
ANONYMOUS_BYTES_MAX = 32 << 20
ANONYMOUS_BODY_BYTES_MAX = 1 << 20  # of one such body
# How much is read at once, from connections that have shown credentials and from others.
READ_BYTES = 256 << 10
ANONYMOUS_READ_BYTES = 16 << 10
# Connections in total, and of those from one address that have not shown credentials. Among so
# many of the oldest an idle one is looked for, to be closed for a new one.
CONNECTIONS_MAX = 10_000
CONNECTIONS_PER_ADDRESS = 500
EVICTION_LOOKS = 64
# Time in each turn of the event loop for requests without credentials. Answering one is counted
# with a fixed price, as is the handshake of a WebSocket.
ANONYMOUS_TURN_NS = 1_000_000
ANONYMOUS_REQUEST_NS = 50_000
ANONYMOUS_HANDSHAKE_NS = 400_000
JSON_DEPTH_MAX = 100
WAIT_MS_MAX = 60_000
PROBE_S = 5.0
PUBLIC_S = 1.0  # `/readyz` and `/metrics` are computed at most once in so long
LIST_MAX = 1_000
PAGE_MS = 500  # how long a request works on many jobs before it answers
# A page of jobs, or of steps of a room, is as long as was asked for, or has this many bytes.
PAGE_BYTES_MAX = 4 << 20
PAGE_JOBS = 50  # so many are read at once
PAGE_READS_MAX = 1_000  # and so often, for who has seen nothing yet that is for its eyes
# Where requests have a rate, so many callers are told apart, and each is logged so often.
RATED_CALLERS_MAX = 10_000
RATED_TOLD_S = 60.0
# So many counters of one name: what has other labels is counted together.
METERS_MAX = 1_000
# How far the clocks of those who sign tokens may be off, and how many answers about scopes are
# kept for a caller.
TOKEN_SLACK_MS = 5_000
GRANTS_MAX = 1_000  # of one token
SCOPES_KNOWN_MAX = 1_000
# The console: how long a browser stays signed in, how long a link to sign in by counts, and how
# many such links are known, in all and of one caller. Keys that were made there are read again
# every so often.
SESSION_MS = 12 * 3_600_000
COOKIE_BYTES_MAX = 4_096  # browsers drop a longer one without a word
LINK_MS = 3_600_000
# How many sessions a caller has at once, and how much is kept of what a browser calls itself.
SESSIONS_EACH_MAX = 50
AGENT_CHARS_MAX = 200
LINKS_MAX = 100
LINKS_EACH_MAX = 10
KEYS_S = 5.0
KEYS_MAX = 1_000
ROLL_RECORDS = 500  # of jobs, read at once from a slot by who looks through many

# WebSocket. How many frames a second a connection sends in the long run, beyond which it is read
# no faster.
FRAMES_PER_S = 1_000
RATED_BYTES = 16 << 10  # so many count as one more
# What is on its way to a reader, and what is kept for one that is slow before it is cut off.
WRITE_BYTES_HIGH = 64 << 10
UNSENT_BYTES_MAX = 16 << 10  # of it, in the system
READER_BYTES_MAX = 1 << 20
CUT_OFF_AT_ONCE = 8  # connections, in one turn of the event loop
READER_S = 60.0  # to take what was sent before all of another room is
# Who has sent nothing for so long is sent a ping, and is gone if no answer comes in as much time.
PING_S = 20.0
# For the answer to a close frame.
CLOSE_S = 5.0
CLOSE_REASON_BYTES = 120  # a close frame has room for 123
# A node's address is good for so long without renewal, and looked at so often in a third of it.
ADDRESS_MS = 30_000
ADDRESS_LOOKS = 10
DIAL_S = 5.0  # to connect to another node
FRAMES_RELAYED_PER_S = 1_000_000  # the other node has its own limits
# For the first message, with credentials if the request had none.
HELLO_S = 10.0
HELLO_BYTES_MAX = 16 << 10  # all that comes before it, and an unfinished one
