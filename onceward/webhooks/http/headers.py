"""Allowed headers of webhook calls: no framing, routing or signature headers."""

import re
from collections.abc import Mapping

from onceward import limits
from onceward.errors import BadInput

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
# No line breaks, and no surrounding spaces, which would be lost in transit.
_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_OURS = {
    *("connection", "content-length", "expect", "host", "keep-alive", "te", "trailer"),
    *("transfer-encoding", "upgrade"),
}
_OUR_PREFIXES = ("proxy-", "webhook-", "onceward-")


def admit_headers(headers: Mapping[str, str]) -> None:
    """Raise `BadInput` for headers that cannot be sent, or that callers must not set."""
    if not isinstance(headers, Mapping):
        raise BadInput(
            f"headers must be a mapping of names to values, not {type(headers).__name__}"
        )
    if len(headers) > limits.OUTWARD_HEADERS_MAX:
        raise BadInput(
            f"a call must have at most {limits.OUTWARD_HEADERS_MAX} custom headers, not "
            f"{len(headers)}"
        )
    seen: set[str] = set()
    for name, value in headers.items():
        if type(name) is not str or type(value) is not str:
            kinds = f"{type(name).__name__} and {type(value).__name__}"
            raise BadInput(f"names and values of headers must be text, not {kinds}")
        low = name.lower()
        if not _NAME.fullmatch(name):
            raise BadInput(
                f"{name[:100]!a} is not a valid name of a header; use letters, digits and hyphens"
            )
        if low in _OURS or low.startswith(_OUR_PREFIXES):
            raise BadInput(f"the header {name} is reserved and cannot be set; omit it")
        if low in seen:
            raise BadInput(f"the header {name} is given twice; give it once")
        if not _VALUE.fullmatch(value):
            raise BadInput(
                f"the value of the header {name} must be printable ASCII; remove other characters"
            )
        seen.add(low)
    total = sum(len(name) + len(value) for name, value in headers.items())
    if total > limits.OUTWARD_HEADS_BYTES:
        raise BadInput(
            f"the headers of a call must have at most {limits.OUTWARD_HEADS_BYTES} bytes in "
            f"total, not {total}"
        )
