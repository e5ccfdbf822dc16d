"""Limits of HTTP, WebSocket and metrics."""

# HTTP: the request of one message, and of a batch of messages.
REQUEST_BYTES_MAX = 1 << 20
MESSAGES_BYTES_MAX = 8 << 20
BATCH_MESSAGES_MAX = 1_000
ROUTES_KNOWN = 1_000  # cached routes of addresses, of up to ROUTE_KNOWN_BYTES bytes
ROUTE_KNOWN_BYTES = 200
HEAD_BYTES_MAX = 64 << 10
HEADERS_MAX = 100
REQUESTS_AHEAD_MAX = 8  # pipelined requests of a connection that are parsed in advance
SENT_BYTES_MAX = 32 << 20  # a body with its chunk headers, or discarded input
REQUEST_S = 60.0  # to receive a complete request
# How long input is discarded after the last response, so that a reset does not destroy the
# response.
LINGER_S = 5.0
LINGER_BYTES_MAX = 32 << 20
# Bytes of incomplete requests in total: with valid credentials, and without.
BODIES_BYTES_MAX = 256 << 20
ANONYMOUS_BYTES_MAX = 32 << 20
ANONYMOUS_BODY_BYTES_MAX = 1 << 20  # of one such body
# How much is read at once, from connections with credentials and from others.
READ_BYTES = 256 << 10
ANONYMOUS_READ_BYTES = 16 << 10
# Connections in total, and per address without credentials. A new connection replaces an idle one
# among this many of the oldest.
CONNECTIONS_MAX = 10_000
CONNECTIONS_PER_ADDRESS = 500
EVICTION_LOOKS = 64
# Time per turn of the event loop for requests without credentials. A response and a WebSocket
# handshake count with a fixed price.
ANONYMOUS_TURN_NS = 1_000_000
ANONYMOUS_REQUEST_NS = 50_000
ANONYMOUS_HANDSHAKE_NS = 400_000
JSON_DEPTH_MAX = 100
FORM_FIELDS_MAX = 1_000
WAIT_MS_MAX = 60_000
PROBE_S = 5.0
PUBLIC_S = 1.0  # `/readyz` and `/metrics` are computed at most once in this time
LIST_MAX = 1_000
PAGE_MS = 500  # how long a request processes many jobs before it responds
# A page of jobs, or of steps of a room, ends at the requested length or at this many bytes.
PAGE_BYTES_MAX = 4 << 20
PAGE_JOBS = 50  # jobs that are read at once
PAGE_READS_MAX = 1_000  # reads per page for a caller that may see only few jobs
# Rate limits of requests: how many callers are tracked, and how often each is logged.
RATED_CALLERS_MAX = 10_000
RATED_TOLD_S = 60.0
# Counters per name, and queues with their own metrics; further ones are counted together.
METERS_MAX = 1_000
METERED_QUEUES_MAX = 200
# The tolerance for clocks of token issuers, and the cached scope decisions per caller.
TOKEN_SLACK_MS = 5_000
GRANTS_MAX = 1_000  # of one token
SCOPES_KNOWN_MAX = 1_000
# The console: the lifetime of a session and of a sign-in link, the number of links in total and per
# caller, and the interval of reading keys that were created there.
SESSION_MS = 12 * 3_600_000
COOKIE_BYTES_MAX = 4_096  # browsers silently drop longer ones
LINK_MS = 3_600_000
# Sessions per caller, and the length of a stored user agent.
SESSIONS_EACH_MAX = 50
AGENT_CHARS_MAX = 200
LINKS_MAX = 100
LINKS_EACH_MAX = 10
KEYS_S = 5.0
KEYS_MAX = 1_000
ROLL_RECORDS = 500  # records of a slot that a list of jobs reads at once

# WebSocket: the sustained rate of frames per connection, above which it is read more slowly.
FRAMES_PER_S = 1_000
RATED_BYTES = 16 << 10  # bytes that count as one more frame
# Data in flight to a client, and data buffered for a slow one before it is disconnected.
WRITE_BYTES_HIGH = 64 << 10
UNSENT_BYTES_MAX = 16 << 10  # of it, unsent in the system's socket buffer
READER_BYTES_MAX = 1 << 20
CUT_OFF_AT_ONCE = 8  # connections, in one turn of the event loop
READER_S = 60.0  # for a slow client to receive its data before it joins another room
# A client that has sent nothing for this time gets a ping, and is disconnected after the same time
# without a response.
PING_S = 20.0
# For the response to a close frame.
CLOSE_S = 5.0
CLOSE_REASON_BYTES = 120  # a close frame has space for 123
# How long a node's address is valid without renewal, and how often it is checked in a third of
# that.
ADDRESS_MS = 30_000
ADDRESS_LOOKS = 10
DIAL_S = 5.0  # to connect to another node
FRAMES_RELAYED_PER_S = 1_000_000  # the other node has its own limits
# For the first message, with credentials if the request had none.
HELLO_S = 10.0
HELLO_BYTES_MAX = 16 << 10  # all data before it, including an incomplete one
