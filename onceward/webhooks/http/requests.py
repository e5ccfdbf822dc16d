"""Encoding of requests to endpoints."""

import re
from collections.abc import Mapping
from functools import lru_cache

from onceward import __version__
from onceward.errors import BadInput
from onceward.webhooks.http.addresses import Target

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# These say how the request is sent, which is not the caller's business.
_OURS = {
    *("host", "content-length", "transfer-encoding", "trailer", "te", "expect", "upgrade"),
    *("connection", "keep-alive", "proxy-connection", "proxy-authorization"),
}
_AGENT = f"User-Agent: onceward/{__version__}\r\n"


def write_post(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """A POST. Raises `BadInput` for headers that cannot be sent."""
    parts = [f"POST {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n"]
    agent = _AGENT
    for name, value in headers.items():
        low = _low(name)
        if low is None:
            raise BadInput(f"the header {name!r} cannot be sent", code="bad_header")
        if low == "user-agent":
            agent = ""
        parts.append(f"{name}: {value}\r\n")
    parts.append(f"{agent}Content-Length: {len(body)}\r\n\r\n")
    head = "".join(parts)
    # All lines are ours: a value that has an end of line in it would begin another header.
    lines = len(headers) + (5 if agent else 4)
    if head.count("\n") != lines or head.count("\r") != lines or "\0" in head:
        raise BadInput("a header has characters in it that end a line", code="bad_header")
    try:
        return head.encode("latin-1") + body
    except UnicodeEncodeError as error:
        raise BadInput("a header has characters in it beyond Latin-1", code="bad_header") from error


@lru_cache(1_000)
def _low(name: str) -> str | None:
    """A header's name in lower case; None if it is none, or not the caller's to set."""
    low = name.lower()
    return low if _TOKEN.fullmatch(name) and low not in _OURS else None
