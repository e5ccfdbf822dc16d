"""Search through all jobs of a database, newest first.

Jobs are stored in slots, ordered by id and therefore by time. The newest jobs of all are among the
newest of each slot. The search reads pages of each slot and merges them.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from onceward import limits
from onceward.api.jobs import JobSummary
from onceward.engine.base import Record
from onceward.errors import OncewardError
from onceward.job_options import NO_OPTIONS, JobOptions, shown_options
from onceward.json_values import decode
from onceward.schedule import Dedupe, job_partition, state_of
from onceward.schedule.records import Run
from onceward.store import Store
from onceward.work.output import NONE_REPORTED, Reported, progress_of

_JOB = "#job"
_REASON_CHARS = 300


class Line(msgspec.Struct):
    """The fields of a job in search results, without large ones."""

    queue: str
    stage: str
    created_ms: int
    due_ms: int = 0
    options: JobOptions = NO_OPTIONS
    attempts_max: int = 0
    attempt: int = 0
    worker: str = ""
    reason: str = ""
    dedupe: Dedupe | None = None
    ended_ms: int = 0
    caller: str = ""
    started_ms: int = 0
    runs: list[Run] = []
    output: bool = False

    @property
    def last_started_ms(self) -> int:
        """The start of the current or last run; 0 without one."""
        return self.started_ms or (self.runs[-1].started_ms if self.runs else 0)

    @property
    def state(self) -> str:
        return state_of(self.stage, self.attempt)

    @property
    def key(self) -> str | None:
        return self.dedupe.key if self.dedupe else None


class Page(NamedTuple):
    """A page of matching jobs, newest first."""

    found: list[tuple[str, Line]]
    scanned: int
    """The number of jobs read."""
    next: str | None
    """The cursor of the next page; None at the end."""


class _Slot:
    """The progress of reading a slot."""

    def __init__(self, number: int, before: str | None) -> None:
        self.number = number
        self.before = before
        """The upper bound of the unread records."""
        self.more = True

    async def read(self, store: Store, count: int) -> list[Record]:
        page = await store.engine.scan(
            job_partition(self.number),
            store.clock.now_ms(),
            end=self.before,
            limit=count,
            reverse=True,
            skip_damaged=True,
        )
        self.more = len(page) == count
        if page:
            self.before = page[-1].key[1]
        return [record for record in page if record.key[1].endswith(_JOB)]


async def newest(
    store: Store,
    slots: int,
    fits: Callable[[str, Line], bool],
    *,
    before: str | None = None,
    most: int = limits.PAGE_JOBS,
    until_ns: int,
) -> Page:
    """The newest matching jobs, older than the job `before` if given. At `until_ns` the search
    returns an incomplete page with a cursor."""
    reading = [_Slot(number, before) for number in range(slots)]
    held: list[Record] = []
    found: list[tuple[str, Line]] = []
    scanned, count = 0, max(most // slots, 4) * 3  # a job may have three records
    behind = before
    while True:
        # Only records that are newer than all unread ones are in their final order.
        horizon = max((slot.before or "\U0010ffff" for slot in reading if slot.more), default="")
        held.sort(key=_sort, reverse=True)
        ready = [record for record in held if record.key[1] >= horizon]
        del held[: len(ready)]
        for record in ready:
            behind = record.key[1].removesuffix(_JOB)
            scanned += 1
            line = _line(record)
            if line is not None and fits(behind, line):
                found.append((behind, line))
                if len(found) == most:
                    return Page(found, scanned, behind)
        if not any(slot.more for slot in reading):
            return Page(found, scanned, None)
        if store.clock.elapsed_ns() >= until_ns and scanned:
            return Page(found, scanned, behind)
        asked = [slot for slot in reading if slot.more and (slot.before or horizon) >= horizon]
        pages = await asyncio.gather(*[slot.read(store, count) for slot in asked])
        held += [record for page in pages for record in page]
        count = limits.ROLL_RECORDS


def _sort(record: Record) -> str:
    return record.key[1]


def _line(record: Record) -> Line | None:
    try:
        line: Line = decode(record.value, Line, record.key)
    except OncewardError:
        return None  # damaged: `onceward db check` reports it
    return line


async def summaries(store: Store, found: Sequence[tuple[str, Line]]) -> list[JobSummary]:
    """Jobs as lists show them."""
    reported = [id_ for id_, line in found if line.output]
    progress = await store.run(lambda tx: progress_of(tx, reported)) if reported else {}
    return [_summary(id_, line, progress.get(id_, NONE_REPORTED)) for id_, line in found]


def _summary(id_: str, line: Line, reported: Reported) -> JobSummary:
    return JobSummary(
        id_,
        line.queue,
        line.state,
        line.key,
        line.caller,
        line.created_ms,
        line.due_ms,
        line.ended_ms,
        line.attempt,
        line.worker,
        line.reason[:_REASON_CHARS],
        reported.progress,
        reported.text,
        **shown_options(line.options, line.attempts_max),
    )
