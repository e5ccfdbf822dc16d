"""Structs of operations on the output of jobs: progress, and chunks of a stream."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.api.messages import Token, WaitMs
from onceward.api.operation import Body, Query


class ReportOutput(Body):
    """The progress of a running job, and chunks of its stream."""

    token: Token
    """The token of the claimed job."""
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The progress, 0 to 1. By default, it stays as it is."""
    text: Annotated[str, Meta(max_length=limits.PROGRESS_TEXT_CHARS_MAX)] = ""
    """What the job does at the moment, for people; with `progress`."""
    chunks: list[Any] = msgspec.field(default_factory=list)
    """Chunks to append to the stream of the job: any JSON values."""
    first: Annotated[int, Meta(ge=0, le=limits.STREAM_BYTES_MAX)] = 0
    """How many chunks this attempt has sent before. A repeated request appends chunks once."""


class StoredOutput(msgspec.Struct):
    """What is stored of the output of a job."""

    bytes: int
    """The size of its stream: its chunks as JSON, with 16 more for each."""


class ReadOutput(Query):
    """Which output of a job to read."""

    after: Annotated[int, Meta(ge=0, le=limits.KEY_NUMBER_MAX)] = 0
    """The position of the reader: `seq` of the answer before; 0: the beginning."""
    state: str = ""
    """The state that the reader knows. Another one is news."""
    wait_ms: WaitMs = 0
    """How long to wait for news."""


class JobChunk(msgspec.Struct):
    """A chunk of the stream of a job."""

    seq: int
    """Its position. Positions increase, with gaps."""
    value: Any


class JobOutput(msgspec.Struct):
    """The progress of a job, and chunks of its stream."""

    state: str
    """The state of the job."""
    seq: int
    """The position after these chunks, for the parameter `after`."""
    more: bool
    """Whether there are more chunks."""
    restarted: int
    """If not 0, a later run of the handler has streamed from the beginning: drop all chunks before
    these."""
    attempt: int
    """The attempt that has streamed the chunks."""
    chunks: list[JobChunk]
    progress: float | None
    """The last progress, 0 to 1; null if there is none."""
    progress_text: str
    progress_seq: int
    """The position of the progress."""
    result: Any = None
    """The return value of the handler, once the job has succeeded."""
    reason: str = ""
    """Why the job has failed, is in doubt or was cancelled."""
