"""Fan-out: collects the changes of a room and sends them to each member once a turn.

Most members get the same frames, which are joined once and shared. The author of a change gets a
separate buffer, in which its acknowledgement, or nothing, replaces the change.
"""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Reader(Protocol):
    """A receiver of a room's frames."""

    def put(self, frames: bytes) -> None:
        """Send these frames at the end of the turn."""

    def put_last(self, frames: bytes) -> None:
        """Send these frames; called at the end of the turn."""


R = TypeVar("R", bound=Reader)


class News(Generic[R]):
    """The pending frames of one room in one turn."""

    def __init__(self) -> None:
        self._shared: list[bytes] = []
        self._others: list[tuple[R, int, bytes]] = []
        """The replacement of a frame for one reader, by index."""

    def add(self, frame: bytes, author: R | None = None, instead: bytes = b"") -> None:
        """Add a frame for all readers, and `instead` for the author.

        With an empty frame, only the author gets something, in order with the other frames.
        """
        if author is not None:
            self._others.append((author, len(self._shared), instead))
        self._shared.append(frame)

    def replace(self, reader: R, instead: bytes) -> None:
        """Replace the last frame for one reader."""
        self._others.append((reader, len(self._shared) - 1, instead))

    def tell(self, readers: Iterable[R], *, last: bool = False) -> None:
        """Send all pending frames and clear them; `last` at the end of the turn."""
        shared, others = self._shared, self._others
        if not shared:
            return
        self._shared, self._others = [], []
        if len(shared) == 1:
            frames = shared[0]
            instead = {author: own for author, _, own in others}
        else:
            frames, instead = b"".join(shared), _joined(shared, others)
        for reader in list(readers):
            own_frames = instead.get(reader, frames) if instead else frames
            if not own_frames:
                continue
            if last:
                reader.put_last(own_frames)
            else:
                reader.put(own_frames)


def _joined(shared: list[bytes], others: list[tuple[R, int, bytes]]) -> dict[R, bytes]:
    """All frames for each reader with replacements."""
    places: dict[R, dict[int, bytes]] = {}
    for author, at, instead in others:
        places.setdefault(author, {})[at] = instead
    return {
        author: b"".join([own.get(at, frame) for at, frame in enumerate(shared)])
        for author, own in places.items()
    }
