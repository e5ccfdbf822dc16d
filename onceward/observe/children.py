"""The children of a job as others see them: pages of them, and their number in each state."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from onceward import keys, limits
from onceward.api.job_history import JobChild, JobChildCounts
from onceward.observe.search import Line
from onceward.schedule import Job, job_key
from onceward.schedule.children import PastChild, family_partition, past_partition
from onceward.store.transaction import Transaction

_PAGE = 400
_REASON_CHARS = 300
_OPEN = "open"


class _Row(msgspec.Struct):
    """What is needed of the record of a family or a child, which may contain a large result."""

    id: str = ""
    state: str = ""
    reason: str = ""
    total: int = 0


class Entry(NamedTuple):
    """A child of a job."""

    place: str
    """The number of the call and the position in it, as text that sorts in their order."""
    id: str
    state: str
    """The state in which it ended, or `open`."""
    reason: str = ""


async def page(
    tx: Transaction, id_: str, job: Job, after: str, limit: int, fits: Callable[[Entry], bool]
) -> tuple[list[JobChild], str | None]:
    """Children that fit, and the place after which the next page begins."""
    found: list[Entry] = []
    if job.stage in ("succeeded", "cancelled"):
        found = [one for one in await _past(tx, id_) if one.place > after and fits(one)]
        place = found[limit - 1].place if len(found) > limit else None
        return await _shown(tx, found[:limit]), place
    for _ in range(limits.FAMILY_READ_MAX // _PAGE):
        rows, more = await _present(tx, id_, after)
        for entry, _ in rows:
            if entry.id and fits(entry):
                found.append(entry)
                if len(found) == limit:
                    return await _shown(tx, found), entry.place
        if not more:
            return await _shown(tx, found), None
        after = rows[-1][0].place
    return await _shown(tx, found), after


async def counts(tx: Transaction, id_: str, job: Job) -> JobChildCounts:
    """The number of children in each state. If many have not ended, these are counted together as
    `open`."""
    if job.stage in ("succeeded", "cancelled"):
        past = await _past(tx, id_)
        return JobChildCounts(len(past), dict(Counter(one.state for one in past)))
    found: Counter[str] = Counter()
    total, after, more = 0, "", True
    some: list[str] = []
    while more:
        rows, more = await _present(tx, id_, after)
        for entry, children in rows:
            total += children
            if entry.id:
                found[entry.state] += 1
                if entry.state == _OPEN and len(some) <= limits.FAMILY_STATES_MAX:
                    some.append(entry.id)
        after = rows[-1][0].place if rows else after
    if found[_OPEN] <= limits.FAMILY_STATES_MAX:
        del found[_OPEN]
        found.update(line.state for line in await _lines(tx, some) if line is not None)
    return JobChildCounts(total, dict(found))


async def _present(tx: Transaction, id_: str, after: str) -> tuple[list[tuple[Entry, int]], bool]:
    """Entries of children and of families, each with the number of children of the family, and
    whether there are more."""
    start, end = keys.below(id_)
    start = keys.after(f"{id_}#{after}") if after else start
    rows = await tx.scan(
        family_partition(id_), _Row, start=start, end=end, limit=_PAGE, skip_damaged=True
    )
    found = [
        (
            Entry(
                row.key[1].partition("#")[2],
                row.value.id,
                row.value.state or _OPEN,
                row.value.reason,
            ),
            row.value.total,
        )
        for row in rows
    ]
    return found, len(rows) == _PAGE


async def _past(tx: Transaction, id_: str) -> list[Entry]:
    """The children of a job that has ended, also those whose entries are not yet replaced."""
    start, end = keys.below(id_)
    rows = []
    while True:
        some = await tx.scan(
            past_partition(id_),
            list[PastChild],
            start=start,
            end=end,
            limit=_PAGE,
            skip_damaged=True,
        )
        rows += some
        if len(some) < _PAGE:
            break
        start = keys.after(some[-1].key[1])
    found = {}
    for row in sorted(rows, key=lambda row: row.key[1].rpartition("#")[2]):
        number = row.key[1].split("#")[1]
        for child in row.value:
            place = f"{number}#{child.index:06d}"
            found[place] = Entry(place, child.id, child.state)
    after, more = "", True
    while more:
        present, more = await _present(tx, id_, after)
        for entry, _ in present:
            after = entry.place
            if entry.id:
                found.setdefault(after, entry)
    return sorted(found.values())


async def _lines(tx: Transaction, ids: Sequence[str]) -> list[Line | None]:
    found: list[Line | None] = []
    for first in range(0, len(ids), limits.PAGE_JOBS):
        some = [job_key(id_) for id_ in ids[first : first + limits.PAGE_JOBS]]
        found += await tx.get_many(some, Line)
    return found


async def _shown(tx: Transaction, entries: Sequence[Entry]) -> list[JobChild]:
    lines = await _lines(tx, [entry.id for entry in entries])
    found = []
    for entry, line in zip(entries, lines, strict=True):
        call, index = map(int, entry.place.split("#"))
        reason = entry.reason[:_REASON_CHARS]
        if line is None:  # its retention is over
            state = "gone" if entry.state == _OPEN else entry.state
            found.append(JobChild(entry.id, call, index, "", state, reason))
            continue
        reason = reason or line.reason[:_REASON_CHARS]
        times = line.created_ms, line.last_started_ms, line.ended_ms
        found.append(JobChild(entry.id, call, index, line.queue, line.state, reason, *times))
    return found
