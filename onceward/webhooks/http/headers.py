"""Allowed headers of webhook calls: no framing, routing or signature headers."""

import re
from collections.abc import Mapping

from onceward import limits
from onceward.errors import BadInput

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
# Nothing that ends a line, and no space around it that would be lost on the way.
_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_OURS = {
    *("connection", "content-length", "expect", "host", "keep-alive", "te", "trailer"),
    *("transfer-encoding", "upgrade"),
}
_OUR_PREFIXES = ("proxy-", "webhook-", "onceward-")


def admit_headers(headers: Mapping[str, str]) -> None:
    """Raise `BadInput` for headers that cannot be sent, or not by callers."""
    if not isinstance(headers, Mapping):
        raise BadInput(f"headers are names with their values, not {type(headers).__name__}")
    if len(headers) > limits.OUTWARD_HEADERS_MAX:
        raise BadInput(f"a call has at most {limits.OUTWARD_HEADERS_MAX} headers of its own")
    seen: set[str] = set()
    for name, value in headers.items():
        if type(name) is not str or type(value) is not str:
            raise BadInput("headers have names and values that are text")
        low = name.lower()
        if not _NAME.fullmatch(name):
            raise BadInput(f"{name[:100]!a} is no name of a header")
        if low in _OURS or low.startswith(_OUR_PREFIXES):
            raise BadInput(f"the header {name} is not for callers to set")
        if low in seen:
            raise BadInput(f"the header {name} is there twice")
        if not _VALUE.fullmatch(value):
            raise BadInput(f"the header {name} has other than plain characters in its value")
        seen.add(low)
    if sum(len(name) + len(value) for name, value in headers.items()) > limits.OUTWARD_HEADS_BYTES:
        raise BadInput(
            f"the headers of a call have at most {limits.OUTWARD_HEADS_BYTES} bytes together"
        )
