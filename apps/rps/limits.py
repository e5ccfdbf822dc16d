"""The limits of rock-paper-scissors by text message."""

# Nicknames, texts in and out, names in a reply, and removed games per commit.
NICK_CHARS_MAX = 32
TEXT_CHARS_MAX = 1_600
LISTED_MAX = 10
CLEARED_MAX = 4
REQUEST_BYTES_MAX = 64 << 10
CERTIFICATES_MAX = 16  # certificates of Amazon: one for each region, and they rarely change
# Calls to providers of texts: timeout, size of a response, maximum `Retry-After`, and how long the
# outcome of an interrupted call is looked up.
CONNECT_S = 5.0
TOTAL_S = 20.0
ANSWER_BYTES_MAX = 1 << 20
AFTER_S_MAX = 3_600.0
SETTLE_ASKS = 5
SETTLE_PAUSE_S = 15.0
# How long the delivery status of a reply is kept, and how many are listed for a phone.
DELIVERY_KEPT_MS = 30 * 24 * 3_600_000
DELIVERIES_MAX = 100
# How long the phones page shows a text, how many at first, and how long it waits for the next.
SHOWN_MS = 24 * 3_600_000
SHOWN_MAX = 200
WAIT_S = 20
# Rejected signatures are logged once in this time.
REFUSED_TOLD_S = 60
