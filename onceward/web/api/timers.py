"""HTTP functions for timers: create, list, change, pause, cancel and resend."""

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET
from msgspec.json import encode

from onceward import limits
from onceward.api import timers as api
from onceward.callers import APPLICATION, Caller
from onceward.errors import BadInput, NoSuchTimer, NotFailed
from onceward.job_options import given_options
from onceward.observe.paging import page_of
from onceward.store import Transaction
from onceward.strict_json import parse
from onceward.web.api.inbox import idempotency_key
from onceward.web.api.timer_views import shown, shown_firing
from onceward.web.auth import Access
from onceward.web.calls import Call, binder
from onceward.web.forms import FORM, pairs_of
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.webhooks import endpoints
from onceward.webhooks.timers import WEBHOOKS, Send, Spec, Target, View, firings
from onceward.webhooks.timers import Call as TimerCall
from onceward.webhooks.timers.firings import Firing
from onceward.webhooks.timers.members import repeat_of, target_of
from onceward.work.internal_queues import insist_on_entry

if TYPE_CHECKING:
    from onceward.web.server import Server

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)

ROUTES: list[Route] = []
answers = binder(ROUTES)


@answers(api.CREATE)
async def create(call: Call, asked: api.CreateTimer) -> Response:
    key = idempotency_key(call.request, asked.key)
    with refused_as("bad_timer"):
        target = _target(call, asked)
        at_ms = _due_ms(asked.at)
        if at_ms is None and asked.delay_ms is None:
            at_ms = asked.due_ms
        spec = Spec(
            target,
            at_ms,
            asked.delay_ms,
            repeat_of(asked.every_ms, asked.cron, asked.zone),
            asked.catch_up,
            _due_ms(asked.until),
            asked.times,
            asked.overlap,
        )
        await _insist_on_receivers(call, target, call.caller.id)
        view, duplicate = await _add(call, spec, asked.id, key)
    members = msgspec.structs.asdict(shown(view, _now_ms(call), call.caller.id))
    made = api.CreatedTimer(**members, duplicate=duplicate)
    return Response.of(made, 200 if duplicate else 202)


async def _add(call: Call, spec: Spec, id_: str | None, key: str | None) -> tuple[View, bool]:
    """Create a timer of the caller. Raises `BadInput`, `KeyReused`."""
    timers, caller = call.app.timers, call.caller
    if key is None:
        id_ = call.app.store.ids.new() if id_ is None else id_
        caller.insist("timer", id_)
    else:
        caller.insist("timer", timers.id_for(key, caller=caller.caller))
    view, duplicate = await timers.add(spec, id_, key=key, caller=caller.caller)
    call.app.store.meters.count("timers_set", duplicate="yes" if duplicate else "no")
    return view, duplicate


def _whose(call: Call, id_: str, asked: api.WhoseTimer) -> Caller:
    """The owner of a timer. Raises `not_allowed`."""
    caller = call.caller
    whose = caller.caller
    if asked.app:
        whose = APPLICATION
    elif asked.caller is not UNSET:
        whose = Caller.parse(asked.caller)
    if whose == caller.caller:
        caller.insist("timer", id_)
    elif asked.caller is not UNSET:
        caller.insist("operate", id_)
    return whose


@answers(api.GET)
async def get(call: Call, id_: str, asked: api.WhoseTimer) -> api.Timer:
    async def same(tx: Transaction, view: View) -> View:
        return view

    return await _on_one(call, id_, asked, same)


@answers(api.LIST)
async def list_(call: Call, asked: api.FindTimers) -> api.TimerPage:
    caller, limit = call.caller, asked.limit
    whose = APPLICATION if asked.app else caller.caller
    if len(asked.prefix.encode()) > limits.TIMER_ID_BYTES_MAX:
        raise BadInput(
            f"`prefix` must have at most {limits.TIMER_ID_BYTES_MAX} bytes, not "
            f"{len(asked.prefix.encode())}",
            code="bad_parameter",
        )
    after = call.unseal("after", asked.after)
    clock, page, page_bytes = call.app.store.clock, api.TimerPage([], None), 0
    until_ns = clock.elapsed_ns() + limits.PAGE_MS * 1_000_000
    seen: str | None = None
    # Few timers may match, and some are large, so a page can be shorter than `limit`. The cursor is
    # always a timer that the caller can see.
    while True:
        most = min(limit - len(page.timers), limits.PAGE_JOBS)
        views = await call.app.timers.find(
            prefix=asked.prefix, after=after, limit=most, caller=whose
        )
        for view in views:
            after = view.id
            if not _may_see(caller, view):
                continue
            seen = after
            if not _is_asked(asked, view):
                continue
            one = shown(view, clock.now_ms(), caller.id, times=0)
            page.timers.append(one)
            page_bytes += len(msgspec.json.encode(one))
            if page_bytes >= limits.PAGE_BYTES_MAX:
                break
        else:
            if len(views) < most:
                return page
        if seen is not None and (
            len(page.timers) == limit
            or page_bytes >= limits.PAGE_BYTES_MAX
            or clock.elapsed_ns() >= until_ns
        ):
            page.next = call.seal(seen)
            return page


def _is_asked(asked: api.FindTimers, view: View) -> bool:
    """Whether a timer passes the filters of a list."""
    target, due_ms = view.timer.spec.target, view.timer.due_ms
    if asked.state not in ("", view.status):
        return False
    if asked.endpoint and getattr(target, "endpoint", "") != asked.endpoint:
        return False
    if asked.queue and getattr(target, "queue", "") != asked.queue:
        return False
    if asked.due_from is not UNSET and due_ms < asked.due_from:
        return False
    return asked.due_until is UNSET or due_ms <= asked.due_until


@answers(api.UPDATE, check=_whose)
async def update(call: Call, id_: str, whose: api.WhoseTimer, asked: api.UpdateTimer) -> api.Timer:
    changes = {
        name: value for name, value in msgspec.structs.asdict(asked).items() if value is not UNSET
    }
    for name, member in (("at", "due_ms"), ("until", "until_ms")):
        if name in changes:
            changes[member] = _due_ms(changes.pop(name))

    async def updated(tx: Transaction, view: View) -> View:
        owner = Caller.parse(view.caller)
        found = await call.app.timers.update_members(view.id, changes, caller=owner, tx=tx)
        target = found.timer.spec.target
        if isinstance(target, Send):
            if view.caller and "queue" in changes:
                insist_on_entry(call.app.node, call.caller, "send", target.queue)
        else:
            await _insist_on_receivers(call, target, view.caller, tx)
        return found

    with refused_as("bad_timer"):
        if changes.get("headers"):
            await call.app.timers.unlock()
        return await _on_one(call, id_, whose, updated)


@answers(api.PAUSE)
async def pause(call: Call, id_: str, asked: api.WhoseTimer) -> api.Timer:
    async def paused(tx: Transaction, view: View) -> View:
        return await call.app.timers.pause(view.id, caller=Caller.parse(view.caller), tx=tx)

    return await _on_one(call, id_, asked, paused)


@answers(api.RESUME)
async def resume(call: Call, id_: str, asked: api.WhoseTimer) -> api.Timer:
    async def resumed(tx: Transaction, view: View) -> View:
        return await call.app.timers.resume(view.id, caller=Caller.parse(view.caller), tx=tx)

    return await _on_one(call, id_, asked, resumed)


@answers(api.MOVE, check=_whose)
async def move(call: Call, id_: str, whose: api.WhoseTimer, asked: api.MoveTimer) -> api.Timer:
    with refused_as("bad_timer"):
        if (asked.at is None) == (asked.delay_ms is None):
            raise BadInput(
                "give the new time of the timer as `at`, or as `delay_ms` from now"
                if asked.at is None
                else "a timer is moved either to a time or by a delay, not both "
                f"{asked.at!r:.50} and {asked.delay_ms!r:.50} ms; omit one"
            )
        at_ms = _due_ms(asked.at)
        delay_s = None if asked.delay_ms is None else asked.delay_ms / 1000

        async def moved(tx: Transaction, view: View) -> View:
            return await call.app.timers.move(
                view.id, at_ms=at_ms, delay_s=delay_s, caller=Caller.parse(view.caller), tx=tx
            )

        return await _on_one(call, id_, whose, moved)


@answers(api.CANCEL)
async def cancel(call: Call, id_: str, asked: api.WhoseTimer) -> api.Timer:
    async def cancelled(tx: Transaction, view: View) -> View:
        return await call.app.timers.cancel(view.id, caller=Caller.parse(view.caller), tx=tx)

    return await _on_one(call, id_, asked, cancelled)


@answers(api.RESEND)
async def resend(call: Call, id_: str, whose: api.WhoseTimer, asked: api.ResendFiring) -> api.Timer:
    async def redriven(tx: Transaction, view: View) -> View:
        target = view.timer.spec.target
        if isinstance(target, Send) and view.caller:
            insist_on_entry(call.app.node, call.caller, "send", target.queue)
        if asked.firing:
            firing = await firings.find_of_timer(tx, view.caller, id_, view.timer, asked.firing)
            part, by = call.app.timers.part, call.caller.id
            await part.resend(tx, view.caller, firing, by=by, key=asked.key)
            return await call.app.timers.get(view.id, caller=Caller.parse(view.caller), tx=tx)
        if view.job is None:
            raise NotFailed(
                f"timer {view.id[:200]!r} has no failed firing; only failed firings can be resent",
                id=view.id[:200],
            )
        await call.app.node.schedule.retry(tx, view.timer.job, asked.key, by=call.caller.id)
        return await call.app.timers.get(view.id, caller=Caller.parse(view.caller), tx=tx)

    return await _on_one(call, id_, whose, redriven)


@answers(api.FIRINGS)
async def list_firings(call: Call, id_: str, asked: api.FindFirings) -> api.FiringPage:
    found: list[Firing] = []
    after = call.unseal("after", asked.after)

    async def read(tx: Transaction, view: View) -> View:
        found[:] = await firings.of_timer(
            tx, view.caller, id_, view.timer, after=after, most=asked.limit
        )
        return view

    await _on_one(call, id_, asked, read)
    next_ = found[-1].id if len(found) == asked.limit else None
    return api.FiringPage([shown_firing(one) for one in found], call.seal(next_))


async def _on_one(
    call: Call,
    id_: str,
    asked: api.WhoseTimer,
    act: Callable[[Transaction, View], Awaitable[View]],
) -> api.Timer:
    """Change a timer and return it. Raises `NoSuchTimer` if the caller may not see it."""
    caller, whose = call.caller, _whose(call, id_, asked)

    async def fn(tx: Transaction) -> View:
        view = await call.app.timers.get(id_, caller=whose, tx=tx)
        if not _may_see(caller, view):
            raise NoSuchTimer(f"timer {id_[:200]!r} not found; check its id", id=id_[:200])
        return await act(tx, view)

    view = await call.app.store.run(fn)
    found = shown(view, _now_ms(call), caller.id)
    target, delivery = view.timer.spec.target, call.app.delivery
    if isinstance(target, TimerCall) and view.status == "firing" and delivery is not None:
        pause = delivery.pause_of(view.caller, target.endpoint, target.url)
        if pause is not None and found.last is not None:
            found.last.pause = api.ReceiverPause(*pause)
    return found


def _may_see(caller: Access, view: View) -> bool:
    """Whether a caller can see a timer.

    Callers see their own timers within their scopes, timers of the application if they manage its
    queue, and all timers with the scope `operate`.
    """
    if caller.may("operate", view.id):
        return True
    if view.caller:
        return caller.may("timer", view.id)
    target = view.timer.spec.target
    return caller.may("manage", target.queue if isinstance(target, Send) else WEBHOOKS)


@contextmanager
def refused_as(code: str) -> Iterator[None]:
    """Give input errors without a specific code this one."""
    try:
        yield
    except BadInput as error:
        if error.code != "bad_request":
            raise
        raise BadInput(error.message, code=code) from error


def _target(call: Call, asked: api.CreateTimer) -> Target:
    target = target_of(
        asked.queue,
        asked.url,
        asked.endpoint,
        body=asked.body,
        headers=asked.headers,
        append_id=asked.append_id,
        retry=asked.retry,
        options=given_options(asked),
        method=asked.method,
        on_failure=asked.on_failure,
    )
    if isinstance(target, Send):
        insist_on_entry(call.app.node, call.caller, "send", target.queue)
    return target


async def _insist_on_receivers(
    call: Call, target: Target, owner: str, tx: Transaction | None = None
) -> None:
    """Raise `no_such_endpoint`, `not_allowed` or `BadInput` for receivers that cannot be called."""
    if isinstance(target, Send):
        return
    if not target.url:
        await _insist_on_url(call, target.endpoint, owner, tx)
    failures = target.on_failure
    if failures is None:
        return
    if failures.queue and owner:
        insist_on_entry(call.app.node, call.caller, "send", failures.queue)
    elif failures.endpoint:
        await _insist_on_url(call, failures.endpoint, owner, tx)


async def _insist_on_url(call: Call, id_: str, owner: str, tx: Transaction | None) -> None:
    """Raise `BadInput` for an endpoint that does not exist, or has no URL."""
    if not id_:
        raise BadInput("a timer needs exactly one of queue, url and endpoint; all are missing")
    get = partial(endpoints.get, id_=id_, caller=owner)
    endpoint = await (call.app.store.run(get) if tx is None else get(tx))
    if not endpoint.url:
        raise BadInput(f"endpoint {id_!r} has no url; set one")


def _due_ms(at: int | datetime | None) -> int | None:
    """A time in milliseconds, rounded up so that timers are never early."""
    if isinstance(at, datetime):
        return -((_EPOCH - at) // _MICROSECOND // 1_000)
    return at


@answers(api.DUE)
async def due(call: Call, asked: api.DueTimersQuery) -> api.DueTimers:
    views = await call.app.store.run(lambda tx: call.app.timers.part.agenda(tx, most=asked.limit))
    return api.DueTimers(
        _now_ms(call), [_owned(call, view) for view in views if _may_operate(call.caller, view)]
    )


@answers(api.LIST_ALL)
async def list_all(call: Call, asked: api.FindAllTimers) -> api.AllTimersPage:
    caller, after = call.caller, call.unseal("after", asked.after)
    if not caller.grants.for_any("timer", "operate"):
        return api.AllTimersPage(_now_ms(call), [], None)

    async def read(after: str, most: int) -> list[tuple[str, View]]:
        return await call.app.store.run(
            partial(call.app.timers.part.everyones, after=after, most=most)
        )

    found, next_ = await page_of(
        call.app.store.clock,
        read,
        partial(_may_operate, caller),
        lambda view: asked.state in (UNSET, view.status) and asked.text in view.id,
        after=after,
        limit=asked.limit,
    )
    timers = [_owned(call, view) for view in found]
    return api.AllTimersPage(_now_ms(call), timers, call.seal(next_))


def _may_operate(caller: Access, view: View) -> bool:
    own = view.caller == caller.id and caller.may("timer", view.id)
    return own or caller.may("operate", view.id)


def _owned(call: Call, view: View) -> api.Timer:
    """The response about a timer in a list of all callers."""
    found = shown(view, _now_ms(call), call.caller.id, times=0)
    return msgspec.structs.replace(found, caller=view.caller)


def _now_ms(call: Call) -> int:
    return call.app.store.clock.now_ms()


# The plain form: hours, minutes, seconds and a URL.

_STATUSES: dict[str, str] = {
    "active": "ACTIVE",
    "paused": "ACTIVE",
    "suspended": "ACTIVE",
    "firing": "ACTIVE",
    "success": "SUCCESS",
    "failed": "FAILED",
    "skipped": "FAILED",
    "cancelled": "CANCELLED",
    "ended": "SUCCESS",
}


async def create_plain(server: "Server", request: Request) -> Response:
    call = Call(server, request, server.caller(request))
    call.caller.insist_any(api.CREATE_PLAIN)
    raw = await _json_of(request)
    try:
        asked = parse(raw, api.PlainTimer)
    except BadInput as error:
        if error.code == "not_a_number":  # a number out of range is a delay out of range
            raise BadInput(error.message, code="wrong_type") from error
        raise
    key = idempotency_key(request, None)
    seconds = (asked.hours * 60 + asked.minutes) * 60 + asked.seconds
    with refused_as("bad_timer"):
        spec = Spec(TimerCall(asked.url, append_id=server.append_id), delay_ms=seconds * 1_000)
        view, _ = await _add(call, spec, None, key)
    return Response.of(api.PlainTimerId(view.id))


ROUTES.append(Route.of(api.CREATE_PLAIN, create_plain))


@answers(api.GET_PLAIN)
async def get_plain(call: Call, id_: str) -> api.PlainTimerStatus:
    view = await call.app.timers.get(id_, caller=call.caller.caller)
    left_ms = view.timer.due_ms - _now_ms(call)
    time_left = max(-(-left_ms // 1_000), 0) if view.status == "active" else 0
    return api.PlainTimerStatus(view.id, time_left, _STATUSES[view.status])


@answers(api.CANCEL_PLAIN)
async def cancel_plain(call: Call, id_: str) -> api.PlainTimerStatus:
    view = await call.app.timers.cancel(id_, caller=call.caller.caller)
    return api.PlainTimerStatus(view.id, 0, _STATUSES[view.status])


async def _json_of(request: Request) -> bytes:
    """The body, a JSON object or a form, as JSON. Raises `BadInput`."""
    kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if kind != FORM:
        return await request.body()
    fields = pairs_of(await request.body(kind=FORM), most=20)
    # Not a dict: a repeated field is rejected, as in JSON.
    pairs = [
        encode(name) + b":" + (text.encode() if _WHOLE.fullmatch(text) else encode(text))
        for name, text in fields
    ]
    return b"{" + b",".join(pairs) + b"}"
