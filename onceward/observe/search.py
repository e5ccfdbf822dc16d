"""Search through all jobs of a database, newest first.

Jobs stand in slots, and in each slot in the order of their ids, which is that of time. So the
newest of all are among the newest of each slot: those are read page by page and put in order.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from onceward import limits
from onceward.engine.base import Record
from onceward.errors import OncewardError
from onceward.job_options import NO_OPTIONS, JobOptions
from onceward.json_values import decode
from onceward.schedule import Dedupe, job_partition, state_of
from onceward.store import Store

_JOB = "#job"


class Line(msgspec.Struct):
    """What the roll knows of a job: all but what may be large."""

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

    @property
    def state(self) -> str:
        return state_of(self.stage, self.attempt)

    @property
    def key(self) -> str | None:
        return self.dedupe.key if self.dedupe else None


class Page(NamedTuple):
    """Jobs that fit, the newest first."""

    found: list[tuple[str, Line]]
    scanned: int
    """How many were read."""
    next: str | None
    """To go on before this one; None: there are no more."""


class _Slot:
    """Where the reading of a slot has come to."""

    def __init__(self, number: int, before: str | None) -> None:
        self.number = number
        self.before = before
        """The bound of what has not been read."""
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
    """The newest jobs that fit, made before the one with the id `before` if one is given. It
    ends when the time is over, too: then the page says where to go on."""
    reading = [_Slot(number, before) for number in range(slots)]
    held: list[Record] = []
    found: list[tuple[str, Line]] = []
    scanned, count = 0, max(most // slots, 4) * 3  # a job may have three records
    behind = before
    while True:
        # Only what is newer than all that may still come is in order.
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
        return None  # damaged: `onceward db check` tells of it
    return line
