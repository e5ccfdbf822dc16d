"""Endpoints: destinations of webhook calls and their signing secrets.

Secrets and header values are encrypted with the server key, each bound to its record. An endpoint
whose secrets cannot be decrypted, because the server key is missing, is suspended: its calls wait.

A replaced secret stays valid for a while beside the new one, so that receivers have time to change
it. Calls to plain URLs are signed with the secrets of the caller's endpoint `default`, which has no
URL and is created on demand.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from onceward import keys, limits
from onceward.api.retries import RetryPolicy
from onceward.errors import BadInput, NoSuchEndpoint, SecretUnreadable
from onceward.keys import Key
from onceward.schedule import is_whole
from onceward.store.transaction import Transaction
from onceward.webhooks import signing
from onceward.webhooks.http.headers import admit_headers
from onceward.webhooks.retries import admit_policy

DEFAULT = "default"
ENDPOINTS = "endpoint"
"""The partition of all endpoints."""


class Secret(msgspec.Struct, omit_defaults=True):
    """A signing secret."""

    text: str
    until_ms: int | None = None
    """When it expires, once a newer secret exists."""


class Health(msgspec.Struct, omit_defaults=True):
    """The health of recent calls; written when it changes."""

    failing: bool = False
    since_ms: int = 0
    said: str = ""
    """A summary of the last call."""


class Endpoint(msgspec.Struct, omit_defaults=True):
    """A receiver of webhook calls."""

    url: str
    secrets: list[Secret]
    """The newest secret first."""
    created_ms: int
    headers: dict[str, str] = {}
    description: str = ""
    disabled: bool = False
    """Whether calls fail immediately, or wait if `waits`."""
    retry: RetryPolicy | None = None
    """The default for calls of timers without a retry policy."""
    waits: bool = False
    """Whether calls wait while the endpoint is disabled."""
    portals: int = 0
    """A number that portal tokens of the endpoint repeat; it changes when they are revoked."""
    health: Health = msgspec.field(default_factory=Health)
    suspended: bool = False
    """Whether its secrets or headers cannot be decrypted here; not stored."""

    def secrets_at(self, now_ms: int) -> list[str]:
        """The secrets that are valid at a time."""
        return [s.text for s in self.secrets if s.until_ms is None or s.until_ms > now_ms]


def endpoint_key(caller: str, id_: str) -> Key:
    """The key of an endpoint. Raises `BadInput` for an invalid id."""
    keys.admit_name(id_, "an endpoint's id", limits.ENDPOINT_ID_BYTES_MAX)
    if type(caller) is not str:
        raise BadInput(f"a caller's id must be text, not {type(caller).__name__}", code="bad_name")
    return ENDPOINTS, keys.join(caller, id_)


async def put(
    tx: Transaction,
    id_: str,
    url: str,
    secret: str,
    *,
    caller: str = "",
    headers: dict[str, str] | None = None,
    description: str = "",
    disabled: bool = False,
    retry: RetryPolicy | None = None,
    waits: bool = False,
) -> Endpoint:
    """Create an endpoint, or update one and keep its secrets. `secret` is used for a new endpoint.

    Raises `BadInput`. Each call checks whether the URL is allowed.
    """
    key = endpoint_key(caller, id_)
    signing.admit_secret(secret)
    if type(url) is not str or type(description) is not str:
        kinds = f"{type(url).__name__} and {type(description).__name__}"
        raise BadInput(f"the url and description of an endpoint must be text, not {kinds}")
    for name, value in (("disabled", disabled), ("waits", waits)):
        if type(value) is not bool:
            raise BadInput(f"{name} must be true or false, not {value!r}")
    admit_headers({} if headers is None else headers)
    if retry is not None:
        admit_policy(retry)
    if not url and id_ != DEFAULT:
        raise BadInput(f"the endpoint {id_!r} needs a url; only {DEFAULT!r} has none")
    known = await tx.get(key, Endpoint)
    endpoint = None if known is None else _decrypted(tx, caller, id_, known)
    if endpoint is None:
        endpoint = Endpoint(url, [Secret(secret)], tx.now_ms)
    elif endpoint.suspended:  # unreadable secrets are replaced by the given ones
        endpoint.suspended, endpoint.secrets = False, [Secret(secret)]
    endpoint.url = url
    endpoint.headers = headers or {}
    endpoint.description = description[: limits.REASON_CHARS_MAX]
    endpoint.disabled = disabled
    endpoint.retry = retry
    endpoint.waits = waits
    tx.put(key, _encrypted(tx, caller, id_, endpoint))
    return endpoint


async def get(tx: Transaction, id_: str, *, caller: str = "") -> Endpoint:
    """Return an endpoint. Raises `NoSuchEndpoint`."""
    endpoint = await tx.get(endpoint_key(caller, id_), Endpoint)
    if endpoint is None:
        raise NoSuchEndpoint(
            f"endpoint {id_!r} not found; check its id, or create it",
            id=id_,
        )
    return _decrypted(tx, caller, id_, endpoint)


async def rotate(
    tx: Transaction, id_: str, secret: str, *, overlap_ms: int, caller: str = ""
) -> Endpoint:
    """Replace the signing secret; the previous one stays valid for `overlap_ms`.

    Raises `NoSuchEndpoint`, `BadInput`.
    """
    signing.admit_secret(secret)
    if not is_whole(overlap_ms) or not 0 <= overlap_ms <= limits.LEASE_MS_MAX:
        raise BadInput(f"overlap_ms must be 0 to {limits.LEASE_MS_MAX}, not {overlap_ms!r}")
    endpoint = await get(tx, id_, caller=caller)
    insist_readable(id_, endpoint)
    if secret != endpoint.secrets[0].text:  # a repeated call changes nothing
        newest = Secret(endpoint.secrets[0].text, tx.now_ms + overlap_ms)
        endpoint.secrets = [Secret(secret), newest]
        tx.put(endpoint_key(caller, id_), _encrypted(tx, caller, id_, endpoint))
    return endpoint


async def revoke_portals(tx: Transaction, id_: str, *, caller: str = "") -> None:
    """Revoke the portal tokens of an endpoint. Raises `NoSuchEndpoint`."""
    key = endpoint_key(caller, id_)
    endpoint = await tx.get(key, Endpoint)
    if endpoint is None:
        raise NoSuchEndpoint(f"endpoint {id_!r} not found; check its id, or create it", id=id_)
    endpoint.portals += 1
    tx.put(key, endpoint)


async def reencrypt(tx: Transaction, id_: str, *, caller: str = "") -> bool:
    """Encrypt the secrets of an endpoint with the first server key. Returns False if they are
    unreadable. Idempotent."""
    key = endpoint_key(caller, id_)
    known = await tx.get(key, Endpoint)
    if known is None:
        return True
    texts = [*(secret.text for secret in known.secrets), *known.headers.values()]
    if not all(map(tx.server_keys.is_current, texts)):
        endpoint = _decrypted(tx, caller, id_, known)
        if endpoint.suspended:
            return False
        tx.put(key, _encrypted(tx, caller, id_, endpoint))
    return True


def insist_readable(id_: str, endpoint: Endpoint) -> None:
    """Raise `SecretUnreadable` for a suspended endpoint."""
    if endpoint.suspended:
        raise SecretUnreadable(
            f"endpoint {id_!r} is suspended: its secrets are encrypted with a server key that "
            "this server does not have. Add that key to ONCEWARD_SERVER_KEY_FILE, or create "
            "the endpoint again (PUT, or DELETE and POST)",
            id=id_,
        )


def _encrypted(tx: Transaction, caller: str, id_: str, endpoint: Endpoint) -> Endpoint:
    """An endpoint in its stored form."""
    return _each(tx.server_keys.encrypt, caller, id_, endpoint)


def _decrypted(tx: Transaction, caller: str, id_: str, stored: Endpoint) -> Endpoint:
    """A decrypted endpoint; suspended and without secrets if it is unreadable."""
    try:
        return _each(tx.server_keys.decrypt, caller, id_, stored)
    except SecretUnreadable:
        return replace(stored, secrets=[], headers={}, suspended=True)


def _each(change: Callable[..., str], caller: str, id_: str, endpoint: Endpoint) -> Endpoint:
    place = (ENDPOINTS, caller, id_)
    return replace(
        endpoint,
        secrets=[replace(one, text=change(one.text, *place, "secret")) for one in endpoint.secrets],
        headers={
            name: change(value, *place, "header", name) for name, value in endpoint.headers.items()
        },
    )


async def remove(tx: Transaction, id_: str, *, caller: str = "") -> None:
    """Delete an endpoint. Raises `NoSuchEndpoint`."""
    await get(tx, id_, caller=caller)
    tx.delete(endpoint_key(caller, id_))


async def transfer(tx: Transaction, id_: str, *, caller: str, to: str) -> bool:
    """Transfer an endpoint with its secrets to another caller.

    Returns False if that caller has an endpoint with this id, or the secrets are unreadable.
    Idempotent.
    """
    known = await tx.get(endpoint_key(caller, id_), Endpoint)
    if known is None:
        return True
    endpoint = _decrypted(tx, caller, id_, known)
    if endpoint.suspended or await tx.get(endpoint_key(to, id_), Endpoint) is not None:
        return False
    tx.delete(endpoint_key(caller, id_))
    tx.put(endpoint_key(to, id_), _encrypted(tx, to, id_, endpoint))
    return True


async def all_of(
    tx: Transaction, *, caller: str = "", after: str = "", most: int
) -> list[tuple[str, Endpoint]]:
    """Return the endpoints of a caller, ordered by id, starting after `after`."""
    start, end = keys.below(caller)
    if after:
        start = max(start, keys.after(keys.join(caller, after)))
    rows = await tx.scan(ENDPOINTS, Endpoint, start=start, end=end, limit=most, skip_damaged=True)
    ids = [(keys.split(row.key[1])[1], row.value) for row in rows]
    return [(id_, _decrypted(tx, caller, id_, stored)) for id_, stored in ids]


async def everyones(
    tx: Transaction, *, after: str = "", most: int
) -> list[tuple[str, str, Endpoint]]:
    """Return the endpoints of all callers, each with caller and id, starting after a sort key."""
    start = keys.after(after) if after else ""
    rows = await tx.scan(ENDPOINTS, Endpoint, start=start, limit=most, skip_damaged=True)
    found = [(*_names(row.key[1]), row.value) for row in rows]
    return [(caller, id_, _decrypted(tx, caller, id_, stored)) for caller, id_, stored in found]


def _names(sort: str) -> tuple[str, str]:
    caller, id_ = keys.split(sort)
    return caller, id_


async def note(tx: Transaction, id_: str, *, failing: bool, said: str, caller: str = "") -> None:
    """Record that calls have started to fail, or to succeed."""
    endpoint = await tx.get(endpoint_key(caller, id_), Endpoint)
    if endpoint is not None and endpoint.health.failing != failing:
        endpoint.health = Health(failing, tx.now_ms, said[:200])
        tx.put(endpoint_key(caller, id_), endpoint)
