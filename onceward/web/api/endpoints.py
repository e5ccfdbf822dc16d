"""HTTP functions for endpoints: webhook receivers and their secrets."""

from contextlib import suppress
from functools import partial

import msgspec
from msgspec import UNSET

from onceward import keys, limits
from onceward.api import endpoints as api
from onceward.api.timers import ReceiverPause
from onceward.callers import Caller
from onceward.errors import BadInput, KeyReused, NoSuchEndpoint, NoSuchFiring, NotFailed
from onceward.observe.paging import page_of
from onceward.schedule import ENDED
from onceward.store import Transaction
from onceward.web import portal
from onceward.web.api.inbox import idempotency_key
from onceward.web.api.timer_views import masked, moment, shown_delivery
from onceward.web.api.timer_views import shown as shown_timer
from onceward.web.api.timers import refused_as
from onceward.web.auth import Access, PortalPass
from onceward.web.calls import Call, binder
from onceward.web.http import Response
from onceward.web.routes import Route
from onceward.webhooks import endpoints, signing
from onceward.webhooks.endpoints import DEFAULT, Endpoint, Health
from onceward.webhooks.http.headers import admit_headers
from onceward.webhooks.timers import Call as TimerCall
from onceward.webhooks.timers import Spec, firings
from onceward.webhooks.timers.firings import Firing

ROUTES: list[Route] = []
answers = binder(ROUTES)


@answers(api.CREATE)
async def create(call: Call, asked: api.CreateEndpoint) -> Response:
    caller = call.caller
    id_ = call.app.store.ids.new() if asked.id is None else asked.id
    caller.insist("endpoint", id_)
    _admit(call, asked.url, asked.headers)
    secret = _secret(call, asked.secret)

    async def fn(tx: Transaction) -> tuple[Endpoint, bool]:
        try:
            known = await endpoints.get(tx, id_, caller=caller.id)
        except NoSuchEndpoint:
            return await _put(tx, caller, id_, asked, secret), False
        if not _same(known, asked, secret):
            raise KeyReused(
                f"the id {id_[:200]!r} belongs to a different endpoint; choose another id",
                id=id_[:200],
            )
        return known, True

    with refused_as("bad_endpoint"):
        endpoint, duplicate = await call.app.store.run(fn)
    members = msgspec.structs.asdict(shown(id_, endpoint, _now_ms(call)))
    made = api.CreatedEndpoint(**members, duplicate=duplicate)
    return Response.of(made, 200 if duplicate else 202)


@answers(api.PUT)
async def put(call: Call, id_: str, asked: api.PutEndpoint) -> api.Endpoint:
    _admit(call, asked.url, asked.headers)
    secret = _secret(call, asked.secret)
    with refused_as("bad_endpoint"):
        endpoint = await call.app.store.run(lambda tx: _put(tx, call.caller, id_, asked, secret))
    return shown(id_, endpoint)


@answers(api.UPDATE)
async def update(call: Call, id_: str, asked: api.UpdateEndpoint) -> api.Endpoint:
    async def fn(tx: Transaction) -> Endpoint:
        known = await _find(call, tx, id_)
        endpoints.insist_readable(id_, known)
        spec = api.PutEndpoint(
            url=known.url if asked.url is UNSET else asked.url,
            headers=known.headers if asked.headers is UNSET else asked.headers,
            description=known.description if asked.description is UNSET else asked.description,
            disabled=known.disabled if asked.disabled is UNSET else asked.disabled,
            retry=known.retry if asked.retry is UNSET else asked.retry,
            when_disabled=_when(known) if asked.when_disabled is UNSET else asked.when_disabled,
        )
        if spec.url or id_ != DEFAULT:
            call.app.timers.admit_url(spec.url)
        admit_headers(spec.headers)
        return await _put(tx, call.caller, id_, spec, known.secrets[0].text)

    with refused_as("bad_endpoint"):
        endpoint = await call.app.store.run(fn)
    return shown(id_, endpoint)


@answers(api.GET)
async def get(call: Call, id_: str, asked: api.ShowEndpoint) -> api.Endpoint:
    endpoint = await call.app.store.run(lambda tx: _find(call, tx, id_))
    found = _for(call.caller, shown(id_, endpoint, _now_ms(call) if asked.secret else None))
    return _rated(call, _owner(call).id, found)


@answers(api.LIST)
async def list_(call: Call, asked: api.FindEndpoints) -> api.EndpointPage:
    caller, limit = call.caller, asked.limit
    after = call.unseal("after", asked.after)
    if asked.everyone:
        return await _everyones(call, after, limit)
    found = await call.app.store.run(
        lambda tx: endpoints.all_of(tx, caller=caller.id, after=after, most=limit)
    )
    return api.EndpointPage(
        [
            _rated(call, caller.id, shown(id_, one))
            for id_, one in found
            if caller.may("endpoint", id_)
        ],
        call.seal(found[-1][0] if len(found) == limit else None),
    )


async def _everyones(call: Call, after: str, limit: int) -> api.EndpointPage:
    caller = call.caller
    if not caller.grants.for_any("operate"):
        return api.EndpointPage([], None)

    async def read(after: str, most: int) -> list[tuple[str, tuple[str, str, Endpoint]]]:
        found = await call.app.store.run(partial(endpoints.everyones, after=after, most=most))
        return [(keys.join(*one[:2]), one) for one in found]

    found, next_ = await page_of(
        call.app.store.clock,
        read,
        lambda one: caller.may("operate", one[1]),
        after=after,
        limit=limit,
    )
    page = api.EndpointPage([], call.seal(next_))
    for owner, id_, endpoint in found:
        view = _rated(call, owner, shown(id_, endpoint))
        if owner != caller.id:
            view.headers = masked(view.headers)
        view.caller = owner
        page.endpoints.append(view)
    return page


def _rated(call: Call, owner: str, view: api.Endpoint) -> api.Endpoint:
    delivery = call.app.delivery
    rate = delivery.rates.get((owner, view.id)) if delivery is not None else None
    if rate is not None:
        view.rate = api.EndpointRate(rate.calls, rate.delivered)
    pause = delivery.pause_of(owner, view.id, view.url) if delivery is not None else None
    if pause is not None:
        view.pause = ReceiverPause(*pause)
    return view


@answers(api.DELETE)
async def delete(call: Call, id_: str) -> api.DeletedEndpoint:
    await call.app.store.run(lambda tx: endpoints.remove(tx, id_, caller=call.caller.id))
    return api.DeletedEndpoint(id_)


@answers(api.ROTATE)
async def rotate(call: Call, id_: str, asked: api.RotateSecret) -> api.Endpoint:
    secret = _secret(call, asked.secret)

    async def fn(tx: Transaction) -> Endpoint:
        await _find(call, tx, id_)
        return await endpoints.rotate(
            tx, id_, secret, overlap_ms=asked.overlap_ms, caller=_owner(call).id
        )

    return _for(call.caller, shown(id_, await call.app.store.run(fn), _now_ms(call)))


def _for(caller: Access, view: api.Endpoint) -> api.Endpoint:
    """The response for a caller, who sees values of headers with the scope `endpoint` only."""
    if not caller.may("endpoint", view.id):
        view.headers = masked(view.headers)
    return view


@answers(api.DELIVERIES)
async def deliveries(call: Call, id_: str, asked: api.FindDeliveries) -> api.DeliveryPage:
    endpoint = await call.app.store.run(lambda tx: _own(call, tx, id_))
    found, next_ = await page_of(
        call.app.store.clock,
        partial(_calls, call, id_),
        lambda one: _shows(call, endpoint, one),
        lambda one: asked.state in ("", _state(one)),
        after=call.unseal("after", asked.after),
        limit=asked.limit,
    )
    return api.DeliveryPage([shown_delivery(one) for one in found], call.seal(next_))


async def _calls(call: Call, id_: str, after: str, most: int) -> list[tuple[str, Firing]]:
    read = partial(
        firings.of_endpoint, caller=_owner(call).id, endpoint=id_, after=after, most=most
    )
    return [(one.id, one) for one in await call.app.store.run(read)]


async def _delivery(call: Call, tx: Transaction, id_: str, delivery: str) -> Firing:
    """A call of an endpoint. Raises `NoSuchFiring`, and the errors of `_own`."""
    endpoint = await _own(call, tx, id_)
    found = await firings.find(tx, _owner(call).id, id_, delivery)
    if not _shows(call, endpoint, found):
        raise NoSuchFiring(
            f"endpoint {id_!r} has no call {delivery[:100]!r}; see the list of its calls",
            id=delivery[:100],
        )
    return found


def _shows(call: Call, endpoint: Endpoint, firing: Firing) -> bool:
    """Whether the caller may see a call: a portal token is not for calls of a deleted endpoint
    with the same id, which may have been that of someone else."""
    return call.caller.portal is None or firing.record.fired_ms >= endpoint.created_ms


def _state(firing: Firing) -> str:
    if firing.job is None or firing.job.stage == "succeeded":
        return "succeeded"  # a job that is not kept any longer has succeeded
    return "failed" if firing.job.stage in ENDED else "pending"


@answers(api.GET_DELIVERY)
async def get_delivery(call: Call, id_: str, delivery: str) -> api.Delivery:
    async def fn(tx: Transaction) -> Firing:
        return await _delivery(call, tx, id_, delivery)

    return shown_delivery(await call.app.store.run(fn), body=True)


@answers(api.RESEND)
async def resend(call: Call, id_: str, delivery: str, asked: api.ResendDelivery) -> api.Delivery:
    caller, by = _owner(call).id, call.caller.id

    async def fn(tx: Transaction) -> Firing:
        known = await _delivery(call, tx, id_, delivery)
        new_id = await call.app.timers.part.resend(tx, caller, known, by=by, key=asked.key)
        return await firings.find(tx, caller, id_, new_id)

    return shown_delivery(await call.app.store.run(fn))


@answers(api.RESEND_MANY)
async def resend_many(call: Call, id_: str, asked: api.ResendDeliveries) -> api.ResentDeliveries:
    """Resend the calls of one page, each in a commit of its own: some may have changed since."""
    caller, by, resent = _owner(call).id, call.caller.id, 0
    endpoint = await call.app.store.run(lambda tx: _own(call, tx, id_))
    found = await _calls(call, id_, call.unseal("after", asked.after), limits.FIRINGS_MAX)
    wanted = ("succeeded", "failed") if asked.state == "all" else (asked.state,)
    for _, known in found:
        if known.record.due_ms < asked.since_ms or _state(known) not in wanted:
            continue
        if not _shows(call, endpoint, known):
            continue
        if known.record.resent and asked.state != "failed":
            continue  # a repetition of a call that is in the list itself

        async def fn(tx: Transaction, known: Firing = known) -> None:
            now = await firings.find(tx, caller, id_, known.id)
            await call.app.timers.part.resend(tx, caller, now, by=by)

        with suppress(NotFailed, NoSuchFiring):
            await call.app.store.run(fn)
            resent += 1
    next_ = found[-1][0] if len(found) == limits.FIRINGS_MAX else None
    return api.ResentDeliveries(resent, call.seal(next_))


@answers(api.TEST)
async def test(call: Call, id_: str) -> Response:
    """Send a test call through a timer that is due now, with one attempt."""
    caller = _owner(call)
    endpoint = await call.app.store.run(lambda tx: _own(call, tx, id_))
    if not endpoint.url:
        raise BadInput(f"endpoint {id_!r} has no url; set one", code="bad_endpoint")
    target = TimerCall(endpoint=id_, body={"type": "test", "endpoint": id_}, attempts_max=1)
    key = idempotency_key(call.request, None)
    # Keys of a portal token are separate from those of the endpoint's owner.
    timer = None if key is None else call.app.timers.id_for(key, caller=call.caller.id)
    view = await call.app.timers.put(Spec(target, delay_ms=0), timer, caller=caller, replace=False)
    return Response.of(shown_timer(view, _now_ms(call), caller.id), 202)


def _now_ms(call: Call) -> int:
    return call.app.store.clock.now_ms()


def _admit(call: Call, url: str, headers: dict[str, str]) -> None:
    with refused_as("bad_endpoint"):
        admit_headers(headers)
    call.app.timers.admit_url(url)


def _secret(call: Call, given: str | None) -> str:
    if given is None:
        return signing.new_secret(call.app.store.ids)
    return signing.admit_secret(given)


async def _put(
    tx: Transaction, caller: Access, id_: str, asked: api.PutEndpoint, secret: str
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
        waits=asked.when_disabled == "wait",
    )


def _when(endpoint: Endpoint) -> api.WhenDisabled:
    return "wait" if endpoint.waits else "fail"


async def _find(call: Call, tx: Transaction, id_: str) -> Endpoint:
    """Return the caller's endpoint. The endpoint that signs calls to plain URLs is created on first
    use."""
    try:
        return await _own(call, tx, id_)
    except NoSuchEndpoint:
        if id_ != DEFAULT or call.caller.portal is not None:
            raise
        secret = signing.new_secret(call.app.store.ids)
        return await endpoints.put(tx, id_, "", secret, caller=call.caller.id)


def _owner(call: Call) -> Caller:
    """The caller to whom the endpoint of a call belongs."""
    given = call.caller.portal
    return call.caller.caller if given is None else Caller.parse(given.caller)


async def _own(call: Call, tx: Transaction, id_: str) -> Endpoint:
    """The endpoint of a caller, or of a portal token. Raises `NoSuchEndpoint`, `no_credentials`."""
    endpoint = await endpoints.get(tx, id_, caller=_owner(call).id)
    given = call.caller.portal
    now = (endpoint.portals, endpoint.created_ms)
    if given is not None and (given.number, given.created_ms) != now:
        raise BadInput("this portal link was revoked; ask for a new one", code="no_credentials")
    return endpoint


@answers(api.CREATE_PORTAL)
async def create_portal(call: Call, id_: str, asked: api.CreatePortal) -> api.Portal:
    endpoint = await call.app.store.run(lambda tx: _own(call, tx, id_))
    if not endpoint.url:
        raise BadInput(f"endpoint {id_!r} has no url; set one", code="bad_endpoint")
    until_ms = _now_ms(call) + asked.expires_ms
    given = PortalPass(call.caller.id, id_, endpoint.portals, endpoint.created_ms, until_ms)
    token = portal.sign(call.app.store.server_keys, given)
    return api.Portal(token, f"/portal#token={token}", until_ms)


@answers(api.REVOKE_PORTALS)
async def revoke_portals(call: Call, id_: str) -> api.Endpoint:
    async def fn(tx: Transaction) -> Endpoint:
        await endpoints.revoke_portals(tx, id_, caller=call.caller.id)
        return await _own(call, tx, id_)

    return shown(id_, await call.app.store.run(fn))


def _same(known: Endpoint, asked: api.CreateEndpoint, secret: str) -> bool:
    asked_for = (asked.url, asked.headers, asked.description, asked.disabled, asked.retry)
    is_known = (known.url, known.headers, known.description, known.disabled, known.retry)
    if asked_for != is_known or asked.when_disabled != _when(known):
        return False
    return asked.secret is None or secret == known.secrets[0].text


def shown(id_: str, endpoint: Endpoint, secrets_at_ms: int | None = None) -> api.Endpoint:
    """The response about an endpoint for its owner; with a time, it includes the secrets valid
    then."""
    found = api.Endpoint(
        id_, endpoint.url, endpoint.created_ms, endpoint.disabled, _health(endpoint.health)
    )
    found.description = endpoint.description
    found.suspended = endpoint.suspended
    found.headers = endpoint.headers
    found.retry = endpoint.retry
    found.when_disabled = _when(endpoint)
    if secrets_at_ms is not None:
        found.secrets = [
            api.EndpointSecret(secret.text, secret.until_ms)
            for secret in endpoint.secrets
            if secret.until_ms is None or secret.until_ms > secrets_at_ms
        ]
    return found


def _health(health: Health) -> api.EndpointHealth:
    if not health.since_ms:
        return api.EndpointHealth(health.failing)
    return api.EndpointHealth(health.failing, moment(health.since_ms), health.since_ms, health.said)
