"""The timeline and the children of a job as text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from onceward.api.job_history import JobChild, JobChildCounts, JobEffect, JobSpan
from onceward.api.jobs import ENDED, Job
from onceward.errors import OncewardError

if TYPE_CHECKING:
    from onceward.cli.client import RecordingClient

_CHILDREN = 20
_BAR = 24
_KINDS = {
    "scheduled": "delay",
    "queued": "in the queue",
    "backoff": "pause before the retry",
    "failed": "failed, until a retry",
    "unknown": "not in the history",
}


class JobReport(msgspec.Struct):
    """A job, what its time was spent on, and the jobs above and below it."""

    job: Job
    now_ms: int
    timeline: list[JobSpan] = []
    parent: JobEffect | None = None
    counts: JobChildCounts | None = None
    children: list[JobChild] = []
    """Some of its children, failed ones first."""

    @property
    def state(self) -> str:
        return self.job.state


async def report(client: "RecordingClient", job: Job) -> JobReport:
    """Read what a report needs. Senders may not see children of their jobs."""
    history = await client.jobs.history(job.id)
    found = JobReport(job, client.clock.now_ms(), history.timeline, history.parent)
    try:
        found.counts = await client.jobs.count_children(job.id)
    except OncewardError as error:
        if error.code != "no_such_job":
            raise
        return found
    for state in ("failed", "cancelled", "open", "succeeded"):
        left = _CHILDREN - len(found.children)
        if left and found.counts.total:
            page = await client.jobs.children(job.id, state=state, limit=left)
            found.children += page.children
    return found


def span_rows(found: JobReport) -> Iterator[tuple[int, str, int, str]]:
    """The start of each span after that of the job, its name, its duration, and a bar."""
    start_ms = found.job.created_ms
    now_ms = max([found.now_ms, *(span.start_ms for span in found.timeline)])
    ends = [span.end_ms or now_ms for span in found.timeline]
    whole_ms = max([found.job.ended_ms or now_ms, *ends]) - start_ms or 1
    for span, end_ms in zip(found.timeline, ends, strict=True):
        first = min(_BAR * (span.start_ms - start_ms) // whole_ms, _BAR - 1)
        width = max(round(_BAR * (end_ms - span.start_ms) / whole_ms), 1)
        bar = " " * first + ("#" if span.kind in ("attempt", "step") else "-") * width
        yield span.start_ms - start_ms, _name(span), end_ms - span.start_ms, bar[:_BAR]


def _name(span: JobSpan) -> str:
    if span.kind == "attempt":
        state = {"released": "then waited", "running": "running"}.get(span.state, span.state)
        return f"attempt {span.attempt}, {state}"
    if span.kind == "step":
        return f"  step {span.name!r}{'' if span.state == 'done' else ', outcome unknown'}"
    if span.kind == "event":
        return f"event {span.name!r}"
    if span.kind == "children":
        return f"children of call {span.name}"
    return _KINDS.get(span.kind, span.kind)


def waits_for(found: JobReport) -> str:
    """What the job waits for without a worker; empty if it does not."""
    job = found.job
    if job.state != "waiting":
        return ""
    kind, _, name = job.waits.partition(" ")
    if kind != "children":
        return f"the event {name!r}"
    text = f"its children (call {name})"
    if found.counts is None:
        return text
    ended = sum(count for state, count in found.counts.states.items() if state in ENDED[:2])
    ended += found.counts.states.get("cancelled", 0)
    return f"{text}: {found.counts.total - ended:,} of {found.counts.total:,} have not ended"
