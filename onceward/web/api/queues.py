"""HTTP functions for queues: settings, dead letters and bulk changes."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from onceward import limits
from onceward.api import queues as api
from onceward.errors import BadInput, OncewardError
from onceward.schedule import Job, admit_queue
from onceward.store import Transaction
from onceward.strict_json import parse
from onceward.web.api.jobs import view
from onceward.web.calls import Call, binder
from onceward.web.routes import Route
from onceward.work import bulk
from onceward.work.bulk import Page
from onceward.work.internal_queues import insist_on_entry

# Settings that callers cannot change, because they would open a queue of the application.
_OF_THE_APPLICATION = {"internal", "remote_work"}

ROUTES: list[Route] = []
answers = binder(ROUTES)


@answers(api.LIST)
async def list_(call: Call) -> api.QueueList:
    names = {*call.app.node.queue_settings.names(), *call.server.counts.queues}
    allowed = [name for name in sorted(names) if call.caller.may("manage", name)]
    return api.QueueList([_view(call, name) for name in allowed])


@answers(api.GET)
async def get(call: Call, queue: str) -> api.Queue:
    return _view(call, queue)


@answers(api.CONFIGURE)
async def configure(call: Call, queue: str, settings: api.QueueSettings) -> api.Queue:
    admit_queue(queue)
    given = parse(call.raw, dict[str, Any])
    changes = {name: getattr(settings, name) for name in given}
    before = call.app.node.queue_settings(queue)
    for name in _OF_THE_APPLICATION & changes.keys():
        if changes[name] != getattr(before, name):
            raise OncewardError(
                f"{name} of {queue!r} must be set in the application's code, with app.queue(…)",
                code="not_allowed",
            )
    if settings.failure_queue and settings.failure_queue != before.failure_queue:
        # A failed job of this queue sends a job to that one.
        insist_on_entry(call.app.node, call.caller, "send", settings.failure_queue)
    await call.app.queues.change(queue, changes)
    return _view(call, queue)


@answers(api.PAUSE)
async def pause(call: Call, queue: str) -> api.Queue:
    await call.app.queues.pause(queue)
    return _view(call, queue)


@answers(api.RESUME)
async def resume(call: Call, queue: str) -> api.Queue:
    await call.app.queues.resume(queue)
    return _view(call, queue)


@answers(api.FAILED)
async def failed(call: Call, queue: str, asked: api.FailedJobsQuery) -> api.FailedJobs:
    admit_queue(queue)
    after: str | None = _admit_cursor(asked.after)
    page, page_bytes = api.FailedJobs([], None), 0
    # Large jobs make shorter pages.
    while after is not None and len(page.jobs) < asked.limit and page_bytes < limits.PAGE_BYTES_MAX:
        most = min(asked.limit - len(page.jobs), limits.PAGE_JOBS)
        found = await call.app.queues.failed(queue, after=after, limit=most)
        after = None
        for one in found:
            shown = view(one.id, one.job)
            page.jobs.append(shown)
            page_bytes += len(msgspec.json.encode(shown))
            if page_bytes >= limits.PAGE_BYTES_MAX or len(found) == most:
                after = one.place
            if page_bytes >= limits.PAGE_BYTES_MAX:
                break
    page.next = after
    return page


@answers(api.REDRIVE)
async def redrive(call: Call, queue: str, asked: api.RedriveJobs) -> api.ChangedJobs:
    admit_queue(queue)

    def fits(job: Job) -> bool:
        return (
            (asked.reason is None or asked.reason in job.reason)
            and (asked.order_key is None or asked.order_key == job.options.order_key)
            and (asked.since_ms is None or job.ended_ms >= asked.since_ms)
        )

    # Jobs that fail again during a redrive are skipped, so that it ends.
    before, _, start = asked.after.partition("/")
    if before and not (before.isascii() and before.isdigit() and len(before) <= 16):
        raise _bad_cursor(asked.after)
    before_ms = int(before) if before else call.app.store.clock.now_ms() + 1
    changed = await _for_a_while(
        call,
        start,
        lambda start, tx: bulk.redrive(
            tx,
            call.app.node.schedule,
            queue,
            start=start,
            before_ms=before_ms,
            chosen=fits,
            by=call.caller.id,
        ),
    )
    if changed.next is not None:
        changed.next = f"{before_ms}/{changed.next}"
    return changed


@answers(api.PURGE)
async def purge(call: Call, queue: str, asked: api.PurgeJobs) -> api.ChangedJobs:
    admit_queue(queue)
    slot = asked.after.partition("/")[0]
    if asked.after and not (slot.isascii() and slot.isdigit() and len(slot) <= 4):
        raise _bad_cursor(asked.after)
    return await _for_a_while(
        call,
        asked.after,
        lambda start, tx: bulk.purge(
            tx, call.app.node.schedule, queue, start=start, by=call.caller.id
        ),
    )


async def _for_a_while(
    call: Call, start: str, page: Callable[[str, Transaction], Awaitable[Page]]
) -> api.ChangedJobs:
    """Make the commits of a long change that fit into one request, at least one."""
    clock, changed, next_ = call.app.store.clock, api.ChangedJobs(0, None), _admit_cursor(start)
    until_ns = clock.elapsed_ns() + limits.PAGE_MS * 1_000_000
    while True:
        found = await call.app.store.run(partial(page, next_))
        changed.jobs += found.done
        changed.in_doubt += found.in_doubt
        if found.next is None or clock.elapsed_ns() >= until_ns:
            changed.next = found.next
            return changed
        next_ = found.next


def _admit_cursor(after: str) -> str:
    if len(after.encode()) > limits.SORT_BYTES_MAX or "\x00" in after:
        raise _bad_cursor(after)
    return after


def _bad_cursor(after: str) -> BadInput:
    return BadInput(
        f"`after` is {after[:100]!a}, not a cursor of this queue; use the member `next` of "
        "the last response",
        code="bad_parameter",
    )


def _view(call: Call, queue: str) -> api.Queue:
    admit_queue(queue)
    found = call.server.counts.queues.get(queue)
    return api.Queue(
        queue,
        dict(found.jobs) if found else {},
        found.oldest_queued_ms if found else None,
        call.server.counts.counted_ms,
        call.app.node.queue_settings(queue),
    )
