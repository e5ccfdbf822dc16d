"""The journal: preallocated segment files that are written, folded and reused.

A segment is a file of fixed size, written completely before use so that a sync changes no metadata.
Where the device supports it, writes bypass the system's cache, which makes synced writes faster.
Frames are written one at a time, each after the previous one is durable.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator

from onceward import limits
from onceward.engine.sqlite.disk import Disk, aligned
from onceward.engine.sqlite.frames import (
    BLOCK_BYTES,
    FRAME_HEAD_BYTES,
    Commits,
    Frame,
    Segment,
    damaged,
    encode_commits,
    encode_frame,
    encode_header,
    padded,
    parse_segment,
)

# Frames up to this size share one buffer.
_BUFFER_BYTES = 1 << 20


class Journal:
    """The segments of one database. Not thread-safe, except that `write`, `make_segment` and `trim`
    may each run in a separate thread.
    """

    def __init__(
        self,
        database_path: str,
        database_id: bytes,
        disk: Disk,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._prefix = f"{database_path}-log."
        self._database_id = database_id
        self._disk = disk
        self._random_bytes = random_bytes
        self._next_number = 1
        self._next_size_bytes = limits.SEGMENT_BYTES_MIN
        self.current: Segment | None = None
        self.spare: Segment | None = None
        self.filled: list[Segment] = []
        self.retired: list[Segment] = []
        self._retired_lock = threading.Lock()
        self._buffer = aligned(bytes(_BUFFER_BYTES))

    def recover(self, folded_seq: int) -> Iterator[Frame]:
        """The frames with commits after `folded_seq`, in order. Call it once, and exhaust the
        iterator.

        Raises `CannotOpen` (damaged) if an acknowledged commit is missing or corrupt.
        """
        last: tuple[Segment, Frame] | None = None
        last_seq = folded_seq
        for path in segment_paths(self._prefix):
            segment, frames = read_segment(path, self._database_id)
            self._next_number = max(self._next_number, segment.number + 1)
            for frame in frames:
                segment.last_seq = frame.last_seq
                # Folded segments may be missing, in any order.
                if frame.last_seq <= folded_seq:
                    continue
                if frame.first_seq > last_seq + 1:
                    raise damaged(
                        path, f"commits {last_seq + 1} to {frame.first_seq - 1} are missing"
                    )
                if last and frame.first_seq <= last_seq:
                    raise damaged(path, f"commit {frame.first_seq} is duplicated")
                last_seq = frame.last_seq
                last = segment, frame
                yield frame
            self.filled.append(segment)
        # Only now, so that a rejected database stays unchanged.
        remove_leftovers(self._prefix, self._disk)
        if last:
            self._make_durable(*last)
        self.retire(folded_seq)

    def _make_durable(self, segment: Segment, frame: Frame) -> None:
        """Write and sync the last frame again.

        A process that was killed, or whose sync failed, may have left it only in the system's
        cache. Later commits depend on it.
        """
        fd = self._disk.open(segment.path)
        try:
            content = os.pread(fd, segment.end - frame.offset, frame.offset)
            self._disk.write(fd, content, frame.offset)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    def start(self) -> None:
        """Create a segment to write to. Recovered segments are only folded, never continued."""
        self.current = self.make_segment(limits.SEGMENT_BYTES_FIRST)

    @property
    def room_bytes(self) -> int:
        """The maximum size of the next frame, which must fit into the current segment or the
        spare."""
        current = self.current.size_bytes - self.current.end if self.current else 0
        spare = self.spare.size_bytes - self.spare.end if self.spare else 0
        return max(current, spare)

    def excess_seq(self, keep_bytes: int) -> int:
        """The sequence number to fold up to, so that filled segments use at most `keep_bytes`."""
        excess_bytes = sum(segment.end for segment in self.filled) - keep_bytes
        seq = 0
        for segment in self.filled:
            if excess_bytes <= 0:
                break
            excess_bytes -= segment.end
            seq = segment.last_seq
        return seq

    def place(self, first_seq: int, commits: Commits) -> tuple[Segment, int, bytes]:
        """Encode a frame and assign its position; the caller has checked `room_bytes`."""
        payload = encode_commits(commits)
        assert self.current is not None
        frame_bytes = padded(FRAME_HEAD_BYTES + len(payload))
        if frame_bytes > self.current.size_bytes - self.current.end:
            assert self.spare is not None, "the caller checks room_bytes"
            self.filled.append(self.current)
            self.current, self.spare = self.spare, None
        segment = self.current
        offset = segment.end
        segment.end += frame_bytes
        segment.last_seq = first_seq + len(commits) - 1
        return segment, offset, encode_frame(segment.salt, first_seq, len(commits), payload)

    def write(self, segment: Segment, offset: int, frame: bytes) -> None:
        """Write a placed frame durably. Any error leaves the outcome unknown."""
        data: bytes | memoryview = frame
        if segment.direct:
            whole = len(frame) + -len(frame) % BLOCK_BYTES
            buffer = self._buffer if whole <= len(self._buffer) else aligned(bytes(whole))
            buffer[: len(frame)] = frame
            data = buffer[:whole]
        self._disk.write_durably(segment.fd, data, offset)

    def retire(self, folded_seq: int) -> None:
        """Retire the filled segments that are folded completely."""
        while self.filled and self.filled[0].last_seq <= folded_seq:
            self.retired.append(self.filled.pop(0))

    def make_segment(self, size_bytes: int | None = None) -> Segment:
        """Create a segment to write to, from a retired one if one is large enough.

        It is prepared under another name, so that a crash leaves no incomplete segment.
        """
        wanted_bytes = size_bytes or self._next_size_bytes
        self._next_size_bytes = limits.SEGMENT_BYTES_MIN  # in case there is no space for this one
        salt = self._random_bytes(8)
        draft = f"{self._prefix}draft"
        path = f"{self._prefix}{self._next_number:08d}"
        remove_leftovers(self._prefix, self._disk)
        old = self._reusable(wanted_bytes)
        fd = old.fd if old else -1
        if old is not None:
            wanted_bytes = old.size_bytes
        header = encode_header(self._next_number, self._database_id, salt, wanted_bytes)
        try:
            if old is None:
                fd = self._disk.create(draft, wanted_bytes, header)
            else:
                self._disk.rename(old.path, draft)
                if fd >= 0:
                    self._disk.use_cache(fd)
                else:
                    fd = self._disk.open(draft)
                self._disk.write(fd, header, 0)
                self._disk.sync_all(fd)
            direct = self._disk.bypass_cache(fd, BLOCK_BYTES)
            self._disk.rename(draft, path)
            self._disk.sync_directory(path)
        except BaseException:
            if fd >= 0:
                self._disk.close(fd)
            raise
        segment = Segment(path, self._next_number, salt, wanted_bytes, fd, direct=direct)
        self._next_number += 1
        if size_bytes is None:
            self._next_size_bytes = min(wanted_bytes * 2, limits.SEGMENT_BYTES_MAX)
        return segment

    def _reusable(self, size_bytes: int) -> Segment | None:
        """Take the first retired segment that is large enough; smaller ones are removed."""
        with self._retired_lock:
            while self.retired:
                segment = self.retired.pop(0)
                if segment.size_bytes >= size_bytes:
                    return segment
                self._remove(segment)
        return None

    def trim(self, keep: int) -> None:
        """Remove retired segments except the last `keep`."""
        with self._retired_lock:
            while len(self.retired) > keep:
                self._remove(self.retired.pop(0))

    def close(self, *, remove: bool) -> None:
        """Close all files, and `remove` them if everything is folded.

        Files that cannot be removed are recognised as folded when the database is opened again.
        """
        segments = [*self.filled, *self.retired]
        segments += [segment for segment in (self.current, self.spare) if segment]
        self.current = self.spare = None
        self.filled, self.retired = [], []
        for segment in segments:
            try:
                if remove:
                    self._remove(segment)
                elif segment.fd >= 0:
                    self._disk.close(segment.fd)
            except OSError:
                pass

    def _remove(self, segment: Segment) -> None:
        if segment.fd >= 0:
            self._disk.close(segment.fd)
            segment.fd = -1
        self._disk.remove(segment.path)


def segment_paths(prefix: str) -> list[str]:
    """The segments on disk in the order of their numbers."""
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + r"\d{8,}")
    found = [entry for entry in os.listdir(folder or ".") if pattern.fullmatch(entry)]
    return [os.path.join(folder, entry) for entry in sorted(found, key=lambda n: (len(n), n))]


def remove_leftovers(prefix: str, disk: Disk) -> None:
    """Remove the draft of a segment that a crash left behind."""
    if os.path.exists(f"{prefix}draft"):
        disk.remove(f"{prefix}draft")


def read_segment(path: str, database_id: bytes) -> tuple[Segment, list[Frame]]:
    """Read a segment and its frames; raises `CannotOpen` if it is damaged or of another
    database."""
    with open(path, "rb") as file:
        return parse_segment(path, file.read(), database_id)
