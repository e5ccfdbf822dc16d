"""Encoding of requests to endpoints."""

import re
from collections.abc import Mapping
from functools import lru_cache

from onceward import __version__
from onceward.errors import BadInput
from onceward.webhooks.http.addresses import Target

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Headers that control the transfer; callers must not set them.
_OURS = {
    *("host", "content-length", "transfer-encoding", "trailer", "te", "expect", "upgrade"),
    *("connection", "keep-alive", "proxy-connection", "proxy-authorization"),
}
_AGENT = f"User-Agent: onceward/{__version__}\r\n"


def write_request(method: str, target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """Encode a request. Raises `BadInput` for headers that cannot be sent."""
    parts = [f"{method} {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n"]
    agent = _AGENT
    for name, value in headers.items():
        low = _low(name)
        if low is None:
            raise BadInput(f"the header {name!r} cannot be sent; remove it", code="bad_header")
        if low == "user-agent":
            agent = ""
        parts.append(f"{name}: {value}\r\n")
    # Other methods announce an empty body.
    length = "" if method == "GET" and not body else f"Content-Length: {len(body)}\r\n"
    parts.append(f"{agent}{length}\r\n")
    head = "".join(parts)
    # Check the number of lines: a value with a line break would inject another header.
    lines = len(headers) + 3 + bool(agent) + bool(length)
    if head.count("\n") != lines or head.count("\r") != lines or "\0" in head:
        raise BadInput("a header contains a line break; remove it", code="bad_header")
    try:
        return head.encode("latin-1") + body
    except UnicodeEncodeError as error:
        raise BadInput(
            "a header contains characters outside Latin-1; encode or remove them", code="bad_header"
        ) from error


@lru_cache(1_000)
def _low(name: str) -> str | None:
    """The name of a header in lower case; None if it is invalid or reserved."""
    low = name.lower()
    return low if _TOKEN.fullmatch(name) and low not in _OURS else None
