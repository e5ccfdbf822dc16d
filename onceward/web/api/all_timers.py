"""The agenda: the timers of all callers, for those who look after them. Who is no operator sees
its own."""

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from onceward.observe.paging import page_of
from onceward.web.api.timer_views import TimerView, shown
from onceward.web.auth import Access
from onceward.web.cursors import seal, unseal
from onceward.web.http import Request, Response, whole
from onceward.web.routes import Route
from onceward.webhooks.timers import View

if TYPE_CHECKING:
    from onceward.web.server import Server

_MOST = 200


class Agenda(msgspec.Struct):
    """Timers that are due next, the first one first."""

    now_ms: int
    timers: list[TimerView]


class AgendaPage(msgspec.Struct):
    """Timers by caller and id."""

    now_ms: int
    timers: list[TimerView]
    next: str | None
    """For the parameter after of the next request; None: there are no more."""


async def due(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    query = request.query(["limit"])
    limit = whole("limit", query.get("limit", "50"), 1, _MOST)
    views = await server.app.store.run(lambda tx: server.app.timers.part.agenda(tx, most=limit))
    now_ms = server.app.store.clock.now_ms()
    return Response.of(
        Agenda(now_ms, [_shown(caller, view, now_ms) for view in views if _may(caller, view)])
    )


async def all_(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    query = request.query(["state", "text", "after", "limit"])
    limit = whole("limit", query.get("limit", "50"), 1, _MOST)
    after = unseal(server, request, "after", query.get("after"))
    state, text = query.get("state"), query.get("text", "")
    clock = server.app.store.clock
    now_ms = clock.now_ms()
    if not caller.grants.for_any("timer", "operate"):
        return Response.of(AgendaPage(now_ms, [], None))

    async def read(after: str, most: int) -> list[tuple[str, View]]:
        return await server.app.store.run(
            partial(server.app.timers.part.everyones, after=after, most=most)
        )

    found, next_ = await page_of(
        clock,
        read,
        partial(_may, caller),
        lambda view: state in (None, view.status) and text in view.id,
        after=after,
        limit=limit,
    )
    shown_ = [_shown(caller, view, now_ms) for view in found]
    return Response.of(AgendaPage(now_ms, shown_, seal(server, request, next_)))


def _may(caller: Access, view: View) -> bool:
    own = view.caller == caller.id and caller.may("timer", view.id)
    return own or caller.may("operate", view.id)


def _shown(caller: Access, view: View, now_ms: int) -> TimerView:
    found = shown(view, now_ms, caller.id, times=0)
    found.caller = view.caller
    return found


ROUTES = [
    Route(
        "GET",
        "/v1/agenda",
        due,
        "Timers of all callers that are due next",
        gives=Agenda,
        query=("limit",),
    ),
    Route(
        "GET",
        "/v1/agenda/timers",
        all_,
        "Timers of all callers, by state or what their ids contain",
        gives=AgendaPage,
        query=("state", "text", "after", "limit"),
    ),
]
