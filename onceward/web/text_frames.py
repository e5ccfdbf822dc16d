"""Fast parsing of unfragmented WebSocket text messages.

`websockets` reads every kind of frame, with all that can be wrong about it, and takes as long for
each as a small room does to take a step. A text in one masked frame that has come whole is read
here. All else is for the library, from the first byte on that is of no such frame; of that it is
followed where its frames end, to know when the library waits for a new one.
"""

try:
    from websockets.speedups import apply_mask
except ImportError:  # where it was not compiled
    from websockets.utils import apply_mask

_TEXT = 0x81  # the last, and only, frame of a text
_PONG = 0x8A
_MASKED = 0x80
_MASK_BYTES = 4


class Texts:
    """Of one connection, from behind its handshake on."""

    __slots__ = ("_head", "_missing")

    def __init__(self) -> None:
        self._missing = 0
        """How many bytes are yet to come of the frame that the library has a part of."""
        self._head = b""
        """What the library has of a frame whose head has not come whole."""

    def take(self, data: bytes) -> tuple[list[bytes], int, bytes]:
        """The whole texts that data begins with; how many frames that were, with those that nobody
        needs to hear of; and the rest, for the library. It must not be called in the midst of a
        message that comes in fragments: there a whole text is a mistake, which the library has to
        see."""
        texts: list[bytes] = []
        at = frames = 0
        end = 0 if self._missing or self._head else len(data)
        while end - at > 1 + _MASK_BYTES:
            size, start = data[at + 1] ^ _MASKED, at + 2 + _MASK_BYTES
            if size == 126:
                size, start = int.from_bytes(data[at + 2 : at + 4]), start + 2
                if size < 126:
                    break  # it fits into one byte: for the library to judge
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
        """Note where the frames end in what the library is given."""
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
    """How many bytes a frame has that begins like that, all of it; 0 if that is not told yet."""
    if len(head) < 2:
        return 0
    size = head[1] & ~_MASKED
    width = {126: 2, 127: 8}.get(size, 0)
    if len(head) < 2 + width:
        return 0
    if width:
        size = int.from_bytes(head[2 : 2 + width])
    return 2 + width + (_MASK_BYTES if head[1] & _MASKED else 0) + size
