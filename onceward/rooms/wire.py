"""The interface of a connection to the hub, and the framing of WebSocket messages.

Frames from a server are not masked: the same bytes serve every reader. So what a hub sends is
framed once, here, and a connection writes it as it is.
"""

from collections.abc import Iterator
from typing import Protocol

# The last, and only, frame of a text; with its size in as many bytes, if it is not in one.
_TEXT, _TEXT_2, _TEXT_8 = b"\x81", b"\x81\x7e", b"\x81\x7f"


class Wire(Protocol):
    """The far end of a connection, as a hub sees it."""

    def send(self, frames: bytes) -> None:
        """Send what `frame` made, one or several in a row. What the reader does not take in
        time is kept for it up to a limit; then it is dropped, the listener is told, and nothing
        more is sent."""

    def close(self, code: int, reason: str) -> None:
        """Send what was sent so far, then the close code, with a code of the table of errors as
        the reason; nothing more is heard. Twice is once."""

    async def drained(self) -> None:
        """Return when the reader has taken most of what was sent, or the connection ends."""

    def pause(self) -> None:
        """Read no more until `resume`; what comes waits on the sender's side. Twice is once."""

    def resume(self) -> None:
        """Read on."""

    def authenticate(self) -> None:
        """The far end has shown valid credentials: the limits of anonymous connections do not
        apply to it. Idempotent."""


class Listener(Protocol):
    """The near end: what a connection tells a hub."""

    def receive(self, message: bytes) -> None:
        """A whole text message has come; it may be no UTF-8. Must not raise."""

    def drain(self) -> None:
        """The server stops: finish what is under way, and close the wire."""

    def cut_off(self) -> None:
        """The far end does not read what it is sent: close the wire."""

    def lost(self) -> None:
        """Nothing more comes. Idempotent."""


def frame(message: bytes) -> bytes:
    """A message as one frame from a server."""
    size_bytes = len(message)
    if size_bytes < 126:
        return _TEXT + size_bytes.to_bytes() + message
    if size_bytes < 1 << 16:
        return _TEXT_2 + size_bytes.to_bytes(2) + message
    return _TEXT_8 + size_bytes.to_bytes(8) + message


def messages(frames: bytes) -> Iterator[bytes]:
    """The messages in what `frame` made, for connections that make frames of their own."""
    at, end = 0, len(frames)
    while at < end:
        size_bytes, start = frames[at + 1], at + 2
        if size_bytes >= 126:
            width = 2 if size_bytes == 126 else 8
            size_bytes = int.from_bytes(frames[start : start + width])
            start += width
        at = start + size_bytes
        yield frames[start:at]
