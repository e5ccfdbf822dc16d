"""Jobs as their operators look for them, and the whole story of one."""

from typing import TYPE_CHECKING, Any

import msgspec

from onceward import limits
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.observe import search as roll
from onceward.observe.search import Line
from onceward.schedule import Accepted, Effect, Job, job_key, lease_key
from onceward.schedule.records import Lease, due_ms_of
from onceward.store.transaction import Transaction
from onceward.web.api.jobs import JobView, view, visible
from onceward.web.auth import Access
from onceward.web.cursors import seal, unseal
from onceward.web.http import Request, Response, whole
from onceward.web.internal_queues import may_enter
from onceward.web.routes import Route
from onceward.work.inbox import admit_key, dedupe_key
from onceward.work.steps import load as load_steps

if TYPE_CHECKING:
    from onceward.web.server import Server

_STATES = ("waiting", "due", "parked", "ready", "leased", "done", "dead", "doubt", "cancelled")
_REASON_CHARS = 300


class JobLine(msgspec.Struct):
    """A job in a list."""

    id: str
    queue: str
    state: str
    key: str | None
    order_key: str | None
    caller: str
    made_ms: int
    due_ms: int
    ended_ms: int
    attempt: int
    attempts_max: int
    worker: str
    reason: str
    """Its beginning."""


class JobPage(msgspec.Struct):
    """Jobs, the newest first."""

    jobs: list[JobLine]
    looked: int
    """How many were looked at for them."""
    next: str | None
    """For the parameter before of the next request; None: there are no more."""


class StepView(msgspec.Struct):
    """A step of a job that has not ended."""

    name: str
    state: str
    """done, asleep, or intended: it may or may not have been done."""
    result: Any = None
    until_ms: int = 0
    attempt: int = 0


class EffectView(msgspec.Struct):
    """What a job has caused, or what has caused it."""

    kind: str
    """step, job, timer, room or record."""
    name: str
    caller: str = ""
    queue: str = ""
    state: str = ""
    """Of a job, as it is now; gone, if it is known no more."""


class Story(msgspec.Struct):
    """All that is known of a job."""

    job: JobView
    caller: str
    """Who has sent it."""
    lease_until_ms: int
    """While it is being worked on."""
    differences: int
    """How often its key came again with another body."""
    steps: list[StepView]
    cause: EffectView | None
    effects: list[EffectView]


async def find(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    query = request.query(["queue", "state", "key", "text", "before", "limit"])
    limit = whole("limit", query.get("limit", "50"), 1, limits.LIST_MAX)
    queue, state, text = query.get("queue"), query.get("state"), query.get("text", "")
    if state not in (None, *_STATES):
        raise BadInput(f"state is one of {', '.join(_STATES)}", code="bad_parameter")
    before = unseal(server, request, "before", query.get("before")) or None
    if not caller.grants.for_any("manage") or (queue and not caller.may("manage", queue)):
        return Response.of(JobPage([], 0, None))
    if "key" in query:
        return Response.of(await _by_key(server, caller, query["key"], queue))

    looked = 0

    def fits(id_: str, line: Line) -> bool:
        nonlocal looked
        if not caller.may("manage", line.queue):
            return False
        looked += 1  # what others have here is not even counted
        return (
            queue in (None, line.queue)
            and state in (None, line.state)
            and (not text or any(text in (part or "") for part in (line.key, line.order_key, id_)))
        )

    store = server.app.store
    page = await roll.newest(
        store,
        server.app.node.schedule.slots,
        fits,
        before=before,
        most=limit,
        until_ns=store.clock.elapsed_ns() + limits.PAGE_MS * 1_000_000,
    )
    await server.app.store.run(_nothing)  # what was seen is durable when this has returned
    lines = [_line(id_, line) for id_, line in page.found]
    return Response.of(JobPage(lines, looked, seal(server, request, page.next)))


async def story(server: "Server", request: Request) -> Response:
    id_, caller = request.parameters["id"], server.caller(request)

    async def fn(tx: Transaction) -> Story:
        job = await visible(server, caller, tx, id_)
        until_ms = 0
        if job.state == "leased":
            lease = await tx.get(lease_key(id_), Lease)
            renewed = lease is not None and lease.token == job.token
            until_ms = lease.until_ms if lease is not None and renewed else due_ms_of(job.place)
        known = None
        if job.dedupe is not None:
            known = await tx.get((job.dedupe.partition, job.dedupe.sort), Accepted)
        told = Story(
            view(id_, job), job.caller, until_ms, known.differences if known else 0, [], None, []
        )
        if caller.may("manage", job.queue) or may_enter(server, caller, "work", job.queue):
            # What a handler does is not for everyone who may send to it.
            told.steps = await _steps(tx, id_, job)
            told.cause = await _effect(server, tx, caller, job.cause) if job.cause else None
            told.effects = [await _effect(server, tx, caller, effect) for effect in job.effects]
        return told

    return Response.of(await server.app.store.run(fn))


async def _by_key(server: "Server", caller: Access, key: str, queue: str | None) -> JobPage:
    """The jobs of a dedupe key, of all senders that are known: keys are their own."""
    names = {*server.app.node.queue_settings.names(), *server.counts.queues}
    names.update(its_queue for its_queue, _, _ in server.app.senders)
    senders = {"", caller.id, *server.auth.ids()}
    senders.update(Caller("key", "", key.name).id for key in server.keyring.keys.values())
    senders.update(name for _, name, _ in server.app.senders)
    queues = [n for n in sorted(names) if queue in (None, n) and caller.may("manage", n)]
    admit_key(key, "")
    if "\x00" in key:
        raise BadInput("a dedupe key has no NUL in it", code="bad_key")
    places = [dedupe_key(name, sender, key) for name in queues for sender in sorted(senders)]
    found: list[JobLine] = []
    for first in range(0, min(len(places), limits.LIST_MAX), limits.PAGE_JOBS):
        some = places[first : first + limits.PAGE_JOBS]

        async def fn(tx: Transaction, some: list[tuple[str, str]] = some) -> list[JobLine]:
            known = [one for one in await tx.get_many(some, Accepted) if one is not None]
            jobs = await tx.get_many([job_key(one.id) for one in known], Line)
            pairs = zip(known, jobs, strict=True)
            return [_line(one.id, job) for one, job in pairs if job is not None]

        found += await server.app.store.run(fn)
    found.sort(key=lambda job: job.id, reverse=True)
    return JobPage(found, len(found), None)


async def _steps(tx: Transaction, id_: str, job: Job) -> list[StepView]:
    if not job.stepped:
        return []
    shown = []
    for name, step in (await load_steps(tx, id_)).items():
        state = "done" if step.done else "asleep" if step.until_ms else "intended"
        shown.append(StepView(name, state, step.result, step.until_ms, step.intent))
    return shown


async def _effect(server: "Server", tx: Transaction, caller: Access, effect: Effect) -> EffectView:
    shown = EffectView(effect.kind, effect.name, effect.caller)
    if effect.kind == "job":
        job = await tx.get(job_key(effect.name), Line)
        if job is None:
            shown.state = "gone"
        elif caller.may("manage", job.queue) or may_enter(server, caller, "work", job.queue):
            shown.queue, shown.state = job.queue, job.state
    return shown


def _line(id_: str, line: Line) -> JobLine:
    return JobLine(
        id_,
        line.queue,
        line.state,
        line.key,
        line.order_key,
        line.caller,
        line.made_ms,
        line.due_ms,
        line.ended_ms,
        line.attempt,
        line.attempts_max,
        line.worker,
        line.reason[:_REASON_CHARS],
    )


async def _nothing(tx: Transaction) -> None:
    await tx.get(("probe", "roll"))


ROUTES = [
    Route(
        "GET",
        "/v1/jobs",
        find,
        "Jobs by queue, state, key, or what their keys contain; the newest first",
        gives=JobPage,
        problems=("bad_key",),
        query=("queue", "state", "key", "text", "before", "limit"),
    ),
    Route(
        "GET",
        "/v1/jobs/{id}/story",
        story,
        "All that is known of a job, and what it has caused",
        gives=Story,
        problems=("no_such_job",),
    ),
]
