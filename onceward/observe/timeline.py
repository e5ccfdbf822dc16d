"""The timeline of a job: what it waited for, its attempts and its steps, as spans of time.

It is made from the times in the job's record. Spans that the record does not contain, such as runs
before the last ones, are one span of the kind `unknown`.
"""

from collections.abc import Iterable, Iterator

from onceward import limits
from onceward.api.job_history import JobSpan
from onceward.api.jobs import ENDED
from onceward.schedule import Job
from onceward.schedule.records import Run
from onceward.work.steps import Steps

_RUNS = ("succeeded", "failed", "cancelled")


def timeline(job: Job, steps: Steps) -> list[JobSpan]:
    """The spans of a job by their start; those of steps after the attempt that contains them."""
    spans = [*_spans(job), *_steps(job, steps)]
    return sorted(spans, key=lambda span: span.start_ms)


def _spans(job: Job) -> Iterator[JobSpan]:
    runs = list(job.runs)
    if job.started_ms:
        how = "" if job.stage == "running" else job.stage
        runs.append(Run(job.attempt, job.due_ms, job.started_ms, job.ended_ms, how))
    at_ms, then = job.created_ms, "scheduled"
    if job.attempt + job.uncounted > len(runs):  # a record of an older node, or a long history
        first_ms = runs[0].started_ms if runs else job.ended_ms
        yield JobSpan("unknown", "", at_ms, first_ms)
        if not first_ms:
            return
        at_ms, then = first_ms, ""
    for run in runs:
        yield from _wait(job, then, at_ms, run.due_ms, run.started_ms)
        state = "released" if run.ended_ms and run.then not in _RUNS else run.then
        yield JobSpan("attempt", "", run.started_ms, run.ended_ms, run.attempt, state or "running")
        at_ms, then = run.ended_ms, run.then
    if job.started_ms or (job.stage in ENDED and job.stage != "cancelled"):
        return
    if job.stage == "cancelled" and then == "failed" and job.due_ms <= at_ms:
        yield JobSpan("failed", "", at_ms, job.ended_ms)
    elif job.stage == "cancelled":
        yield from _wait(job, then, at_ms, min(job.due_ms, job.ended_ms), job.ended_ms)
    elif job.stage in ("due", "waiting"):
        until_ms = job.due_ms if job.due_ms < limits.KEY_NUMBER_MAX else 0
        yield _pause(then, at_ms, 0, until_ms)
    else:
        yield from _wait(job, then, at_ms, job.due_ms, 0)


def _wait(job: Job, then: str, from_ms: int, due_ms: int, until_ms: int) -> Iterator[JobSpan]:
    """The time between two runs: what the job waited for, and then its queue."""
    if then == "failed":
        retries = [one.changed_ms for one in job.changes if one.kind == "retried"]
        retries += [one.settled_ms for one in job.settled]
        last_ms = until_ms or limits.KEY_NUMBER_MAX
        retried_ms = min((ms for ms in retries if from_ms <= ms <= last_ms), default=0)
        if retried_ms:
            yield JobSpan("failed", "", from_ms, retried_ms)
            from_ms = retried_ms
    if due_ms > from_ms:
        yield _pause(then, from_ms, due_ms)
        from_ms = due_ms
    if until_ms == 0 or until_ms > from_ms:
        yield JobSpan("queued", "", from_ms, until_ms)


def _pause(then: str, from_ms: int, to_ms: int, until_ms: int = 0) -> JobSpan:
    kind, _, name = then.partition(" ")
    kind = {"time": "sleep", "failed": "backoff", "": "scheduled"}.get(kind, kind)
    return JobSpan(kind, name, from_ms, to_ms, until_ms=until_ms)


def _steps(job: Job, steps: Steps) -> Iterable[JobSpan]:
    for effect in job.effects:
        if effect.kind == "step" and effect.started_ms:
            yield JobSpan("step", effect.name, effect.started_ms, effect.ended_ms, state="done")
    ends = [run.ended_ms for run in job.runs]
    for name, step in steps.items():
        if not step.started_ms:
            continue
        if step.done:
            yield JobSpan("step", name, step.started_ms, step.ended_ms, state="done")
        else:
            end_ms = min((end for end in ends if end >= step.started_ms), default=job.ended_ms)
            yield JobSpan("step", name, step.started_ms, end_ms, state="intended")
