"""Timers: set, looked at, moved, cancelled and sent again by their callers."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import Meta

from onceward import limits
from onceward.api.messages import Milliseconds
from onceward.callers import APPLICATION, Caller
from onceward.errors import BadInput, NoSuchTimer, NotDead
from onceward.job_options import OPTION_NAMES, job_options
from onceward.recurrence import CatchUp, Cron, Interval, Repeat
from onceward.store.transaction import Transaction
from onceward.web.api.inbox import idempotency_key
from onceward.web.api.timer_views import PauseView, TimerView, shown
from onceward.web.auth import Access
from onceward.web.bodies import parse
from onceward.web.cursors import seal, unseal
from onceward.web.http import Request, Response, truth, whole
from onceward.web.internal_queues import insist_on_entry
from onceward.web.routes import Route
from onceward.webhooks import endpoints
from onceward.webhooks.retries import RetryPolicy
from onceward.webhooks.timers import WEBHOOKS, Call, Send, Spec, Target, View
from onceward.webhooks.timers.records import Status
from onceward.webhooks.timers.server import target_of

if TYPE_CHECKING:
    from onceward.web.server import Server

Moment = Annotated[datetime, Meta(tz=True)]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STATES = get_args(Status)


class NewTimer(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is to happen, and when: a POST to a URL or an endpoint, or a job in a queue; at a time
    or after a delay, once, or again and again."""

    id: str | None = None
    """If none is given, one is made up."""
    key: str | None = None
    """In place of an id; may come as the header Idempotency-Key instead."""
    url: str | None = None
    endpoint: str | None = None
    queue: str | None = None
    at: Milliseconds | Moment | None = None
    """Milliseconds since 1970, or a text as in RFC 3339. A time that has passed is due at once."""
    delay_ms: Milliseconds | None = None
    every_ms: Milliseconds | None = None
    cron: str | None = None
    """Five fields, or six with the second first."""
    zone: str | None = None
    """The time zone of the cron expression; UTC, if none is given."""
    catch_up: CatchUp = "all"
    """Which of the times that passed while no server ran count."""
    headers: dict[str, str] = {}
    body: Any = None
    append_id: bool = False
    """Whether the timer's id comes behind the path of the URL."""
    attempts_max: Annotated[int, Meta(ge=0)] | None = None
    retry: RetryPolicy | None = None
    """When a call that failed is attempted again: pauses_ms, attempts_max, timeout_ms."""
    order_key: str | None = None
    limit_key: str | None = None
    priority: Annotated[int, Meta(ge=0, le=limits.PRIORITY_MAX)] | None = None
    due_ms: Milliseconds | None = None
    """In place of at and delay_ms. So timers can be posted as GET shows them; the members below
    are ignored."""
    state: Any = None
    due: Any = None
    left_ms: Any = None
    made_ms: Any = None
    fired: Any = None
    next: Any = None
    last: Any = None
    duplicate: Any = None


class TimerSet(TimerView, kw_only=True, omit_defaults=True):
    """A timer that was set."""

    duplicate: bool
    """Whether it was set before; then this request has changed nothing."""


class Move(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Another time for a timer."""

    at: Milliseconds | Moment | None = None
    delay_ms: Milliseconds | None = None


class TimerPage(msgspec.Struct):
    """Timers in the order of their ids."""

    timers: list[TimerView]
    next: str | None
    """For the parameter after of the next request; None: there are no more."""


async def set_(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    asked = parse(await request.body(), NewTimer)
    key = idempotency_key(request, asked.key)
    with refused_as("bad_timer"):
        target = _target(server, caller, asked)
        at_ms = _due_ms(asked.at)
        if at_ms is None and asked.delay_ms is None:
            at_ms = asked.due_ms
        spec = Spec(target, at_ms, asked.delay_ms, _repeat(asked), asked.catch_up)
        if isinstance(target, Call) and not target.url:
            await _insist_on_url(server, caller, target.endpoint)
        view, duplicate = await add(server, caller, spec, asked.id, key)
    members = msgspec.structs.asdict(shown(view, server.app.store.clock.now_ms(), caller.id))
    return Response.of(TimerSet(**members, duplicate=duplicate), 200 if duplicate else 202)


async def add(
    server: "Server", caller: Access, spec: Spec, id_: str | None, key: str | None
) -> tuple[View, bool]:
    """Set a timer for a caller. Raises `BadInput`, `KeyReused`."""
    timers = server.app.timers
    if key is None:
        id_ = server.app.store.ids.new() if id_ is None else id_
        caller.insist("timer", id_)
    else:
        caller.insist("timer", timers.id_for(key, caller=caller.caller))
    view, duplicate = await timers.add(spec, id_, key=key, caller=caller.caller)
    server.app.store.meters.count("timers_set", duplicate="yes" if duplicate else "no")
    return view, duplicate


async def get(server: "Server", request: Request) -> Response:
    async def same(tx: Transaction, view: View) -> View:
        return view

    return await _on_one(server, _one(server, request), same)


async def list_(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    query = request.query(["prefix", "state", "app", "after", "limit"])
    whose = _whose(caller, query)
    limit = whole("limit", query.get("limit", "100"), 1, limits.LIST_MAX)
    prefix = _part_of_id(query, "prefix")
    after = unseal(server, request, "after", query.get("after"))
    state = query.get("state", "")
    if state and state not in _STATES:
        raise BadInput(f"state is one of {', '.join(_STATES)}", code="bad_parameter")
    clock, page, page_bytes = server.app.store.clock, TimerPage([], None), 0
    until_ns = clock.elapsed_ns() + limits.PAGE_MS * 1_000_000
    seen: str | None = None
    # Few may be in that state, and some are large: then a page is shorter than asked for. Where the
    # next one begins is told by a timer that is there for the caller.
    while True:
        most = min(limit - len(page.timers), limits.PAGE_JOBS)
        views = await server.app.timers.find(prefix=prefix, after=after, most=most, caller=whose)
        for view in views:
            after = view.id
            if not _may_see(caller, view):
                continue
            seen = after
            if state not in ("", view.status):
                continue
            one = shown(view, clock.now_ms(), caller.id, times=0)
            page.timers.append(one)
            page_bytes += len(msgspec.json.encode(one))
            if page_bytes >= limits.PAGE_BYTES_MAX:
                break
        else:
            if len(views) < most:
                return Response.of(page)
        if seen is not None and (
            len(page.timers) == limit
            or page_bytes >= limits.PAGE_BYTES_MAX
            or clock.elapsed_ns() >= until_ns
        ):
            page.next = seal(server, request, seen)
            return Response.of(page)


async def move(server: "Server", request: Request) -> Response:
    one = _one(server, request)
    asked = parse(await request.body(), Move)
    with refused_as("bad_timer"):
        if (asked.at is None) == (asked.delay_ms is None):
            raise BadInput("a timer is moved by at or by delay_ms, one of them")
        at_ms = _due_ms(asked.at)
        delay_s = None if asked.delay_ms is None else asked.delay_ms / 1000

        async def moved(tx: Transaction, view: View) -> View:
            return await server.app.timers.move(
                view.id, at_ms=at_ms, delay_s=delay_s, caller=Caller.parse(view.caller), tx=tx
            )

        return await _on_one(server, one, moved)


async def cancel(server: "Server", request: Request) -> Response:
    async def cancelled(tx: Transaction, view: View) -> View:
        return await server.app.timers.cancel(view.id, caller=Caller.parse(view.caller), tx=tx)

    return await _on_one(server, _one(server, request), cancelled)


async def resend(server: "Server", request: Request) -> Response:
    one = _one(server, request)

    async def redriven(tx: Transaction, view: View) -> View:
        target = view.timer.spec.target
        if isinstance(target, Send) and view.caller:
            insist_on_entry(server, one.caller, "send", target.queue)
        if view.job is None:
            raise NotDead(
                f"the timer {view.id[:200]!r} has no firing that failed", id=view.id[:200]
            )
        await server.app.node.schedule.redrive(tx, view.timer.job)
        return await server.app.timers.get(view.id, caller=Caller.parse(view.caller), tx=tx)

    return await _on_one(server, one, redriven)


class _One(NamedTuple):
    """Who asks, for whose timers, and for which of them."""

    caller: Access
    whose: Caller
    id: str


def _one(server: "Server", request: Request) -> _One:
    caller, id_ = server.caller(request), request.parameters["id"]
    query = request.query(["app", "caller"])
    whose = _whose(caller, query)
    if whose == caller.caller:
        caller.insist("timer", id_)
    elif "caller" in query:
        caller.insist("operate", id_)
    return _One(caller, whose, id_)


async def _on_one(
    server: "Server", one: _One, act: Callable[[Transaction, View], Awaitable[View]]
) -> Response:
    """Act on a timer, and show what became of it. Raises `NoSuchTimer`, also for one that is not
    there for who asks."""

    async def fn(tx: Transaction) -> View:
        view = await server.app.timers.get(one.id, caller=one.whose, tx=tx)
        if not _may_see(one.caller, view):
            raise NoSuchTimer(f"there is no timer {one.id[:200]!r}", id=one.id[:200])
        return await act(tx, view)

    view = await server.app.store.run(fn)
    found = shown(view, server.app.store.clock.now_ms(), one.caller.id)
    target, delivery = view.timer.spec.target, server.app.delivery
    if isinstance(target, Call) and view.status == "firing" and delivery is not None:
        pause = delivery.pause_of(view.caller, target.endpoint, target.url)
        if pause is not None and found.last is not msgspec.UNSET:
            found.last.pause = PauseView(*pause)
    return Response.of(found)


def _whose(caller: Access, query: dict[str, str]) -> Caller:
    """Whose timers are asked for: the caller's own, those of the application itself, or those of
    another caller."""
    if truth("app", query.get("app", "false")):
        return APPLICATION
    return Caller.parse(query["caller"]) if "caller" in query else caller.caller


def _may_see(caller: Access, view: View) -> bool:
    """Whether a timer is there for a caller: one of its own whose id a scope covers, one of the
    application, if it may manage the queue to which that sends, or any that it may operate."""
    if caller.may("operate", view.id):
        return True
    if view.caller:
        return caller.may("timer", view.id)
    target = view.timer.spec.target
    return caller.may("manage", target.queue if isinstance(target, Send) else WEBHOOKS)


@contextmanager
def refused_as(code: str) -> Iterator[None]:
    """Give mistakes that have no code of their own one that says what cannot be."""
    try:
        yield
    except BadInput as error:
        if error.code != "bad_request":
            raise
        raise BadInput(error.message, code=code) from error


def _target(server: "Server", caller: Access, asked: NewTimer) -> Target:
    target = target_of(
        asked.queue,
        asked.url,
        asked.endpoint,
        body=asked.body,
        headers=asked.headers,
        append_id=asked.append_id,
        retry=asked.retry,
        options=job_options({name: getattr(asked, name) for name in OPTION_NAMES}),
    )
    if isinstance(target, Send):
        insist_on_entry(server, caller, "send", target.queue)
    return target


async def _insist_on_url(server: "Server", caller: Access, id_: str) -> None:
    """Raise `BadInput` for an endpoint that is not there, or cannot be called."""
    if not id_:
        raise BadInput("a timer sends to a queue or calls a url or endpoint, one of them")
    endpoint = await server.app.store.run(partial(endpoints.get, id_=id_, caller=caller.id))
    if not endpoint.url:
        raise BadInput(f"the endpoint {id_!r} has no url to be called")


def _repeat(asked: NewTimer) -> Repeat | None:
    if asked.every_ms is not None and asked.cron is not None:
        raise BadInput("a timer repeats by every_ms or by cron, not both")
    if asked.cron is not None:
        return Cron(asked.cron, "UTC" if asked.zone is None else asked.zone)
    if asked.zone is not None:
        raise BadInput("zone is for timers that repeat by cron")
    return None if asked.every_ms is None else Interval(asked.every_ms, 0)


def _due_ms(at: int | datetime | None) -> int | None:
    """A time in milliseconds, rounded up: nothing is early."""
    if isinstance(at, datetime):
        return -((_EPOCH - at) // _MICROSECOND // 1_000)
    return at


def _part_of_id(query: dict[str, str], name: str) -> str:
    text = query.get(name, "")
    if len(text.encode()) > limits.TIMER_ID_BYTES_MAX:
        raise BadInput(
            f"{name} has at most {limits.TIMER_ID_BYTES_MAX} bytes", code="bad_parameter"
        )
    return text


_OWN = ("no_such_timer", "bad_name")
_KNOWN = ("no_such_timer", "bad_name", "already_ended")
NEW = ("bad_timer", "bad_url", "address_refused", "bad_name", "bad_key", "key_reused")

ROUTES = [
    Route(
        "POST",
        "/v1/timers",
        set_,
        "Set a timer, once for its id or key",
        takes=NewTimer,
        gives=TimerSet,
        statuses=(202, 200),
        problems=(*NEW, "value_too_large", "no_such_endpoint"),
        headers=("Idempotency-Key",),
    ),
    Route(
        "GET",
        "/v1/timers",
        list_,
        "One's timers, or the application's, by their ids",
        gives=TimerPage,
        query=("prefix", "state", "app", "after", "limit"),
    ),
    Route(
        "GET",
        "/v1/timers/{id}",
        get,
        "A timer as it is",
        gives=TimerView,
        problems=_OWN,
        query=("app", "caller"),
    ),
    Route(
        "PATCH",
        "/v1/timers/{id}",
        move,
        "Move a timer to another time",
        takes=Move,
        gives=TimerView,
        problems=(*_KNOWN, "bad_timer"),
        query=("app", "caller"),
    ),
    Route(
        "DELETE",
        "/v1/timers/{id}",
        cancel,
        "Cancel a timer",
        gives=TimerView,
        problems=_KNOWN,
        query=("app", "caller"),
    ),
    Route(
        "POST",
        "/v1/timers/{id}/resend",
        resend,
        "Let the last firing be tried again, with the same id",
        gives=TimerView,
        problems=(*_OWN, "not_dead"),
        query=("app", "caller"),
    ),
]
