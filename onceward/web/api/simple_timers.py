"""Timers in the plain form: hours, minutes, seconds and a URL; and how long it still takes."""

import re
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta
from msgspec.json import encode

from onceward.errors import BadInput
from onceward.web.api.inbox import idempotency_key
from onceward.web.api.timers import NEW, add, refused_as
from onceward.web.bodies import parse
from onceward.web.http import Request, Response
from onceward.web.routes import FORM, Route
from onceward.webhooks.timers import Call, Spec

if TYPE_CHECKING:
    from onceward.web.server import Server

_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
Whole = Annotated[int, Meta(ge=0)]
Status = Literal["ACTIVE", "SUCCESS", "FAILED", "CANCELLED"]

_STATUSES: dict[str, Status] = {
    "active": "ACTIVE",
    "suspended": "ACTIVE",
    "firing": "ACTIVE",
    "success": "SUCCESS",
    "failed": "FAILED",
    "skipped": "FAILED",
    "cancelled": "CANCELLED",
    "ended": "SUCCESS",
}


class PlainTimer(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A POST to a URL, so much later."""

    hours: Whole
    minutes: Whole
    seconds: Whole
    url: str


class PlainSet(msgspec.Struct):
    """A timer that was set."""

    id: str


class PlainView(msgspec.Struct):
    """A timer as it is now."""

    id: str
    time_left: int
    """In whole seconds; 0 once it is due."""
    status: Status


async def set_(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    raw = await _read(request)
    try:
        asked = parse(raw, PlainTimer)
    except BadInput as error:
        if error.code == "not_a_number":  # too large a one, which is no other mistake than large
            raise BadInput(error.message, code="wrong_type") from error
        raise
    key = idempotency_key(request, None)
    seconds = (asked.hours * 60 + asked.minutes) * 60 + asked.seconds
    with refused_as("bad_timer"):
        spec = Spec(Call(asked.url, append_id=server.append_id), delay_ms=seconds * 1_000)
        view, _ = await add(server, caller, spec, None, key)
    return Response.of(PlainSet(view.id))


async def get(server: "Server", request: Request) -> Response:
    caller, id_ = server.caller(request), request.parameters["id"]
    caller.insist("timer", id_)
    view = await server.app.timers.get(id_, caller=caller.caller)
    left_ms = view.timer.due_ms - server.app.store.clock.now_ms()
    time_left = max(-(-left_ms // 1_000), 0) if view.status == "active" else 0
    return Response.of(PlainView(view.id, time_left, _STATUSES[view.status]))


async def cancel(server: "Server", request: Request) -> Response:
    caller, id_ = server.caller(request), request.parameters["id"]
    caller.insist("timer", id_)
    view = await server.app.timers.cancel(id_, caller=caller.caller)
    return Response.of(PlainView(view.id, 0, _STATUSES[view.status]))


async def _read(request: Request) -> bytes:
    """The body as JSON, also that of a form. Raises `BadInput`."""
    kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
    if kind != FORM:
        return await request.body()
    raw = await request.body(kind=FORM)
    try:
        fields = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20
        )
    except ValueError as error:
        raise BadInput(f"the form is not valid: {error}", code="not_text") from error
    # Not as a dict: a field that is there twice is refused, as in JSON.
    pairs = [
        encode(name) + b":" + (text.encode() if _WHOLE.fullmatch(text) else encode(text))
        for name, text in fields
    ]
    return b"{" + b",".join(pairs) + b"}"


ROUTES = [
    Route(
        "POST",
        "/timers",
        set_,
        "Set a timer, in the plain form",
        takes=PlainTimer,
        forms=True,
        gives=PlainSet,
        problems=NEW,
        headers=("Idempotency-Key",),
    ),
    Route(
        "GET",
        "/timers/{id}",
        get,
        "A timer as it is, in the plain form",
        gives=PlainView,
        problems=("no_such_timer", "bad_name"),
    ),
    Route(
        "DELETE",
        "/timers/{id}",
        cancel,
        "Cancel a timer, in the plain form",
        gives=PlainView,
        problems=("no_such_timer", "bad_name", "already_ended"),
    ),
]
