"""Suspended callers: their timers do not fire and their webhook calls wait, until an operator
resumes them or transfers what they have to another caller."""

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from onceward import keys, limits
from onceward.callers import Caller
from onceward.errors import BadInput
from onceward.store.transaction import Transaction
from onceward.web.bodies import parse
from onceward.web.http import Request, Response
from onceward.web.routes import Route
from onceward.webhooks import endpoints, suspensions
from onceward.webhooks.suspensions import Suspension

if TYPE_CHECKING:
    from onceward.web.server import Server


class SuspendedCaller(msgspec.Struct, omit_defaults=True):
    """A caller whose last key was removed."""

    caller: str
    since_ms: int
    by: str
    to: str = ""
    """The caller that has its timers and endpoints now."""


class SuspendedList(msgspec.Struct):
    callers: list[SuspendedCaller]


class Resumed(msgspec.Struct):
    caller: str
    timers: int
    """How many timers go on."""


class Transfer(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """To which caller timers and endpoints are transferred."""

    to: str
    """Its id, as in `key:billing`."""


class Transferred(msgspec.Struct):
    """What another caller has now."""

    caller: str
    to: str
    timers: int
    endpoints: int
    kept: list[str]
    """Ids of timers and endpoints that stay where they are, since `to` has others with these
    ids: some of them."""


async def list_(server: "Server", request: Request) -> Response:
    server.caller(request).insist_all()

    async def fn(tx: Transaction) -> list[SuspendedCaller]:
        rows = await tx.scan(suspensions.PARTITION, Suspension, limit=limits.LIST_MAX)
        return [
            SuspendedCaller(
                keys.split(row.key[1])[0], row.value.since_ms, row.value.by, row.value.to
            )
            for row in rows
        ]

    return Response.of(SuspendedList(await server.app.store.run(fn)))


async def suspend(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    caller.insist_all()
    id_ = _named(request.parameters["id"])

    async def fn(tx: Transaction) -> SuspendedCaller:
        await suspensions.suspend(tx, id_, caller.id)
        known = await suspensions.get(tx, id_)
        assert known is not None
        return SuspendedCaller(id_, known.since_ms, known.by, known.to)

    return Response.of(await server.app.store.run(fn))


async def resume(server: "Server", request: Request) -> Response:
    server.caller(request).insist_all()
    id_ = _named(request.parameters["id"])
    await server.app.store.run(partial(suspensions.resume, caller=id_))
    return Response.of(Resumed(id_, await server.app.timers.resume(id_)))


async def transfer(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    caller.insist_all()
    id_, to = _named(request.parameters["id"]), _named(parse(await request.body(), Transfer).to)
    if id_ == to:
        raise BadInput(f"{id_!r} has these already; name another caller in `to`")
    store = server.app.store
    await store.run(partial(suspensions.transfer, caller=id_, to=to, by=caller.id))
    timers, kept = await server.app.timers.transfer(id_, to)
    moved, after = 0, ""
    while True:
        found = await store.run(
            partial(endpoints.all_of, caller=id_, after=after, most=limits.PAGE_JOBS)
        )
        for endpoint, _ in found:
            after = endpoint
            if await store.run(partial(endpoints.transfer, id_=endpoint, caller=id_, to=to)):
                moved += 1
            else:
                kept.append(endpoint)
        if len(found) < limits.PAGE_JOBS:
            return Response.of(Transferred(id_, to, timers, moved, kept[: limits.LIST_MAX]))


def _named(id_: str) -> str:
    """The id of a caller that can be suspended. Raises `BadInput`."""
    caller = Caller.parse(id_)
    if not caller.id:
        raise BadInput(
            "the application itself cannot be suspended; name a caller, as in key:billing",
            code="bad_name",
        )
    return caller.id


ROUTES = [
    Route("GET", "/v1/callers/suspended", list_, "Suspended callers", gives=SuspendedList),
    Route(
        "POST",
        "/v1/callers/{id}/suspend",
        suspend,
        "Suspend a caller: its timers and webhook calls wait",
        gives=SuspendedCaller,
        problems=("bad_name",),
    ),
    Route(
        "POST",
        "/v1/callers/{id}/resume",
        resume,
        "Resume a suspended caller",
        gives=Resumed,
        problems=("bad_name",),
    ),
    Route(
        "POST",
        "/v1/callers/{id}/transfer",
        transfer,
        "Transfer a caller's timers and endpoints to another caller",
        takes=Transfer,
        gives=Transferred,
        problems=("bad_name",),
    ),
]
