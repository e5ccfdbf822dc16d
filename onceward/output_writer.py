"""The output of one run of a handler: its progress and its stream, written in the background."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from onceward import keys, limits
from onceward.clock import Clock
from onceward.errors import BadInput, OncewardError, OutcomeUnknown, TooLarge
from onceward.json_values import admit_json, encode

logger = logging.getLogger("onceward")

_CHUNK = "chunk of the stream"


class Progress(NamedTuple):
    """What a handler has reported."""

    share: float
    """0 to 1."""
    text: str


class Chunk(NamedTuple):
    """A chunk of a stream."""

    value: Any
    step: str
    """The step that has streamed it; empty: the handler itself."""


Write = Callable[[int, list[Chunk], Progress | None], Awaitable[int]]
"""Stores chunks, the first of which has this number among those of the run, and a progress. A
repeat stores them once. Returns the size of the stream."""


def admit_progress(fraction: Any, text: Any = None) -> Progress:
    """Raise `BadInput` for values that are no progress."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float):
        raise BadInput(f"a progress must be a number from 0 to 1, not {str(fraction)[:100]!r}")
    if not math.isfinite(fraction) or not 0 <= fraction <= 1:
        raise BadInput(f"a progress must be 0 to 1, not {fraction}")
    if text is None:
        text = ""
    if not isinstance(text, str):
        raise BadInput(f"the text of a progress must be text, not {type(text).__name__}")
    keys.admit_text(text, "the text of a progress")
    if len(text) > limits.PROGRESS_TEXT_CHARS_MAX:
        raise BadInput(
            f"the text of a progress must have at most {limits.PROGRESS_TEXT_CHARS_MAX} "
            f"characters, not {len(text)}: {text[:40]!r}…"
        )
    return Progress(float(fraction), text)


def size_of(chunk: Any, step: str = "") -> int:
    """The size of a chunk as it is stored. Raises `BadInput` for values that are no chunk."""
    try:
        size_bytes = len(encode(chunk, ("", _CHUNK)))
    except BadInput:
        admit_json(chunk, _CHUNK)
        raise
    if size_bytes > limits.CHUNK_BYTES_MAX:
        raise TooLarge(
            f"a chunk of a stream must have at most {limits.CHUNK_BYTES_MAX} bytes as JSON, not "
            f"{size_bytes}; stream it in several chunks",
            code="value_too_large",
        )
    step_bytes = len(encode(step, ("", _CHUNK))) if step else 0
    return size_bytes + step_bytes + limits.CHUNK_HEAD_BYTES


def full(size_bytes: int) -> TooLarge:
    """The error for a stream that would have this size."""
    return TooLarge(
        f"the stream of a job must have at most {limits.STREAM_BYTES_MAX} bytes as JSON, with "
        f"{limits.CHUNK_HEAD_BYTES} more for each chunk, not {size_bytes}; stream less, in "
        "larger chunks, and return the whole as the result or store it yourself",
        code="stream_full",
    )


class OutputWriter:
    """The progress and the stream of one run of a handler.

    Values wait for the next commit: the first one at once, later ones in intervals. `flush` stores
    the rest. After an error that a repeat cannot solve, all calls raise it.
    """

    def __init__(self, write: Write, clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._progress: Progress | None = None
        self._chunks: list[Chunk] = []
        self._first = 0
        self._waiting_bytes = 0
        self._stored_bytes = 0
        self._wrote_ns = 0
        """When the last commit ended; 0 before the first."""
        self._timer: asyncio.TimerHandle | None = None
        self._hurries = False
        """Whether the timer is for chunks."""
        self._writing: asyncio.Task[OncewardError | None] | None = None
        self._error: OncewardError | None = None

    def progress(self, fraction: Any, text: Any = None) -> None:
        """Report progress. Raises `BadInput`, `StaleToken`."""
        progress = admit_progress(fraction, text)
        self._go_on()
        self._progress = progress
        self._plan()

    async def stream(self, chunk: Any, step: str = "") -> None:
        """Append a chunk. Waits while too many bytes wait for a commit. Raises `BadInput`,
        `TooLarge`, `StaleToken`."""
        size_bytes = size_of(chunk, step)
        self._go_on()
        if self._stored_bytes + self._waiting_bytes + size_bytes > limits.STREAM_BYTES_MAX:
            raise full(self._stored_bytes + self._waiting_bytes + size_bytes)
        self._chunks.append(Chunk(chunk, step))
        self._waiting_bytes += size_bytes
        if self._waiting_bytes > limits.CHUNKS_WAITING_BYTES:
            await self.flush()
        else:
            self._plan()

    async def flush(self) -> None:
        """Store what is not stored yet. Raises the error if chunks cannot be stored."""
        while self._chunks or self._progress is not None or self._writing is not None:
            self._stop_timer()
            if self._writing is None:
                self._begin()
            assert self._writing is not None
            trouble = await asyncio.shield(self._writing)
            if trouble is not None and not self._chunks:
                self._progress = None  # not worth the failure of an attempt
            elif trouble is not None:
                raise trouble
        self._go_on()

    def close(self) -> None:
        """Drop what is not stored. Idempotent."""
        self._stop_timer()
        self._chunks, self._progress = [], None
        if self._writing is not None:
            self._writing.cancel()

    def _go_on(self) -> None:
        if self._error is not None:
            raise self._error

    def _plan(self) -> None:
        """Write in time; a chunk sooner than a progress."""
        if self._writing is not None:
            return  # plans again at its end
        if self._timer is not None and (self._hurries or not self._chunks):
            return
        self._stop_timer()
        self._hurries = bool(self._chunks)
        pause_s = limits.STREAM_S if self._hurries else limits.PROGRESS_S
        if self._wrote_ns:
            pause_s -= (self._clock.elapsed_ns() - self._wrote_ns) / 1e9
        else:
            pause_s = 0.0
        self._timer = self._loop.call_later(max(pause_s, 0.0), self._begin)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        if not self._chunks and self._progress is None:
            return
        self._writing = self._loop.create_task(self._work(), name="onceward-output")

    async def _work(self) -> OncewardError | None:
        """Write what waits; returns the error if it was not written."""
        chunks, progress = list(self._chunks), self._progress
        size_bytes = self._waiting_bytes
        try:
            self._stored_bytes = await self._write(self._first, chunks, progress)
        except Exception as error:
            self._rest()
            return self._failed(error)
        except asyncio.CancelledError:
            self._rest()
            raise
        self._rest()
        del self._chunks[: len(chunks)]
        self._first += len(chunks)
        self._waiting_bytes -= size_bytes
        if self._progress is progress:
            self._progress = None
        if self._chunks or self._progress is not None:
            self._plan()
        return None

    def _rest(self) -> None:
        self._writing = None
        self._wrote_ns = max(self._clock.elapsed_ns(), 1)

    def _failed(self, error: Exception) -> OncewardError | None:
        if isinstance(error, OncewardError) and (
            error.kind.retry or isinstance(error, OutcomeUnknown)
        ):
            self._plan()
            return error
        if not isinstance(error, OncewardError):
            logger.error("cannot store the output of a job: %s", error, exc_info=error)
            error = OncewardError(
                f"cannot store the output of the job: {error}. Check the database", code="internal"
            )
        self._error = error
        self._chunks, self._progress = [], None
        return None
