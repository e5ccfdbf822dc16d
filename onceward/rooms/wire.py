"""The interface of a connection to the hub, and the framing of WebSocket messages.

Frames of a server are not masked, so the same bytes serve every reader. The hub frames a message
once, and connections write it unchanged.
"""

from collections.abc import Iterator
from typing import Protocol

# A final text frame; the length is in this many extra bytes.
_TEXT, _TEXT_2, _TEXT_8 = b"\x81", b"\x81\x7e", b"\x81\x7f"


class Wire(Protocol):
    """The sending side of a connection, as used by the hub."""

    def send(self, frames: bytes) -> None:
        """Send one or more frames made by `frame`.

        Data that the reader does not accept is buffered up to a limit. Then it is dropped, the
        listener's `cut_off` is called, and nothing further is sent.
        """

    def close(self, code: int, reason: str) -> None:
        """Send pending data, then the close code with an error code of the table as the reason.

        Further input is ignored. Idempotent.
        """

    async def drained(self) -> None:
        """Return when the reader has received most of the sent data, or the connection ends."""

    def pause(self) -> None:
        """Stop reading until `resume`; input waits on the sender's side. Idempotent."""

    def resume(self) -> None:
        """Continue reading."""

    def authenticate(self) -> None:
        """Lift the limits of anonymous connections after the peer has presented credentials.
        Idempotent.
        """


class Listener(Protocol):
    """The receiving side of a connection: calls from the connection to the hub."""

    def receive(self, message: bytes) -> None:
        """Handle a complete text message, which may not be valid UTF-8. Must not raise."""

    def drain(self) -> None:
        """The server stops: finish pending work and close the wire."""

    def cut_off(self) -> None:
        """The peer does not read: close the wire."""

    def lost(self) -> None:
        """The connection has ended. Idempotent."""


def frame(message: bytes) -> bytes:
    """A message as one server frame."""
    size_bytes = len(message)
    if size_bytes < 126:
        return _TEXT + size_bytes.to_bytes() + message
    if size_bytes < 1 << 16:
        return _TEXT_2 + size_bytes.to_bytes(2) + message
    return _TEXT_8 + size_bytes.to_bytes(8) + message


def messages(frames: bytes) -> Iterator[bytes]:
    """The messages in the output of `frame`, for connections with their own framing."""
    at, end = 0, len(frames)
    while at < end:
        size_bytes, start = frames[at + 1], at + 2
        if size_bytes >= 126:
            width = 2 if size_bytes == 126 else 8
            size_bytes = int.from_bytes(frames[start : start + width])
            start += width
        at = start + size_bytes
        yield frames[start:at]
