"""Fast parsing of unfragmented WebSocket text messages.

`websockets` validates every kind of frame, which takes as long as a step of a small room. Complete
texts in one masked frame are parsed here. All other data goes to the library. This module only
follows the frame boundaries in it, to know when the library expects a new frame.
"""

try:
    from websockets.speedups import apply_mask
except ImportError:  # the extension is not compiled
    from websockets.utils import apply_mask

_TEXT = 0x81  # the only frame of a text
_PONG = 0x8A
_MASKED = 0x80
_MASK_BYTES = 4


class Texts:
    """The parser of one connection, after its handshake."""

    __slots__ = ("_head", "_missing")

    def __init__(self) -> None:
        self._missing = 0
        """The remaining bytes of a frame that the library has begun."""
        self._head = b""
        """The bytes of an incomplete frame header that the library has."""

    def take(self, data: bytes) -> tuple[list[bytes], int, bytes]:
        """Split data into complete texts, the number of frames including ignored ones, and the rest
        for the library.

        Must not be called within a fragmented message: a complete text there is an error, which the
        library must see.
        """
        texts: list[bytes] = []
        at = frames = 0
        end = 0 if self._missing or self._head else len(data)
        while end - at > 1 + _MASK_BYTES:
            size, start = data[at + 1] ^ _MASKED, at + 2 + _MASK_BYTES
            if size == 126:
                size, start = int.from_bytes(data[at + 2 : at + 4]), start + 2
                if size < 126:
                    break  # not the shortest encoding of the size; the library rejects it
            elif size > 126:  # larger than most, or not masked
                break
            stop = start + size
            if stop > end:
                break
            if data[at] == _TEXT:
                texts.append(apply_mask(data[start:stop], data[start - _MASK_BYTES : start]))
            elif data[at] != _PONG or size:
                break
            frames += 1
            at = stop
        rest = data[at:] if at else data
        if rest:
            self.follow(rest)
        return texts, frames, rest

    def follow(self, data: bytes) -> None:
        """Track frame boundaries in data for the library."""
        if self._missing >= len(data):
            self._missing -= len(data)
            return
        data = self._head + data[self._missing :]
        self._missing, self._head = 0, b""
        at, end = 0, len(data)
        while at < end:
            size = _frame_bytes(data[at : at + 10])
            if not size:
                self._head = data[at:]
                return
            at += size
        self._missing = at - end


def _frame_bytes(head: bytes) -> int:
    """The total size of a frame with this beginning; 0 if it is not known yet."""
    if len(head) < 2:
        return 0
    size = head[1] & ~_MASKED
    width = {126: 2, 127: 8}.get(size, 0)
    if len(head) < 2 + width:
        return 0
    if width:
        size = int.from_bytes(head[2 : 2 + width])
    return 2 + width + (_MASK_BYTES if head[1] & _MASKED else 0) + size
