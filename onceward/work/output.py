"""The output of jobs: the last progress, and a stream of chunks.

The record of a job's output has its progress and the last chunks. Full pages of chunks are records
of their own. A *run* is one run of a handler from its beginning. The first chunk of a run replaces
the stream, except for chunks of recorded steps, which do not run again: those are appended again.
So a stream is always that of one run, and readers at an older position start again.

Chunks have a number in their run, so a repeated append adds them once. Progress and chunks share
positions: a reader needs one number. A due entry removes the output with the job.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from onceward import keys, limits
from onceward.api.job_output import JobChunk, JobOutput
from onceward.engine.base import Record
from onceward.engine.invariants import Lookup, Rule, value_of
from onceward.errors import BadInput, StaleToken
from onceward.json_values import encode
from onceward.keys import Key
from onceward.output_writer import Chunk, Progress, full, size_of
from onceward.schedule import Schedule, job_key, slot_of
from onceward.schedule.records import Job, output_key
from onceward.store.transaction import Row, Transaction

# Each page but the last has at least its bytes of the whole.
_PAGES_MAX = limits.STREAM_BYTES_MAX // limits.STREAM_PAGE_BYTES + 2
FORGET_WRITES = _PAGES_MAX + 2


class Streamed(msgspec.Struct, array_like=True, frozen=True):
    """A chunk of a stream."""

    seq: int
    value: Any
    step: str = ""
    """The step that has streamed it; empty: the handler itself."""


class Output(msgspec.Struct, omit_defaults=True):
    """The output of a job."""

    seq: int = 0
    """The last position."""
    progress: float | None = None
    text: str = ""
    progress_seq: int = 0
    token: str = ""
    """The token of the attempt that streams, or has streamed last."""
    run: int = 0
    """The number of the run in that attempt."""
    attempt: int = 0
    start: int = 0
    """The position of the last restart of the stream."""
    chunks: int = 0
    """The number of chunks of the run, without those of earlier ones."""
    bytes: int = 0
    """The size of all chunks."""
    tail: list[Streamed] = []
    """The last chunks; those before are in pages."""


class Reported(msgspec.Struct, frozen=True):
    """The progress of a job, without its chunks."""

    progress: float | None = None
    text: str = ""


NONE_REPORTED: Final = Reported()


class Run(NamedTuple):
    """One run of a handler."""

    token: str
    number: int = 0
    """Its number in the attempt."""
    steps: Collection[str] = ()
    """The recorded steps at its beginning, which do not run again."""


def page_key(id_: str, seq: int) -> Key:
    """The key of the page that ends at a position."""
    return page_partition(slot_of(id_)), f"{id_}#{keys.number(seq)}"


def page_partition(slot: int) -> str:
    return f"output#{slot:04d}"


async def report(
    tx: Transaction,
    schedule: Schedule,
    id_: str,
    run: Run,
    first: int,
    chunks: Sequence[Chunk],
    progress: Progress | None,
) -> int:
    """Store progress and chunks of a run; returns the size of the stream.

    `first` is the number of the first chunk in the run: those that are stored already are skipped.
    Raises `StaleToken`, `NoSuchJob`, `BadInput` and `TooLarge`.
    """
    job = await schedule.held(tx, id_, run.token)
    output = await tx.get(output_key(id_), Output) or Output()
    if output.token == run.token and output.run > run.number:
        raise StaleToken(
            f"the handler of job {id_} has started again; stop this attempt",
            id=id_,
            state=job.state,
        )
    if not job.output:
        job.output = True  # so that the record is removed with the job
        tx.put(job_key(id_), job)
    if progress is not None:
        output.seq += 1
        output.progress, output.text = progress
        output.progress_seq = output.seq
    if chunks:
        if (output.token, output.run) != (run.token, run.number):
            await _restart(tx, id_, output, run, job.attempt)
        if first > output.chunks:
            raise BadInput(
                f"chunk {first} of the stream of job {id_} comes after {output.chunks} stored "
                "ones; send the chunks in order, without gaps"
            )
        added = chunks[output.chunks - first :]
        output.chunks += len(added)
        _append(tx, id_, output, added)
        if output.bytes > limits.STREAM_BYTES_MAX:
            raise full(output.bytes)
    tx.put(output_key(id_), output)
    return output.bytes


async def _restart(tx: Transaction, id_: str, output: Output, run: Run, attempt: int) -> None:
    """Begin the stream of a run, with the chunks of recorded steps."""
    kept: list[Chunk] = []
    if output.token:
        for page in await _pages(tx, id_, 0, _PAGES_MAX):
            kept += _of_steps(page.value, run.steps)
            tx.delete(page.key)
        kept += _of_steps(output.tail, run.steps)
        output.seq += 1
        output.start = output.seq
    output.token, output.run, output.attempt = run.token, run.number, attempt
    output.chunks, output.bytes, output.tail = 0, 0, []
    _append(tx, id_, output, kept)


async def _pages(tx: Transaction, id_: str, after: int, most: int) -> list[Row[list[Streamed]]]:
    """The first pages with chunks after a position."""
    partition, start = page_key(id_, after + 1)
    end = keys.below(id_)[1]
    return await tx.scan(partition, list[Streamed], start=start, end=end, limit=most)


def _of_steps(chunks: Sequence[Streamed], steps: Collection[str]) -> list[Chunk]:
    return [Chunk(one.value, one.step) for one in chunks if one.step in steps]


def _append(tx: Transaction, id_: str, output: Output, chunks: Sequence[Chunk]) -> None:
    tail_bytes = len(encode(output.tail, output_key(id_)))
    for chunk in chunks:
        output.seq += 1
        output.tail.append(Streamed(output.seq, chunk.value, chunk.step))
        size_bytes = size_of(chunk.value, chunk.step)
        output.bytes += size_bytes
        tail_bytes += size_bytes
        if tail_bytes >= limits.STREAM_PAGE_BYTES:
            tx.add(page_key(id_, output.seq), output.tail)
            output.tail, tail_bytes = [], 0


async def read(tx: Transaction, id_: str, job: Job, after: int) -> JobOutput:
    """The output of a job for a reader at a position. Raises `BadInput` for a position that the
    job has not reached."""
    output = await tx.get(output_key(id_), Output) if job.output else None
    output = output or Output()
    if after > output.seq:
        raise BadInput(
            f"the output of job {id_} has no position {after}: it ends at {output.seq}. Start at 0."
        )
    since = max(after, output.start)
    pages = await _pages(tx, id_, since, limits.STREAM_PAGES)
    more = len(pages) == limits.STREAM_PAGES
    found = [one for page in pages for one in page.value]
    if not more:
        found += output.tail
    chunks = [JobChunk(one.seq, one.value) for one in found if one.seq > since]
    return JobOutput(
        state=job.state,
        seq=chunks[-1].seq if more else output.seq,
        more=more,
        restarted=output.start if 0 < after < output.start else 0,
        attempt=output.attempt,
        chunks=chunks,
        progress=output.progress,
        progress_text=output.text,
        progress_seq=output.progress_seq,
        result=job.result if job.stage == "succeeded" else None,
        reason=job.reason if job.stage in ("failed", "in_doubt", "cancelled") else "",
    )


async def reported_of(tx: Transaction, id_: str, job: Job) -> Reported:
    """The last progress of a job."""
    return (await progress_of(tx, [id_] if job.output else [])).get(id_, NONE_REPORTED)


async def progress_of(tx: Transaction, ids: Sequence[str]) -> dict[str, Reported]:
    """The last progress of jobs that have reported any."""
    found = await tx.get_many([output_key(id_) for id_ in ids], Reported) if ids else []
    return {id_: one for id_, one in zip(ids, found, strict=True) if one is not None}


async def forget(tx: Transaction, entry: Key) -> None:
    """Act on a due entry: remove the output of a job whose retention has ended."""
    if not await tx.has(entry):
        return
    tx.delete(entry)
    id_ = entry[1].split("#")[1]
    for page in await _pages(tx, id_, 0, _PAGES_MAX):
        tx.delete(page.key)
    tx.delete(output_key(id_))


def _judge(record: Record, get: Lookup) -> Iterator[str]:
    id_, _, what = record.key[1].partition("#")
    if record.key[0].startswith("output#"):
        yield from _judge_page(record, id_, value_of(get(output_key(id_)), Output))
        return
    if what != "output":
        return
    output = value_of(record, Output)
    job = value_of(get(job_key(id_)), Job)
    if output is None:
        yield "not the output of a job"
    elif job is not None and not job.output:
        yield f"job {id_} does not refer to its output, which would not be removed"
    elif any(one.seq > output.seq for one in output.tail):
        yield f"the last position is {output.seq}, but there are later chunks"


def _judge_page(record: Record, id_: str, output: Output | None) -> Iterator[str]:
    page = value_of(record, list[Streamed])
    if page is None or not page or page_key(id_, page[-1].seq) != record.key:
        yield "not a page of a stream"
    elif output is None:
        yield f"the output of job {id_} is missing"
    elif not output.start < page[0].seq <= page[-1].seq <= output.seq:
        yield f"the page is not part of the stream of job {id_}"


RULES = [Rule("job", _judge), Rule("output", _judge)]
