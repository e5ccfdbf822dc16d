"""Group commit: writes all waiting commits as one frame with one durable write.

While the disk is quick, frames are written right in the event loop's thread: a hand-over
to another thread and back costs as much, and more when both fight for the interpreter.
When it is slow they are written in a helper thread, and the loop goes on meanwhile.
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

# A frame's own header and padding, and what msgpack adds to each row at the most.
_FRAME_OVERHEAD_BYTES = 1_024
ROW_OVERHEAD_BYTES = 40
# After so many flushes of a single commit, the next one does not wait for company.
_LONE_FLUSHES = 8
# How long after a segment could not be made the next attempt is, if no commit asks for it.
_RETRY_S = 1.0
# How many commits, each with its frame, a task may make before the loop gets its turn.
_TURN_COMMITS_MAX = 4


class Writer:
    """Appends commits to the journal in the order they come. Lives in the event loop."""

    def __init__(
        self, journal: Journal, last_seq: int, background: Executor, elapsed_ns: Callable[[], int]
    ) -> None:
        self.seq = last_seq
        """The sequence number of the last commit, durable or not."""
        self.durable_seq = last_seq
        self.failure: OncewardError | None = None
        self.segment_filled: Callable[[], None] = lambda: None
        self.segment_made: Callable[[OSError | None], None] = lambda error: None
        """Called after each attempt to make a segment, with the error if it failed."""
        self._journal = journal
        self._background = background
        self._elapsed_ns = elapsed_ns
        self._loop = asyncio.get_running_loop()
        self._commits: list[list[Record]] = []
        self._futures: list[asyncio.Future[None]] = []
        self.batch_bytes = 0
        """The size of the commits that wait for the next frame."""
        self.room_bytes = journal.room_bytes - _FRAME_OVERHEAD_BYTES
        """The next frame can hold so much at least."""
        self._room_made = asyncio.Event()
        self._no_segment: OSError | None = None
        """Why the last attempt to make a segment failed."""
        self._making_spare: asyncio.Future[Segment] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._lone_flushes = 0
        self.turn_is_over = False
        """Whether a task that commits alone has had its share of this turn of the loop."""
        self._turn_commits = 0
        self._turn_task: asyncio.Task[Any] | None = None
        self._writing: asyncio.Future[int] | None = None
        self._write_ns = 0.0
        self._make_spare()

    async def make_room(self, size_bytes: int) -> None:
        """Wait until the journal has room for so much; raises `StorageFull` if the disk has none,
        `Unavailable` if it fails otherwise."""
        self._measure_room()
        waited = False
        while self.batch_bytes + size_bytes > self.room_bytes:
            if self.failure:
                raise self.failure
            if self._no_segment is not None:
                if waited:
                    raise _refusal(self._no_segment)
                # That was before this call: it may be possible again.
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
        """A future that is done when all commits so far are durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self.failure is not None:
            future.set_exception(self.failure)
            return future
        self._futures.append(future)
        if self._writing is not None or self._flush_planned:
            return future
        if self._lone_flushes >= _LONE_FLUSHES and self._alone():
            # For a while nobody else has committed: there is no company to be waited for.
            self._turn_commits += 1
            self.turn_is_over = self._turn_commits >= _TURN_COMMITS_MAX
            self._flush()
        else:
            # Whatever else commits in this turn of the loop shares the flush.
            self._flush_planned = True
            self._loop.call_soon(self._flush)
        return future

    def _alone(self) -> bool:
        """Whether the task that commits now has this turn of the loop for itself."""
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
        # At least so much is left; whoever needs more measures it.
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
        """Write a frame, and say how many nanoseconds that took."""
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
        """After a failed write nobody can say what is on the disk: stop for good."""
        self.fail(
            EngineStopped(
                f"the journal could not be written ({error}). What was being committed may or "
                "may not be there. The node must stop; opening the database again finds out."
            )
        )
        for future in futures:
            if not future.done():
                assert self.failure is not None
                future.set_exception(self.failure)

    def fail(self, failure: OncewardError) -> None:
        """Refuse everything from now on with this error."""
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
        """Prepare the next segment in the background, so that it is there when needed."""
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
            self.fail(EngineStopped(f"no journal segment could be made ({error!r})"))
        self._measure_room()

    async def close(self) -> None:
        """Wait until what was appended is durable and nothing goes on in the background."""
        if self.failure is None and self.durable_seq < self.seq:
            await asyncio.wait([self.synced()])
        # Also after a failure: no descriptor may be closed while a thread still uses it.
        for pending in (self._writing, self._making_spare):
            if pending is not None:
                await asyncio.wait([pending])
        if self._retry is not None:
            self._retry.cancel()


def _refusal(error: OSError) -> Unavailable:
    """Why a commit is refused, if no segment could be made for it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(
            f"no space is left on the disk for the journal ({error.strerror}). "
            "This commit was not applied; free some space."
        )
    return Unavailable(
        f"the journal has no room, and no new segment could be made ({error}). "
        "This commit was not applied.",
        code="overloaded" if error.errno in NONE_LEFT else "storage_failed",
    )
