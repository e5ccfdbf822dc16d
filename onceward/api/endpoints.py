"""Operations on endpoints: webhook receivers and their secrets."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onceward import limits
from onceward.api.messages import Milliseconds
from onceward.api.operation import Body, Operation, Query
from onceward.api.retries import RetryPolicy, RetryPolicyView
from onceward.api.timers import Firing, ReceiverPause, Timer

_OVERLAP_MS = 24 * 3_600_000
WhenDisabled = Literal["fail", "wait"]


class PutEndpoint(Body, kw_only=True):
    """A receiver of calls."""

    url: str
    """The URL to call."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Sent with every call, beside those of the timer."""
    description: Annotated[str, Meta(max_length=limits.REASON_CHARS_MAX)] = ""
    """A description for people."""
    disabled: bool = False
    """While it is disabled, calls fail at once and can be resent later, or wait."""
    when_disabled: WhenDisabled = "fail"
    """What calls do while it is disabled: fail at once, or wait until it is enabled."""
    retry: RetryPolicy | None = None
    """The default of its calls: `pauses_ms`, `attempts_max`, `timeout_ms`."""
    secret: str | None = None
    """The secret of a new endpoint: whsec_ and 24 to 64 bytes in base64. By default, the server
    generates one."""


class CreateEndpoint(PutEndpoint, kw_only=True):
    """A new receiver of calls."""

    id: str | None = None
    """The id of the endpoint; by default, the server generates one."""


class UpdateEndpoint(Body):
    """Changes to an endpoint; members that are not given stay."""

    url: str | UnsetType = UNSET
    """The URL to call."""
    headers: dict[str, str] | UnsetType = UNSET
    """Headers to send with every call, in place of the current ones."""
    description: Annotated[str, Meta(max_length=limits.REASON_CHARS_MAX)] | UnsetType = UNSET
    """A description for people."""
    disabled: bool | UnsetType = UNSET
    """While it is disabled, calls fail at once and can be resent later, or wait."""
    when_disabled: WhenDisabled | UnsetType = UNSET
    """What calls do while it is disabled: fail at once, or wait until it is enabled."""
    retry: RetryPolicy | UnsetType | None = UNSET
    """The retry policy of its calls: pauses_ms, attempts_max, timeout_ms."""


class RotateSecret(Body):
    """A new secret for signatures."""

    overlap_ms: Annotated[int, Meta(ge=0, le=limits.LEASE_MS_MAX)] = _OVERLAP_MS
    """How long calls are also signed with the previous secret."""
    secret: str | None = None
    """The new secret; by default, the server generates one. The same one again changes nothing."""


class EndpointSecret(msgspec.Struct, omit_defaults=True):
    """A secret that calls are signed with."""

    secret: str
    until_ms: int | None = None
    """When it expires, once there is a newer one."""


class EndpointHealth(msgspec.Struct, omit_defaults=True):
    """The outcome of the last calls."""

    failing: bool
    since: str | None = None
    since_ms: int | None = None
    """Since when; absent before the first failed call."""
    said: str = ""
    """The outcome of the first of them."""


class EndpointRate(msgspec.Struct):
    """The calls since this node started."""

    calls: int
    delivered: int


class Endpoint(msgspec.Struct, omit_defaults=True):
    """An endpoint."""

    id: str
    url: str
    created_ms: int
    disabled: bool
    health: EndpointHealth
    description: str = ""
    when_disabled: str = "fail"
    """`fail` or `wait`."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    retry: RetryPolicyView | None = None
    secrets: list[EndpointSecret] | None = None
    """The valid secrets, the newest first; only with the parameter `secret`."""
    suspended: bool = False
    """Whether calls wait, because its secrets need a server key that this server lacks."""
    rate: EndpointRate | None = None
    """If this node has called it."""
    pause: ReceiverPause | None = None
    """If calls of this node wait because it does not respond."""
    caller: str | None = None
    """Its owner, in a list of all callers."""


class CreatedEndpoint(Endpoint, kw_only=True, omit_defaults=True):
    """A new endpoint, with its secret."""

    duplicate: bool
    """Whether it existed before; then this request has changed nothing."""


class EndpointPage(msgspec.Struct):
    """Endpoints in the order of their ids."""

    endpoints: list[Endpoint]
    next: str | None
    """The cursor of the next page, for the parameter `after`."""


class DeletedEndpoint(msgspec.Struct):
    """An endpoint that was deleted."""

    id: str


class ShowEndpoint(Query):
    """What to show of an endpoint."""

    secret: bool = False
    """Whether to show its secrets."""


class FindEndpoints(Query):
    """Which endpoints to list."""

    after: str = ""
    """The cursor of the next page."""
    limit: Annotated[int, Meta(ge=1, le=limits.LIST_MAX)] = 100
    """The maximum number of entries in the response."""
    everyone: bool = False
    """Whether to list the endpoints of all callers."""


class CreatePortal(Body):
    """A token for the owner of an endpoint."""

    expires_ms: Annotated[int, Meta(ge=limits.PORTAL_MS_MIN, le=limits.PORTAL_MS_MAX)] = (
        limits.PORTAL_MS
    )
    """How long it is valid."""


class Portal(msgspec.Struct):
    """Access to one endpoint: its calls, secret, test and resend."""

    token: str
    """A bearer token with the scope `portal` for this endpoint."""
    path: str
    """The page for people, below the address of the server."""
    until_ms: int
    """When both expire."""


class Delivery(Firing, omit_defaults=True):
    """A call of an endpoint."""

    timer: str = ""
    """The id of its timer."""
    body: Any = None
    """The body of the call. Lists omit it."""


class FindDeliveries(Query):
    """Which calls to list."""

    state: Literal["", "succeeded", "failed", "pending"] = ""
    """Their state: succeeded, failed, or pending; by default, any."""
    after: str = ""
    """The cursor of the next page."""
    limit: Annotated[int, Meta(ge=1, le=limits.FIRINGS_MAX)] = 50
    """The maximum number of entries in the response."""


class DeliveryPage(msgspec.Struct):
    """Calls of an endpoint in the last week, the latest first."""

    deliveries: list[Delivery]
    next: str | None
    """The cursor of the next page, for the parameter `after`."""


class ResendDelivery(Body):
    """The options of a resend."""

    key: Annotated[str, Meta(max_length=limits.SETTLEMENT_KEY_CHARS_MAX)] = ""
    """The idempotency key: a repeated request sends the call once."""


class ResendDeliveries(Body):
    """Which calls of an endpoint to send again."""

    state: Literal["failed", "succeeded", "all"] = "failed"
    """The state of the calls: failed, succeeded, or all that have ended."""
    since_ms: Milliseconds = 0
    """Calls that were due at this time or later, in milliseconds since 1970."""
    after: str = ""
    """The cursor of the next page."""


class ResentDeliveries(msgspec.Struct):
    """The number of calls that are sent again."""

    resent: int
    next: str | None
    """The cursor for the next request; null at the end."""


_OWN = ("no_such_endpoint", "bad_name")
_SPEC = ("bad_name", "bad_endpoint", "bad_url", "address_refused", "bad_secret")

CREATE = Operation(
    name="endpoints.create",
    method="POST",
    path="/v1/endpoints",
    summary="Create an endpoint",
    scope="endpoint:{id of the endpoint}",
    body=CreateEndpoint,
    response=CreatedEndpoint,
    statuses=(202, 200),
    errors=(*_SPEC, "key_reused"),
    fills=("id",),
)

LIST = Operation(
    name="endpoints.list",
    method="GET",
    path="/v1/endpoints",
    summary="List your endpoints, or those of all callers",
    scope="endpoint:{each id} | operate:{each id}",
    query=FindEndpoints,
    response=EndpointPage,
)

GET = Operation(
    name="endpoints.get",
    method="GET",
    path="/v1/endpoints/{id}",
    summary="Show an endpoint",
    scope="portal:{id}",
    query=ShowEndpoint,
    response=Endpoint,
    errors=_OWN,
)

PUT = Operation(
    name="endpoints.put",
    method="PUT",
    path="/v1/endpoints/{id}",
    summary="Create or replace an endpoint, without its secrets",
    scope="endpoint:{id}",
    body=PutEndpoint,
    response=Endpoint,
    errors=_SPEC,
)

UPDATE = Operation(
    name="endpoints.update",
    method="PATCH",
    path="/v1/endpoints/{id}",
    summary="Change an endpoint",
    scope="endpoint:{id}",
    body=UpdateEndpoint,
    response=Endpoint,
    errors=("no_such_endpoint", *_SPEC),
)

DELETE = Operation(
    name="endpoints.delete",
    method="DELETE",
    path="/v1/endpoints/{id}",
    summary="Delete an endpoint",
    scope="endpoint:{id}",
    response=DeletedEndpoint,
    errors=_OWN,
    done_errors=("no_such_endpoint",),
)

ROTATE = Operation(
    name="endpoints.rotate",
    method="POST",
    path="/v1/endpoints/{id}/rotate",
    summary="Replace the secret, with an overlap",
    scope="portal:{id}",
    body=RotateSecret,
    response=Endpoint,
    errors=(*_OWN, "bad_secret"),
    fills=("secret",),
)

TEST = Operation(
    name="endpoints.test",
    method="POST",
    path="/v1/endpoints/{id}/test",
    summary="Send a signed test call",
    scope="portal:{id}",
    headers=("Idempotency-Key",),
    response=Timer,
    statuses=(202,),
    errors=(*_OWN, "bad_endpoint", "bad_key", "key_reused"),
    fills=("Idempotency-Key",),
)

DELIVERIES = Operation(
    name="endpoints.deliveries",
    method="GET",
    path="/v1/endpoints/{id}/deliveries",
    summary="List the calls of an endpoint, the latest first",
    scope="portal:{id}",
    query=FindDeliveries,
    response=DeliveryPage,
    errors=_OWN,
)

GET_DELIVERY = Operation(
    name="endpoints.get_delivery",
    method="GET",
    path="/v1/endpoints/{id}/deliveries/{delivery}",
    summary="Show a call of an endpoint with its body",
    scope="portal:{id}",
    response=Delivery,
    errors=(*_OWN, "no_such_firing"),
)

RESEND = Operation(
    name="endpoints.resend",
    method="POST",
    path="/v1/endpoints/{id}/deliveries/{delivery}/resend",
    summary="Resend a call, with the same id",
    scope="portal:{id}",
    body=ResendDelivery,
    body_optional=True,
    fills=("key",),
    response=Delivery,
    errors=(*_OWN, "no_such_firing", "not_failed"),
)

RESEND_MANY = Operation(
    name="endpoints.resend_many",
    method="POST",
    path="/v1/endpoints/{id}/resend",
    summary="Resend failed calls of an endpoint, or others",
    scope="portal:{id}",
    body=ResendDeliveries,
    body_optional=True,
    response=ResentDeliveries,
    errors=_OWN,
)

CREATE_PORTAL = Operation(
    name="endpoints.create_portal",
    method="POST",
    path="/v1/endpoints/{id}/portal",
    summary="Create a link and a token for an endpoint's owner",
    scope="endpoint:{id}",
    body=CreatePortal,
    body_optional=True,
    response=Portal,
    errors=(*_OWN, "bad_endpoint"),
)

REVOKE_PORTALS = Operation(
    name="endpoints.revoke_portals",
    method="DELETE",
    path="/v1/endpoints/{id}/portal",
    summary="Revoke all portal links and tokens of an endpoint",
    scope="endpoint:{id}",
    response=Endpoint,
    errors=_OWN,
)
