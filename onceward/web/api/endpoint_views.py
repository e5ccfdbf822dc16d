"""Endpoints as their owners describe them, and as they see them."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onceward import limits
from onceward.web.api.timer_views import PauseView, moment
from onceward.webhooks.endpoints import Endpoint, Health
from onceward.webhooks.retries import RetryPolicy

_OVERLAP_MS = 24 * 3_600_000


class EndpointSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A receiver of calls."""

    url: str
    headers: dict[str, str] = {}
    """Sent with every call, beside those of the timer."""
    description: Annotated[str, Meta(max_length=limits.REASON_CHARS_MAX)] = ""
    disabled: bool = False
    """While it is, what is due for it fails at once, and can be sent again later."""
    retry: RetryPolicy | None = None
    """Of calls whose timers do not specify it: pauses_ms, attempts_max, timeout_ms."""
    secret: str | None = None
    """Of a new one: whsec_ and 24 to 64 bytes in base64. If none is given, one is made up."""


class NewEndpoint(EndpointSpec, kw_only=True, omit_defaults=True):
    """A new receiver of calls."""

    id: str | None = None
    """If none is given, one is made up."""


class EndpointChange(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is to be different; the rest stays."""

    url: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=limits.REASON_CHARS_MAX)] | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET
    retry: RetryPolicy | UnsetType | None = UNSET


class Rotate(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A new secret to sign with."""

    overlap_ms: Annotated[int, Meta(ge=0, le=limits.LEASE_MS_MAX)] = _OVERLAP_MS
    """How long the one before signs, too."""
    secret: str | None = None
    """If none is given, one is made up. With the same one again, nothing changes."""


class SecretView(msgspec.Struct, omit_defaults=True):
    """A secret that calls are signed with."""

    secret: str
    until_ms: int | UnsetType = UNSET
    """How long it counts, once there is a newer one."""


class HealthView(msgspec.Struct, omit_defaults=True):
    """How the last calls went."""

    failing: bool
    since: str | UnsetType = UNSET
    since_ms: int | UnsetType = UNSET
    """Since when; not there before the first call that failed."""
    said: str | UnsetType = UNSET
    """What the first of them came to."""


class RateView(msgspec.Struct):
    """How calls went, since this node began."""

    calls: int
    delivered: int


class EndpointView(msgspec.Struct, omit_defaults=True):
    """An endpoint as it is now."""

    id: str
    url: str
    made_ms: int
    disabled: bool
    health: HealthView
    description: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    retry: RetryPolicy | UnsetType = UNSET
    secrets: list[SecretView] | UnsetType = UNSET
    """Those that count now, the newest first; only if asked for."""
    suspended: bool = False
    """Whether calls wait, since its secrets need a server key that this server does not have."""
    rate: RateView | UnsetType = UNSET
    """If this node has called it."""
    pause: PauseView | UnsetType = UNSET
    """If calls of this node wait since it does not answer."""
    caller: str | UnsetType = UNSET
    """Whose it is, in a list of everyone's."""


class EndpointMade(EndpointView, kw_only=True, omit_defaults=True):
    """A new endpoint, with its secret."""

    duplicate: bool
    """Whether it was made before; then this request has changed nothing."""


class EndpointPage(msgspec.Struct):
    """Endpoints in the order of their ids."""

    endpoints: list[EndpointView]
    next: str | None
    """For the parameter after of the next request; None: there are no more."""


class Removed(msgspec.Struct):
    """What is there no more."""

    id: str


def shown(id_: str, endpoint: Endpoint, secrets_at_ms: int | None = None) -> EndpointView:
    """What its owner is shown of an endpoint, with the secrets that count at a time if one is
    given."""
    found = EndpointView(
        id_, endpoint.url, endpoint.made_ms, endpoint.disabled, _health(endpoint.health)
    )
    found.description = endpoint.description or UNSET
    found.suspended = endpoint.suspended
    found.headers = endpoint.headers or UNSET
    found.retry = endpoint.retry or UNSET
    if secrets_at_ms is not None:
        found.secrets = [
            SecretView(secret.text, UNSET if secret.until_ms is None else secret.until_ms)
            for secret in endpoint.secrets
            if secret.until_ms is None or secret.until_ms > secrets_at_ms
        ]
    return found


def _health(health: Health) -> HealthView:
    if not health.since_ms:
        return HealthView(health.failing)
    return HealthView(health.failing, moment(health.since_ms), health.since_ms, health.said)
