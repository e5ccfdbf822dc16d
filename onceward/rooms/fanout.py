"""Fan-out: collects the changes of a room and sends them to each member once a turn.

Most members get the same, so that it is joined once and shared. Whoever has caused some of it
gets a buffer of its own, with something else in those places: the acknowledgement of its step, or
nothing.
"""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Reader(Protocol):
    """Whoever gets what a room says."""

    def put(self, frames: bytes) -> None:
        """Send these frames with the end of the turn."""

    def put_last(self, frames: bytes) -> None:
        """The same when the turn is at its end."""


R = TypeVar("R", bound=Reader)


class News(Generic[R]):
    """Of one room and one turn."""

    def __init__(self) -> None:
        self._shared: list[bytes] = []
        self._others: list[tuple[R, int, bytes]] = []
        """What an author gets in the place of which frame."""

    def add(self, frame: bytes, author: R | None = None, instead: bytes = b"") -> None:
        """Say something to all; to the author, if there is one, something else. Nothing can be
        said to all, so that only the author is told, in its place."""
        if author is not None:
            self._others.append((author, len(self._shared), instead))
        self._shared.append(frame)

    def replace(self, reader: R, instead: bytes) -> None:
        """Let one reader have something else in place of what was added last."""
        self._others.append((reader, len(self._shared) - 1, instead))

    def tell(self, readers: Iterable[R], *, last: bool = False) -> None:
        """Let all readers have it, and begin anew; with `last` when the turn is at its end."""
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
    """All that each of some authors gets."""
    places: dict[R, dict[int, bytes]] = {}
    for author, at, instead in others:
        places.setdefault(author, {})[at] = instead
    return {
        author: b"".join([own.get(at, frame) for at, frame in enumerate(shared)])
        for author, own in places.items()
    }
