"""Queues, for those who look after them."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from onceward import keys, limits
from onceward.errors import BadInput, OncewardError
from onceward.schedule import Job, Settings, admit_queue
from onceward.store.transaction import Transaction
from onceward.web.api.jobs import JobView, view
from onceward.web.bodies import parse
from onceward.web.http import Request, Response, whole
from onceward.web.internal_queues import insist_on_entry
from onceward.web.routes import Route
from onceward.work import bulk as queue_part
from onceward.work.bulk import Page

if TYPE_CHECKING:
    from onceward.web.server import Server


class QueueView(msgspec.Struct):
    """A queue: its settings, and how many jobs it has in which state."""

    name: str
    jobs: dict[str, int]
    oldest_ready_ms: int | None
    counted_ms: int | None
    """When they were counted; None: they have not been yet."""
    settings: Settings


class QueueList(msgspec.Struct):
    """The queues that have jobs or settings."""

    queues: list[QueueView]


# What no manager of a queue changes: it would open a queue of the application to callers.
_OF_THE_APPLICATION = {"internal", "remote_work"}


class DeadPage(msgspec.Struct):
    """Dead jobs and those in doubt, the first that died first."""

    jobs: list[JobView]
    next: str | None
    """Where the next page starts; None: there is none."""


class Redrive(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which dead jobs are to try again: all that fit."""

    start: str = ""
    """Where to go on: the member next of the last answer."""
    reason: str | None = None
    """Whose last attempt failed with a reason that contains this."""
    order_key: str | None = None
    since_ms: Annotated[int, Meta(ge=0)] | None = None
    """Which died at this time or later."""


class Purge(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """All jobs that wait are to be cancelled."""

    start: str = ""
    """Where to go on: the member next of the last answer."""


class Changed(msgspec.Struct, omit_defaults=True):
    """How many jobs that was. There may be more: it does not take long for any request."""

    jobs: int
    next: str | None
    """For the next request, to go on; None: that was all."""
    in_doubt: int = 0
    """How many of those that were redriven have steps in doubt: their handlers can only find out
    what became of these; else the jobs are in doubt again until the steps are settled."""


async def list_(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    names = {*server.app.node.queue_settings.names(), *server.counts.queues}
    allowed = [name for name in sorted(names) if caller.may("manage", name)]
    return Response.of(QueueList([_view(server, name) for name in allowed]))


async def get(server: "Server", request: Request) -> Response:
    return Response.of(_view(server, _managed(server, request)))


async def configure(server: "Server", request: Request) -> Response:
    queue = _managed(server, request)
    raw = await request.body()
    settings = parse(raw, Settings)
    changes = {name: getattr(settings, name) for name in parse(raw, dict[str, Any])}
    before = server.app.node.queue_settings(queue)
    for name in _OF_THE_APPLICATION & changes.keys():
        if changes[name] != getattr(before, name):
            raise OncewardError(
                f"{name} of {queue!r} is set by the application's code: app.queue(…)",
                code="not_allowed",
            )
    if settings.notice and settings.notice != before.notice:
        # Whoever lets a job die here sends there by that.
        insist_on_entry(server, server.caller(request), "send", settings.notice)
    await server.app.queues.configure(queue, **changes)
    return Response.of(_view(server, queue))


async def pause(server: "Server", request: Request) -> Response:
    queue = _managed(server, request)
    await server.app.queues.pause(queue)
    return Response.of(_view(server, queue))


async def resume(server: "Server", request: Request) -> Response:
    queue = _managed(server, request)
    await server.app.queues.resume(queue)
    return Response.of(_view(server, queue))


async def dead(server: "Server", request: Request) -> Response:
    queue = _managed(server, request)
    query = request.query(["start", "limit"])
    limit = whole("limit", query.get("limit", "100"), 1, limits.LIST_MAX)
    start: str | None = _admit_start(query.get("start", ""))
    page, page_bytes = DeadPage([], None), 0
    # Large jobs make a short page.
    while start is not None and len(page.jobs) < limit and page_bytes < limits.PAGE_BYTES_MAX:
        most = min(limit - len(page.jobs), limits.PAGE_JOBS)
        letters = await server.app.queues.dead(queue, start=start, limit=most)
        start = None
        for letter in letters:
            shown = view(letter.id, letter.job)
            page.jobs.append(shown)
            page_bytes += len(msgspec.json.encode(shown))
            if page_bytes >= limits.PAGE_BYTES_MAX or len(letters) == most:
                start = keys.after(letter.place)
            if page_bytes >= limits.PAGE_BYTES_MAX:
                break
    page.next = start
    return Response.of(page)


async def redrive(server: "Server", request: Request) -> Response:
    queue = _managed(server, request)
    raw = await request.body()
    chosen = parse(raw, Redrive) if raw else Redrive()

    def fits(job: Job) -> bool:
        return (
            (chosen.reason is None or chosen.reason in job.reason)
            and (chosen.order_key is None or chosen.order_key == job.order_key)
            and (chosen.since_ms is None or job.ended_ms >= chosen.since_ms)
        )

    # Not what dies again meanwhile: that would have no end.
    before, _, start = chosen.start.partition("/")
    if before and not (before.isascii() and before.isdigit() and len(before) <= 16):
        raise _bad_start()
    before_ms = int(before) if before else server.app.store.clock.now_ms() + 1
    changed = await _for_a_while(
        server,
        start,
        lambda start, tx: queue_part.redrive_dead(
            tx, server.app.node.schedule, queue, start=start, before_ms=before_ms, chosen=fits
        ),
    )
    if changed.next is not None:
        changed.next = f"{before_ms}/{changed.next}"
    return Response.of(changed)


async def purge(server: "Server", request: Request) -> Response:
    queue = _managed(server, request)
    raw = await request.body()
    start = (parse(raw, Purge) if raw else Purge()).start
    slot = start.partition("/")[0]
    if start and not (slot.isascii() and slot.isdigit() and len(slot) <= 4):
        raise _bad_start()
    changed = await _for_a_while(
        server,
        start,
        lambda start, tx: queue_part.purge(tx, server.app.node.schedule, queue, start=start),
    )
    return Response.of(changed)


async def _for_a_while(
    server: "Server", start: str, page: Callable[[str, Transaction], Awaitable[Page]]
) -> Changed:
    """Do as many commits of a long work as a request may take, and at least one."""
    clock, changed, next_ = server.app.store.clock, Changed(0, None), _admit_start(start)
    until_ns = clock.elapsed_ns() + limits.PAGE_MS * 1_000_000
    while True:
        found = await server.app.store.run(partial(page, next_))
        changed.jobs += found.done
        changed.in_doubt += found.in_doubt
        if found.next is None or clock.elapsed_ns() >= until_ns:
            changed.next = found.next
            return changed
        next_ = found.next


def _admit_start(start: str) -> str:
    if len(start.encode()) > limits.SORT_BYTES_MAX or "\x00" in start:
        raise _bad_start()
    return start


def _bad_start() -> BadInput:
    return BadInput("start is the member next of the last answer", code="bad_parameter")


def _managed(server: "Server", request: Request) -> str:
    queue = request.parameters["queue"]
    server.caller(request).insist("manage", queue)
    admit_queue(queue)
    return queue


def _view(server: "Server", name: str) -> QueueView:
    found = server.counts.queues.get(name)
    return QueueView(
        name,
        dict(found.jobs) if found else {},
        found.oldest_ready_ms if found else None,
        server.counts.counted_ms,
        server.app.node.queue_settings(name),
    )


_NAME = ("bad_name",)

ROUTES = [
    Route("GET", "/v1/queues", list_, "The queues", gives=QueueList),
    Route("GET", "/v1/queues/{queue}", get, "A queue", gives=QueueView, problems=_NAME),
    Route(
        "PUT",
        "/v1/queues/{queue}",
        configure,
        "Change some settings of a queue",
        takes=Settings,
        gives=QueueView,
        problems=_NAME,
    ),
    Route(
        "POST",
        "/v1/queues/{queue}/pause",
        pause,
        "Hand out no jobs",
        gives=QueueView,
        problems=_NAME,
    ),
    Route(
        "POST",
        "/v1/queues/{queue}/resume",
        resume,
        "Hand out jobs again",
        gives=QueueView,
        problems=_NAME,
    ),
    Route(
        "GET",
        "/v1/queues/{queue}/dead",
        dead,
        "Dead jobs, and those in doubt",
        gives=DeadPage,
        problems=_NAME,
        query=("start", "limit"),
    ),
    Route(
        "POST",
        "/v1/queues/{queue}/redrive",
        redrive,
        "Let dead jobs try again",
        takes=Redrive,
        gives=Changed,
        problems=_NAME,
    ),
    Route(
        "POST",
        "/v1/queues/{queue}/purge",
        purge,
        "Cancel all jobs that wait",
        takes=Purge,
        gives=Changed,
        problems=_NAME,
    ),
]
