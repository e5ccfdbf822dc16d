"""Jobs: claimed by workers, ended by whoever holds their token, and looked at by their senders."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onceward import limits
from onceward.errors import NoSuchJob
from onceward.schedule import COMPLETE_WRITES, Attempt, Claim, Job, job_key
from onceward.schedule.records import Settlement
from onceward.schedule.transitions import AFTER_PAUSE, RetryAt
from onceward.store.transaction import Transaction
from onceward.web.auth import Access
from onceward.web.bodies import parse
from onceward.web.http import Request, Response
from onceward.web.internal_queues import insist_on_entry, may_enter
from onceward.web.routes import Route
from onceward.work.job import later_ms
from onceward.work.steps import in_doubt as steps_in_doubt
from onceward.work.steps import settle as settle_step

if TYPE_CHECKING:
    from onceward.web.server import Server

Token = Annotated[str, Meta(min_length=1)]
LeaseMs = Annotated[int, Meta(ge=1, le=limits.LEASE_MS_MAX)]


class Ask(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A worker asks for jobs."""

    max: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 1
    lease_ms: LeaseMs = 30_000
    wait_ms: Annotated[int, Meta(ge=0, le=limits.WAIT_MS_MAX)] = 0
    worker: str = ""


class Claimed(msgspec.Struct):
    """A job at hand. Whoever completes, fails or extends it shows its token."""

    id: str
    key: str | None
    body: Any
    attempt: int
    token: str
    lease_until: int
    order_key: str | None
    made_ms: int
    reason: str
    """Why the attempt before this one failed."""


class Claims(msgspec.Struct):
    """Jobs for a worker; none if there were none in time."""

    jobs: list[Claimed]


class Complete(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The job is done."""

    token: Token
    result: Any = None


class Fail(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The attempt has failed."""

    token: Token
    reason: str
    retry_after_ms: Annotated[int, Meta(ge=0, le=limits.KEY_NUMBER_MAX)] | None = None
    """When to try again; if not given, after the pause that the queue's settings say."""
    not_before_ms: Annotated[int, Meta(ge=0, le=limits.KEY_NUMBER_MAX)] = 0
    """That pause is to be no shorter than this."""
    final: bool = False
    """Whether not to try again at all."""


class Extend(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The worker needs more time."""

    token: Token
    lease_ms: LeaseMs


class Settle(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Someone has found out what became of a step in doubt."""

    step: Annotated[str, Meta(min_length=1)]
    done: bool
    """Whether it was done; else it is tried again."""
    result: Any = None
    """What it would have returned, if it was done."""
    reason: Annotated[str, Meta(max_length=limits.SETTLEMENT_REASON_CHARS_MAX)] = ""
    """How that was found out: it goes on the job's record, with the caller and the time."""


class Ended(msgspec.Struct, omit_defaults=True):
    """What a job has become."""

    id: str
    state: str
    in_doubt: list[str] = []
    """Its steps in doubt, if it was redriven with any: its handler can only find out what became
    of them; else the job is in doubt again until they are settled."""


class Extended(msgspec.Struct):
    lease_until: int


class JobView(msgspec.Struct, omit_defaults=True):
    """A job as it is now."""

    id: str
    queue: str
    state: str
    body: Any
    made_ms: int
    due_ms: int
    attempt: int
    attempts_max: int
    priority: int
    key: str | None = None
    order_key: str | None = None
    result: Any = UNSET
    reason: str | UnsetType = UNSET
    ended_ms: int | UnsetType = UNSET
    worker: str | UnsetType = UNSET
    history: list[dict[str, Any]] = []
    settled: list[dict[str, Any]] = []
    """The last settlements of steps in doubt: when, which step, done or not, by whom and why."""


def view(id_: str, job: Job) -> JobView:
    """What callers are shown of a job."""
    return JobView(
        id_,
        job.queue,
        job.state,
        job.body,
        job.made_ms,
        job.due_ms,
        job.attempt,
        job.attempts_max,
        job.priority,
        job.dedupe.key if job.dedupe else None,
        job.order_key,
        job.result if job.state == "done" else UNSET,
        job.reason or UNSET,
        job.ended_ms or UNSET,
        job.worker or UNSET,
        [_past(attempt) for attempt in job.history],
        [_past(settlement) for settlement in job.settled],
    )


async def claim(server: "Server", request: Request) -> Response:
    queue = request.parameters["queue"]
    caller = server.caller(request)
    insist_on_entry(server, caller, "work", queue)
    ask = parse(await request.body(), Ask)
    claiming = server.app.claim(
        queue,
        ask.worker or caller.user,
        lease_s=ask.lease_ms / 1000,
        most=ask.max,
        wait_s=ask.wait_ms / 1000,
    )
    claims = await (server.patiently(request, claiming) if ask.wait_ms else claiming)
    return Response.of(Claims([_claimed(claim) for claim in claims or ()]))


async def complete(server: "Server", request: Request) -> Response:
    id_, caller = request.parameters["id"], server.caller(request)
    said = parse(await request.body(), Complete)

    async def fn(tx: Transaction) -> str | None:
        job = await _workable(server, caller, tx, id_)
        if job.state == "done" and job.ended_by == said.token:
            return None  # whoever asks again has not heard the answer
        await server.app.node.schedule.complete(tx, id_, said.token, said.result)
        return job.queue

    sharing = server.app.node.sharing
    queue = await sharing.run(fn, writes=COMPLETE_WRITES, reads=[job_key(id_)])
    if queue is not None:
        server.app.store.meters.count("ended", queue=queue, state="done")
    return Response.of(Ended(id_, "done"))


async def fail(server: "Server", request: Request) -> Response:
    id_, caller = request.parameters["id"], server.caller(request)
    said = parse(await request.body(), Fail)
    when: RetryAt = AFTER_PAUSE
    if said.final:
        when = None
    elif said.retry_after_ms is not None:
        when = later_ms(server.app.store, said.retry_after_ms)
    least_ms = said.not_before_ms and later_ms(server.app.store, said.not_before_ms)

    async def fn(tx: Transaction) -> tuple[str, str | None]:
        job = await _workable(server, caller, tx, id_)
        if job.state not in ("leased", "done") and job.ended_by == said.token:
            return job.state, None
        schedule = server.app.node.schedule
        state = await schedule.fail(tx, id_, said.token, said.reason, when, not_before_ms=least_ms)
        return state, job.queue

    state, queue = await server.app.store.run(fn)
    if queue is not None:
        server.app.store.meters.count("ended", queue=queue, state=state)
    return Response.of(Ended(id_, state))


async def extend(server: "Server", request: Request) -> Response:
    id_, caller = request.parameters["id"], server.caller(request)
    said = parse(await request.body(), Extend)

    async def fn(tx: Transaction) -> int:
        await _workable(server, caller, tx, id_)
        return await server.app.node.schedule.extend(tx, id_, said.token, said.lease_ms)

    return Response.of(Extended(await server.app.store.run(fn)))


async def get(server: "Server", request: Request) -> Response:
    id_, caller = request.parameters["id"], server.caller(request)
    wait_ms = request.number("wait_ms", limits.WAIT_MS_MAX)
    job = await server.app.store.run(lambda tx: visible(server, caller, tx, id_))
    if wait_ms and not job.ended_ms:
        job = await server.patiently(request, server.app.wait(id_, wait_ms / 1000)) or job
    return Response.of(view(id_, job))


async def cancel(server: "Server", request: Request) -> Response:
    id_, caller = request.parameters["id"], server.caller(request)

    async def fn(tx: Transaction) -> None:
        job = await visible(server, caller, tx, id_)
        if job.caller != caller.id:
            caller.insist("manage", job.queue)
        await server.app.node.schedule.cancel(tx, id_, f"cancelled by {caller.user}")

    await server.app.store.run(fn)
    return Response.of(Ended(id_, "cancelled"))


async def redrive(server: "Server", request: Request) -> Response:
    id_, caller = request.parameters["id"], server.caller(request)

    async def fn(tx: Transaction) -> Ended:
        job = await visible(server, caller, tx, id_)
        caller.insist("manage", job.queue)
        held = await steps_in_doubt(tx, id_) if job.state == "doubt" else []
        await server.app.node.schedule.redrive(tx, id_)
        return Ended(id_, (await server.app.node.schedule.get(tx, id_)).state, held)

    return Response.of(await server.app.store.run(fn))


async def settle(server: "Server", request: Request) -> Response:
    id_, caller = request.parameters["id"], server.caller(request)
    said = parse(await request.body(), Settle)

    async def fn(tx: Transaction) -> str:
        job = await visible(server, caller, tx, id_)
        caller.insist("manage", job.queue)
        schedule = server.app.node.schedule
        await settle_step(
            tx,
            schedule,
            id_,
            said.step,
            result=said.result,
            done=said.done,
            by=caller.id,
            reason=said.reason,
        )
        return (await schedule.get(tx, id_)).state

    return Response.of(Ended(id_, await server.app.store.run(fn)))


async def visible(server: "Server", caller: Access, tx: Transaction, id_: str) -> Job:
    """A job that a caller may see; others' are not there for it. Raises `NoSuchJob`."""
    job = await server.app.node.schedule.get(tx, id_)
    own = job.caller == caller.id and may_enter(server, caller, "send", job.queue)
    works = may_enter(server, caller, "work", job.queue)
    if own or works or caller.may("manage", job.queue):
        return job
    raise NoSuchJob(f"there is no job {id_}", id=id_)


async def _workable(server: "Server", caller: Access, tx: Transaction, id_: str) -> Job:
    """A job that a caller may work on. Raises `NoSuchJob`."""
    job = await server.app.node.schedule.get(tx, id_)
    if not may_enter(server, caller, "work", job.queue):
        raise NoSuchJob(f"there is no job {id_}", id=id_)
    return job


def _claimed(claim: Claim) -> Claimed:
    return Claimed(
        claim.id,
        claim.dedupe.key if claim.dedupe else None,
        claim.body,
        claim.attempt,
        claim.token,
        claim.lease_until_ms,
        claim.order_key,
        claim.made_ms,
        claim.reason,
    )


def _past(entry: Attempt | Settlement) -> dict[str, Any]:
    return msgspec.structs.asdict(entry)


_OWN = ("no_such_job",)
_HELD = ("no_such_job", "stale_token")

ROUTES = [
    Route(
        "POST",
        "/v1/queues/{queue}/claim",
        claim,
        "Claim ready jobs, or wait for some",
        takes=Ask,
        gives=Claims,
        problems=("bad_name",),
    ),
    Route(
        "POST",
        "/v1/jobs/{id}/complete",
        complete,
        "End a job well",
        takes=Complete,
        gives=Ended,
        problems=_HELD,
    ),
    Route(
        "POST",
        "/v1/jobs/{id}/fail",
        fail,
        "Fail an attempt",
        takes=Fail,
        gives=Ended,
        problems=_HELD,
    ),
    Route(
        "POST",
        "/v1/jobs/{id}/extend",
        extend,
        "Renew the lease of a job",
        takes=Extend,
        gives=Extended,
        problems=_HELD,
    ),
    Route(
        "GET",
        "/v1/jobs/{id}",
        get,
        "A job as it is",
        gives=JobView,
        problems=_OWN,
        query=("wait_ms",),
    ),
    Route(
        "DELETE",
        "/v1/jobs/{id}",
        cancel,
        "Cancel a job",
        gives=Ended,
        problems=("no_such_job", "already_ended"),
    ),
    Route(
        "POST",
        "/v1/jobs/{id}/redrive",
        redrive,
        "Let a dead job try again",
        gives=Ended,
        problems=("no_such_job", "not_dead"),
    ),
    Route(
        "POST",
        "/v1/jobs/{id}/settle",
        settle,
        "Say what became of a step in doubt",
        takes=Settle,
        gives=Ended,
        problems=("no_such_job", "not_dead"),
    ),
]
