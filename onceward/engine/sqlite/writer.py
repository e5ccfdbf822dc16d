"""Group commit: writes all waiting commits as one frame with one durable write.

While the disk is fast, frames are written in the event loop's thread: passing them to another
thread and back takes about the same time, and longer if both compete for the interpreter lock. If
it is slow, they are written in a background thread while the loop continues.
"""

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from onceward import limits
from onceward.engine.base import Record
from onceward.engine.sqlite.frames import Segment
from onceward.engine.sqlite.journal import Journal
from onceward.errors import EngineStopped, OncewardError, StorageFull, Unavailable
from onceward.file_descriptors import NONE_LEFT

# The header and padding of a frame, and the maximum that msgpack adds to each row.
_FRAME_OVERHEAD_BYTES = 1_024
ROW_OVERHEAD_BYTES = 40
# After this many flushes of a single commit, the next commit is flushed immediately.
_LONE_FLUSHES = 8
# The pause before another attempt to create a segment, unless a commit requests it earlier.
_RETRY_S = 1.0
# How many commits, each with a separate frame, one task may make in a turn of the loop.
_TURN_COMMITS_MAX = 4


class Writer:
    """Appends commits to the journal in order of arrival. Runs in the event loop."""

    def __init__(
        self, journal: Journal, last_seq: int, background: Executor, elapsed_ns: Callable[[], int]
    ) -> None:
        self.seq = last_seq
        """The sequence number of the last commit, durable or not."""
        self.durable_seq = last_seq
        self.failure: OncewardError | None = None
        self.segment_filled: Callable[[], None] = lambda: None
        self.segment_made: Callable[[OSError | None], None] = lambda error: None
        """Called after each attempt to create a segment, with the error if it failed."""
        self._journal = journal
        self._background = background
        self._elapsed_ns = elapsed_ns
        self._loop = asyncio.get_running_loop()
        self._commits: list[list[Record]] = []
        self._futures: list[asyncio.Future[None]] = []
        self.batch_bytes = 0
        """The size of the commits that wait for the next frame."""
        self.room_bytes = journal.room_bytes - _FRAME_OVERHEAD_BYTES
        """A lower bound of the size of the next frame."""
        self._room_made = asyncio.Event()
        self._no_segment: OSError | None = None
        """The error of the last attempt to create a segment."""
        self._making_spare: asyncio.Future[Segment] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._lone_flushes = 0
        self.turn_is_over = False
        """Whether a task that commits alone has used its share of this turn of the loop."""
        self._turn_commits = 0
        self._turn_task: asyncio.Task[Any] | None = None
        self._writing: asyncio.Future[int] | None = None
        self._write_ns = 0.0
        self._make_spare()

    async def make_room(self, size_bytes: int) -> None:
        """Wait until the journal has space for a commit of that size.

        Raises `StorageFull` if the disk is full, `Unavailable` if the journal fails otherwise.
        """
        self._measure_room()
        waited = False
        while self.batch_bytes + size_bytes > self.room_bytes:
            if self.failure:
                raise self.failure
            if self._no_segment is not None:
                if waited:
                    raise _refusal(self._no_segment)
                # That attempt was before this call, so try again.
                self._no_segment = None
                self._make_spare()
            self._room_made.clear()
            await self._room_made.wait()
            waited = True

    def append(self, rows: list[Record], size_bytes: int) -> asyncio.Future[None]:
        """Queue a commit with the next sequence number; the future is done when it is durable."""
        self.seq += 1
        self._commits.append(rows)
        self.batch_bytes += size_bytes
        return self.synced()

    def synced(self) -> asyncio.Future[None]:
        """A future that is done when all previous commits are durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.failure is not None:
            future.set_exception(self.failure)
            return future
        self._futures.append(future)
        if self._writing is not None or self._flush_planned:
            return future
        if self._lone_flushes >= _LONE_FLUSHES and self._alone():
            # Only one task commits at this time, so waiting for others would gain nothing.
            self._turn_commits += 1
            self.turn_is_over = self._turn_commits >= _TURN_COMMITS_MAX
            self._flush()
        else:
            # Other commits in this turn of the loop share the flush.
            self._flush_planned = True
            self._loop.call_soon(self._flush)
        return future

    def _alone(self) -> bool:
        """Whether the current task is the only one that commits in this turn of the loop."""
        task = asyncio.current_task()
        if self._turn_commits == 0:
            self._turn_task = task
            self._loop.call_soon(self._end_turn)
            return True
        if task is not self._turn_task:
            self._lone_flushes = 0
        return task is self._turn_task and not self.turn_is_over

    def _end_turn(self) -> None:
        self._turn_commits = 0
        self.turn_is_over = False
        self._turn_task = None

    def _flush(self) -> None:
        self._flush_planned = False
        if self._writing is not None or self.failure is not None:
            return
        futures, self._futures = self._futures, []
        commits, self._commits = self._commits, []
        self._lone_flushes = self._lone_flushes + 1 if len(futures) == 1 else 0
        if not commits:
            self._settle(futures, self.seq)
            return
        try:
            self._write_frame(commits, futures, self.seq)
        except Exception as error:
            self._fail(error, futures)

    def _write_frame(
        self, commits: list[list[Record]], futures: list[asyncio.Future[None]], seq: int
    ) -> None:
        before = self._journal.current
        segment, offset, frame = self._journal.place(seq - len(commits) + 1, commits)
        self.batch_bytes = 0
        # A lower bound; callers that need more space measure it.
        self.room_bytes -= segment.end - offset
        self._room_made.set()
        if segment is not before:
            self._measure_room()
            self._make_spare()
            self.segment_filled()
        if self._write_ns < limits.WRITE_INLINE_NS_MAX:
            self._write_ns += (self._write(segment, offset, frame) - self._write_ns) / 8
            self._settle(futures, seq)
        else:
            self._writing = self._loop.run_in_executor(
                self._background, self._write, segment, offset, frame
            )
            self._writing.add_done_callback(partial(self._written, futures=futures, seq=seq))

    def _write(self, segment: Segment, offset: int, frame: bytes) -> int:
        """Write a frame and return the duration in nanoseconds."""
        start_ns = self._elapsed_ns()
        self._journal.write(segment, offset, frame)
        return self._elapsed_ns() - start_ns

    def _written(
        self, done: "asyncio.Future[int]", futures: list[asyncio.Future[None]], seq: int
    ) -> None:
        self._writing = None
        error = done.exception()
        if error is not None:
            self._fail(error, futures)
            return
        self._write_ns += (done.result() - self._write_ns) / 8
        self._settle(futures, seq)
        if self._futures:
            self._flush()

    def _settle(self, futures: list[asyncio.Future[None]], seq: int) -> None:
        self.durable_seq = seq
        for future in futures:
            if not future.done():
                future.set_result(None)

    def _fail(self, error: BaseException, futures: list[asyncio.Future[None]]) -> None:
        """Stop permanently: after a failed write the content of the disk is unknown."""
        self.fail(
            EngineStopped(
                f"the journal could not be written ({error}). Pending commits may or may not "
                "have been applied. Stop the node; opening the database again recovers it."
            )
        )
        for future in futures:
            if not future.done():
                assert self.failure is not None
                future.set_exception(self.failure)

    def fail(self, failure: OncewardError) -> None:
        """Reject all further calls with this error."""
        self.failure = self.failure or failure
        for future in self._futures:
            if not future.done():
                future.set_exception(self.failure)
        self._futures.clear()
        self._room_made.set()

    def _measure_room(self) -> None:
        self.room_bytes = self._journal.room_bytes - _FRAME_OVERHEAD_BYTES
        self._room_made.set()

    def _make_spare(self) -> None:
        """Create the next segment in the background, so that it is ready when needed."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._making_spare is None and self._journal.spare is None and not self.failure:
            self._making_spare = self._loop.run_in_executor(
                self._background, self._journal.make_segment
            )
            self._making_spare.add_done_callback(self._spare_made)

    def _spare_made(self, done: "asyncio.Future[Segment]") -> None:
        self._making_spare = None
        error = done.exception()
        if error is None:
            self._journal.spare = done.result()
            self._no_segment = None
            self.segment_made(None)
        elif isinstance(error, OSError):
            self._no_segment = error
            self._retry = self._loop.call_later(_RETRY_S, self._make_spare)
            self.segment_made(error)
        else:
            self.fail(
                EngineStopped(
                    f"cannot create a journal segment ({error!r}). Check the disk, and restart the "
                    "node."
                )
            )
        self._measure_room()

    async def close(self) -> None:
        """Wait until all commits are durable and background work has ended."""
        if self.failure is None and self.durable_seq < self.seq:
            await asyncio.wait([self.synced()])
        # Even after a failure: no descriptor may be closed while a thread uses it.
        for pending in (self._writing, self._making_spare):
            if pending is not None:
                await asyncio.wait([pending])
        if self._retry is not None:
            self._retry.cancel()


def _refusal(error: OSError) -> Unavailable:
    """The error for a commit if no segment could be created for it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(
            f"not enough disk space for the journal ({error.strerror}). "
            "This commit was not applied. Free disk space."
        )
    return Unavailable(
        f"the journal is full, and no segment could be created ({error}). This commit "
        "was not applied. Check the disk, and retry.",
        code="overloaded" if error.errno in NONE_LEFT else "storage_failed",
    )
