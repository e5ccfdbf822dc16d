"""Updates of a job for readers that follow it, from the answers of a server or a node."""

from typing import Any

import msgspec

from onceward.api.job_output import JobChunk, JobOutput
from onceward.api.jobs import ENDED


class JobUpdate(msgspec.Struct, frozen=True):
    """One update of a job, from `follow`."""

    kind: str
    """`state`: the state has changed. `progress`: the handler has reported progress. `chunk`: the
    handler has streamed a chunk. `restart`: the handler streams again from the beginning; drop all
    chunks so far. `end`: the job has ended; there are no further updates."""
    seq: int
    """The position after this update, to continue with `follow(id, after=seq)`."""
    state: str
    """The state of the job."""
    attempt: int = 0
    """The attempt that has streamed the chunk."""
    value: Any = None
    """The chunk."""
    progress: float | None = None
    """0 to 1."""
    text: str = ""
    """The text of the progress."""
    result: Any = None
    """The result of a job that has succeeded."""
    reason: str = ""
    """Why the job has failed, is in doubt or was cancelled."""


def updates_of(found: JobOutput, after: int, known: str) -> list[JobUpdate]:
    """The updates in an answer to a reader that is at a position and knows a state."""
    updates: list[JobUpdate] = []
    state, seq = found.state, after
    ended = state in ENDED and not found.more
    if state != known and not ended:
        updates.append(JobUpdate("state", seq, state))
    progress = _progress(found, after)
    if progress is not None and progress.seq < found.restarted:
        updates.append(progress)
        progress = None
    if found.restarted:
        seq = found.restarted
        updates.append(JobUpdate("restart", seq, state, found.attempt))
    for chunk in found.chunks:
        if progress is not None and progress.seq < chunk.seq:
            updates.append(progress)
            progress = None
        updates.append(_chunk(chunk, found))
    if progress is not None:
        updates.append(progress)
    if ended:
        end = JobUpdate("end", found.seq, state, result=found.result, reason=found.reason)
        updates.append(end)
    return updates


def _progress(found: JobOutput, after: int) -> JobUpdate | None:
    if not after < found.progress_seq <= found.seq:
        return None
    seq, share, text = found.progress_seq, found.progress, found.progress_text
    return JobUpdate("progress", seq, found.state, progress=share, text=text)


def _chunk(chunk: JobChunk, found: JobOutput) -> JobUpdate:
    return JobUpdate("chunk", chunk.seq, found.state, found.attempt, chunk.value)
