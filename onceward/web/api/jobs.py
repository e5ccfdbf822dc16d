"""HTTP functions for jobs: claims and results of workers, changes by operators."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import asdict

from onceward import limits
from onceward.api import jobs as api
from onceward.api.job_history import (
    JobAttempt,
    JobChange,
    JobChildCounts,
    JobEffect,
    JobSettlement,
    JobStep,
)
from onceward.api.job_output import JobOutput, ReadOutput, ReportOutput, StoredOutput
from onceward.api.messages import Wait
from onceward.callers import Caller
from onceward.errors import BadInput, NoSuchJob
from onceward.job_options import shown_options
from onceward.observe import children, search
from onceward.observe.search import Line
from onceward.observe.timeline import timeline
from onceward.output_writer import Chunk, admit_progress, full, size_of
from onceward.reasons import traceback_text
from onceward.schedule import (
    COMPLETE_WRITES,
    FAMILY_WRITES,
    Accepted,
    Claim,
    Effect,
    Job,
    job_key,
    lease_key,
)
from onceward.schedule.records import ErrorDetails, Lease, due_ms_of
from onceward.schedule.transitions import AFTER_PAUSE, RetryAt
from onceward.store import Transaction
from onceward.tracing import Trace
from onceward.web.calls import Call, binder
from onceward.web.routes import Route
from onceward.work import events, output, steps
from onceward.work.failures import hidden
from onceward.work.inbox import admit_key, dedupe_key
from onceward.work.internal_queues import may_enter
from onceward.work.job import later_ms
from onceward.work.links import new_link
from onceward.work.output import NONE_REPORTED, Reported, Run, reported_of

_NULL = Raw(b"null")

ROUTES: list[Route] = []
answers = binder(ROUTES)


def shown_result(state: str, result: Any) -> Any:
    """The result of a job if it has succeeded; null is a valid result."""
    if state != "succeeded":
        return None
    return _NULL if result is None else result


def view(id_: str, job: Job, reported: Reported = NONE_REPORTED) -> api.Job:
    """The response about a job."""
    return api.Job(
        id_,
        job.queue,
        job.state,
        job.body,
        job.created_ms,
        job.due_ms,
        job.attempt,
        job.dedupe.key if job.dedupe else None,
        shown_result(job.state, job.result),
        job.reason,
        job.ended_ms,
        job.worker,
        job.waits,
        job.parent.id if job.parent is not None else "",
        reported.progress,
        reported.text,
        [JobAttempt(**asdict(attempt)) for attempt in job.history],
        [msgspec.convert(one, JobSettlement, from_attributes=True) for one in job.settled],
        _changes(job),
        **shown_options(job.options, job.attempts_max),
    )


def _changes(job: Job) -> list[JobChange]:
    """Retries, settlements and cancellations, in the order of time."""
    found = [JobChange(one.changed_ms, one.kind, one.by, one.reason) for one in job.changes]
    for one in job.settled:
        done = "done" if one.done else "not done"
        event = JobChange(one.settled_ms, "settled", one.by, one.reason, one.step, done)
        found.append(event)
    return sorted(found, key=lambda event: event.at_ms)


@answers(api.CLAIM)
async def claim(call: Call, queue: str, asked: api.ClaimJobs) -> api.ClaimedJobs:
    claiming = call.app.claim(
        queue,
        asked.worker or call.caller.user,
        lease_s=asked.lease_ms / 1000,
        max=asked.max,
        wait_s=asked.wait_ms / 1000,
    )
    give_back = partial(call.app.node.claims.give_back, queue)
    claims = await (call.patiently(claiming, give_back) if asked.wait_ms else claiming)
    return api.ClaimedJobs([_claimed(claim) for claim in claims or ()])


@answers(api.COMPLETE)
async def complete(call: Call, id_: str, asked: api.CompleteJob) -> api.JobOutcome:
    async def fn(tx: Transaction) -> str | None:
        job = await _workable(call, tx, id_)
        if job.stage == "succeeded" and job.ended_by == asked.token:
            return None  # a repeat after a lost response
        await call.app.node.schedule.complete(tx, id_, asked.token, asked.result)
        return job.queue

    sharing = call.app.node.sharing
    queue = await sharing.run(fn, writes=COMPLETE_WRITES + FAMILY_WRITES, reads=[job_key(id_)])
    if queue is not None:
        call.app.store.meters.count("ended", queue=queue, state="succeeded")
    return api.JobOutcome(id_, "succeeded")


@answers(api.FAIL)
async def fail(call: Call, id_: str, asked: api.FailJob) -> api.JobOutcome:
    store = call.app.store
    when: RetryAt = AFTER_PAUSE
    if asked.final:
        when = None
    elif asked.retry_after_ms is not None:
        when = later_ms(store, asked.retry_after_ms)
    least_ms = asked.not_before_ms and later_ms(store, asked.not_before_ms)
    reason = hidden(asked.reason, call.app.redact)
    traceback = traceback_text(hidden(asked.traceback, call.app.redact))

    async def fn(tx: Transaction) -> tuple[str, str | None]:
        job = await _workable(call, tx, id_)
        if job.stage not in ("running", "succeeded") and job.ended_by == asked.token:
            return job.state, None
        schedule = call.app.node.schedule
        state = await schedule.fail(
            tx,
            id_,
            asked.token,
            reason,
            when,
            not_before_ms=least_ms,
            details=ErrorDetails(asked.type, traceback),
        )
        return state, job.queue

    state, queue = await store.run(fn)
    if queue is not None:
        store.meters.count("ended", queue=queue, state=state)
    return api.JobOutcome(id_, state)


@answers(api.EXTEND)
async def extend(call: Call, id_: str, asked: api.ExtendJob) -> api.JobLease:
    async def fn(tx: Transaction) -> int:
        await _workable(call, tx, id_)
        return await call.app.node.schedule.extend(tx, id_, asked.token, asked.lease_ms)

    return api.JobLease(await call.app.store.run(fn))


@answers(api.GET)
async def get(call: Call, id_: str, asked: Wait) -> api.Job:
    job = await call.app.store.run(lambda tx: _visible(call, tx, id_))
    if asked.wait_ms and not job.ended_ms:
        job = await call.patiently(call.app.wait(id_, asked.wait_ms / 1000)) or job
    if not job.output:
        return view(id_, job)
    return view(id_, job, await call.app.store.run(lambda tx: reported_of(tx, id_, job)))


@answers(api.CANCEL)
async def cancel(call: Call, id_: str) -> api.JobOutcome:
    async def fn(tx: Transaction) -> None:
        job = await _visible(call, tx, id_)
        if job.caller != call.caller.id:
            call.caller.insist("manage", job.queue)
        schedule, why = call.app.node.schedule, f"cancelled by {call.caller.user}"
        await schedule.cancel(tx, id_, why, by=call.caller.id)

    await call.app.store.run(fn)
    return api.JobOutcome(id_, "cancelled")


@answers(api.RETRY)
async def retry(call: Call, id_: str, asked: api.RetryJob) -> api.JobOutcome:
    async def fn(tx: Transaction) -> api.JobOutcome:
        job = await _managed(call, tx, id_)
        held = await steps.in_doubt(tx, id_) if job.stage == "in_doubt" else []
        schedule = call.app.node.schedule
        await schedule.retry(tx, id_, asked.key, by=call.caller.id)
        return api.JobOutcome(id_, (await schedule.get(tx, id_)).state, held)

    return await call.app.store.run(fn)


@answers(api.REPORT)
async def report(call: Call, id_: str, asked: ReportOutput) -> StoredOutput:
    progress = None if asked.progress is None else admit_progress(asked.progress, asked.text)
    if asked.text and progress is None:
        raise BadInput(
            f"the text {asked.text[:40]!a} is that of a progress, which is missing; send `progress`"
        )
    chunks, size_bytes = [Chunk(one, "") for one in asked.chunks], 0
    for one in asked.chunks:
        size_bytes += size_of(one)
        if size_bytes > limits.STREAM_BYTES_MAX:
            raise full(size_bytes)

    async def fn(tx: Transaction) -> int:
        await _workable(call, tx, id_)
        schedule, run = call.app.node.schedule, Run(asked.token)
        return await output.report(tx, schedule, id_, run, asked.first, chunks, progress)

    return StoredOutput(await call.app.store.run(fn))


@answers(api.OUTPUT)
async def read_output(call: Call, id_: str, asked: ReadOutput) -> JobOutput:
    async def fn(tx: Transaction) -> JobOutput:
        return await output.read(tx, id_, await _visible(call, tx, id_), asked.after)

    wait_s = asked.wait_ms / 1000
    reading = call.app.results.news(id_, fn, asked.after, asked.state, wait_s)
    found = await (call.patiently(reading) if asked.wait_ms else reading)
    return found if found is not None else await call.app.store.run(fn)


@answers(api.EMIT)
async def emit(call: Call, id_: str, asked: api.EmitEvent) -> api.JobOutcome:
    async def fn(tx: Transaction) -> str:
        await _operated(call, tx, id_)
        schedule = call.app.node.schedule
        await events.emit(tx, schedule, id_, asked.event, asked.value, asked.key)
        return (await schedule.get(tx, id_)).state

    return api.JobOutcome(id_, await call.app.store.run(fn))


@answers(api.EVENT_LINK)
async def event_link(call: Call, id_: str, asked: api.CreateEventLink) -> api.CreatedEventLink:
    await call.app.store.run(lambda tx: _operated(call, tx, id_))
    link = await new_link(
        *(call.app, id_, asked.event, asked.value, asked.choices, asked.text),
        *(asked.expires_ms / 1000, asked.base_url),
    )
    return api.CreatedEventLink(link.url, link.until_ms)


@answers(api.CHILDREN)
async def list_children(call: Call, id_: str, asked: api.ListChildren) -> api.JobChildren:
    after = call.unseal("after", asked.after)

    async def fn(tx: Transaction) -> api.JobChildren:
        job = await _operated(call, tx, id_)
        found, place = await children.page(
            tx, id_, job, after, asked.limit, lambda one: asked.state in (UNSET, one.state)
        )
        return api.JobChildren(found, call.seal(place))

    return await call.app.store.run(fn)


@answers(api.COUNT_CHILDREN)
async def count_children(call: Call, id_: str) -> JobChildCounts:
    async def fn(tx: Transaction) -> JobChildCounts:
        return await children.counts(tx, id_, await _operated(call, tx, id_))

    return await call.app.store.run(fn)


@answers(api.SETTLE)
async def settle(call: Call, id_: str, asked: api.SettleJob) -> api.JobOutcome:
    async def fn(tx: Transaction) -> str:
        await _managed(call, tx, id_)
        schedule = call.app.node.schedule
        await steps.settle(
            tx,
            schedule,
            id_,
            asked.step,
            result=asked.result,
            done=asked.done,
            by=call.caller.id,
            reason=asked.reason,
            key=asked.key,
        )
        return (await schedule.get(tx, id_)).state

    return api.JobOutcome(id_, await call.app.store.run(fn))


@answers(api.LIST)
async def list_(call: Call, asked: api.FindJobs) -> api.JobPage:
    before = call.unseal("after", asked.after) or None
    if not _may_find(call, asked):
        return api.JobPage([], 0, None)
    if asked.key is not UNSET:
        return await _by_key(call, asked.key, asked)
    scanned = 0

    def fits(id_: str, line: Line) -> bool:
        nonlocal scanned
        scanned += 1
        return asked.fits(id_, line)

    page = await _newest(call, fits, before, asked.limit)
    found = await search.summaries(call.app.store, page.found)
    return api.JobPage(found, scanned, call.seal(page.next))


@answers(api.COUNT)
async def count(call: Call, asked: api.CountJobs) -> api.JobCount:
    before = call.unseal("after", asked.after) or None
    if not _may_find(call, asked):
        return api.JobCount(0, complete=True, next=None)
    jobs = 0

    def fits(id_: str, line: Line) -> bool:
        nonlocal jobs
        jobs += asked.fits(id_, line)
        return False  # a count needs no page

    page = await _newest(call, fits, before, limits.PAGE_JOBS)
    return api.JobCount(jobs, page.next is None, call.seal(page.next))


@answers(api.HISTORY)
async def history(call: Call, id_: str) -> api.JobHistory:
    async def fn(tx: Transaction) -> api.JobHistory:
        job = await _visible(call, tx, id_)
        until_ms = 0
        if job.stage == "running":
            lease = await tx.get(lease_key(id_), Lease)
            renewed = lease is not None and lease.token == job.token
            until_ms = lease.until_ms if lease is not None and renewed else due_ms_of(job.place)
        known = None
        if job.dedupe is not None:
            known = await tx.get((job.dedupe.partition, job.dedupe.sort), Accepted)
        differences = known.differences if known else 0
        reported = await reported_of(tx, id_, job)
        shown = api.JobHistory(
            view(id_, job, reported), job.caller, until_ms, differences, [], None, []
        )
        recorded: steps.Steps = {}
        if _works(call, job.queue):
            # Steps and external calls are shown only to workers and operators, not to every sender.
            recorded = await steps.load(tx, id_) if job.stepped else {}
            shown.steps = [_step(name, step) for name, step in recorded.items()]
            if job.parent is not None:
                shown.parent = await _effect(call, tx, Effect("job", job.parent.id))
            shown.cause = await _effect(call, tx, job.cause) if job.cause else None
            shown.effects = [await _effect(call, tx, effect) for effect in job.effects]
            shown.timeline = timeline(job, recorded)
        else:
            shown.timeline = [one for one in timeline(job, {}) if one.kind != "step"]
        return shown

    return await call.app.store.run(fn)


def _may_find(call: Call, asked: api.JobFilter) -> bool:
    """Whether the caller may see jobs of a queue that is asked for."""
    caller, queue = call.caller, asked.queue
    return caller.grants.for_any("manage") and (queue is UNSET or caller.may("manage", queue))


async def _newest(
    call: Call, fits: Callable[[str, Line], bool], before: str | None, most: int
) -> search.Page:
    """The newest jobs that the caller may see and that fit, as many as a request has time for."""
    store = call.app.store
    page = await search.newest(
        store,
        call.app.node.schedule.slots,
        lambda id_, line: call.caller.may("manage", line.queue) and fits(id_, line),
        before=before,
        most=most,
        until_ns=store.clock.elapsed_ns() + limits.PAGE_MS * 1_000_000,
    )
    await store.run(_nothing)  # the jobs read are durable after this returns
    return page


async def _visible(call: Call, tx: Transaction, id_: str) -> Job:
    """Return a job that the caller may see. Raises `NoSuchJob`."""
    job = await call.app.node.schedule.get(tx, id_)
    own = job.caller == call.caller.id and may_enter(call.app.node, call.caller, "send", job.queue)
    if own or _works(call, job.queue):
        return job
    raise NoSuchJob(f"job {id_} not found; check its id", id=id_)  # as for an unknown id


async def _managed(call: Call, tx: Transaction, id_: str) -> Job:
    """Return a job that the caller may manage. Raises `NoSuchJob`, `not_allowed`."""
    job = await _visible(call, tx, id_)
    call.caller.insist("manage", job.queue)
    return job


async def _workable(call: Call, tx: Transaction, id_: str) -> Job:
    """Return a job that the caller may work on. Raises `NoSuchJob`."""
    job = await call.app.node.schedule.get(tx, id_)
    if not may_enter(call.app.node, call.caller, "work", job.queue):
        raise NoSuchJob(f"job {id_} not found; check its id", id=id_)  # as for an unknown id
    return job


async def _operated(call: Call, tx: Transaction, id_: str) -> Job:
    """Return a job that the caller may work on or manage. Raises `NoSuchJob`."""
    job = await call.app.node.schedule.get(tx, id_)
    if not _works(call, job.queue):
        raise NoSuchJob(f"job {id_} not found; check its id", id=id_)  # as for an unknown id
    return job


def _works(call: Call, queue: str) -> bool:
    """Whether the caller may work on a queue or manage it."""
    return call.caller.may("manage", queue) or may_enter(call.app.node, call.caller, "work", queue)


def _claimed(claim: Claim) -> api.ClaimedJob:
    trace = claim.trace or Trace("")
    return api.ClaimedJob(
        claim.id,
        claim.dedupe.key if claim.dedupe else None,
        claim.body,
        claim.attempt,
        claim.token,
        claim.lease_until_ms,
        claim.created_ms,
        claim.reason,
        claim.caller,
        trace.parent,
        trace.state,
        **shown_options(claim.options, claim.attempts_max),
    )


async def _by_key(call: Call, key: str, asked: api.FindJobs) -> api.JobPage:
    """Return the jobs with an idempotency key, of all known senders; each sender has separate
    keys."""
    server, app, caller = call.server, call.app, call.caller
    names = {*app.node.queue_settings.names(), *server.counts.queues}
    names.update(its_queue for its_queue, _, _ in app.senders)
    senders = {"", caller.id, *server.auth.ids()}
    senders.update(Caller("key", "", key.name).id for key in server.keyring.keys.values())
    senders.update(name for _, name, _ in app.senders)
    queues = [
        name
        for name in sorted(names)
        if asked.queue in (UNSET, name) and caller.may("manage", name)
    ]
    admit_key(key, "")
    if "\x00" in key:
        raise BadInput(f"the idempotency key {key[:100]!a} contains NUL; remove it", code="bad_key")
    places = [dedupe_key(name, sender, key) for name in queues for sender in sorted(senders)]
    found: list[tuple[str, Line]] = []
    for first in range(0, min(len(places), limits.LIST_MAX), limits.PAGE_JOBS):
        some = places[first : first + limits.PAGE_JOBS]

        async def fn(tx: Transaction, some: list[tuple[str, str]] = some) -> list[tuple[str, Line]]:
            known = [one for one in await tx.get_many(some, Accepted) if one is not None]
            jobs = await tx.get_many([job_key(one.id) for one in known], Line)
            pairs = zip(known, jobs, strict=True)
            return [
                (one.id, job) for one, job in pairs if job is not None and asked.fits(one.id, job)
            ]

        found += await app.store.run(fn)
    found.sort(key=lambda job: job[0], reverse=True)
    return api.JobPage(await search.summaries(app.store, found), len(found), None)


def _step(name: str, step: steps.Step) -> JobStep:
    state = "done" if step.done else "intended" if step.intent else "asleep"
    times = step.started_ms, step.ended_ms
    return JobStep(name, state, step.result, step.until_ms, step.intent, *times)


async def _effect(call: Call, tx: Transaction, effect: Effect) -> JobEffect:
    shown = JobEffect(effect.kind, effect.name, effect.caller)
    if effect.kind == "job":
        job = await tx.get(job_key(effect.name), Line)
        if job is None:
            shown.state = "gone"
        elif _works(call, job.queue):
            shown.queue, shown.state = job.queue, job.state
    return shown


async def _nothing(tx: Transaction) -> None:
    await tx.get(("probe", "roll"))
