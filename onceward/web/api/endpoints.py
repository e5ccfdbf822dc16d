"""Endpoints: where timers call, and the secrets by which receivers know who calls."""

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from onceward import keys, limits
from onceward.errors import BadInput, KeyReused, NoSuchEndpoint
from onceward.observe.paging import page_of
from onceward.store.transaction import Transaction
from onceward.web.api.endpoint_views import (
    EndpointChange,
    EndpointMade,
    EndpointPage,
    EndpointSpec,
    EndpointView,
    NewEndpoint,
    RateView,
    Removed,
    Rotate,
    shown,
)
from onceward.web.api.inbox import idempotency_key
from onceward.web.api.timer_views import PauseView, TimerView, masked
from onceward.web.api.timer_views import shown as shown_timer
from onceward.web.api.timers import refused_as
from onceward.web.auth import Access
from onceward.web.bodies import parse
from onceward.web.cursors import seal, unseal
from onceward.web.http import Request, Response, truth, whole
from onceward.web.routes import Route
from onceward.webhooks import endpoints, signing
from onceward.webhooks.endpoints import DEFAULT, Endpoint
from onceward.webhooks.http.headers import admit_headers
from onceward.webhooks.timers import Call, Spec

if TYPE_CHECKING:
    from onceward.web.server import Server


async def make(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    asked = parse(await request.body(), NewEndpoint)
    id_ = server.app.store.ids.new() if asked.id is None else asked.id
    caller.insist("endpoint", id_)
    _admit(server, asked.url, asked.headers)
    secret = _secret(server, asked.secret)

    async def fn(tx: Transaction) -> tuple[Endpoint, bool]:
        try:
            known = await endpoints.get(tx, id_, caller=caller.id)
        except NoSuchEndpoint:
            return await _put(tx, caller, id_, asked, secret), False
        if not _same(known, asked, secret):
            raise KeyReused(f"another endpoint has the id {id_[:200]!r}", id=id_[:200])
        return known, True

    with refused_as("bad_endpoint"):
        endpoint, duplicate = await server.app.store.run(fn)
    members = msgspec.structs.asdict(shown(id_, endpoint, _now_ms(server)))
    return Response.of(EndpointMade(**members, duplicate=duplicate), 200 if duplicate else 202)


async def put(server: "Server", request: Request) -> Response:
    caller, id_ = _own(server, request)
    asked = parse(await request.body(), EndpointSpec)
    _admit(server, asked.url, asked.headers)
    secret = _secret(server, asked.secret)
    with refused_as("bad_endpoint"):
        endpoint = await server.app.store.run(lambda tx: _put(tx, caller, id_, asked, secret))
    return Response.of(shown(id_, endpoint))


async def change(server: "Server", request: Request) -> Response:
    caller, id_ = _own(server, request)
    asked = parse(await request.body(), EndpointChange)

    async def fn(tx: Transaction) -> Endpoint:
        known = await _find(server, tx, caller, id_)
        endpoints.insist_readable(id_, known)
        spec = EndpointSpec(
            url=known.url if asked.url is UNSET else asked.url,
            headers=known.headers if asked.headers is UNSET else asked.headers,
            description=known.description if asked.description is UNSET else asked.description,
            disabled=known.disabled if asked.disabled is UNSET else asked.disabled,
            retry=known.retry if asked.retry is UNSET else asked.retry,
        )
        if spec.url or id_ != DEFAULT:
            server.app.timers.admit_url(spec.url)
        admit_headers(spec.headers)
        return await _put(tx, caller, id_, spec, known.secrets[0].text)

    with refused_as("bad_endpoint"):
        endpoint = await server.app.store.run(fn)
    return Response.of(shown(id_, endpoint))


async def get(server: "Server", request: Request) -> Response:
    caller, id_ = _own(server, request)
    with_secret = truth("secret", request.query(["secret"]).get("secret", "false"))
    endpoint = await server.app.store.run(lambda tx: _find(server, tx, caller, id_))
    found = shown(id_, endpoint, _now_ms(server) if with_secret else None)
    return Response.of(_rated(server, caller.id, found))


async def list_(server: "Server", request: Request) -> Response:
    caller = server.caller(request)
    query = request.query(["after", "limit", "everyone"])
    limit = whole("limit", query.get("limit", "100"), 1, limits.LIST_MAX)
    after = unseal(server, request, "after", query.get("after"))
    everyone = truth("everyone", query.get("everyone", "false"))
    if everyone:
        return await _everyones(server, request, after, limit)
    found = await server.app.store.run(
        lambda tx: endpoints.all_of(tx, caller=caller.id, after=after, most=limit)
    )
    return Response.of(
        EndpointPage(
            [
                _rated(server, caller.id, shown(id_, one))
                for id_, one in found
                if caller.may("endpoint", id_)
            ],
            seal(server, request, found[-1][0] if len(found) == limit else None),
        )
    )


async def _everyones(server: "Server", request: Request, after: str, limit: int) -> Response:
    caller = server.caller(request)
    if not caller.grants.for_any("operate"):
        return Response.of(EndpointPage([], None))

    async def read(after: str, most: int) -> list[tuple[str, tuple[str, str, Endpoint]]]:
        found = await server.app.store.run(partial(endpoints.everyones, after=after, most=most))
        return [(keys.join(*one[:2]), one) for one in found]

    found, next_ = await page_of(
        server.app.store.clock,
        read,
        lambda one: caller.may("operate", one[1]),
        after=after,
        limit=limit,
    )
    page = EndpointPage([], seal(server, request, next_))
    for owner, id_, endpoint in found:
        view = _rated(server, owner, shown(id_, endpoint))
        if owner != caller.id:
            view.headers = masked(view.headers)
        view.caller = owner
        page.endpoints.append(view)
    return Response.of(page)


def _rated(server: "Server", owner: str, view: EndpointView) -> EndpointView:
    delivery = server.app.delivery
    rate = delivery.rates.get((owner, view.id)) if delivery is not None else None
    if rate is not None:
        view.rate = RateView(rate.calls, rate.delivered)
    pause = delivery.pause_of(owner, view.id, view.url) if delivery is not None else None
    if pause is not None:
        view.pause = PauseView(*pause)
    return view


async def remove(server: "Server", request: Request) -> Response:
    caller, id_ = _own(server, request)
    await server.app.store.run(lambda tx: endpoints.remove(tx, id_, caller=caller.id))
    return Response.of(Removed(id_))


async def rotate(server: "Server", request: Request) -> Response:
    caller, id_ = _own(server, request)
    asked = parse(await request.body(), Rotate)
    secret = _secret(server, asked.secret)

    async def fn(tx: Transaction) -> Endpoint:
        await _find(server, tx, caller, id_)
        return await endpoints.rotate(
            tx, id_, secret, overlap_ms=asked.overlap_ms, caller=caller.id
        )

    return Response.of(shown(id_, await server.app.store.run(fn), _now_ms(server)))


async def test(server: "Server", request: Request) -> Response:
    """Send a call that says it is a test, by a timer that is due now and tried once."""
    caller, id_ = _own(server, request)
    endpoint = await server.app.store.run(lambda tx: endpoints.get(tx, id_, caller=caller.id))
    if not endpoint.url:
        raise BadInput(f"the endpoint {id_!r} has no url to be called", code="bad_endpoint")
    call = Call(endpoint=id_, body={"type": "test", "endpoint": id_}, attempts_max=1)
    key = idempotency_key(request, None)
    view = await server.app.timers.put(Spec(call, delay_ms=0), key=key, caller=caller.caller)
    return Response.of(shown_timer(view, _now_ms(server), caller.id), 202)


def _now_ms(server: "Server") -> int:
    return server.app.store.clock.now_ms()


def _own(server: "Server", request: Request) -> tuple[Access, str]:
    """Who asks, and for which endpoint. Those of others are not there for it."""
    caller, id_ = server.caller(request), request.parameters["id"]
    caller.insist("endpoint", id_)
    return caller, id_


def _admit(server: "Server", url: str, headers: dict[str, str]) -> None:
    with refused_as("bad_endpoint"):
        admit_headers(headers)
    server.app.timers.admit_url(url)


def _secret(server: "Server", given: str | None) -> str:
    if given is None:
        return signing.new_secret(server.app.store.ids)
    return signing.admit_secret(given)


async def _put(
    tx: Transaction, caller: Access, id_: str, asked: EndpointSpec, secret: str
) -> Endpoint:
    return await endpoints.put(
        tx,
        id_,
        asked.url,
        secret,
        caller=caller.id,
        headers=asked.headers,
        description=asked.description,
        disabled=asked.disabled,
        retry=asked.retry,
    )


async def _find(server: "Server", tx: Transaction, caller: Access, id_: str) -> Endpoint:
    """One's endpoint. That which signs calls to bare URLs is there once it is asked for."""
    try:
        return await endpoints.get(tx, id_, caller=caller.id)
    except NoSuchEndpoint:
        if id_ != DEFAULT:
            raise
        secret = signing.new_secret(server.app.store.ids)
        return await endpoints.put(tx, id_, "", secret, caller=caller.id)


def _same(known: Endpoint, asked: NewEndpoint, secret: str) -> bool:
    asked_for = (asked.url, asked.headers, asked.description, asked.disabled, asked.retry)
    is_known = (known.url, known.headers, known.description, known.disabled, known.retry)
    return asked_for == is_known and (asked.secret is None or secret == known.secrets[0].text)


_OWN = ("no_such_endpoint", "bad_name")
_SPEC = ("bad_name", "bad_endpoint", "bad_url", "address_refused", "bad_secret")

ROUTES = [
    Route(
        "POST",
        "/v1/endpoints",
        make,
        "Make an endpoint",
        takes=NewEndpoint,
        gives=EndpointMade,
        statuses=(202, 200),
        problems=(*_SPEC, "key_reused"),
    ),
    Route(
        "GET",
        "/v1/endpoints",
        list_,
        "One's endpoints, by their ids",
        gives=EndpointPage,
        query=("after", "limit", "everyone"),
    ),
    Route(
        "GET",
        "/v1/endpoints/{id}",
        get,
        "An endpoint as it is",
        gives=EndpointView,
        problems=_OWN,
        query=("secret",),
    ),
    Route(
        "PUT",
        "/v1/endpoints/{id}",
        put,
        "Make an endpoint, or change all of it but its secrets",
        takes=EndpointSpec,
        gives=EndpointView,
        problems=_SPEC,
    ),
    Route(
        "PATCH",
        "/v1/endpoints/{id}",
        change,
        "Change some of an endpoint",
        takes=EndpointChange,
        gives=EndpointView,
        problems=("no_such_endpoint", *_SPEC),
    ),
    Route(
        "DELETE",
        "/v1/endpoints/{id}",
        remove,
        "Forget an endpoint",
        gives=Removed,
        problems=_OWN,
    ),
    Route(
        "POST",
        "/v1/endpoints/{id}/rotate",
        rotate,
        "Sign with a new secret, and for a while with the one before, too",
        takes=Rotate,
        gives=EndpointView,
        problems=(*_OWN, "bad_secret"),
    ),
    Route(
        "POST",
        "/v1/endpoints/{id}/test",
        test,
        "Send a signed test call",
        gives=TimerView,
        statuses=(202,),
        problems=(*_OWN, "bad_endpoint", "bad_key", "key_reused"),
        headers=("Idempotency-Key",),
    ),
]
